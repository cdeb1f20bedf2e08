#!/usr/bin/env bash
# Remove CockroachDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
release_delete cockroachdb
volumes
