#!/usr/bin/env bash
# ArangoDB by kube-arangodb: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
# https://github.com/arangodb/kube-arangodb/blob/1.4.5/docs/using-the-operator.md
# It watches its own namespace only.
operator arangodeployments.database.arangodb.com "$NAMESPACE" \
  kube-arangodb https://arangodb.github.io/kube-arangodb kube-arangodb 1.4.5
own_secret arangodb-root Opaque "username: $(b64 root)" "password: $PASSWORD_BASE64"
manifest "$TOPOLOGY"
await arangodeployment.database.arangodb.com/arangodb --for condition=Ready
