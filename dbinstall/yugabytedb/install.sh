#!/usr/bin/env bash
# YugabyteDB by Yugabyte's chart: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
own_secret yugabytedb-passwords Opaque \
  "ysqlPassword: $PASSWORD_BASE64" "ycqlPassword: $PASSWORD_BASE64"
chart yugabytedb https://charts.yugabyte.com yugabyte 2026.1.0 "$TOPOLOGY"
