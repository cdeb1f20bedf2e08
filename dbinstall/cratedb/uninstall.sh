#!/usr/bin/env bash
# Remove CrateDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
step kubectl delete --ignore-not-found --cascade=foreground statefulset/cratedb service/cratedb service/cratedb-nodes
volumes
