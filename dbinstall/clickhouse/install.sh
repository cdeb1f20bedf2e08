#!/usr/bin/env bash
# ClickHouse by Altinity's operator: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
# https://github.com/Altinity/clickhouse-operator/blob/0.27.3/docs/operator_installation_details.md
# It watches its own namespace only.
operator clickhouseinstallations.clickhouse.altinity.com "$NAMESPACE" \
  clickhouse-operator https://helm.altinity.com altinity-clickhouse-operator 0.27.3
manifest "$TOPOLOGY"
await clickhouseinstallation.clickhouse.altinity.com/benchmark \
  --for 'jsonpath={.status.status}=Completed'
