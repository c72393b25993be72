"""The functions of the shared script for nodes that may be gone, or have other devices or pods than planned. Pure."""

from typing import Final

from cli.functions.scheduler_functions import HAMI_FUNCTIONS, KOORDINATOR_FUNCTIONS

NODE_FUNCTIONS: Final = (
    r"""
# Whether the node $1 is not there any more, which is said once. A node that cannot be read is there.
gone_nodes=' '
is_gone_node() {
  if ! is_gone "node/$1" >/dev/null; then return 1; fi
  if [[ "$gone_nodes" != *" $1 "* ]]; then
    gone_nodes="$gone_nodes$1 "
    printf 'node %s was deleted since the plan was made, and is left out\n' "$1"
  fi
}

# Run a command of kubectl on nodes, without those that are gone: kubectl changes none of several if one is.
on_nodes() {
  local node status=0 nodes=("$2") left=()
  case "$1" in
    cordon) nodes=("${@:2}") ;;
    annotate | label | taint) nodes=("$3") ;;
  esac
  noted kubectl "$@"
  command kubectl ${context:+"--context=$context"} "$@" || status="$?"
  if [ "$status" -ne 1 ]; then return "$status"; fi
  for node in "${nodes[@]}"; do
    if ! is_gone_node "$node"; then left+=("$node"); fi
  done
  if [ "${#left[@]}" -eq "${#nodes[@]}" ]; then return "$status"; fi
  if [ "${#left[@]}" -gt 0 ]; then kubectl "$1" "${left[@]}"; fi
}

# Whether somebody else has cordoned the node $1: it has no label of these scripts. Stop if the cluster does not say.
is_cordoned_by_others() {
  local node words=(get nodes --output=name "--field-selector=metadata.name=$1,spec.unschedulable=true")
  node="$(find_nodes "${words[@]}" '--selector=!drawbridge.internal/cordoned')" || stop_unanswered "$1"
  [ -n "$node" ]
}
stop_unanswered() {
  stop_for "see that the API server answers: it has not said who has cordoned $1, see above, so the node is left as it is"
}

# Uncordon the node $1, unless somebody else has cordoned it.
uncordon_own() {
  if is_cordoned_by_others "$1"; then
    printf '%s stays cordoned, since no script of this plan has cordoned it; kubectl uncordon %q lets pods come\n' "$1" "$1" >&2
    return
  fi
  kubectl uncordon "$1"
}

# Ask the cluster; of a node that is gone every answer is right.
drawbridge() {
  local word status=0
  noted drawbridge "$@"
  command drawbridge "$@" ${context:+"--context=$context"} || status="$?"
  if [ "$status" -ne 1 ]; then return "$status"; fi
  for word in "$@"; do
    if [[ "$word" == --node=* ]] && is_gone_node "${word#--node=}"; then return 0; fi
  done
  return "$status"
}

# Stop if pods of the DaemonSet $3 of the namespace $2 on the node $1 tolerate the taint of a rollback; $4 selects them. Its
# next ones would get devices of the DRA drivers $5 before these leave the node, and the kubelet ends no pod of a driver that
# has left. A node without their labels $6 has been given back, or has not been switched.
stop_at_tolerant() {
  local node pods on_delete='{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'
  local template="{{range .items}}{{\$name := .metadata.name}}{{range .spec.tolerations}}"
  template="$template{{if or (not .key) (eq .key \"drawbridge.internal/given-back\")}}"
  template="$template{{if or (not .effect) (eq .effect \"NoSchedule\")}}{{\$name}} {{end}}{{end}}{{end}}{{end}}"
  node="$(kubectl get nodes "--field-selector=metadata.name=$1" "--selector=$6" --output=name)"
  if [ -z "$node" ]; then return; fi
  pods="$(kubectl get pods "--namespace=$2" "--selector=$4" "--field-selector=spec.nodeName=$1" "--output=go-template=$template")"
  if [ -z "$pods" ]; then return; fi
  printf 'DaemonSet/%s/%s tolerates the taint drawbridge.internal/given-back (%s): ' "$2" "$3" "${pods% }" >&2
  printf 'its next pod on %s would get devices of %s, and could not end ' "$1" "$5" >&2
  printf 'once that has left the node. Keep its pods from the nodes of this wave by a node affinity of its template ' >&2
  printf '(kubernetes.io/hostname NotIn) until rollback.sh has ended. First change its updateStrategy, or its pods on all ' >&2
  printf 'other nodes are created again, too, with claims where its namespace is opted in: ' >&2
  printf 'kubectl patch daemonset %q --namespace=%q --type=merge --patch=%s\n' "$3" "$2" "'$on_delete'" >&2
  last_command="look for pods of DaemonSet/$2/$3 on $1"
  return 1
}

# Take the annotation $1 off the nodes after $3, but those that have it and the label of GPUs $2: the Cluster Autoscaler takes
# them for unready and unused, and would drain them whatever runs there. $3 selects those that are so.
give_to_autoscaler() {
  local node unready names='' label="$2" key="$1" words=(get nodes "--selector=$3")
  words+=("--output=jsonpath={range .items[*]}{.metadata.name}={.metadata.annotations.${key//./\\.}} {end}")
  unready="$(kubectl "${words[@]}")"
  for node in "${@:4}"; do
    if [[ " $unready" == *" $node=true "* ]]; then
      names="$names $node"
    else
      kubectl annotate node "$node" "$key-"
    fi
  done
  if [ -z "$names" ]; then return; fi
  printf 'these nodes keep %s:%s\n' "$key" "$names" >&2
  printf 'they have the label %s and no device plugin, so Cluster Autoscaler takes them for unready and unused, and would drain ' \
    "$label" >&2
  printf 'them whatever runs there. See the notes of the plan on this label; once it is seen to, or if no Cluster Autoscaler ' >&2
  printf 'runs here, take the annotation off: kubectl annotate nodes%s %s-\n' "$names" "$key" >&2
}

# Wait until a device plugin offers devices of the resource $2 on the node $1, as many as the $3 of the plan or more. Fewer
# are enough after a minute, and are said: a device may have been unhealthy at either time.
wait_for_offer() {
  local now first='' end=$((SECONDS + offer_seconds)) words=(get node "$1" --ignore-not-found)
  words+=("--output=jsonpath={.status.allocatable.${2//./\\.}}")
  noted kubectl "${words[@]}"
  while true; do
    now="$(command kubectl ${context:+"--context=$context"} "${words[@]}")" || return 1
    if [ "$now" = "$3" ]; then return; fi
    if [ -n "$now" ] && [ "$now" != 0 ]; then
      first="${first:-$SECONDS}"
      # Amounts such as 1k are no numbers to a shell.
      if [ "$now" -gt "$3" ] 2>/dev/null || [ "$((SECONDS - first))" -ge "$fewer_seconds" ]; then
        printf '%s offers %s of %s, and the plan expects %s: look at the health of its devices if these are too few\n' \
          "$1" "$now" "$2" "$3"
        return
      fi
    elif is_gone_node "$1"; then
      return
    fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    sleep 2
  done
  printf '%s offers no %s: see that its device plugin runs there\n' "$1" "$2" >&2
  last_command="wait for $2 of $1"
  return 1
}
"""
    + HAMI_FUNCTIONS
    + KOORDINATOR_FUNCTIONS
)
"""The text of the functions; the script sets `offer_seconds` and `fewer_seconds`."""
