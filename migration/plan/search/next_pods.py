"""The free devices for one more pod of a workload, today and after each wave, and for those of autoscalers in it. Pure.

Such a pod is the next one of a CronJob or of a workload without pods, or one that a rollout or an autoscaler adds to those of
a Deployment. The maximum of a HorizontalPodAutoscaler says how many it may add while the nodes of a wave are drained. A stopped
workload of another project starts all of its pods at a time, and a training of several goes on with all of them alone.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.api.core import Affinity, Pod
from migration.assessment.capacity import build_pods, build_templates
from migration.assessment.claim_counts import surge_of
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.equivalence import device_pod, pod_shape
from migration.cluster.evidence import mapping_at
from migration.cluster.pod_autoscalers import Autoscaler
from migration.cluster.volumes import on_reachable_nodes
from migration.cluster.workloads import requested_pods
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.stopped_workloads import StartRoom
from migration.plan.search.moments import Moment
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PlannedPod, PodKey, Stage, planned_pod
from migration.plan.stage.stage_allocator import Placement

_MOST: Final = 8
"""Pods that are counted at most."""
_SHAPES: Final = 64
"""Different next pods that are asked for at most, in the order of their workloads: each is simulated at every wave. Those of
two workloads differ where rules keep pods of one apart."""
_Key = tuple[bytes, bool, str]
"""The shape of a next pod, its move, and its workload if rules keep its pods apart."""
_NOTE: Final = "no device for one more pod of {} after this wave, {} today: one that a run, a rollout or an autoscaler adds waits {}"
_ROLLOUT: Final = (
    "a rollout of {} after this wave starts a pod before it ends one, and waits {}: set maxUnavailable: 1 for a rollout "
    "before that"
)
_SINGLE: Final = "; with a single replica ({}), no pod runs then until the new one is ready"


_ADDED: Final = (
    "{} may add {} to {} (maxReplicas {}): while this wave drains its nodes there are devices for {} of them, {} today; set "
    "maxReplicas to {}{} until {}, or further ones wait, or take devices that evicted pods are to get"
)
_RULES: Final = "; the rules of its pods that keep them apart are not counted, so fewer of them may find a node: set it lower then"
_SAME_DEVICES: Final = (
    "{}; each autoscaler is counted by itself, and may be counted with the same devices as {}"
)
_MOST_ADDED: Final = 32
"""Pods of an autoscaler that are counted at most."""
_MOST_STARTED: Final = 512
"""Pods of all stopped workloads that are counted at most; those of a workload are all counted, or none."""


class NextPod(NamedTuple):
    """One more pod of a workload, beside those that it has.

    Attributes:
        shape: All that its devices depend on; equal for equal pods.
        today: The number of such pods that there are free devices for before the first wave, `_MOST` at most.
        comes_first: A rollout of its workload starts it before it ends a pod.
        is_single: Its workload has a single replica.
    """

    pod: PlannedPod
    shape: bytes
    today: int = 0
    comes_first: bool = False
    is_single: bool = False

    @property
    def workload(self) -> str:
        """Return the workload, as `Kind/namespace/name`."""
        return self.pod.key.workload


def find_next_pods(
    placer: Placer,
    workloads: Iterable[AssessedWorkload],
    starting: Collection[str],
    stage: Stage,
    placement: Placement,
) -> tuple[NextPod, ...]:
    """Return the next pods of workloads that there are free devices for before the first wave.

    Args:
        placer: Places the pods.
        workloads: The cluster's workloads.
        starting: The workloads with pods to come, as `Kind/namespace/name`; of others Deployments alone have some.
        stage: The stage before the first wave.
        placement: The places of the pods then.
    """
    numbers: dict[_Key, int] = {}
    next_pods: list[NextPod] = []
    for workload in workloads:
        reference = workload.key.reference
        if workload.result is None or reference in placer.not_counted:
            continue
        if reference not in starting and workload.key.kind != "Deployment":
            continue
        for entry in _next_pods(placer, workload):
            key = _key_of(placer, entry, stage)
            if key not in numbers and len(numbers) >= _SHAPES:
                continue
            if key not in numbers:
                copies = [_copy(entry.pod, number) for number in range(_MOST)]
                numbers[key] = len(placer.place_more(stage, placement, copies))
            if numbers[key]:
                next_pods.append(
                    entry._replace(
                        today=numbers[key],
                        comes_first=surge_of(workload) > 0,
                        is_single=_has_one_replica(workload),
                    )
                )
    return tuple(next_pods)


def lacking_pods(
    placer: Placer, entries: Iterable[NextPod], stage: Stage, placement: Placement
) -> list[NextPod]:
    """Return the next pods that there are no free devices for beside the pods of a placement."""
    lacks: dict[_Key, bool] = {}
    lacking = []
    for entry in entries:
        key = _key_of(placer, entry, stage)
        if key not in lacks:
            lacks[key] = not placer.place_more(stage, placement, [entry.pod])
        if lacks[key]:
            lacking.append(entry)
    return lacking


def next_pod_notes(
    placer: Placer,
    entries: Sequence[NextPod],
    taken_back: TakenBack,
    moments: Iterable[tuple[Stage, Placement]],
) -> list[tuple[str, ...]]:
    """Return the notes of each wave on the next pods that lack devices from it on.

    Args:
        placer: Places the pods.
        entries: The next pods.
        taken_back: The systems that take back changes of their workloads.
        moments: The stage and the places of the pods after each wave.
    """
    lacking = [
        frozenset(entry.workload for entry in lacking_pods(placer, entries, stage, placement))
        for stage, placement in moments
    ]
    notes = []
    for number, names in enumerate(lacking):
        former = lacking[number - 1] if number else frozenset[str]()
        begun = [entry for entry in entries if entry.workload in names - former]
        ends = {
            entry.workload: next(
                (
                    later
                    for later in range(number, len(lacking))
                    if entry.workload not in lacking[later]
                ),
                -1,
            )
            + 1
            for entry in begun
        }
        notes.append(tuple(_notes(begun, ends, taken_back)))
    return notes


def _notes(begun: Iterable[NextPod], ends: dict[str, int], taken_back: TakenBack) -> Iterator[str]:
    """Yield notes on each group of next pods that lack devices equally long, by the wave that ends it; 0 without one."""

    def key(entry: NextPod) -> tuple[int, int]:
        return ends[entry.workload], entry.today

    for (end, today), group in groupby(sorted(begun, key=key), key=key):
        entries = tuple(group)
        number = f"{today} or more" if today == _MOST else str(today)
        until = f"until wave {end}" if end else "until devices are free"
        yield _NOTE.format(_names(entries), number, until)
        if rollouts := [entry for entry in entries if entry.comes_first]:
            single = [entry for entry in rollouts if entry.is_single]
            more = _SINGLE.format(_names(single)) if single else ""
            references = dict.fromkeys(entry.workload for entry in rollouts)
            back = taken_back.text(references, "maxUnavailable")
            yield _ROLLOUT.format(_names(rollouts), until) + more + back


class AddedPods(NamedTuple):
    """The pods that an autoscaler may add to those of a workload.

    Attributes:
        running: The number of pods that the workload has.
        pods: The further ones, `_MOST_ADDED` at most.
        today: The number of these that there are free devices for before the first wave.
        taken_back: The sentence on the system that takes a change of the autoscaler back; empty without one.
        has_rules: Rules between the pods may keep some of them from these devices, and are not counted.
    """

    autoscaler: Autoscaler
    workload: str
    running: int
    pods: tuple[PlannedPod, ...]
    today: int
    taken_back: str = ""
    has_rules: bool = False

    def text(self, number: int, end: str) -> str:
        """Return the note on a wave with devices for fewer of them, until an end."""
        more = self.autoscaler.most - self.running
        today = (
            f"{self.today} or more"
            if self.today < more and self.today == _MOST_ADDED
            else self.today
        )
        added = count_text(more, "pod")
        values = (self.autoscaler.reference, added, self.workload, self.autoscaler.most)
        place = f"{self.autoscaler.place}," if self.autoscaler.place else ""
        # No autoscaler has a maximum of none.
        maximum = max(self.running + number, 1)
        rules = _RULES if self.has_rules else ""
        return (
            f"{_ADDED.format(*values, number, today, maximum, place, end)}{rules}{self.taken_back}"
        )


def find_added_pods(
    placer: Placer,
    workloads: Iterable[AssessedWorkload],
    taken_back: TakenBack,
    stage: Stage,
    placement: Placement,
) -> tuple[AddedPods, ...]:
    """Return the pods that autoscalers may add, and that there are devices for before the first wave.

    An autoscaler leaves a workload without pods alone, unless KEDA starts the first one. Of many the first are looked at, by
    name.

    Args:
        placer: Places the pods.
        workloads: The cluster's workloads.
        taken_back: The autoscalers, and the systems that take back changes of them.
        stage: The stage before the first wave.
        placement: The places of the pods then.
    """
    added: list[AddedPods] = []
    for workload in workloads:
        reference = workload.key.reference
        autoscaler = taken_back.autoscalers.get(reference)
        is_counted = workload.result is not None and reference not in placer.not_counted
        if autoscaler is None or not is_counted or len(added) == _SHAPES:
            continue
        if not (workload.pods or autoscaler.scales_from_zero):
            continue
        number = min(autoscaler.most - workload.pods, _MOST_ADDED)
        for entry in _next_pods(placer, workload) if number > 0 else ():
            pods = tuple(_copy(entry.pod, index) for index in range(number))
            if today := len(placer.place_more(stage, placement, pods)):
                back = taken_back.text((autoscaler.reference,), "maxReplicas")
                rules = placer.separation.leaves_out(reference)
                values = (autoscaler, reference, workload.pods, pods, today, back, rules)
                added.append(AddedPods(*values))
    return tuple(added)


class AddedPodNotes:
    """The notes of waves on the autoscalers that find fewer devices than today, while nodes are drained and later."""

    def __init__(
        self,
        placer: Placer,
        entries: Sequence[AddedPods],
        moments: Sequence[tuple[Stage, Placement]],
    ) -> None:
        """Prepare the notes.

        Args:
            placer: Places the pods.
            entries: The pods that autoscalers may add.
            moments: The stage and the places of the pods after each wave.
        """
        self._placer = placer
        self._entries = entries
        self._moments = moments
        self._numbers: dict[tuple[str, int], int] = {}

    def of_wave(self, wave: int, stage: Stage, placement: Placement) -> Iterator[str]:
        """Yield the notes of a wave.

        Args:
            wave: Its number.
            stage: The stage while its nodes are drained.
            placement: The places of the pods then.
        """
        fewer = [
            (entry, number)
            for entry in self._entries
            if (number := len(self._placer.place_more(stage, placement, entry.pods))) < entry.today
        ]
        names = list(dict.fromkeys(entry.autoscaler.reference for entry, _ in fewer))
        for entry, number in fewer:
            others = [name for name in names if name != entry.autoscaler.reference]
            text = entry.text(number, self._end(entry, wave))
            yield _SAME_DEVICES.format(text, join_names(others)) if others else text

    def _end(self, entry: AddedPods, wave: int) -> str:
        """Return the end of the shortage, in words: as many pods as today have devices again."""
        for later in range(wave, len(self._moments) + 1):
            key = entry.workload, later
            if key not in self._numbers:
                stage, placement = self._moments[later - 1]
                self._numbers[key] = len(self._placer.place_more(stage, placement, entry.pods))
            if self._numbers[key] >= entry.today:
                return "the wave is done" if later == wave else f"wave {later} is done"
        return "nodes of another plan have more"


class StoppedPods:
    """The next pods of workloads that are stopped, all of each at a time; of many workloads the first, by name."""

    def __init__(self, placer: Placer, workloads: Iterable[AssessedWorkload]) -> None:
        """Take the workloads.

        Args:
            placer: Places the pods.
            workloads: The cluster's workloads.
        """
        self._placer = placer
        self._pods: dict[str, tuple[PlannedPod, ...]] = {}
        self._workloads: list[AssessedWorkload] = []
        left = _MOST_STARTED
        for workload in workloads:
            number, is_unread = started_pods(workload), workload.result is None
            if is_unread or workload.key.reference in placer.not_counted or not 0 < number <= left:
                continue
            left -= number
            self._workloads.append(workload)
            self._pods[workload.key.reference] = tuple(
                _copy(entry.pod, index)
                for entry in _next_pods(placer, workload)
                for index in range(number)
            )

    def needed_nodes(self, stage: Stage, placement: Placement) -> frozenset[str]:
        """Return the nodes of the pods with claims at a stage, all of them beside each other.

        A workload that does not find devices for all of its pods so counts as if it started alone, too.
        """
        moved = [
            self._pods[workload.key.reference]
            for workload in self._workloads
            if workload.outcome is not Outcome.NATIVE and stage.has_moved(workload)
        ]
        together = self._places(stage, placement, [pod for pods in moved for pod in pods])
        needed = set(together.values())
        for pods in moved:
            if any(pod.key not in together for pod in pods):
                alone = self._places(stage, placement, pods)
                needed.update(alone.values() if len(alone) == len(pods) else ())
        return frozenset(needed)

    def rooms(self, begin: Moment, end: Moment) -> dict[str, StartRoom]:
        """Return workload, as `Kind/namespace/name`, to the devices for its pods, each workload by itself.

        Args:
            begin: The moment before the first wave.
            end: The moment after the last one.
        """
        return {
            name: StartRoom(
                pods=len(pods),
                today=len(self._places(begin.stage, begin.placement, pods)),
                after=len(self._places(end.stage, end.placement, pods)),
            )
            for name, pods in self._pods.items()
        }

    def _places(
        self, stage: Stage, placement: Placement, pods: Sequence[PlannedPod]
    ) -> dict[PodKey, str]:
        return self._placer.place_more(stage, placement, pods) if pods else {}


def started_pods(workload: AssessedWorkload) -> int:
    """Return the number of pods that a stopped workload starts at a time; 0 for one that runs, or has none to come."""
    if workload.pods or workload.result is None or not workload.suspended:
        return workload.next_pods
    return workload.next_pods or requested_pods(workload.result.source)


def _has_one_replica(workload: AssessedWorkload) -> bool:
    owner = workload.result.source.document if workload.result is not None else {}
    return bool(mapping_at(owner, "spec").get("replicas", 1) == 1)


def _names(entries: Iterable[NextPod]) -> str:
    return join_names(list(dict.fromkeys(entry.workload for entry in entries)))


def _next_pods(placer: Placer, workload: AssessedWorkload) -> Iterator[NextPod]:
    """Yield one more pod of a workload; none if it cannot be read."""
    for pod in build_pods(msgspec.structs.replace(workload, pods=1)):
        places = placer.reachable_places(workload)
        own = _with_devices_alone(on_reachable_nodes(pod, places[0]) if places else pod)
        planned = planned_pod(workload, -1, own)
        yield NextPod(_copy(planned, 0), pod_shape(own, dict(build_templates(workload))))


def _with_devices_alone(pod: Pod) -> Pod:
    """Return a pod without CPU, memory and affinity between pods: those that differ in these alone are equal."""
    own = pod.spec.affinity
    on_nodes = own.node_affinity if own is not None else None
    spec = msgspec.structs.replace(
        device_pod(pod).spec,
        node_selector=pod.spec.node_selector,
        affinity=Affinity(node_affinity=on_nodes) if on_nodes is not None else None,
        tolerations=pod.spec.tolerations,
    )
    return msgspec.structs.replace(pod, spec=spec)


def _key_of(placer: Placer, entry: NextPod, stage: Stage) -> _Key:
    """Return the same for next pods that have the same devices at a stage."""
    own = entry.workload if placer.separation.keeps(entry.pod) else ""
    return entry.shape, stage.moves(entry.pod), own


def _copy(planned: PlannedPod, number: int) -> PlannedPod:
    """Return a pod with a number and a name that no pod of its workload has."""
    metadata = planned.pod.metadata
    name = f"{metadata.name.removesuffix('-next-0')}-next-{number}"
    pod = msgspec.structs.replace(
        planned.pod, metadata=msgspec.structs.replace(metadata, name=name)
    )
    key = PodKey(planned.key.workload, -1 - number)
    return msgspec.structs.replace(planned, key=key, pod=pod)
