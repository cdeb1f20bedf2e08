#!/usr/bin/env bash
# Remove Cassandra; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

if [ "$VARIANT" = local ]; then
  step kubectl delete --ignore-not-found --cascade=foreground statefulset/cassandra \
    service/cassandra-dc1-service service/cassandra-nodes
else
  step kubectl delete cassandradatacenter.cassandra.datastax.com dc1 --ignore-not-found
fi
volumes
