#!/usr/bin/env bash
# Remove Elasticsearch; its data only with --delete-volumes. The operator stays: others may use it.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
step kubectl delete elasticsearch.elasticsearch.k8s.elastic.co elasticsearch --ignore-not-found
volumes
