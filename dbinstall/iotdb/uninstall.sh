#!/usr/bin/env bash
# Remove Apache IoTDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
step kubectl delete --ignore-not-found --cascade=foreground statefulset/iotdb service/iotdb service/iotdb-nodes
volumes
