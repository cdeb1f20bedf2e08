#!/usr/bin/env bash
# Remove PostgreSQL; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

if [ "$VARIANT" = local ]; then
  step kubectl delete --ignore-not-found --cascade=foreground statefulset/postgresql service/postgresql-rw
else
  cloudnative_pg_delete postgresql
fi
volumes
