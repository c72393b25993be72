"""A recording as the input of a replay: its first state, and the pods that came and went. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from allocator.model.slice_index import SliceChange
from allocator.pods.claims import Name, allocation_of, claim_name, pod_claims, pod_name
from allocator.replay.recorded import Bound, Changed, Course, Event, Left, RecordedPod
from allocator.replay.workload import ReplayPod
from answers.manifests.replay_pods import ReplayPodBuilder, unallocated, unbound
from answers.model.cluster_state import ClusterState, build_state, is_running
from answers.model.objects import NamespacedObject
from answers.recording.delta import ObjectKey
from answers.recording.lines import Change, Decisions, Entry, Gap, Mark, Moment
from answers.recording.projection import MIRROR
from answers.recording.views import Fields, read_change
from findings.text import count_text
from kube.api.core import FINISHED_PHASES, Namespace, Node, Pod
from kube.api.meta import ApiStruct
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.errors import ObjectFileError
from kube.names import QUOTA_GATE, REQUEST_ANNOTATION

UNREPLAYED: Final = ("DeviceTaintRule", "DeviceCompatibilityPolicy", "AllocatorOwnership")
"""Kinds of which a replay takes the first state for the whole time."""

NO_CLAIM: Final = "its claim, or the template of it, is not in the recording"
MAX_GAPS: Final = 5
"""Gaps that notes name."""


class RecordedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A recording.

    Attributes:
        state: The cluster when it begins, with all namespaces that it ever had.
        course: The events after the first state.
        notes: The parts of it that are not replayed, or not known.
        has_decisions: The log of the bridge's sidecar is in it.
    """

    state: ClusterState
    course: Course
    notes: tuple[str, ...] = ()
    has_decisions: bool = False


_TOGETHER_S: Final = 1.0
"""Seconds within which changes of nodes, slices and classes are one, if no pod came to a node or left in between."""


