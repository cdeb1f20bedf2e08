#!/usr/bin/env bash
# Apache IoTDB by plain manifests: see README.md for why not its chart or operator.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
manifest "$TOPOLOGY"
rolled_out statefulset/iotdb
# The password that every new server has is refused once it has been changed: then there is nothing to do. The
# statement goes through standard input.
sql_in_pod iotdb-0 "ALTER USER root SET PASSWORD '$PASSWORD';" \
  bash -c "/iotdb/sbin/start-cli.sh -h \"\$dn_rpc_address\" -u root -pw root || true"
