"""The rules about use by tenants: none above its quota, and no idle device that a pod waits for."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from e2e.checker.devices import (
    CORES,
    GPU,
    MEMORY,
    MIB,
    DeviceRequest,
    has_room,
    offered,
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
    has_condition,
    is_gated,
    is_leaving,
    label_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    quantity,
    uid_of,
)
from e2e.checker.published import Published
from e2e.checker.rules import Allowance, Finding

_PERIOD_S: Final = 1.0
"""The pause between looks for idle devices, in seconds of the history."""
_COMPUTE: Final = ("cpu", "memory")
_BLOCKING: Final = ("NoSchedule", "NoExecute")


class Quotas:
    """No tenant has more devices than its quota allowed at first, by any API of its pods.

    What counts is what a person wrote: a pod counts alike with keys and with claims, so a second line for
    claims does not double what a tenant may have.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._limits: dict[tuple[str, str], Decimal] = {}
        self._amounts: dict[str, tuple[str, Mapping[str, Decimal]]] = {}
        self._used: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
        self._above_since: dict[tuple[str, str], float] = {}
        self._reported: set[tuple[str, str]] = set()

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Count pods as they come and go."""
        if event.kind == "resourcequotas" and before is None and event.type != DELETED:
            self._remember(event.object)
        if event.kind == "pods":
            self._count(event, state)
        yield from self._excesses(event.at)

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Tell the tenants above their quota at the end."""
        del state
        yield from self._excesses(at)

    def _remember(self, quota: Object) -> None:
        for line, limit in quota["spec"].get("hard", {}).items():
            key = line.removeprefix("requests.")
            if key == GPU or key in {MEMORY, CORES} or key.startswith("nvidia.com/mig-"):
                place = namespace_of(quota), key
                self._limits[place] = min(self._limits.get(place, quantity(limit)), quantity(limit))

    def _count(self, event: Event, state: State) -> None:
        pod = event.object
        has_ended = event.type == DELETED or is_leaving(pod) or phase_of(pod) in FINISHED
        if has_ended:
            namespace, amounts = self._amounts.pop(uid_of(pod), ("", {}))
            for key, amount in amounts.items():
                self._used[namespace, key] -= amount
        # A pod that waits for a DeviceQuota has nothing yet.
        elif uid_of(pod) not in self._amounts and not is_gated(pod):
            counted: defaultdict[str, Decimal] = defaultdict(Decimal)
            for request in requests_of(pod, state):
                counted[request.key] += request.amount
                counted[MEMORY] += request.amount * request.memory / MIB
                counted[CORES] += request.amount * request.cores
            self._amounts[uid_of(pod)] = namespace_of(pod), counted
            for key, amount in counted.items():
                self._used[namespace_of(pod), key] += amount

    def _excesses(self, at: float) -> Iterator[Finding]:
        for place, limit in self._limits.items():
            if self._used[place] <= limit:
                self._above_since.pop(place, None)
                self._reported.discard(place)
                continue
            since = self._above_since.setdefault(place, at)
            if at - since >= self._allowance.excess_s and place not in self._reported:
                self._reported.add(place)
                namespace, key = place
                text = f"has {self._used[place]} {key} for {at - since:.0f} s; its quota allowed {limit}"
                yield Finding("quota", at, namespace, text)


class _Waiting(NamedTuple):
    """A pod without a node, and its requests."""

    pod: Object
    requests: list[DeviceRequest]


