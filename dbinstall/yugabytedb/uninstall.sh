#!/usr/bin/env bash
# Remove YugabyteDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"
release_delete yugabytedb
volumes
