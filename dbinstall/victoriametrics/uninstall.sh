#!/usr/bin/env bash
# Remove VictoriaMetrics; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

# The chart's StatefulSet leaves its volume.
release_delete victoriametrics
volumes