class _Constraints(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a pod's spec that schedulers read and no replay does."""

    topology_spread_constraints: tuple[Any, ...] = ()
    volumes: tuple[Any, ...] = ()


class _Life:
    """A pod while its recording is read.

    Attributes:
        pod: Its last state.
        arrival: The second in which it came, without scheduling gates.
        node: The node on which it ran in the first state.
        bound: The second in which it was bound.
        left: The second in which it ended.
        held_since: The second from which on only the gate of DeviceQuotas kept it from being placed.
    """

    def __init__(self, pod: Pod, arrival: float, unmodelled: tuple[str, ...]) -> None:
        self.pod = pod
        self.arrival = arrival
        self.unmodelled = unmodelled
        self.node = ""
        self.bound: float | None = None
        self.left: float | None = None
        self.is_fixed = False
        self.held_since: float | None = None

    @property
    def held_by_quotas_s(self) -> float:
        """The seconds behind the gate of DeviceQuotas alone, before its arrival."""
        return 0.0 if self.held_since is None else max(0.0, self.arrival - self.held_since)

    def note_gates(self, pod: Pod, second: float) -> None:
        """Take in the gates of a pod at a moment."""
        names = {gate.name for gate in pod.spec.scheduling_gates or ()}
        if names == {QUOTA_GATE} and self.held_since is None:
            self.held_since = second
        elif names and names != {QUOTA_GATE}:
            self.held_since = None


def read_course(entries: Iterable[Entry], source: str) -> RecordedCluster:
    """Return the first state of a recording, and all that came after.

    Args:
        entries: The entries behind the header.
        source: The name of the file, for messages.

    Raises:
        ObjectFileError: The first state is not complete, or a line is not what a recorder writes.
    """
    reading = _Reading(source)
    for entry in entries:
        reading.add(entry)
    if reading.first is None:
        raise ObjectFileError(f"{source}: the recording ends before its first state is complete")
    return reading.cluster(reading.first)


class _Reading:
    """The entries so far."""

    def __init__(self, source: str) -> None:
        self.first: ClusterState | None = None
        self._source = source
        self._state: dict[ObjectKey, Fields] = {}
        self._views: dict[ObjectKey, ApiStruct] = {}
        self._lives: list[_Life] = []
        self._of: dict[Name, int] = {}
        # As they are, and as they were allocated last.
        self._current_claims: dict[Name, ResourceClaim] = {}
        self._claims: dict[Name, ResourceClaim] = {}
        self._templates: dict[Name, ResourceClaimTemplate] = {}
        self._events: list[Event] = []
        self._gaps: list[Gap] = []
        self._unreplayed: Counter[str] = Counter()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._shared: frozenset[Name] = frozenset()
        self._until = 0.0
        self._is_ended = self._has_decisions = False

    def add(self, entry: Entry) -> None:
        """Take in an entry."""
        self._until = entry.at
        match entry:
            case Change():
                self._change(entry)
            case Gap():
                self._gaps.append(entry)
            case Moment(mark=Mark.STATE) if self.first is None:
                self._begin()
            case Moment():
                self._is_ended = entry.mark is Mark.END
            case Decisions():
                self._has_decisions = True

    def _change(self, change: Change) -> None:
        key = change.delta.object
        before = self._views.get(key)
        after = read_change(self._state, change, self._source)
        if after is None:
            self._views.pop(key, None)
        else:
            self._views[key] = after
        if isinstance(after, ResourceClaim):
            self._note_claim(after)
        elif isinstance(before, ResourceClaim):
            self._current_claims.pop(claim_name(before), None)
        elif isinstance(after, ResourceClaimTemplate):
            self._templates[key.namespace, key.name] = after
        elif isinstance(after, Namespace):
            self._namespaces[key.name] = after.metadata.labels or {}
        if self.first is None:
            return
        if isinstance(after, Pod) or isinstance(before, Pod):
            self._note_pod(change, after if isinstance(after, Pod) else None)
        elif isinstance(after or before, Node | ResourceSlice | DeviceClass):
            self._note_inventory(change.at, key, before, after)
        elif key.kind in UNREPLAYED:
            self._unreplayed[key.kind] += 1

    def _note_claim(self, claim: ResourceClaim) -> None:
        """Remember a claim, with its allocation if it ever had one."""
        name = claim_name(claim)
        self._current_claims[name] = claim
        before = self._claims.get(name)
        is_freed = (
            before is not None
            and before.metadata.uid == claim.metadata.uid
            and allocation_of(before) is not None
            and allocation_of(claim) is None
        )
        if not is_freed:
            self._claims[name] = claim

    def _begin(self) -> None:
        """Take the present objects as the first state."""
        self.first = build_state(
            [
                NamespacedObject(namespace=key.namespace, value=view)
                for key, view in self._views.items()
            ]
        )
        pods = [(key, view) for key, view in self._views.items() if isinstance(view, Pod)]
        for key, pod in sorted(pods, key=lambda entry: entry[1].metadata.creation_timestamp or ""):
            if _has_ended(pod):
                continue
            life = self._add_life(key, pod, 0.0)
            if is_running(pod):
                life.node = pod.spec.node_name
                life.bound = 0.0

    def _add_life(self, key: ObjectKey, pod: Pod, second: float) -> _Life:
        life = _Life(pod, second, _unmodelled(pod, self._state[key]))
        life.note_gates(pod, second)
        self._of[key.namespace, key.name] = len(self._lives)
        self._lives.append(life)
        return life

    def _note_pod(self, change: Change, pod: Pod | None) -> None:
        key, second = change.delta.object, change.at
        name = (key.namespace, key.name)
        number = self._of.get(name)
        life = self._lives[number] if number is not None else None
        if life is not None and (
            pod is None or _has_ended(pod) or pod.metadata.uid != life.pod.metadata.uid
        ):
            life.left = second
            self._events.append(Left(second=second, number=self._of.pop(name)))
            life = None
        if pod is None or _has_ended(pod):
            return
        if life is None:
            life = self._add_life(key, pod, second)
        if _is_gated(life.pod) and not _is_gated(pod):
            life.arrival = second
        life.note_gates(pod, second)
        life.pod = pod
        if is_running(pod) and life.bound is None:
            life.bound = second
            life.is_fixed = MIRROR in pod.annotations
            self._events.append(
                Bound(
                    second=second,
                    number=self._of[name],
                    node=pod.spec.node_name,
                    claims=_allocated_claims(pod, self._current_claims, self._templates),
                )
            )

    def _note_inventory(
        self, second: float, key: ObjectKey, before: ApiStruct | None, after: ApiStruct | None
    ) -> None:
        last = self._events[-1] if self._events else None
        change = Changed(second=second)
        if isinstance(last, Changed) and second - last.second < _TOGETHER_S:
            self._events.pop()
            change = last
        if key.kind == "Node":
            node = after if isinstance(after, Node) else None
            change = msgspec.structs.replace(change, nodes={**change.nodes, key.name: node})
        elif key.kind == "ResourceSlice":
            old = before if isinstance(before, ResourceSlice) else None
            new = after if isinstance(after, ResourceSlice) else None
            slices = dict(zip(map(_slice_name, change.slices), change.slices, strict=True))
            first_old, _ = slices.get(key.name, (old, new))
            slices[key.name] = first_old, new
            change = msgspec.structs.replace(change, slices=tuple(slices.values()))
        else:
            classes = {
                name.name: view
                for name, view in self._views.items()
                if isinstance(view, DeviceClass)
            }
            change = msgspec.structs.replace(change, classes=classes)
        self._events.append(change)

    def cluster(self, first: ClusterState) -> RecordedCluster:
        """Return the result, when all entries are taken in."""
        pods, left_out = self._pods(first)
        # Pods that ran in the beginning come first, and those that are left out not at all.
        numbers = sorted(pods, key=lambda number: (not self._lives[number].node, number))
        places = {number: place for place, number in enumerate(numbers)}
        course = Course(
            pods=tuple(pods[number] for number in numbers),
            events=tuple(self._with_places(places)),
            until=self._until,
        )
        return RecordedCluster(
            state=msgspec.structs.replace(first, namespaces=self._namespaces),
            course=course,
            notes=tuple(self._notes(left_out)),
            has_decisions=self._has_decisions,
        )

    def _with_places(self, places: Mapping[int, int]) -> Iterator[Event]:
        for event in self._events:
            if isinstance(event, Changed):
                yield event
                continue
            place = places.get(event.number)
            if place is None:
                continue
            if isinstance(event, Left):
                yield Left(second=event.second, number=place)
                continue
            # The allocation of a claim may be found out after the binding, as each kind has a watch of its own.
            last = _allocated_claims(self._lives[event.number].pod, self._claims, self._templates)
            claims = event.claims if len(event.claims) == len(last) else last
            yield msgspec.structs.replace(
                event, number=place, claims=claims, is_dated=self._is_dated(event.second)
            )

    def _is_dated(self, second: float) -> bool:
        return not any(gap.since <= second <= gap.at for gap in self._gaps)

    def _pods(self, first: ClusterState) -> tuple[dict[int, RecordedPod], dict[int, str]]:
        """Return number to pod, and number to the reason of those that are left out."""
        self._shared = frozenset(self._shared_claims())
        pods: dict[int, RecordedPod] = {}
        left_out: dict[int, str] = {}
        names: Counter[Name] = Counter()
        builder = ReplayPodBuilder(first)
        for number, life in enumerate(self._lives):
            pod = life.pod
            claims = pod_claims(pod, self._claims, self._templates)
            if claims.missing and not life.node:
                left_out[number] = NO_CLAIM
            else:
                names[pod.metadata.namespace, pod_name(pod)] += 1
                count = names[pod.metadata.namespace, pod_name(pod)]
                pods[number] = self._recorded_pod(life, first, builder, count)
        return pods, left_out

    def _recorded_pod(
        self, life: _Life, first: ClusterState, builder: ReplayPodBuilder, count: int
    ) -> RecordedPod:
        pod = life.pod
        free_pod = pod if life.is_fixed or life.node else unbound(pod)
        if count > 1:  # A StatefulSet gives the name again.
            metadata = msgspec.structs.replace(pod.metadata, name=f"{pod_name(pod)}~{count}")
            free_pod = msgspec.structs.replace(free_pod, metadata=metadata)
        claims = tuple(map(unallocated, self._claims_of(pod)))
        if life.node:
            shared = tuple(claim for claim in claims if claim_name(claim) in self._shared)
            replayed = ReplayPod(pod=pod, shared=shared)
        else:
            replayed = builder.build(free_pod, claims, {name: name[1] for name in self._shared})
        return RecordedPod(
            replay=msgspec.structs.replace(
                replayed,
                arrival=None if life.node else life.arrival,
                departure=_departure(life),
                gives_up=life.left if life.bound is None else None,
            ),
            scheduler=pod.spec.scheduler_name,
            node=life.node,
            claims=_allocated_claims(pod, first.claims, first.templates) if life.node else (),
            unmodelled=(*life.unmodelled, *_preempting(pod)),
            is_fixed=life.is_fixed,
            held_by_quotas_s=life.held_by_quotas_s,
            claim_of=dict(self._claims_by_entry(pod)),
        )

    def _claims_by_entry(self, pod: Pod) -> Iterator[tuple[str, ResourceClaim]]:
        """Yield the entries of a translated pod's claims, with the claims as they came."""
        for entry in (
            pod.spec.resource_claims or () if REQUEST_ANNOTATION in pod.annotations else ()
        ):
            spec = msgspec.structs.replace(pod.spec, resource_claims=(entry,))
            alone = msgspec.structs.replace(pod, spec=spec)
            yield from ((entry.name, unallocated(claim)) for claim in self._claims_of(alone))

    def _claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        claims = pod_claims(pod, self._claims, self._templates)
        return (*claims.held, *claims.open)

    def _shared_claims(self) -> Iterator[Name]:
        """Yield the claims that several pods use at one time; one after the other is fine."""
        users: dict[Name, list[_Life]] = {}
        for life in self._lives:
            for name in dict.fromkeys(map(claim_name, self._claims_of(life.pod))):
                users.setdefault(name, []).append(life)
        for name, several in users.items():
            until = 0.0
            for number, life in enumerate(sorted(several, key=lambda life: life.arrival)):
                if number and life.arrival < until:
                    yield name
                    break
                until = max(until, math.inf if life.left is None else life.left)

    def _notes(self, left_out: Mapping[int, str]) -> Iterator[str]:
        for reason, count in Counter(left_out.values()).items():
            yield f"left out: {count_text(count, 'pod')}: {reason}"
        for kind, count in self._unreplayed.items():
            changes = count_text(count, "change")
            yield f"{changes} of {kind} not replayed: that of the first state counts"
        for gap in self._gaps[:MAX_GAPS]:
            yield f"{gap.resource} were not followed from second {gap.since:g} to {gap.at:g}"
        if len(self._gaps) > MAX_GAPS:
            yield f"{count_text(len(self._gaps) - MAX_GAPS, 'more gap')} in the recording"
        if not self._is_ended:
            yield f"the recorder was killed; the recording ends in second {self._until:g}"


def _slice_name(change: SliceChange) -> str:
    before, after = change
    present = after or before
    return present.metadata.name if present is not None else ""


def _allocated_claims(
    pod: Pod,
    claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> tuple[ResourceClaim, ...]:
    """Return the allocated claims of a pod, also that for its extended resources."""
    allocated = list(pod_claims(pod, claims, templates).held)
    extended = pod.status.extended_resource_claim_status if pod.status is not None else None
    if extended is not None:
        claim = claims.get((pod.metadata.namespace, extended.resource_claim_name))
        if claim is not None and allocation_of(claim) is not None:
            allocated.append(claim)
    return tuple(allocated)


def _preempting(pod: Pod) -> tuple[str, ...]:
    """Return a word for a pod that was to get the place of others."""
    return ("preemption",) if pod.status is not None and pod.status.nominated_node_name else ()


def _has_ended(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in FINISHED_PHASES


def _is_gated(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return any(condition.reason == "SchedulingGated" for condition in conditions)


def _departure(life: _Life) -> float | None:
    """Return the second of a pod's end if it is placed at once: it runs as long as it ran."""
    if life.left is None:
        return None
    if life.bound is None or life.node:
        return life.left
    return life.arrival + life.left - life.bound


def _unmodelled(pod: Pod, fields: Fields) -> tuple[str, ...]:
    """Return the parts of a pod that change the scores of nodes and are not modelled."""
    spec, affinity = pod.spec, pod.spec.affinity
    names: list[str] = []
    if affinity is not None:
        node_affinity = affinity.node_affinity
        if affinity.pod_affinity or affinity.pod_anti_affinity:
            names.append("podAffinity")
        if node_affinity is not None and node_affinity.preferred:
            names.append("preferredNodeAffinity")
    try:
        constraints = msgspec.json.decode(
            msgspec.json.encode(fields.get("spec", {})), type=_Constraints
        )
    except (msgspec.DecodeError, RecursionError):
        constraints = _Constraints()
    if constraints.topology_spread_constraints:
        names.append("topologySpread")
    if constraints.volumes:
        names.append("volumes")
    if spec.scheduling_group:
        names.append("schedulingGroup")
    owners = {owner.kind for owner in pod.metadata.owner_references or () if owner.controller}
    if owners & _SPREAD_OWNERS:
        names.append("spreadOfWorkload")
    return tuple(names)


_SPREAD_OWNERS: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Owners whose pods kube-scheduler spreads by default. Source: k8s.io/kubernetes v1.37.1,
pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector."""
