#!/usr/bin/env bash
# Remove ArangoDB; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

if [ "$DELETE_VOLUMES" ]; then
  step kubectl delete arangodeployment.database.arangodb.com arangodb --ignore-not-found
else
  # The volumes belong to the deployment and would go with it; orphaned, they stay. A new deployment has
  # members of other names, and doesn't take them up.
  step kubectl delete arangodeployment.database.arangodb.com arangodb --cascade=orphan \
    --ignore-not-found
  step kubectl delete pod,service --selector arango_deployment=arangodb --ignore-not-found
fi
volumes