class Idle:
    """No device is idle for long that a waiting pod could use, by its size and the pod's node selector.

    Whether the device is offered by a plugin or by a DRA driver makes no difference: a device on the
    side where the pod is not let is idle. Devices of cordoned nodes, of nodes without the CPU or the memory for the pod,
    and head-room, are left out.
    """

    def __init__(self, allowance: Allowance, published: Published) -> None:
        self._allowance = allowance
        self._published = published
        self._waiting: dict[str, _Waiting] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._reported: set[str] = set()
        self._looked_at = float("-inf")

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Follow the pods that wait, and look at the devices that they wait for."""
        del before
        if event.kind == "pods":
            self._follow(event, state)
        # What begins or becomes free has to be seen at once: the next event may be far away.
        if _may_free(event) or event.at - self._looked_at >= _PERIOD_S:
            self._looked_at = event.at
            yield from self._look(event.at, state)

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Look once more."""
        yield from self._look(at, state)

    def _follow(self, event: Event, state: State) -> None:
        pod = event.object
        waits = (
            event.type != DELETED
            and phase_of(pod) in {"", "Pending"}
            and not node_of(pod)
            and not is_leaving(pod)
            and not pod["spec"].get("schedulingGates")
        )
        if not waits:
            self._waiting.pop(uid_of(pod), None)
        elif uid_of(pod) not in self._waiting and (requests := requests_of(pod, state)):
            self._waiting[uid_of(pod)] = _Waiting(pod, requests)

    def _look(self, at: float, state: State) -> Iterator[Finding]:
        still: dict[tuple[str, str], float] = {}
        used = _requested_by_node(state) if self._waiting else {}
        for uid, waiting in self._waiting.items():
            free = {
                name_of(node): count
                for node in state.objects("nodes")
                if _lets(node, waiting.pod)
                and _has_room(node, waiting.pod, used.get(name_of(node), {}))
                and (count := self._free(node, waiting.requests, state)) is not None
            }
            if sum(free.values()) <= self._allowance.head_room:
                continue
            for name, count in free.items():
                since = still[uid, name] = self._since.get((uid, name), at)
                if at - since > self._allowance.idle_s and uid not in self._reported:
                    self._reported.add(uid)
                    words = ", ".join(map(str, waiting.requests))
                    text = f"waits for {words} while {name} has {count} idle for {at - since:.0f} s"
                    yield Finding("idle", at, label_of(waiting.pod), text)
        self._since = still

    def _free(self, node: Object, requests: list[DeviceRequest], state: State) -> int | None:
        """Return the number of devices of a kind that are free on a node; None if not all requests fit."""
        counts = []
        for request in requests:
            published = sum(
                has_room(device, request, self._published.taken(identity))
                for identity, device in self._published.by_node[name_of(node)].items()
            )
            by_plugin = offered(node, request)
            if by_plugin:
                by_plugin -= used_by_keys(name_of(node), request.key, state)
            counts.append(max(published, by_plugin))
            if counts[-1] < request.amount:
                return None
        return min(counts)


def _requested_by_node(state: State) -> dict[str, dict[str, Decimal]]:
    """Return node to the CPU and memory that its pods request."""
    used: dict[str, dict[str, Decimal]] = {}
    for pod in state.objects("pods"):
        if node_of(pod) and phase_of(pod) not in FINISHED:
            amounts = used.setdefault(node_of(pod), dict.fromkeys(_COMPUTE, Decimal(0)))
            for name, amount in _requested(pod).items():
                amounts[name] += amount
    return used


def _requested(pod: Object) -> dict[str, Decimal]:
    """Return the CPU and memory that the containers of a pod request."""
    amounts = dict.fromkeys(_COMPUTE, Decimal(0))
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        for name in _COMPUTE:
            own = resources.get("requests", {}).get(name, resources.get("limits", {}).get(name, 0))
            amounts[name] += quantity(own)
    return amounts


def _has_room(node: Object, pod: Object, used: Mapping[str, Decimal]) -> bool:
    """Return True if a node has the CPU and memory for a pod, as far as it names amounts."""
    allocatable = node["status"].get("allocatable", {})
    return all(
        name not in allocatable
        or amount <= quantity(allocatable[name]) - used.get(name, Decimal(0))
        for name, amount in _requested(pod).items()
    )


def _may_free(event: Event) -> bool:
    """Return True if a device may be free after an event, or a pod begin to wait."""
    if event.kind == "pods":
        has_ended = event.type == DELETED or is_leaving(event.object)
        return has_ended or phase_of(event.object) in FINISHED or not node_of(event.object)
    if event.kind == "resourceclaims":
        return event.type == DELETED or not results_of(event.object)
    return event.kind in {"nodes", "resourceslices"}


def _lets(node: Object, pod: Object) -> bool:
    """Return True if a node takes a pod, devices apart."""
    spec = node["spec"]
    if spec.get("unschedulable") or not has_condition(node, "Ready"):
        return False
    labels = node["metadata"].get("labels", {})
    chosen = pod["spec"].get("nodeSelector", {})
    return all(labels.get(key) == value for key, value in chosen.items()) and all(
        taint["effect"] not in _BLOCKING or _tolerates(pod, taint)
        for taint in spec.get("taints", ())
    )


def _tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    return any(
        toleration.get("key") in {None, "", taint["key"]}
        and toleration.get("effect") in {None, "", taint["effect"]}
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
        for toleration in pod["spec"].get("tolerations", ())
    )
