#!/usr/bin/env bash
# Remove TimescaleDB; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

cloudnative_pg_delete timescaledb
volumes
