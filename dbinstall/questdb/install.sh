#!/usr/bin/env bash
# QuestDB by its vendor's chart: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
own_secret questdb-admin Opaque "http-password: $PASSWORD_BASE64" "pg-password: $PASSWORD_BASE64"

chart questdb https://helm.questdb.io questdb 1.0.21 single-node.yaml
