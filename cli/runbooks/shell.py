"""Commands, comments and the first lines of a shell script, and the part that the scripts share. Pure.

Every word is quoted, and a comment is on one line without control characters, so that no name of a
cluster becomes a command.
"""

import shlex
from typing import Final

from cli.functions.claim_functions import CLAIM_FUNCTIONS
from cli.functions.node_functions import NODE_FUNCTIONS
from cli.functions.pod_functions import POD_FUNCTIONS
from findings.text import printable
from migration.plan.model.plan import ClusterIdentity

CLUSTER_SCRIPT: Final = "cluster.sh"
_FIRST_LINES: Final = """\
#!/usr/bin/env bash
# {title}
"""
_HEAD: Final = """\
# Read it before you run it. It stops at the first command that fails, and may be run again.
set -euo pipefail
"""
_HERE: Final = """\
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
"""
_SHARED: Final = r"""#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2059
# What all scripts of the plan share: which cluster they are for, and how they stop.
# Each takes --context NAME; without it the current context of KUBECONFIG is used.
# switch.sh and rollback.sh take --job-timeout DURATION, for which they wait for pods that would lose work
# before they ask, and --evict-jobs NAMES, a list with commas of nodes whose pods they evict, of workloads that they restart
# or evict without a question, as Kind/namespace/name, or `all`; with --step NAME only that step of theirs is run, which is how
# `drawbridge wave` calls them.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  printf 'the scripts of a plan need bash 4.4 or later, and this is bash %s\n' "$BASH_VERSION" >&2
  exit 1
fi
expected_uid=@UID@
expected_server=@SERVER@

set -E  # The trap is for the functions below, too.
last_command=
stopped() {
  local at="${last_command:-$BASH_COMMAND}"
  # The script itself stops at what fails in a substitution, and does not know its last command.
  if [ "$BASH_SUBSHELL" -gt 0 ]; then return; fi
  if [[ "$BASH_COMMAND" == [a-z_]*=\"\$\(* ]]; then at="a question to the cluster, see above: $BASH_COMMAND"; fi
  printf '%s\n' "stopped at: $at" \
    "What comes after it in this script was not done." >&2
  printf 'Each command may be repeated; to go on, run again: %q%s\n' "$0" "$again" >&2
  release_guards
}
trap 'stopped' ERR
trap 'stopped; exit 130' INT

context=
job_timeout=
evict_jobs=
only_step=
evicting=
again=
most_seconds=1800
leave_seconds=600
offer_seconds=600
fewer_seconds=60
while [ "$#" -gt 0 ]; do
  option="${1%%=*}"
  case "$1" in
    --context=* | --job-timeout=* | --evict-jobs=* | --step=*) value="${1#*=}" ;;
    --context | --job-timeout | --evict-jobs | --step)
      value="${2:-}"
      if [ "$#" -gt 1 ]; then shift; fi
      ;;
    *) value= ;;
  esac
  if [ -z "$value" ]; then
    printf 'usage: %q [--context NAME] [--job-timeout DURATION] [--evict-jobs NODE,...|all] [--step NAME]\n' \
      "$0" >&2
    exit 2
  fi
  case "$option" in
    --context) context="$value" ;;
    --job-timeout) job_timeout="$value" ;;
    --step) only_step="$value" ;;
    *) evict_jobs="$value" ;;
  esac
  shift
done
if [ -n "$context" ]; then printf -v again ' --context=%q' "$context"; fi
if [ -n "$only_step" ]; then printf -v again '%s --step=%q' "$again" "$only_step"; fi
# A context that somebody chooses elsewhere meanwhile changes nothing here.
if [ -z "$context" ]; then context="$(command kubectl config current-context 2>/dev/null || true)"; fi

noted() { printf -v last_command '%q ' "$@" && last_command="${last_command% }"; }
kubectl() {
  note_guards "$@"
  if [ "$1 ${2:-}" = 'rollout restart' ]; then
    restart "${@:3}"
    return
  fi
  case "$1 ${2:-}" in
    # The label goes last, so that this may be repeated.
    uncordon*) on_nodes "$@" && on_nodes label node "$2" drawbridge.internal/cordoned- ;;
    cordon* | drain* | 'annotate node' | 'label node' | 'taint node') on_nodes "$@" ;;
    *) noted kubectl "$@" && command kubectl ${context:+"--context=$context"} "$@" ;;
  esac
}
# Stop until a person has done what $1 says.
stop_for() {
  printf '%s; then run again: %q%s\n' "$1" "$0" "$again" >&2
  release_guards
  exit 1
}
# Stop until KAI's webhook leaves the namespaces $2 and further, or, as $1 says, takes them again.
check_kai() {
  local way="$1" kind selector='' chosen namespace left=
  shift
  # By its name, since kubectl api-resources fails while any API of others is down.
  kind="$(kubectl get customresourcedefinitions.apiextensions.k8s.io configs.kai.scheduler --ignore-not-found --output=name)"
  # A comma for each Config, and one after each label. Helm leaves the definition behind when KAI is uninstalled.
  # shellcheck disable=SC2016
  if [ -n "$kind" ]; then selector="$(kubectl get configs.kai.scheduler --output='go-template={{range .items}},{{with .spec.global}}{{range $key, $value := .namespaceLabelSelector}}{{$key}}={{$value}},{{end}}{{end}}{{end}}')"; fi
  if [ -z "$selector" ]; then
    printf 'there is no Config of KAI, so it is not known whether its webhook %s %s\n' "$way" "$*" >&2
    return
  fi
  selector="${selector//,,/,}" selector="${selector#,}"
  chosen=" $(kubectl get namespaces ${selector:+"--selector=${selector%,}"} --output='jsonpath={.items[*].metadata.name}') "
  for namespace in "$@"; do
    case "$way $chosen" in
      "leaves "*" $namespace "*) left="$left $namespace" ;;
      "takes "*" $namespace "*) ;;
      takes*) if ! is_gone "namespace/$namespace" ''; then left="$left $namespace"; fi ;;
    esac
  done
  if [ -z "$left" ]; then return; fi
  if [ "$way" = leaves ]; then
    # The drains of a whole run come before this, and are not repeated.
    if [ -z "$only_step" ]; then again="$again --step=namespaces, and after it with --step=restarts and --step=end, without another drain"; fi
    stop_for "KAI's webhook changes pods of$left: set spec.global.namespaceLabelSelector of KAI's Config to a label that all other namespaces of KAI have, and these have not (its pod grouper leaves them, too, so KAI starts no pod there until they are opted in)"
  fi
  stop_for "KAI's webhook does not change pods of$left, so none with a share would start, nor any other of KAI, since its pod grouper leaves them, too: give them the label of spec.global.namespaceLabelSelector of KAI's Config again"
}
# Stop until a repository has changed what the command before has found to differ, as $1 says; its status was 1 then.
differs() {
  local status="$?"
  if [ "$status" -ne 1 ]; then return "$status"; fi
  stop_for "$1"
}
# Whether somebody has deleted the object $1 of the namespace $2, which is said. An object that cannot be read is there.
is_gone() {
  local name
  name="$(command kubectl ${context:+"--context=$context"} get "$1" ${2:+"--namespace=$2"} \
    --ignore-not-found --output=name)" || return 1
  if [ -n "$name" ]; then return 1; fi
  printf '%s was deleted since the plan was made, and is left out\n' "${2:+$2/}$1"
}
# Restart workloads, without those that are gone; $1 is the flag of their namespace. kubectl refuses to restart what was
# restarted within the same second, as by a run that was killed. Flux takes back what kubectl changes in its own name, a
# restart too: pods would be replaced twice, or old ones stay. The name is the one that Flux leaves alone.
restart() {
  local place="$1" target targets=() status=0
  local manager='--field-manager=flux-client-side-apply'
  shift
  for target in "$@"; do
    if ! is_gone "$target" "${place#*=}"; then targets+=("$target"); fi
  done
  if [ "${#targets[@]}" -eq 0 ]; then return; fi
  noted kubectl rollout restart "$place" "${targets[@]}" "$manager"
  command kubectl ${context:+"--context=$context"} rollout restart "$place" "${targets[@]}" "$manager" || status="$?"
  if [ "$status" -ne 1 ]; then return "$status"; fi
  sleep 1
  command kubectl ${context:+"--context=$context"} rollout restart "$place" "${targets[@]}" "$manager"
}
# Go on although the change of $1 was rejected: no pod of it ran when the plan was made.
leave_idle() {
  printf '%s is left as it is, with device keys: its change failed, see above, and none of its pods ran when the plan was made\n' \
    "$1" >&2
}
helm() { noted helm "$@" && command helm ${context:+"--kube-context=$context"} "$@"; }
@NODES@

# Change the object $1 of the namespace $2 by the JSON Patch $3, which tests the values of the plan first;
# nothing is done where those of the JSON Patch $4, which has tests alone, are there already, nor to an object that is
# gone, unless it is a DeviceClass. A JSONPath and the value of the plan follow for each field: they are told where
# another value stops the change.
change_object() {
  local object="$1" namespace="$2" patch="$3" finished="$4" now is_other=
  local words=("$object" ${namespace:+"--namespace=$namespace"})
  shift 4
  if command kubectl ${context:+"--context=$context"} patch "${words[@]}" --type=json --dry-run=server \
    "--patch=$finished" >/dev/null 2>&1; then
    printf '%s is as it is to become\n' "$object"
    return
  fi
  if kubectl patch "${words[@]}" --type=json "--patch=$patch"; then return; fi
  if [[ "$object" != deviceclass/* ]] && is_gone "$object" "$namespace"; then return; fi
  while [ "$#" -gt 1 ]; do
    now="$(kubectl get "${words[@]}" "--output=jsonpath={$1}")"
    if [ "$now" != "$2" ]; then
      is_other=yes
      printf '%s: %s is %s, and the plan expects %s\n' "$object" "$1" "${now:-missing}" "${2:-none}" >&2
    fi
    shift 2
  done
  if [ -n "$is_other" ]; then
    printf '%s was changed since the plan was made, and nothing of it is changed here: put that back, or plan ' \
      "$object" >&2
    printf 'again from a new snapshot\n' >&2
  fi
  noted kubectl patch "${words[@]}" --type=json "--patch=$patch"
  return 1
}

# What keeps autoscalers from nodes: a line for each node with the annotations that this run has set, as
# kubectl takes them off, and one with those that were there before; and the nodes that are empty, or are being drained.
guarded=
guarded_before=
drained=' '
# A line for each node with the labels that it has if it was drained; the nodes that this run has cordoned; those among them
# that somebody else had cordoned before; and those that an earlier run has drained and left cordoned.
drained_nodes=
cordoned=' '
cordoned_before=' '
left_drained=' '
drained_with() { drained_nodes="$drained_nodes$1 $2"$'\n'; }
# Note before each command of kubectl what an aborted script has to know.
note_guards() {
  local node="${3:-}" word marks='' before=''
  case "$1 ${2:-}" in
    drain*) drained="$drained$2 " ;;
    cordon*) for node in "${@:2}"; do note_cordoned "$node" && mark_cordoned "$node"; done ;;
    'annotate node')
      guarded="$(find_lines -v -e "^${node//./[.]} " -e '^$' <<<"$guarded")"$'\n'
      guarded_before="$(find_lines -v -e "^${node//./[.]} " -e '^$' <<<"$guarded_before")"$'\n'
      for word in "$@"; do
        case "$word" in *=true) word="${word%=true}" ;; *) continue ;; esac
        if has_annotation "$node" "$word"; then before="$before $word"; else marks="$marks $word-"; fi
      done
      if [ -n "$marks" ]; then guarded="$guarded$node$marks"$'\n'; fi
      if [ -n "$before" ]; then guarded_before="$guarded_before$node$before"$'\n'; fi
      ;;
  esac
}
has_annotation() {
  local value
  # A set -e does not stop a function that is asked as a condition.
  value="$(command kubectl ${context:+"--context=$context"} get node "$1" --ignore-not-found \
    "--output=jsonpath={.metadata.annotations.${2//./\\.}}" </dev/null)" ||
    stop_for "the annotations of $1 cannot be read, so it is not known whether $2 is somebody else's"
  [ "$value" = true ]
}
# Note the node $1 if an earlier run has drained it and left it cordoned, and if somebody else has cordoned it; this run has
# cordoned none of its own yet.
note_cordoned() {
  local node labels left words=(get nodes --output=name)
  if [[ "$cordoned" == *" $1 "* ]]; then return; fi
  cordoned="$cordoned$1 "
  if is_cordoned_by_others "$1"; then cordoned_before="$cordoned_before$1 "; fi
  words+=("--field-selector=metadata.name=$1,spec.unschedulable=true")
  while read -r node labels; do
    if [ "$node" != "$1" ]; then continue; fi
    left="$(find_nodes "${words[@]}" "--selector=$labels")" || stop_unanswered "$1"
    if [ -n "$left" ]; then left_drained="$left_drained$1 "; fi
  done <<<"$drained_nodes"
}
# Label the node $1, which is to be cordoned, unless somebody else has done that: the label tells later runs, and those of
# other scripts, who has.
mark_cordoned() {
  if [[ "$cordoned_before" == *" $1 "* ]]; then return; fi
  on_nodes label node "$1" --overwrite drawbridge.internal/cordoned=true
}
# Print the nodes that a question finds; the status is that of kubectl.
find_nodes() { command kubectl ${context:+"--context=$context"} "$@" </dev/null; }

# Take off the annotations that this run has set, except from a node without its pods: an autoscaler would
# remove it. One that was there before stays, as an earlier run may have drained the node.
release_guards() {
  local node marks words
  while read -r node marks; do
    if [ -z "$node" ]; then continue; fi
    if [[ "$drained" == *" $node "* ]]; then
      printf '%s keeps %s, since it is drained: switch.sh or rollback.sh takes that off\n' \
        "$node" "${marks%-}" >&2
      continue
    fi
    read -r -a words <<<"$marks"
    command kubectl ${context:+"--context=$context"} annotate node "$node" "${words[@]}" </dev/null || true
  done <<<"$guarded"
  while read -r node marks; do
    if [ -n "$node" ]; then printf '%s keeps %s, which it had before this run\n' "$node" "$marks" >&2; fi
  done <<<"$guarded_before"
  guarded=
  guarded_before=
}

# Wait until the DRA driver $2 publishes no device of the node $1 any more. The kubelet deletes its ResourceSlices
# about half a minute after its pod has gone; until then there are devices of both, and each would be handed out twice.
wait_for_slices() {
  local left end=$((SECONDS + leave_seconds))
  while true; do
    left="$(kubectl get resourceslices.resource.k8s.io "--field-selector=spec.nodeName=$1,spec.driver=$2" --output=name)"
    if [ -z "$left" ]; then return; fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    sleep 2
  done
  if is_gone_node "$1"; then return; fi
  printf '%s still publishes devices of %s (%s), and the device plugin offers the same ones: ' \
    "$2" "$1" "$(paste -s -d ' ' - <<<"$left")" >&2
  printf 'see that its pod has left the node, and delete the slices if it has\n' >&2
  last_command="wait until $2 has left $1"
  return 1
}

@PODS@

# Whether a step is to be run.
step() { [ -z "$only_step" ] || [ "$only_step" = "$1" ]; }

# Print what comes after the whole script.
say_next() { if [ -z "$only_step" ]; then printf "$@"; fi; }

# Uncordon nodes that were not drained, by an earlier run either, and that nobody else has cordoned, and stop.
give_up() {
  local node free=
  for node in "$@"; do
    if [[ "$left_drained" == *" $node "* ]]; then
      printf '%s stays cordoned, since an earlier run has drained it\n' "$node" >&2
      continue
    fi
    if [[ "$cordoned_before" == *" $node "* ]]; then
      printf '%s stays cordoned, as it was before this run, by somebody else\n' "$node" >&2
      continue
    fi
    kubectl uncordon "$node"
    free="$free $node"
  done
  printf 'given up; uncordoned:%s; to go on, run again: %q%s\n' "${free:- none}" "$0" "$again" >&2
  release_guards
}

# Whether --evict-jobs names the node or the workload $1, or all.
evicts() {
  case ",$evict_jobs," in *,all,* | *",$1,"*) ;; *) return 1 ;; esac
}

# Ask a person the question $1; `answer` is then what they say, or to abort without a terminal.
ask() {
  answer=abort
  if [ ! -t 0 ]; then return; fi
  printf '%s ' "$1" >&2
  read -r answer || answer=abort
}

# Return when no pod of the cordoned node $1 would lose its work, or when it may be evicted, which `evicting`
# says. All arguments are nodes that are uncordoned if that is given up.
finish_work() {
  local node="$1" wait="$job_timeout" status answer
  evicting=
  if evicts "$node"; then evicting=yes && return; fi
  waiting_nodes=("$@")
  trap 'give_up "${waiting_nodes[@]}"; exit 130' INT
  while true; do
    status=0
    drawbridge verify --live "--node=$node" --before ${wait:+"--wait=$wait"} || status="$?"
    if [ "$status" -ne 1 ]; then break; fi
    ask "Pods of $node would lose their work. Wait longer, evict them, or abort (w/e/a)?"
    case "$answer" in
      w*) wait="${job_timeout:-30m}" ;;
      e*) status=0 && evicting=yes && break ;;
      *) break ;;
    esac
  done
  if [ "$status" -ne 0 ]; then
    printf 'pods of %s would lose their work, or cannot be read: --job-timeout DURATION waits for those that ' \
      "$node" >&2
    printf 'end, --evict-jobs=%q evicts all of this node\n' "$node" >&2
    give_up "$@"
    if [ "$status" -eq 130 ]; then exit 130; fi
    exit 1
  fi
  trap 'stopped; exit 130' INT
}

# Return when no PodDisruptionBudget holds the drain of the cordoned node $1. All arguments are nodes that are
# uncordoned if one does.
check_budgets() {
  local status=0
  waiting_nodes=("$@")
  trap 'give_up "${waiting_nodes[@]}"; exit 130' INT
  drawbridge verify --live "--node=$1" --budgets --wait=10m || status="$?"
  if [ "$status" -ne 0 ]; then
    printf 'a PodDisruptionBudget holds the drain of %s, see above: let it allow an eviction first\n' "$1" >&2
    give_up "$@"
    if [ "$status" -eq 130 ]; then exit 130; fi
    exit 1
  fi
  trap 'stopped; exit 130' INT
}

# Delete the pods of the cordoned node $1 that nothing creates again, if `evicting` says so: its drain stops at them. That a
# person has decided is not known any more when that step is run alone. Further arguments are flags of kubectl get.
delete_bare_pods() {
  local pods namespace name owner running='status.phase!=Succeeded,status.phase!=Failed'
  if [ -z "$evicting" ]; then return; fi
  pods="$(kubectl get pods --all-namespaces "--field-selector=spec.nodeName=$1,$running" \
    "--output=go-template={{range .items}}{{.metadata.namespace}} {{.metadata.name}}$owner_text{{\"\\n\"}}{{end}}" "${@:2}")"
  while read -r namespace name owner; do
    if [ -z "$name" ] || [ -n "$owner" ]; then continue; fi
    kubectl delete pods "--namespace=$namespace" "--field-selector=metadata.name=$name,spec.nodeName=$1" \
      --timeout=10m </dev/null
  done <<<"$pods"
}

# Stop since the command before has named pods of the cordoned node $1 that the plan does not have. All arguments are nodes
# that are uncordoned.
stop_at_unplanned() {
  local status="$?"
  printf 'the drain of %s would end pods that the plan does not have, or they cannot be read, see above: ' "$1" >&2
  printf 'let them end or move them elsewhere first; --evict-jobs=%q evicts all of this node\n' "$1" >&2
  give_up "$@"
  exit "$status"
}

# Return whether the pods of $1, which ask not to be evicted, may be created again; stop if nobody says so.
may_restart() {
  local answer kind namespace name
  IFS=/ read -r kind namespace name <<<"$1"
  if is_gone "$kind/$name" "$namespace"; then return 1; fi
  if evicts "$1"; then return; fi
  ask "Pods of $1 ask not to be evicted. Restart it, skip it, or abort (r/s/a)?"
  case "$answer" in
    r*) return ;;
    s*) printf '%s is left as it is: its pods change when they are created again, and no script waits for that\n' "$1" >&2 && return 1 ;;
  esac
  printf 'pods of %s ask not to be evicted: --evict-jobs=%q restarts it all the same\n' "$1" "$1" >&2
  printf 'to go on, run again: %q%s\n' "$0" "$again" >&2
  release_guards
  exit 1
}

if [ -n "$expected_uid" ]; then
  uid="$(kubectl get namespace kube-system --output='jsonpath={.metadata.uid}')"
  if [ "$uid" != "$expected_uid" ]; then
    printf 'this is another cluster: its kube-system has the uid %s, and the plan is for %s%s\n' \
      "$uid" "$expected_uid" "${expected_server:+, $expected_server}" >&2
    exit 1
  fi
fi
"""


def head(title: str, path: str = f"../{CLUSTER_SCRIPT}") -> str:
    """Return the first lines of a script.

    Args:
        title: A sentence that says what it does.
        path: The path from its folder to the part that scripts share; empty for a script that
            runs no command.
    """
    text = _FIRST_LINES.format(title=title) + _HEAD
    return f'{text}{_HERE}# shellcheck source=/dev/null\n. "$here/{path}"\n' if path else text


def cluster_script(cluster: ClusterIdentity) -> str:
    """Return the part that all scripts share; it stops at another cluster."""
    script = _SHARED.replace("@NODES@\n", NODE_FUNCTIONS).replace(
        "@PODS@\n", POD_FUNCTIONS + CLAIM_FUNCTIONS
    )
    return script.replace("@UID@", quoted(cluster.uid)).replace("@SERVER@", quoted(cluster.server))


def command(*words: str) -> str:
    """Return a command of words."""
    return shlex.join(printable(word) for word in words)


def quoted(word: str) -> str:
    """Return a word as a shell reads it."""
    return shlex.quote(printable(word))


def comment(text: str, blank_lines: int = 0) -> str:
    """Return a comment of one line, below blank lines."""
    return "\n" * blank_lines + f"# {printable(text)}"
