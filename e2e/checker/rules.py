"""The rules that a migration must not break, each on a whole history.

A rule sees every event with the state of the cluster after it, and tells what broke it.
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

from e2e.checker.devices import (
    DeviceRequest,
    claims_of,
    has_whole_card_of_hami,
    is_given,
    offered,
    offers_other_kind,
    requests_of,
    results_of,
    used_by_keys,
)
from e2e.checker.history import (
    DELETED,
    FINISHED,
    Event,
    Object,
    State,
    controller_of,
    has_condition,
    is_leaving,
    is_new,
    label_of,
    name_of,
    node_of,
    phase_of,
    uid_of,
)
from e2e.checker.published import Published
from e2e.checker.waiting import WORKLOADS, Waiting, desired_pods, ready_pods

DISRUPTION: Final = "DisruptionTarget"
_STAYS: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations with which a pod asks not to be evicted."""


class Allowance(NamedTuple):
    """The changes that a migration may make, and their limits.

    Attributes:
        kills: `namespace/pod` of unfinished pods that may be killed, `*` for any text.
        dead_nodes: Nodes that died; their pods may end.
        idle_s: The longest time for a device to be idle while a pod waits that could use it.
        head_room: Devices that may be idle all the same.
        excess_s: The longest time for a tenant above its quota. Kubernetes' own count is late now and then
            (kubernetes/kubernetes#123434), and ends with the rollout that made use of it.
        gate_s: The longest wait of a pod for a DeviceQuota that has room for it.
        unused_s: The longest time for a ResourceClaimTemplate without a pod at the end.
    """

    kills: tuple[str, ...] = ()
    dead_nodes: tuple[str, ...] = ()
    idle_s: float = 120.0
    head_room: int = 0
    excess_s: float = 30.0
    gate_s: float = 30.0
    unused_s: float = 300.0


class Finding(NamedTuple):
    """A breach of a rule.

    Attributes:
        rule: `killed`, `size`, `quota`, `budget`, `idle`, `waits` or `left`.
        at: Second of the history.
        object: `namespace/name`, or a name.
        text: The fault found, and the right state.
    """

    rule: str
    at: float
    object: str
    text: str


class Rule(Protocol):
    """A rule that sees a history event by event."""

    def see(self, event: Event, before: Object | None, state: State) -> Iterable[Finding]:
        """Return the rules that an event broke.

        Args:
            before: The object before the event; None for one that is new.
            state: The state after the event.
        """
        ...

    def end(self, at: float, state: State) -> Iterable[Finding]:
        """Return the findings that only the end of the history shows."""
        ...


