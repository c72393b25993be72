"""The functions of the shared script that look for pods of a workload, wait for them and create them again. Pure."""

from typing import Final

POD_FUNCTIONS: Final = r"""
# A pod's owner, and True if it is ready, each after a space, for go-templates. Tenants and nodes write any text there, lines that
# look like those of other pods, too, and any number of conditions.
owner_text='{{range .metadata.ownerReferences}}{{if .controller}} {{js .kind}}/{{js .name}}{{end}}{{end}}'
ready_text='{{range .status.conditions}}{{if and (eq .type "Ready") (eq .status "True")}}'
ready_text="{{\$ready := \"\"}}$ready_text{{\$ready = \" True\"}}{{end}}{{end}}{{\$ready}}"

# Print what grep prints for $*. No line is no failure. Letters are those of ASCII, in which names of objects are written:
# patterns with bounds take ten times as long for those of all languages.
find_lines() { LC_ALL=C grep "$@" || [ "$?" -eq 1 ]; }

# Print a pattern for the beginning of the lines of pods of the workload $1, its kind and its name: the pod and its owner.
owner_pattern() {
  local kind="${1%%/*}" name="${1#*/}"
  name="${name//./[.]}"
  case "${kind,,}" in
    deployment) printf '^[^ ]+ ReplicaSet/%s-[^- ]+ ' "$name" ;;
    statefulset | daemonset | replicaset | replicationcontroller | job) printf '^[^ ]+ %s/%s ' "$kind" "$name" ;;
    # Pods of other kinds have several owners, and begin with the name of the first.
    *) printf '^%s-[^ ]* ' "$name" ;;
  esac
}

# Print a line for each pod of the namespace $1 that $2 selects, and that is of the workload $3, its kind and its name: its
# name, its owner, claims or keys, unplaced if it has no node, and True if it is ready. Ended pods are left out.
print_pods() {
  local lines claims='{{if .spec.resourceClaims}} claims{{else}} keys{{end}}' state
  state="{{if not .spec.nodeName}} unplaced{{end}}{{if .metadata.deletionTimestamp}} ending{{else}}$ready_text{{end}}"
  lines="$(kubectl get pods "--namespace=$1" "--selector=$2" \
    '--field-selector=status.phase!=Failed,status.phase!=Succeeded' \
    "--output=go-template={{range .items}}{{.metadata.name}}$owner_text$claims$state{{\"\\n\"}}{{end}}")" || return
  find_lines -i -E -e "$(owner_pattern "$3")" <<<"$lines"
}

# Print the number of pods that $1 in the namespace $2 asks for.
print_wanted() {
  kubectl get "$1" "--namespace=$2" --output='jsonpath={.spec.replicas}{.status.desiredNumberScheduled}'
}

# Wait until as many pods of $1 in the namespace $2 are ready as it asks for, or as many as `least` if that is not empty.
# $3 selects them. After a minute it is enough that as many are ready as $4, where the others with keys have no node, and no
# more of the rest than $5 are not ready; `least` is then as many as are ready.
wait_for_pods() {
  local wanted pods ready end=$((SECONDS + most_seconds)) minute=$((SECONDS + fewer_seconds))
  wanted="$(print_wanted "$1" "$2")"
  if [ -n "$least" ] && [ "$least" -lt "${wanted:-0}" ]; then wanted="$least"; fi
  while true; do
    pods="$(print_pods "$2" "$3" "$1")"
    ready="$(find_lines -c ' True$' <<<"$pods")"
    if [ "$ready" -ge "${wanted:-0}" ]; then return; fi
    if [ -n "$4" ] && [ "$ready" -ge "$4" ] && [ "$SECONDS" -ge "$minute" ] && grep -q ' keys unplaced' <<<"$pods" &&
      [ "$(count_failing "$pods")" -le "$5" ]; then least="$ready" && return; fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    sleep 2
  done
  printf '%s: %s of %s pods are ready' "$2/$1" "$ready" "$wanted" >&2
  name_waiting "$pods"
  last_command="wait for $2/$1"
  return 1
}

# Print the number of pods that are not ready, from their lines, without those with keys and without a node.
count_failing() { find_lines -c -v -E -e ' (True|keys unplaced)$' -e '^$' <<<"$1"; }

# Print the names of pods that are not ready, from their lines, and which of them have no node.
name_waiting() {
  local names place='s/^([^ ]+) .* unplaced( .*)?$/\1 (no node)/'
  names="$(find_lines -v -e ' True$' -e '^$' <<<"$1" | sed -E -e "$place" -e 's/^([^ ]+) [^(].*/\1/' | paste -s -d ' ' -)"
  printf '%s\n' "${names:+; not yet: $names}" >&2
}

# Delete the pods of $1 in the namespace $2 that have claims or keys, as $4 says, one after another, each when the
# others are ready, or as many as now or when the plan was made, which is $5 if that is known. $3 selects them. The legacy
# system may have no devices for pods that came with claims, and no node: the way back does not wait for those, as long as
# so many are ready as when the plan was made.
recreate_pods() {
  local pods pod devices ready failing least="$5" enough=
  if is_gone "$1" "$2"; then return; fi
  pods="$(print_pods "$2" "$3" "$1")"
  # kubectl deletes pods that a PodDisruptionBudget keeps, so those that have become ready since the plan count, too.
  ready="$(find_lines -c ' True$' <<<"$pods")"
  failing="$(count_failing "$pods")"
  if [ -n "$least" ] && [ "$ready" -gt "$least" ]; then least="$ready"; fi
  if [ "$4" = claims ]; then enough="$5"; fi
  while read -r pod _ devices _; do
    if [ "$devices" != "$4" ]; then continue; fi
    kubectl delete pod "$pod" "--namespace=$2" --ignore-not-found --timeout=10m </dev/null
    wait_for_pods "$1" "$2" "$3" "$enough" "$failing" </dev/null
  done <<<"$pods"
}

# Restart $1 in the namespace $2 if a pod of it has claims. $3 selects its pods.
restart_with_claims() {
  local pods
  pods="$(print_pods "$2" "$3" "$1")"
  if grep -q -E -e ' claims( unplaced)?( True)?$' <<<"$pods"; then
    kubectl rollout restart "--namespace=$2" "$1"
  else
    printf '%s: no pod has claims\n' "$2/$1"
  fi
}

# Wait until all rollouts of workloads that are there have ended: a workload, its namespace, the selector of its
# pods, and the number of them that were ready when the plan was made for each. Where it asks for more, the others may
# hold its rollout for ever, and it is enough that as many have keys and are ready; or some of as many that are ready,
# where none of the others has a node: those that have one fail there.
wait_for_rollouts() {
  local pods left wanted ready back failing late='' end=$((SECONDS + most_seconds))
  while [ "$#" -gt 3 ]; do
    left=$((end - SECONDS))
    if [ "$left" -lt 1 ]; then left=1; fi
    if is_gone "$1" "$2"; then
      :
    elif ! kubectl rollout status "$1" "--namespace=$2" "--timeout=${left}s"; then
      pods="$(print_pods "$2" "$3" "$1" || true)"
      wanted="$(print_wanted "$1" "$2" || true)"
      ready="$(find_lines -c ' True$' <<<"$pods")"
      back="$(find_lines -c ' keys True$' <<<"$pods")"
      failing="$(find_lines -c -v -E -e ' (True|ending)$' -e ' unplaced( |$)' -e '^$' <<<"$pods")"
      if [ "$back" -gt 0 ] && [ "$failing" -eq 0 ]; then back="$ready"; fi
      if [ -n "$3" ] && [ -n "$4" ] && [ "$4" -lt "${wanted:-0}" ] && [ "$back" -ge "$4" ]; then
        printf '%s: %s of %s pods are ready, and %s were when the plan was made' "$2/$1" "$ready" "$wanted" "$4" >&2
      else
        late="$late $2/$1"
        printf '%s is not back' "$2/$1" >&2
      fi
      name_waiting "$pods"
    fi
    shift 4
  done
  if [ -n "$late" ]; then
    last_command="wait for$late"
    return 1
  fi
}
"""
"""The text of the functions; the script sets `most_seconds` and `fewer_seconds`."""
