#!/usr/bin/env bash
# PostgreSQL by CloudNativePG, or `--variant local` without an operator: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password

if [ "$VARIANT" = local ]; then
  manifest local.yaml
  rolled_out statefulset/postgresql
else
  # https://github.com/cloudnative-pg/charts
  operator clusters.postgresql.cnpg.io cnpg-system \
    cnpg https://cloudnative-pg.github.io/charts cloudnative-pg 0.29.1
  own_secret postgresql-owner kubernetes.io/basic-auth \
    "username: $(b64 benchmark)" "password: $PASSWORD_BASE64"
  manifest "$TOPOLOGY"
  await cluster.postgresql.cnpg.io/postgresql --for condition=Ready
fi
