"""The functions of the shared script that take a switched node out of the schedulers of HAMi and Koordinator. Pure.

HAMi 2.9 and 2.10 count a node without a plugin again while it has the annotation in which the plugin registered its GPUs.
The scheduler of HAMi 2.7 to 2.9 passes over nodes without that annotation, also to forget one: if it is deleted too early,
the node counts until the scheduler restarts. So it is deleted after the scheduler has forgotten the node: HAMi up to 2.9
writes `Deleted_` with the time as handshake then, and HAMi 2.10 removes the handshake. HAMi 2.8 needs none, forgets a node
once, and leaves a mark of an earlier restart of the plugin, so a mark from before the switch says nothing. A node without a
handshake is forgotten, too, with HAMi 2.10: its scheduler looks at each every 15 seconds, and counts it again with a new one.

Source: Project-HAMi/HAMi v2.7.1, v2.8.3, v2.9.0 and branch release-v2.10, pkg/scheduler/scheduler.go (register),
pkg/device/devices.go and pkg/device/nvidia/device.go (CheckHealth, NodeCleanUp).

koordlet writes the Device object of its node as long as its pod is there, and koord-scheduler allocates what that has.
Source: koordinator-sh/koordinator, pkg/koordlet/statesinformer.
"""

from typing import Final

HAMI_FUNCTIONS: Final = r"""
# Print the handshake of HAMi with the node $1, a bar, and the register of its GPUs; nothing for a node that is gone.
print_handshake() {
  local path='{.metadata.annotations.hami\.io/node-handshake}|{.metadata.annotations.hami\.io/node-nvidia-register}'
  kubectl get node "$1" --ignore-not-found "--output=jsonpath=$path"
}

# Note the handshake of HAMi with the node $1, none if its plugin has left already; the other arguments are its resources.
handshake=
handshake_seconds=120
unasked_seconds=20
note_handshake() {
  local node="$1" resource amounts=''
  handshake=
  shift
  for resource in "$@"; do
    amounts="$amounts$(kubectl get node "$node" --ignore-not-found "--output=jsonpath={.status.allocatable.${resource//./\\.}}")"
  done
  if [[ "$amounts" == *[1-9]* ]]; then handshake="$(print_handshake "$node")"; fi
  handshake="${handshake%%|*}"
}

# Delete the register of GPUs of the node $1, which HAMi's plugin has left, once HAMi's scheduler has forgotten them: it marks
# the handshake as deleted then, or removes it. Earlier they would count until it restarts. Where no handshake comes, nothing says
# so, and the register stays: the schedulers that write one look at a node more often. Nothing is deleted where the handshake
# changes at the same moment.
forget_register() {
  local now value patch at=/metadata/annotations/hami.io~1node mark='^Deleted_[0-9: -]*$' seen="$handshake"
  local start="$SECONDS" end=$((SECONDS + handshake_seconds))
  while true; do
    now="$(print_handshake "$1")"
    case "$now" in *'|'?*) now="${now%%|*}" ;; *) return ;; esac
    seen="${seen:-$now}"
    if [ -z "$seen" ] && [ "$((SECONDS - start))" -ge "$unasked_seconds" ]; then return; fi
    value=
    if [ -z "$now" ] && [ -n "$seen" ]; then value=null; fi
    if [ "$now" != "$handshake" ] && [[ "$now" =~ $mark ]]; then value="\"$now\""; fi
    patch="[{\"op\":\"test\",\"path\":\"$at-handshake\",\"value\":$value},{\"op\":\"remove\",\"path\":\"$at-nvidia-register\"}]"
    if [ -n "$value" ] && kubectl patch node "$1" --type=json "--patch=$patch"; then return; fi
    if [ "$SECONDS" -ge "$end" ]; then break; fi
    sleep 2
  done
  printf "%s keeps hami.io/node-nvidia-register, since HAMi's scheduler has not forgotten its GPUs in %s seconds: once " \
    "$1" "$handshake_seconds" >&2
  printf 'its annotation hami.io/node-handshake begins with Deleted_ or is gone, kubectl annotate node %q hami.io/node-nvidia-register-\n' \
    "$1" >&2
}
"""
"""The text of the functions."""

KOORDINATOR_DEVICES: Final = "devices.scheduling.koordinator.sh"
KOORDINATOR_FUNCTIONS: Final = r"""
# Delete what koordlet has registered of the node $1 once it has no pod there, by its DaemonSet's name or its image: it would write
# that again. One with feature gates that have it register no devices may stay, as one for colocation.
forget_registered() {
  local pods left end=$((SECONDS + leave_seconds))
  local idle='/[^A-Za-z](Accelerators|AllAlpha)(=|.u003D)([^f]|$)/!{/feature-gates/d;}'
  local arguments='{{range .command}} {{js .}}{{end}}{{range .args}} {{js .}}{{end}}'
  local lines="{{range .items}}{{.metadata.name}}$owner_text{{range .spec.containers}} {{js .image}}$arguments{{end}}{{\"\\n\"}}{{end}}"
  while true; do
    pods="$(kubectl get pods --all-namespaces "--field-selector=spec.nodeName=$1" "--output=go-template=$lines")"
    left="$(find_lines -e ' DaemonSet/.*koordlet' <<<"$pods" | sed -E -e "$idle" | cut -d ' ' -f 1)"
    if [ -z "$left" ]; then break; fi
    if [ "$SECONDS" -ge "$end" ]; then
      printf '%s is still on %s, and registers its GPUs for Koordinator: see that it leaves nodes with the label of the driver\n' \
        "$left" "$1" >&2
      last_command="wait until koordlet has left $1"
      return 1
    fi
    sleep 2
  done
  kubectl delete @DEVICES@ "$1" --ignore-not-found --timeout=10m
}

# The same for all nodes with the label $1, which koordlet has come back to where its affinity was taken back.
forget_switched() {
  local nodes node
  nodes="$(kubectl get nodes "--selector=$1" --output=name)"
  for node in $nodes; do forget_registered "${node#node/}"; done
}
""".replace("@DEVICES@", KOORDINATOR_DEVICES)
"""The text of the functions; the script sets `leave_seconds` and `owner_text`."""
