# shellcheck shell=bash
# What all install.sh and uninstall.sh share. Sourced, not run.
#
# A recipe is written once and used three ways: --plan prints the commands, --render the manifests and
# values that they send, and without either they are run. Passwords go through pipes and Secrets only:
# never through an argument, which every process on the machine could read.
set -euo pipefail

DBINSTALL=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FOLDER=$(cd "$(dirname "$0")" && pwd)
DATABASE=$(basename "$FOLDER")
# On every pod of a database, and on the Secret of its target: `db status` and the chart's keepAwayFrom
# find them by it.
LABEL=iot-database-benchmark/database

# shellcheck source=/dev/null
. "$FOLDER/recipe.env"
# shellcheck source=dbinstall/settings.env
. "$DBINSTALL/settings.env"

usage() {
  # shellcheck disable=SC2153 # VARIANTS and NODES are of recipe.env.
  cat <<TEXT
usage: ${0##*/} [--context NAME] [--namespace NAME] [--variant ${VARIANTS// /|}]
          [--nodes ${NODES// /|}] [--size default|small] [--storage-class NAME] [--image IMAGE]
          [--timeout SECONDS] [--delete-volumes] [--plan | --render]
TEXT
}

fail() {
  echo "error: $*" >&2
  exit 1
}

# Reads the options. $1: install or uninstall.
begin() {
  local verb=$1 installed
  shift
  MODE=run CONTEXT='' NAMESPACE=default SIZE=default TIMEOUT=900 DELETE_VOLUMES='' IMAGE=''
  NODE_COUNT='' VARIANT=''
  # Until the Secret is read; --render shows this one.
  PASSWORD=password PASSWORD_BASE64=cGFzc3dvcmQ=
  while [ $# -gt 0 ]; do
    case $1 in
      --context) CONTEXT=$2 && shift ;;
      --namespace) NAMESPACE=$2 && shift ;;
      --nodes) NODE_COUNT=$2 && shift ;;
      --size) SIZE=$2 && shift ;;
      --variant) VARIANT=$2 && shift ;;
      --storage-class) STORAGE_CLASS=$2 && shift && check_storage_class ;;
      --image) IMAGE=$2 && shift ;;
      --timeout) TIMEOUT=$2 && shift ;;
      --delete-volumes) DELETE_VOLUMES=yes ;;
      --plan) MODE=plan ;;
      --render) MODE=render ;;
      --help | -h) usage && exit 0 ;;
      *) usage >&2 && exit 2 ;;
    esac
    shift
  done
  if [ "$MODE" = run ]; then
    command -v kubectl >/dev/null ||
      fail "kubectl is not installed: https://kubernetes.io/docs/tasks/tools/"
  fi
  if [ -z "$VARIANT" ] && [ "$verb" = uninstall ]; then
    installed=$(cluster kubectl get secret "$SECRET" --ignore-not-found \
      --output 'jsonpath={.metadata.annotations.iot-database-benchmark/variant}')
    [ "$installed" ] || fail "$DATABASE is not installed in namespace $NAMESPACE (no Secret $SECRET)"
    VARIANT=$installed
  fi
  VARIANT=${VARIANT:-${VARIANTS%% *}}
  # What a recipe is installed with if nobody says otherwise; `local` may have nodes of its own.
  if [ "$VARIANT" = local ]; then NODES=${LOCAL_NODES:-$NODES} RIGHTS=${LOCAL_RIGHTS:-}; fi
  NODE_COUNT=${NODE_COUNT:-${NODES%% *}}
  one_of "$VARIANT" "$VARIANTS" "variant"
  if [ "$NODES" = 1 ] && [ "$NODE_COUNT" != 1 ]; then
    fail "$DATABASE can have one node only (variant $VARIANT)"
  fi
  one_of "$NODE_COUNT" "$NODES" "number of nodes"
  one_of "$SIZE" "default small" "size"
  # shellcheck source=/dev/null
  . "$FOLDER/$SIZE.env"
  # shellcheck disable=SC2034 # TOPOLOGY is for install.sh.
  if [ "$NODE_COUNT" = 1 ]; then TOPOLOGY=single-node.yaml; else TOPOLOGY=multi-node.yaml; fi
  if [ "$VARIANT" = local ]; then
    IMAGE=${IMAGE:-$LOCAL_IMAGE}
    # What else it had would become a part of the manifest.
    case $IMAGE in *[!A-Za-z0-9._/:@-]*) fail "--image: that is no name of an image" ;; esac
    VOLUMES=$LABEL=$DATABASE
  elif [ "$IMAGE" ]; then
    fail "$DATABASE: an image can be chosen for --variant local only; else it is in $TOPOLOGY"
  fi
  if [ "$MODE" = run ]; then need_own; fi
  if [ "$verb" = install ]; then
    if [ "$MODE" = plan ]; then describe; fi
    if [ "$MODE" = run ]; then
      need_storage_class
      trap explain_failure EXIT
    fi
  fi
}

