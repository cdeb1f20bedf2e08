#!/usr/bin/env bash
# Cassandra by cass-operator, or `--variant local` without an operator: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password

if [ "$VARIANT" = local ]; then
  manifest local.yaml
  rolled_out statefulset/cassandra
else
  # https://github.com/k8ssandra/cass-operator#installing-the-operator-with-helm
  # Its admission webhook needs cert-manager, which nothing else here needs.
  operator cassandradatacenters.cassandra.datastax.com cass-operator \
    cass-operator https://helm.k8ssandra.io/stable cass-operator 0.65.0 \
    --set global.clusterScoped=true --set admissionWebhooks.enabled=false
  own_secret cassandra-superuser Opaque \
    "username: $(b64 benchmark)" "password: $PASSWORD_BASE64"
  manifest "$TOPOLOGY"
  await cassandradatacenter.cassandra.datastax.com/dc1 --for condition=Ready
fi
