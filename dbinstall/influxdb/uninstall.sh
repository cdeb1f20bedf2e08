#!/usr/bin/env bash
# Remove InfluxDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

if [ "$VARIANT" = local ]; then
  step kubectl delete --ignore-not-found --cascade=foreground statefulset/influxdb service/influxdb
else
  # The chart keeps its volume by itself.
  release_delete influxdb
fi
volumes
