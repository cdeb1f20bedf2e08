#!/usr/bin/env bash
# TimescaleDB by CloudNativePG: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password

# https://github.com/cloudnative-pg/charts
operator clusters.postgresql.cnpg.io cnpg-system \
  cnpg https://cloudnative-pg.github.io/charts cloudnative-pg 0.29.1
own_secret timescaledb-owner kubernetes.io/basic-auth \
  "username: $(b64 benchmark)" "password: $PASSWORD_BASE64"
manifest "$TOPOLOGY"
await cluster.postgresql.cnpg.io/timescaledb --for condition=Ready
