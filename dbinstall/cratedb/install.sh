#!/usr/bin/env bash
# CrateDB by plain manifests: see README.md for why not its operator.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
manifest "$TOPOLOGY"
rolled_out statefulset/cratedb
# Within its pod the superuser needs no password. The statements go through standard input.
sql_in_pod cratedb-0 "DROP USER IF EXISTS benchmark; CREATE USER benchmark WITH (password = '$PASSWORD');
  GRANT ALL PRIVILEGES TO benchmark;" crash --hosts http://localhost:4200 --username crate