# What has a name that is used here must be this tool's, which has a label: else it would be changed or deleted.
need_own() {
  local file=$TOPOLOGY found kept others=() claims='' name
  if [ "$VARIANT" = local ]; then file=local.yaml; fi
  kept=$(cluster kubectl get secret "$SECRET" --ignore-not-found --output name)
  found=$kept
  if grep '^kind:' "$FOLDER/$file" >/dev/null; then
    name=$(rendered "$FOLDER/$file" |
      cluster kubectl get --filename - --ignore-not-found --output name 2>&1) ||
      case $name in
        *"no matches for kind"*) name='' ;; # Its operator isn't there yet.
        *) fail "$name" ;;
      esac
    found+=" $name"
  elif need_helm && name=$(cluster helm get values "$DATABASE" --namespace "$NAMESPACE" 2>/dev/null); then
    case $name in *"$LABEL"*) ;; *) others+=("release/$DATABASE") ;; esac
  fi
  # A StatefulSet takes up volumes by their names. With those that an operator has labelled goes the Secret.
  if [ "$VOLUMES" = "$LABEL=$DATABASE" ]; then
    claims=$(cluster kubectl get persistentvolumeclaim --output name)
    found+=" $(grep -E -- "-$DATABASE-[0-9]+\$" <<<"$claims" || true)"
  elif [ -z "$kept" ]; then
    claims=$(cluster kubectl get persistentvolumeclaim --selector "$VOLUMES" --output name)
    # shellcheck disable=SC2206 # Its words.
    others+=($claims)
  fi
  for name in $found; do
    is_own "$name" || others+=("$name")
  done
  [ ${#others[@]} = 0 ] ||
    fail "namespace $NAMESPACE has ${others[*]}, which this tool did not make, so nothing was changed:" \
      "use another --namespace, or remove it yourself"
}

is_own() { # kind/name
  # Not grep --quiet: kubectl would fail at a pipe that nobody reads.
  cluster kubectl get "$1" --output yaml | grep "$LABEL: $DATABASE" >/dev/null
}

# What else it had would become a part of the manifest. Empty: volumes that are there, of no class.
check_storage_class() {
  case $STORAGE_CLASS in
    '') STORAGE_CLASS='""' ;;
    *[!a-z0-9.-]*) fail "--storage-class: that is no name of a storage class" ;;
  esac
}

# Without one the pods would wait for their volumes until the time is over.
need_storage_class() {
  local path classes names
  [ "$STORAGE_CLASS" != '""' ] || return 0
  path='{range .items[*]}{.metadata.name}'
  path+='={.metadata.annotations.storageclass\.kubernetes\.io/is-default-class} {end}'
  # Not everybody may ask.
  classes=$(cluster kubectl get storageclass --output "jsonpath=$path" 2>/dev/null) || return 0
  names=$(sed 's/=[^ ]*//g; s/ $//' <<<"$classes")
  if [ "$STORAGE_CLASS" != null ]; then
    # Volumes that were made by hand may have a class of which there is no object.
    case " $names " in
      *" $STORAGE_CLASS "*) ;;
      *) echo "the cluster has no storage class $STORAGE_CLASS (there is: ${names:-none}): only volumes" \
        "of that class that are there can be used" >&2 ;;
    esac
    return 0
  fi
  case $classes in
    *=true*) ;;
    *)
      fail "the cluster has no default storage class: name one by --storage-class (there is:" \
        "${names:-none}), or --storage-class '' for volumes that are there"
      ;;
  esac
}

