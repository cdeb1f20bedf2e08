#!/usr/bin/env bash
# InfluxDB 2 by InfluxData's chart, or `--variant local` without one: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret token
own_secret influxdb-admin Opaque \
  "admin-token: $PASSWORD_BASE64" "admin-password: $(b64 "$(random_text)")"

if [ "$VARIANT" = local ]; then
  manifest local.yaml
  rolled_out statefulset/influxdb
else
  chart influxdb https://helm.influxdata.com influxdb2 2.1.2 single-node.yaml
fi
