#!/usr/bin/env bash
# Remove QuestDB; its data only with --delete-volumes.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin uninstall "$@"

# The StatefulSet's volume stays.
release_delete questdb
volumes