describe() {
  local class=$STORAGE_CLASS rights=()
  if [ "$class" = null ]; then class="the cluster's default"; fi
  echo "$DATABASE ($VARIANT), nodes: $NODE_COUNT, each with $CPU CPU, $MEMORY memory, $STORAGE disk"
  echo "storage class: $class; node selector: $NODE_SELECTOR; namespace: $NAMESPACE"
  echo "rights: to read pods and events in the namespace, and to change there:"
  # shellcheck disable=SC2206 # Its words.
  rights=(secrets persistentvolumeclaims $RIGHTS)
  # Each with a comma, but the last.
  rights=("${rights[@]/%/,}")
  fold -sw 110 <<<"${rights[*]}" | sed 's/^/  /; s/ $//; $ s/,$//'
  if [ "${CLUSTER_RIGHTS:-}" ]; then echo "  in the whole cluster: ${CLUSTER_RIGHTS// /, }"; fi
}

one_of() { # value choices what
  case " $2 " in
    *" $1 "*) ;;
    *) fail "$DATABASE: $3 $1 is not there (there is: $2)" ;;
  esac
}

# helm and kubectl, told of the same cluster and namespace. The command's own options go over these.
cluster() {
  local program=$1
  shift
  case $program in
    kubectl) kubectl ${CONTEXT:+"--context=$CONTEXT"} --namespace "$NAMESPACE" "$@" ;;
    helm) helm "$@" ${CONTEXT:+"--kube-context=$CONTEXT"} ;;
  esac
}

# Show a command, and run it unless it was only asked for.
step() {
  case $MODE in
    plan) echo "  $*" ;;
    run) echo "+ $*" >&2 && cluster "$@" ;;
  esac
}

# A file with its ${NAMES} replaced.
rendered() {
  local text name
  text=$(<"$1")
  for name in STORAGE_CLASS NODE_SELECTOR NAMESPACE NODE_COUNT CPU CPU_REQUEST MEMORY STORAGE HEAP IMAGE \
    PASSWORD COORDINATOR_CPU COORDINATOR_CPU_REQUEST COORDINATOR_MEMORY SHARED_HOST; do
    text=${text//"\${$name}"/${!name:-}}
  done
  printf '%s\n' "$text"
}

# Apply a manifest.
manifest() {
  case $MODE in
    plan) echo "  kubectl apply --filename dbinstall/$DATABASE/$1" ;;
    render) echo "---" && rendered "$FOLDER/$1" ;;
    run)
      echo "+ kubectl apply --filename dbinstall/$DATABASE/$1" >&2
      rendered "$FOLDER/$1" | cluster kubectl apply --filename -
      ;;
  esac
}

# Install a chart with a file of values: release repository chart version file.
chart() {
  local command=(helm upgrade --install "$1" "$3" --repo "$2" --version "$4")
  case $MODE in
    plan) echo "  ${command[*]} --values dbinstall/$DATABASE/$5" ;;
    render) echo "---" && rendered "$FOLDER/$5" ;;
    run)
      need_helm
      echo "+ ${command[*]} --values dbinstall/$DATABASE/$5" >&2
      rendered "$FOLDER/$5" | cluster "${command[@]}" --values - \
        --namespace "$NAMESPACE" --wait --timeout "${TIMEOUT}s"
      ;;
  esac
}

# Install a vendor's operator, unless its custom resource is known already: then it is somebody's, and
# stays as it is. CRD namespace release repository chart version [--set …].
operator() {
  local crd=$1 namespace=$2 command
  # No upgrade: a release of that name would be somebody's.
  command=(helm install "$3" "$5" --repo "$4" --version "$6" "${@:7}"
    --namespace "$namespace" --create-namespace --wait --timeout "${TIMEOUT}s")
  case $MODE in
    plan)
      echo "  ${command[*]}"
      echo "    (unless the cluster has $crd already; else it takes an administrator of the cluster)"
      ;;
    run)
      if knows "$crd"; then
        echo "the cluster has $crd: its operator is left as it is" >&2
      else
        need_helm
        step "${command[@]}"
      fi
      ;;
  esac
}

# Whether the cluster has this resource. Everybody may ask for that, unlike for the definition itself.
knows() { # plural.group
  local known
  known=$(cluster kubectl api-resources --api-group "${1#*.}" --output name 2>/dev/null) || true
  case $'\n'$known$'\n' in *$'\n'"$1"$'\n'*) ;; *) return 1 ;; esac
}

need_helm() {
  command -v helm >/dev/null || fail "helm is not installed: https://helm.sh/docs/intro/install/"
}

b64() { # text
  printf '%s' "$1" | base64
}

random_text() {
  local text
  # Letters and digits only: no notation of any server or shell needs them quoted.
  text=$(head -c 1024 /dev/urandom | LC_ALL=C tr -dc 'a-zA-Z0-9')
  printf '%s' "${text:0:24}"
}