class Killed:
    """No unfinished pod is killed, unless that is allowed.

    It is about pods that would lose work: those that do not restart, and those that ask to stay. Others
    may move; how many at once is the business of PodDisruptionBudgets, which the API server keeps.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._reported: set[str] = set()
        self._excused: set[str] = set()

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Tell of a pod that ends before its work, and of a Job that fails."""
        if event.kind == "jobs" and event.type != DELETED:
            yield from self._job(event, before)
        if event.kind != "pods" or before is None or uid_of(before) in self._reported:
            return
        pod = event.object
        was_running = node_of(before) and phase_of(before) not in FINISHED
        # Who deletes a pod marks it first; a pod that is deleted by force goes without a mark.
        is_killed = not is_leaving(before) and (is_leaving(pod) or event.type == DELETED)
        is_evicted = phase_of(pod) == "Failed" and has_condition(pod, DISRUPTION)
        if not (was_running and (is_killed or is_evicted)) or phase_of(pod) == "Succeeded":
            return
        if _loses_work(pod) and not self._is_allowed(pod, state):
            self._reported.add(uid_of(pod))
            text = f"killed on {node_of(before)} while {phase_of(before)}; it has to end by itself"
            yield Finding("killed", event.at, label_of(pod), text)

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Everything has been told."""
        del at, state
        yield from ()

    def _job(self, event: Event, before: Object | None) -> Iterator[Finding]:
        has_failed = before is not None and not has_condition(before, "Failed")
        if not has_failed or not has_condition(event.object, "Failed"):
            return
        name = label_of(event.object)
        is_excused = uid_of(event.object) in self._excused
        if not is_excused and not any(
            fnmatchcase(name, pattern) for pattern in self._allowance.kills
        ):
            limit = event.object["spec"].get("backoffLimit", 6)
            text = f"the Job failed, with backoffLimit {limit}; it has to complete"
            yield Finding("killed", event.at, name, text)

    def _is_allowed(self, pod: Object, state: State) -> bool:
        owner = controller_of(pod)
        if node_of(pod) in self._allowance.dead_nodes:
            # Its Job may fail for that.
            self._excused |= {owner["uid"]} if owner is not None else set()
            return True
        job = state.find("jobs", owner["uid"]) if owner is not None else None
        if job is not None and _ignores_disruption(job):
            return True
        return any(fnmatchcase(label_of(pod), pattern) for pattern in self._allowance.kills)


def _loses_work(pod: Object) -> bool:
    notes = pod["metadata"].get("annotations", {})
    stays = any(notes.get(key) == value for key, value in _STAYS.items())
    return stays or pod["spec"].get("restartPolicy", "Always") != "Always"


def _ignores_disruption(job: Object) -> bool:
    """Return True if an eviction costs a Job none of its tries, by its first rule about one."""
    for rule in job["spec"].get("podFailurePolicy", {}).get("rules", ()):
        if "onExitCodes" in rule:
            return False
        if any(entry["type"] == DISRUPTION for entry in rule.get("onPodConditions", ())):
            return bool(rule["action"] == "Ignore")
    return False


class Sizes:
    """Every pod that runs has the devices that it asked for, and no device is given twice."""

    def __init__(self, published: Published) -> None:
        self._published = published
        self._validated: set[str] = set()
        self._doubled: set[tuple[str, str, str]] = set()
        self._kept_devices: set[str] = set()

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Validate a pod when it begins to run."""
        del before
        if event.type == DELETED:
            return
        if event.kind == "resourceclaims":
            yield from self._claim(event)
        if event.kind == "resourceslices":
            yield from self._kept(event.at, event.object["spec"].get("nodeName", ""), state)
        if event.kind == "nodes":
            yield from self._kept(event.at, name_of(event.object), state)
        if event.kind != "pods" or uid_of(event.object) in self._validated:
            return
        pod = event.object
        if phase_of(pod) == "Running" and not is_leaving(pod):
            self._validated.add(uid_of(pod))
            for text in self._faults(pod, state):
                yield Finding("size", event.at, label_of(pod), text)

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Everything has been told."""
        del at, state
        yield from ()

    def _faults(self, pod: Object, state: State) -> Iterator[str]:
        claims = claims_of(pod, state)
        rest = [result for claim in claims for result in results_of(claim)]
        for request in requests_of(pod, state):
            if not claims:
                yield from self._plugin_faults(pod, request, state)
                continue
            suiting = [
                result
                for result in rest
                if (device := self._published.devices.get(result.identity)) is not None
                and is_given(result, device, request)
            ][: request.amount]
            if len(suiting) < request.amount:
                has = ", ".join(self._published.describe(result) for result in rest) or "nothing"
                yield f"asked for {request} and has {has}"
            for result in suiting:
                rest.remove(result)

    def _plugin_faults(self, pod: Object, request: DeviceRequest, state: State) -> Iterator[str]:
        node = next(
            (entry for entry in state.objects("nodes") if name_of(entry) == node_of(pod)), None
        )
        if node is not None and has_whole_card_of_hami(pod, node):
            return
        amount = offered(node, request) if node is not None else 0
        if amount < used_by_keys(node_of(pod), request.key, state):
            what = f"whose device plugin offers {amount} of them"
            if node is not None and offers_other_kind(node, request):
                kind = "whole devices" if request.is_share else "shares of HAMi"
                what = f"whose device plugin offers {kind} under that name"
            yield f"asked for {request} and has no claim, on {node_of(pod)}, {what}"

    def _kept(self, at: float, name: str, state: State) -> Iterator[Finding]:
        """Tell of pods that keep a device of the plugin while the DRA driver offers the same.

        While the node is cordoned nobody else can get it.
        """
        node = next((entry for entry in state.objects("nodes") if name_of(entry) == name), None)
        is_published = any(
            entry["spec"].get("nodeName") == name for entry in state.objects("resourceslices")
        )
        if node is None or node["spec"].get("unschedulable") or not is_published:
            return
        for pod in state.objects("pods"):
            runs = phase_of(pod) == "Running" and node_of(pod) == name and not is_leaving(pod)
            if not runs or claims_of(pod, state) or uid_of(pod) in self._kept_devices:
                continue
            for request in requests_of(pod, state):
                self._kept_devices.add(uid_of(pod))
                text = f"has {request} of the plugin of {name}, where a driver publishes the same"
                yield Finding("size", at, label_of(pod), text)

    def _claim(self, event: Event) -> Iterator[Finding]:
        for identity in self._published.overcommitted(event.object):
            if identity not in self._doubled:
                self._doubled.add(identity)
                text = f"{'/'.join(identity)} is given to more claims than it has room for"
                yield Finding("size", event.at, label_of(event.object), text)


class Left:
    """Nothing is left behind: no cordon, no guard, no claim without a pod, no workload without its pods.

    What waited before the record is not the fault of what was recorded: as many pods of a workload may wait at the end, and at
    the end of each wave.
    """

    _GUARDS: Final = (
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "karpenter.sh/do-not-disrupt",
    )

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._cordoned: set[str] = set()
        self._guarded: set[tuple[str, str]] = set()
        self._waiting = Waiting()
        self._used_at: dict[str, float] = {}
        self._reported: set[str] = set()

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Remember the first state of nodes, and the last use of a template."""
        self._waiting.see(event, state)
        entry = event.object
        if event.kind == "nodes" and is_new(event, before):
            if entry["spec"].get("unschedulable"):
                self._cordoned.add(name_of(entry))
            self._guarded |= {(name_of(entry), guard) for guard in self._guards(entry)}
        if event.kind == "resourceclaimtemplates" and is_new(event, before):
            self._used_at[label_of(entry)] = event.at
        if event.kind == "pods":
            self._used_at |= dict.fromkeys(_templates(entry), event.at)
        yield from ()

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Tell the objects that are there and should not be."""
        for kind, name, text in (
            *self._nodes(state),
            *self._pods(state),
            *_claims(state),
            *self._templates(at, state),
            *self._workloads(state),
        ):
            yield Finding("left", at, name, f"{kind}: {text}")

    def wave_end(self, at: float, state: State) -> Iterator[Finding]:
        """Tell the pods that have no node at the end of a wave: a later one may serve them, and the end not show it."""
        for pod in self._waiting.new_pods(state):
            if uid_of(pod) not in self._reported:
                self._reported.add(uid_of(pod))
                yield Finding("waits", at, label_of(pod), "it has no node at the end of a wave")

    def _nodes(self, state: State) -> Iterator[tuple[str, str, str]]:
        for node in state.objects("nodes"):
            name = name_of(node)
            if node["spec"].get("unschedulable") and name not in self._cordoned:
                yield "node", name, "it is cordoned still"
            for guard in self._guards(node):
                if (name, guard) not in self._guarded:
                    yield "node", name, f"it has the annotation {guard} still"
        names = {name_of(node) for node in state.objects("nodes")}
        for piece in state.objects("resourceslices"):
            node_name = piece["spec"].get("nodeName", "")
            if node_name and node_name not in names:
                yield "resourceslice", name_of(piece), f"there is no node {node_name}"

    def _guards(self, node: Object) -> list[str]:
        notes = node["metadata"].get("annotations", {})
        return [guard for guard in self._GUARDS if notes.get(guard) == "true"]

    def _templates(self, at: float, state: State) -> Iterator[tuple[str, str, str]]:
        in_use = {name for pod in state.objects("pods") for name in _templates(pod)}
        for template in state.objects("resourceclaimtemplates"):
            name = label_of(template)
            unused = at - self._used_at.get(name, at)
            if name not in in_use and unused > self._allowance.unused_s:
                yield "resourceclaimtemplate", name, f"no pod has used it for {unused:.0f} s"

    def _pods(self, state: State) -> Iterator[tuple[str, str, str]]:
        for pod in state.objects("pods"):
            if is_leaving(pod):
                yield "pod", label_of(pod), "it is being deleted still"
        for pod in self._waiting.new_pods(state):
            if uid_of(pod) not in self._reported:
                yield "pod", label_of(pod), "it has no node"

    def _workloads(self, state: State) -> Iterator[tuple[str, str, str]]:
        for kind in WORKLOADS:
            for workload in state.objects(kind):
                desired, ready = desired_pods(kind, workload), ready_pods(workload)
                if desired - ready > max(self._waiting.missing_at_first(kind, workload), 0):
                    yield kind[:-1], label_of(workload), f"{ready} of {desired} pods are ready"


def _templates(pod: Object) -> list[str]:
    namespace = pod["metadata"]["namespace"]
    return [
        f"{namespace}/{entry['resourceClaimTemplateName']}"
        for entry in pod["spec"].get("resourceClaims", ())
        if entry.get("resourceClaimTemplateName")
    ]


def _claims(state: State) -> Iterator[tuple[str, str, str]]:
    pods = {uid_of(pod): pod for pod in state.objects("pods")}
    for claim in state.objects("resourceclaims"):
        owner = controller_of(claim)
        if owner is not None and owner["kind"] == "Pod" and owner["uid"] not in pods:
            yield "resourceclaim", label_of(claim), f"its pod {owner['name']} is gone"
        for consumer in claim.get("status", {}).get("reservedFor", ()):
            if consumer["resource"] == "pods" and consumer["uid"] not in pods:
                text = f"it is reserved for pod {consumer['name']}, which is gone"
                yield "resourceclaim", label_of(claim), text
