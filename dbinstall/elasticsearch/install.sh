#!/usr/bin/env bash
# Elasticsearch by Elastic Cloud on Kubernetes (ECK): see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
# https://www.elastic.co/docs/deploy-manage/deploy/cloud-on-k8s/install-using-helm-chart
operator elasticsearches.elasticsearch.k8s.elastic.co elastic-system \
  elastic-operator https://helm.elastic.co eck-operator 3.5.0
own_secret elasticsearch-user kubernetes.io/basic-auth "username: $(b64 benchmark)" \
  "password: $PASSWORD_BASE64" "roles: $(b64 superuser)"
manifest "$TOPOLOGY"
await elasticsearch.elasticsearch.k8s.elastic.co/elasticsearch \
  --for 'jsonpath={.status.phase}=Ready'
