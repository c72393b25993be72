"""The functions of the shared script for pods on a way back with claims again. Pure."""

from typing import Final

CLAIM_FUNCTIONS: Final = r"""
# Patterns for lines of `print_claimed` that are no matter of this way back, for those of pods that get device keys again, and for
# those of workloads that it restarts; the namespaces that it leaves to their pods; those that it leaves to the mode of Drawbridge;
# a line for each that earlier waves have switched, with the number of its pods when the plan was made; and patterns for the DRA
# drivers that leave the nodes.
apart=()
keyed=()
restarted=()
selecting=' '
unlabelled=' '
switched=
leaving=()
# Names as Kubernetes allows them: kubectl takes others for paths, and fails.
object_name='[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?'

# The DRA driver $1 leaves the nodes.
driver_leaves() { leaving+=("${1//./[.]}"); }

# Pods of $1 get device keys again: a workload whose template loses the label, or a namespace. If that is left to its pods then,
# as $2 says, those with a label of their own get claims still; if no label is left, all of them in mode OptOut.
keys_again() {
  local rest="${1#*/}"
  case "$1/${2:-}" in
    namespace/*/selected) selecting="$selecting$rest " && keyed+=("^[^ ]+ [^ ]+ $rest [^ ]+ translated - ") ;;
    namespace/*) unlabelled="$unlabelled$rest " ;;
    *)
      if [[ "$unlabelled" == *" ${rest%%/*} "* ]]; then return; fi
      keyed+=("$(owner_pattern "${1%%/*}/${1##*/}")${rest%%/*} [^ ]+ translated ")
      ;;
  esac
}

# This way back restarts the workloads $*, and waits for their rollouts.
restarts() {
  local workload rest
  for workload in "$@"; do
    rest="${workload#*/}"
    restarted+=("$(owner_pattern "${workload%%/*}/${workload##*/}")${rest%%/*} ")
  done
}

# Earlier waves have switched $2 pods of the namespace $1, and had devices for them. No other node takes those of DaemonSets; the
# other arguments are those of the plan, which are said one by one.
switched_before() {
  local name
  for name in "${@:3}"; do apart+=("^[^ ]+ DaemonSet/${name//./[.]} $1 [^ ]+ translated "); done
  switched="$switched$1 $2"$'\n'
}

# Print a line for each pod with devices by its field $1 that goes on, and that a controller creates again: its name, its owner, its
# namespace, its node, translated or native, true if it has the label itself, the hash of its template, with - for what it has not,
# and whether it is ready. $2 are further conditions for its fields.
print_controlled() {
  local lines none='{{else}}-{{end}}' node made label hash
  node="{{if .spec.nodeName}}{{.spec.nodeName}}$none"
  made='{{with .metadata.annotations}}{{if index . "drawbridge.internal/request"}}translated{{else}}native{{end}}{{else}}native{{end}}'
  label="{{with .metadata.labels}}{{if eq (print (index . \"drawbridge.internal/translate\")) \"true\"}}true$none$none"
  hash="{{with .metadata.labels}}{{with index . \"pod-template-hash\"}}{{.}}$none$none"
  lines="$(kubectl get pods --all-namespaces "--field-selector=${2:-}status.phase!=Failed,status.phase!=Succeeded" \
    "--output=go-template={{range .items}}{{if and $1 (not .metadata.deletionTimestamp)}}{{.metadata.name}}$owner_text\
 {{.metadata.namespace}} $node $made $label $hash$ready_text{{\"\\n\"}}{{end}}{{end}}")" || return
  # An owner may have any text for its kind and its name.
  find_lines -E -e "^[^ ]+ [A-Za-z0-9]{1,63}/$object_name [a-z0-9-]+ [^ ]+ [a-z]+ [^ ]+ [^ ]+( True)?\$" <<<"$lines"
}

# Print the lines of pods with claims, and those of pods on the node $1 with devices that Kubernetes gives them by their device keys.
print_claimed() { print_controlled .spec.resourceClaims; }
print_native() { print_controlled .status.extendedResourceClaimStatus "spec.nodeName=$1,"; }

# Print NotIn if pods of namespaces without the label get claims, as the mode of Drawbridge is OptOut. No condition, which would take
# a question without an answer for no.
print_mode() {
  local path='{.webhooks[?(@.name=="pods.drawbridge.internal")].namespaceSelector.matchExpressions'
  path="${path}[?(@.key==\"drawbridge.internal/translate\")].operator}"
  kubectl get mutatingwebhookconfiguration zz-drawbridge --ignore-not-found "--output=jsonpath=$path"
}

# Print the lines of those whose next ones get claims when this wave is taken back, if the labels are as the plan knows them.
print_lasting() {
  local lines namespace mode patterns=("${apart[@]}" "${keyed[@]}")
  lines="$(print_claimed)" || return
  if [ -z "$lines" ]; then return; fi
  if [ "$unlabelled" != ' ' ]; then
    mode="$(print_mode)" || return
    for namespace in $unlabelled; do
      if [ "$mode" != NotIn ]; then patterns+=("^[^ ]+ [^ ]+ $namespace [^ ]+ translated "); fi
    done
  fi
  find_lines -v -E -f <(printf '%s\n' '^$' "${patterns[@]}") <<<"$lines"
}

# Print a line for each device that a pod has by a claim: the namespace, the driver and the pod.
print_devices() {
  local lines template="{{range .items}}{{\$namespace := .metadata.namespace}}{{with .status}}{{\$pods := .reservedFor}}"
  template="$template{{with .allocation}}{{with .devices}}{{range .results}}{{\$driver := .driver}}{{range \$pods}}"
  template="$template{{if eq (print .resource) \"pods\"}}{{\$namespace}} {{js \$driver}} {{js .name}}{{\"\\n\"}}{{end}}{{end}}"
  lines="$(kubectl get resourceclaims.resource.k8s.io --all-namespaces \
    "--output=go-template=$template{{end}}{{end}}{{end}}{{end}}{{end}}")" || return
  find_lines -x -E -e '[a-z0-9-]+ [a-z0-9.-]+ [a-z0-9.-]+' <<<"$lines"
}

# Print those of the lines $1 of pods that lose devices when the drivers leave: pods whose devices are all of others find them
# again. Those whose claims do not tell are printed, too.
losing_devices() {
  local devices gone pattern pod owner namespace rest
  local -A staying=()
  if [ -z "$1" ]; then return; fi
  devices="$(print_devices)" || return
  pattern="$(printf '|%s' "${leaving[@]}")"
  gone="$(find_lines -E -e "^[^ ]+ (${pattern#|}) " <<<"$devices")" || return
  while read -r namespace _ pod; do staying["$namespace/$pod"]=yes; done <<<"$devices"
  while read -r namespace _ pod; do staying["$namespace/$pod"]=; done <<<"$gone"
  while read -r pod owner namespace rest; do
    if [ -z "${staying["$namespace/$pod"]:-}" ]; then printf '%s\n' "$pod $owner $namespace $rest"; fi
  done <<<"$1"
}

# Print the workload of a pod of the namespace $1 with the owner $2 and the hash $3.
print_workload() {
  local owner="$2"
  if [[ "$owner" == ReplicaSet/*-"$3" ]]; then owner="Deployment/${owner#*/}" && owner="${owner%-"$3"}"; fi
  printf '%s/%s/%s\n' "${owner%%/*}" "$1" "${owner#*/}"
}

# Print the label of the namespace $1.
print_label() {
  kubectl get "namespace/$1" --ignore-not-found '--output=jsonpath={.metadata.labels.drawbridge\.internal/translate}'
}

# Whether the namespace $1 is opted out by now: its pods get device keys, so a way back leaves its label as it is.
is_opted_out() {
  local label
  label="$(print_label "$1")" || return
  if [ "$label" != false ]; then return 1; fi
  printf 'namespace/%s is opted out, and stays so\n' "$1"
}

# Print what gives next pods of the workload $1 claims, from a line $2 of one: its namespace or its template by the label, the
# mode of Drawbridge, its manifest, or an earlier wave; its pods where their template is not read; nothing if they get device keys.
print_reason() {
  local kind namespace name label mode found='' template='' place=template path='{.spec.template.metadata.labels.drawbridge\.internal/translate}'
  IFS=/ read -r kind namespace name <<<"$1"
  if grep -q -E -e '^([^ ]+ ){4}native ' <<<"$2"; then echo manifest && return; fi
  label="$(print_label "$namespace")" || return
  if [ "$label" = true ] && [[ "$selecting" == *" $namespace "* ]]; then label=selected; fi
  case "$kind" in
    Deployment | StatefulSet | DaemonSet | ReplicaSet | ReplicationController | Job)
      found="$(kubectl get "${kind,,}/$name" "--namespace=$namespace" --ignore-not-found \
        "--output=jsonpath={.kind}/$path")" || return ;;
  esac
  # A kind of another project may have the name of one of Kubernetes; its objects are not found.
  if [ -n "$found" ]; then
    template="${found#*/}"
  else
    place=pods
    if grep -q -E -e '^([^ ]+ ){4}translated true ' <<<"$2"; then template=true; fi
  fi
  # The label of a namespace that this way back leaves without one tells nothing, nor does true in mode OptOut.
  if [[ "$label" != false && ("$label" != selected || "$unlabelled" == *" $namespace "*) ]]; then
    mode="$(print_mode)" || return
    if [ "$mode" = NotIn ]; then label=all; fi
  fi
  case "$label/$template" in
    */false | false/*) ;;
    all/*) echo mode ;;
    true/*) if grep -q "^$namespace " <<<"$switched"; then echo wave; else echo namespace; fi ;;
    selected/true) echo "$place" ;;
  esac
}

# Say how next pods of the workload $1 get device keys again, where $2 gives them claims.
say_way_to_keys() {
  local kind namespace name patch='{"spec":{"template":{"metadata":{"labels":{"drawbridge.internal/translate":null}}}}}'
  local all='(for the next pods of all its workloads)'
  IFS=/ read -r kind namespace name <<<"$1"
  case "$2" in
    manifest) ;;
    wave) printf 'they get device keys again once the wave that opted in namespace %s is taken back, too\n' "$namespace" >&2 ;;
    mode)
      printf 'for device keys again opt the namespace out, in your repository if it is there: ' >&2
      printf 'kubectl label namespace %q drawbridge.internal/translate=false --overwrite %s\n' "$namespace" "$all" >&2
      ;;
    namespace)
      printf 'for device keys again take the label off, in your repository if it is there: ' >&2
      printf 'kubectl label namespace %q drawbridge.internal/translate- %s\n' "$namespace" "$all" >&2
      ;;
    *)
      printf 'for device keys again take the label off, in your repository if it is there: ' >&2
      case "$2/$kind" in
        template/Deployment | template/StatefulSet | template/DaemonSet)
          printf 'kubectl patch %q --namespace=%q --type=merge --patch=%s ' "${kind,,}/$name" "$namespace" "'$patch'" >&2
          printf '(a new template: all its pods are created again, those on other nodes, too, unless it has OnDelete)\n' >&2
          ;;
        template/Job) printf '%s has to be created anew without it, as the template of a Job cannot change\n' "$1" >&2 ;;
        *) printf 'drawbridge.internal/translate in the template for pods of %s\n' "$1" >&2 ;;
      esac
      ;;
  esac
}

# Print the lines of pods of the workload $1 from lines of `print_claimed`.
of_workload() {
  local rest="${1#*/}"
  find_lines -E -e "^[^ ]+ [^ ]+ ${rest%%/*} " <<<"$2" | find_lines -i -E -e "$(owner_pattern "${1%%/*}/${1##*/}")"
}

# Print the workloads of lines of `print_claimed`.
print_workloads() {
  local owner namespace hash
  while read -r _ owner namespace _ _ _ hash _; do
    if [ -n "$owner" ]; then print_workload "$namespace" "$owner" "$hash"; fi
  done <<<"$1" | sort -u
}

# Print those of the lines $1 that are of pods on the nodes that follow.
on_any_of() {
  local pod owner namespace node rest places=" ${*:2} "
  while read -r pod owner namespace node rest; do
    if [ -n "$node" ] && [[ "$places" == *" $node "* ]]; then
      printf '%s\n' "$pod $owner $namespace $node $rest"
    fi
  done <<<"$1"
}

# Print those of the lines $2 that are of translated pods of the namespace $1, without those of DaemonSets.
placed_pods() {
  find_lines -E -e "^[^ ]+ [^ ]+ $1 [^ ]+ translated " <<<"$2" | find_lines -v -E -e '^[^ ]+ DaemonSet/'
}

# Stop unless somebody says otherwise where pods with claims are on the nodes $*, and their next ones get claims, too. Another node
# may have devices for these: that is known to the scheduler alone. Earlier waves had devices for as many pods as were there.
stop_at_claims() {
  local all lines placed count namespace number workload workloads
  if evicts all; then return; fi
  all="$(print_lasting)"
  lines="$(on_any_of "$all" "$@")"
  while read -r namespace number; do
    if [ -z "$namespace" ]; then continue; fi
    placed="$(placed_pods "$namespace" "$all")"
    count="$(find_lines -c . <<<"$placed")"
    # An argument may not be as long as the lines of all pods of a namespace.
    if [ "$count" -le "$number" ]; then lines="$(find_lines -v -x -F -f <(printf '%s\n' "$placed") <<<"$lines")"; fi
  done <<<"$switched"
  lines="$(losing_devices "$lines")"
  workloads="$(print_workloads "$lines")"
  # Standard input is a person's.
  for workload in $workloads; do ask_about_claims "$workload" "$(of_workload "$workload" "$lines")"; done
}

# Stop unless somebody says otherwise for the workload $1, with the lines $2 of its pods on nodes of the wave.
ask_about_claims() {
  local answer reason cause wait='for ever unless another node with a DRA driver has devices for them'
  if evicts "$1"; then return; fi
  reason="$(print_reason "$1" "$2")"
  case "$reason" in
    '') return ;;
    manifest) cause='as its manifest has them' ;;
    mode) cause='since its namespace is not opted out' ;;
    wave) cause='since an earlier wave has opted it in' && if [[ "$1" != DaemonSet/* ]]; then cause="$cause, with fewer pods in its namespace then"; fi ;;
    *) cause="by the label of its $reason, which this way back leaves" ;;
  esac
  if [[ "$1" == DaemonSet/* ]]; then wait='for ever on nodes that the DRA driver has left'; fi
  printf '%s has pods with claims on nodes of this wave (%s), and its next ones get claims, too, %s: they wait %s\n' \
    "$1" "$(cut -d ' ' -f 1 <<<"$2" | paste -s -d ' ' -)" "$cause" "$wait" >&2
  ask 'Evict them all the same, or abort (e/a)?'
  case "$answer" in e*) return ;; esac
  say_way_to_keys "$1" "$reason"
  case "$reason" in
    namespace | template | pods | mode) printf 'then go on: these pods come again with device keys, and need no restart\n' >&2 ;;
  esac
  printf -- '--evict-jobs=%q evicts them all the same\n' "$1" >&2
  last_command="look for pods of $1 with claims"
  return 1
}

# Note on the node $1, before its drain, the workloads of pods with claims, but of those that this way back restarts, of pods that
# Kubernetes serves by their device keys, and those of `evicted_before`, each with the number of pods that is ready: the last step
# waits for them.
planned_workloads=()
evicted_before() { planned_workloads+=("$@"); }
note_evicted() {
  local all lines workload noted_before value=
  all="$(print_claimed)"
  all="$(find_lines -v -E -f <(printf '%s\n' '^$' "${apart[@]}" "${restarted[@]}") <<<"$all")"
  lines="$(on_any_of "$all" "$1")"
  lines="$(losing_devices "$lines")"
  lines="$lines"$'\n'"$(print_native "$1")"
  for workload in $(print_workloads "$lines") "${planned_workloads[@]}"; do
    value="$value $workload=$(print_members "$workload" | find_lines -c ' True$')"
  done
  if [ -z "$value" ]; then return; fi
  noted_before="$(print_noted "$1")"
  value="$(printf '%s\n' "$noted_before" "${value// /$'\n'}" | grep . | sort -u | paste -s -d ' ' -)"
  on_nodes annotate node "$1" --overwrite "drawbridge.internal/evicted=$value"
}

# Print what `note_evicted` has noted on the node $1, a line for each workload. The kubelet may write any other text there.
print_noted() {
  local value
  value="$(kubectl get node "$1" --ignore-not-found '--output=jsonpath={.metadata.annotations.drawbridge\.internal/evicted}')" || return
  find_lines -x -E -e "[A-Za-z0-9]{1,63}/[a-z0-9-]+/$object_name=[0-9]{1,9}" <<<"${value// /$'\n'}"
}

# Wait until as many pods of workloads are ready as `print_needed` says: of those that are noted on the nodes $1, a list with spaces,
# and of those that follow, each with the number of its pods when the plan was made. A minute is enough for pods of a DaemonSet with
# claims, which no other node takes, and where as many are ready as are noted: the others did not run before this way back, and stop
# it only if they have claims and no node. None do where somebody has said so.
wait_for_evicted() {
  local places="$1" node value entry workload pods ready names needed enough values='' late='' noted_nodes=() start
  local end=$((SECONDS + most_seconds))
  shift
  local -A ran=() before=()
  for node in $places; do
    value="$(print_noted "$node")"
    if [ -n "$value" ]; then noted_nodes+=("$node"); fi
    values="$values $value"
  done
  for entry in $values; do
    if [ "${entry##*=}" -gt "${ran[${entry%=*}]:-0}" ]; then ran[${entry%=*}]="${entry##*=}"; fi
  done
  for entry in $values "$@"; do
    if [ "${entry##*=}" -gt "${before[${entry%=*}]:-0}" ]; then before[${entry%=*}]="${entry##*=}"; fi
  done
  for workload in $(printf '%s\n' "${!before[@]}" | sort); do
    start="$SECONDS"
    value=
    while true; do
      pods="$(print_members "$workload")"
      names="$(print_waiting "$pods" '(claims|keys)')"
      ready="$(find_lines -c ' True$' <<<"$pods")"
      needed="$(print_needed "$workload" "${before[$workload]}" "$names")"
      if [ "$ready" -ge "$needed" ]; then break; fi
      if [ -z "$value" ]; then printf 'waiting for pods of %s: %s\n' "$workload" "${names:-$ready of $needed are ready}"; fi
      value=said
      enough=
      if [ "$ready" -ge "${ran[$workload]:-0}" ] && [ -z "$(print_waiting "$pods" claims)" ]; then enough=yes; fi
      if [ "$SECONDS" -ge "$end" ] ||
        { { [ -n "$enough" ] || is_stuck "$workload" "$pods"; } && [ "$((SECONDS - start))" -ge "$fewer_seconds" ]; }; then
        say_late "$workload" "$pods" "$names" "$ready of $needed"
        if [ -z "$enough" ] && ! evicts "$workload"; then
          printf -- '--evict-jobs=%q goes on while these wait\n' "$workload" >&2
          late="$late $workload"
        fi
        break
      fi
      sleep 2
    done
  done
  if [ -n "$late" ]; then
    last_command="wait for pods of$late"
    return 1
  fi
  for node in "${noted_nodes[@]}"; do on_nodes annotate node "$node" drawbridge.internal/evicted-; done
}

# Print how many pods of the workload $1 have to be ready where $2 were: no more than it asks for by now. If it is gone, or if its
# kind may have pods that end, these are enough that have a node: as many as $2 where pods of the names $3 have none.
print_needed() {
  local kind namespace name wanted=
  IFS=/ read -r kind namespace name <<<"$1"
  case "$kind" in
    Deployment | StatefulSet | DaemonSet | ReplicaSet | ReplicationController)
      if ! is_gone "${kind,,}/$name" "$namespace" >/dev/null; then
        wanted="$(print_wanted "${kind,,}/$name" "$namespace")" || return
      fi
      ;;
  esac
  if [ -z "$wanted" ]; then wanted="${3:+$2}"; fi
  if [ "${wanted:-0}" -gt "$2" ]; then wanted="$2"; fi
  printf '%s\n' "${wanted:-0}"
}

# Say that the workload $1 with the pods $2 is not back: no node takes those of the names $3, or only $4 are ready.
say_late() {
  if [ -n "$3" ]; then
    printf '%s: no node takes %s\n' "$1" "$3" >&2
    say_waiting "$1" "$(print_waiting "$2" claims)"
    return
  fi
  printf '%s: %s pods are ready' "$1" "$4" >&2
  name_waiting "$2"
}

# Print the lines of `print_pods` for the workload $1.
print_members() {
  local rest="${1#*/}"
  print_pods "${rest%%/*}" '' "${1%%/*}/${1##*/}"
}

# Print the names of pods without a node, with devices by what $2 matches, from their lines.
print_waiting() {
  find_lines -E -e " $2 unplaced\$" <<<"$1" | cut -d ' ' -f 1 | paste -s -d ' ' -
}

# Whether pods without a node, of the lines $2, are of the DaemonSet $1, and all of them have claims.
is_stuck() { [[ "$1" == DaemonSet/* ]] && [ -n "$(print_waiting "$2" claims)" ] && [ -z "$(print_waiting "$2" keys)" ]; }

# Say how the pods $2 of the workload $1 get device keys, if there are any.
say_waiting() {
  local rest="${1#*/}" reason lines
  if [ -z "$2" ]; then return; fi
  lines="$(print_claimed)"
  lines="$(of_workload "$1" "$lines")"
  reason="$(print_reason "$1" "$lines")"
  say_way_to_keys "$1" "$reason"
  case "$reason" in
    namespace | template | pods | mode)
      printf 'then delete those with claims: kubectl delete pods --namespace=%q %s\n' "${rest%%/*}" "$2" >&2 ;;
  esac
}
"""
"""The text of the functions; they use those for nodes and for pods."""
