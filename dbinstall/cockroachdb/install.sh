#!/usr/bin/env bash
# CockroachDB by Cockroach Labs' chart: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
chart cockroachdb https://charts.cockroachdb.com cockroachdb 21.0.4 "$TOPOLOGY"
