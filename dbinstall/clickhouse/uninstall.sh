#!/usr/bin/env bash
# Remove ClickHouse; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
step kubectl delete clickhouseinstallation.clickhouse.altinity.com benchmark --ignore-not-found
# Of one node there is none.
step kubectl delete clickhousekeeperinstallation.clickhouse-keeper.altinity.com benchmark \
  --ignore-not-found
volumes