# The Secret that the target in config.yaml names: its key is an option of the database module. Kept
# from an earlier installation, since that password is in the data.
target_secret() { # key
  case $MODE in
    plan) echo "  kubectl create secret generic $SECRET    (key $1, random; kept if it is there)" ;;
    render) secret_manifest "$SECRET" Opaque "$1: $PASSWORD_BASE64" ;;
    run)
      if ! cluster kubectl get secret "$SECRET" >/dev/null 2>&1; then
        echo "+ kubectl create secret generic $SECRET" >&2
        secret_manifest "$SECRET" Opaque "$1: $(b64 "$(random_text)")" |
          cluster kubectl create --filename -
      fi
      cluster kubectl annotate --overwrite secret "$SECRET" \
        "iot-database-benchmark/variant=$VARIANT" "iot-database-benchmark/nodes=$NODE_COUNT" \
        "iot-database-benchmark/size=$SIZE" >/dev/null
      PASSWORD_BASE64=$(cluster kubectl get secret "$SECRET" --output "jsonpath={.data.$1}")
      # shellcheck disable=SC2034 # For `rendered`, and CrateDB.
      PASSWORD=$(base64 --decode <<<"$PASSWORD_BASE64")
      ;;
  esac
}

# A Secret in the form that the database wants: name type line-of-data…; values are base64.
own_secret() {
  case $MODE in
    plan) echo "  kubectl create secret $1    (the same password, as the database wants it)" ;;
    render) secret_manifest "$@" ;;
    run)
      if ! cluster kubectl get secret "$1" >/dev/null 2>&1; then
        secret_manifest "$@" | cluster kubectl create --filename -
      elif ! is_own "secret/$1"; then
        fail "namespace $NAMESPACE has secret/$1, which this tool did not make: use another --namespace"
      fi
      ;;
  esac
}

secret_manifest() { # name type line…
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  labels:\n    %s: %s\n' \
    "$1" "$LABEL" "$DATABASE"
  printf 'type: %s\ndata:\n' "$2"
  printf '  %s\n' "${@:3}"
}

# Wait for an object: kubectl wait's arguments.
await() {
  step kubectl wait "$@" "--timeout=${TIMEOUT}s"
}

rolled_out() { # statefulset/NAME
  step kubectl rollout status "$1" "--timeout=${TIMEOUT}s"
}

# Delete the data for good, if told to; with it the Secrets, whose password only that data has.
volumes() {
  if [ "$DELETE_VOLUMES" ]; then
    step kubectl delete persistentvolumeclaim --selector "$VOLUMES" --ignore-not-found
    step kubectl delete secret --selector "$LABEL=$DATABASE" --ignore-not-found
  elif [ "$MODE" = plan ]; then
    echo "  (data volumes and Secrets stay; --delete-volumes deletes them)"
  fi
}

explain_failure() {
  local status=$?
  [ "$status" != 0 ] || return 0
  {
    echo "It did not get ready. Its pods, and the last warnings in the namespace:"
    cluster kubectl get pods --selector "$LABEL=$DATABASE" || true
    cluster kubectl get events --field-selector type=Warning --sort-by .lastTimestamp |
      tail -n 5 || true
  } >&2
}

# Delete a cluster of CloudNativePG. Its volumes belong to it and would go with it; orphaned, they stay,
# and a new cluster of that name takes them up again.
cloudnative_pg_delete() { # name
  step kubectl delete cluster.postgresql.cnpg.io "$1" --cascade=orphan --ignore-not-found
  step kubectl delete pod,service,poddisruptionbudget,configmap,serviceaccount,role,rolebinding \
    --selector "$LABEL=$DATABASE" --ignore-not-found
}

# Uninstall a release of helm; fine if it is gone already.
release_delete() { # release
  if [ "$MODE" = run ]; then
    need_helm
    cluster helm status "$1" --namespace "$NAMESPACE" >/dev/null 2>&1 || return 0
  fi
  step helm uninstall "$1" --namespace "$NAMESPACE"
}

# Give statements to a program in a pod: pod statements program…
sql_in_pod() {
  case $MODE in
    plan) echo "  kubectl exec --stdin $1 -- ${*:3}    (makes the user benchmark)" ;;
    run)
      echo "+ kubectl exec --stdin $1 -- ${*:3}" >&2
      printf '%s\n' "$2" | cluster kubectl exec --stdin "$1" -- "${@:3}" >/dev/null
      ;;
  esac
}
