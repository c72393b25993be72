"""The free devices for one more pod of a workload, today and after each wave. Pure.

Such a pod is the next one of a CronJob or of a workload without pods, or one that a rollout or an autoscaler adds to those of
a Deployment.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.api.core import Affinity, Pod
from migration.assessment.capacity import build_pods, build_templates
from migration.assessment.claim_counts import surge_of
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.equivalence import device_pod, pod_shape
from migration.plan.facts.volumes import on_reachable_nodes
from migration.plan.search.moments import Attempt, Moment
from migration.plan.search.placement import Placement, Placer
from migration.plan.search.stage import PlannedPod, PodKey, Stage, planned_pod

MOST_NEXT_PODS: Final = 8
"""Pods that are counted at most."""
_SHAPES: Final = 64
"""Different next pods that are asked for at most, in the order of their workloads: each is simulated at every wave."""
_NOTE: Final = "no device for one more pod of {} after this wave, {} today: one that a run, a rollout or an autoscaler adds waits {}"
_START: Final = "{} can be started after this wave: from then on there are devices for {}"
_ROLLOUT: Final = (
    "a rollout of {} after this wave starts a pod before it ends one (maxUnavailable is 0), and waits {}: "
    "set maxUnavailable: 1 for a rollout before that"
)


class NextPod(NamedTuple):
    """One more pod of a workload, beside those that it has.

    Attributes:
        shape: All that its devices depend on; equal for equal pods.
        today: The number of such pods that there are free devices for before the first wave, `MOST_NEXT_PODS` at most.
        is_stopped: Its workload has no pods until somebody starts it.
        comes_first: A rollout of its workload starts it before it ends a pod.
    """

    pod: PlannedPod
    shape: bytes
    today: int = 0
    is_stopped: bool = False
    comes_first: bool = False

    @property
    def workload(self) -> str:
        """Return the workload, as `Kind/namespace/name`."""
        return self.pod.key.workload

    def copies(self) -> list[PlannedPod]:
        """Return as many such pods as are counted at most."""
        return [_copy(self.pod, number) for number in range(MOST_NEXT_PODS)]


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
    numbers: dict[tuple[bytes, bool], int] = {}
    next_pods: list[NextPod] = []
    for workload in workloads:
        reference = workload.key.reference
        if workload.result is None or reference in placer.not_counted:
            continue
        if reference not in starting and workload.key.kind != "Deployment":
            continue
        for entry in _next_pods(placer, workload):
            key = entry.shape, stage.moves(entry.pod)
            if key not in numbers and len(numbers) >= _SHAPES:
                continue
            if key not in numbers:
                numbers[key] = len(placer.place_more(stage, placement, entry.copies()))
            if numbers[key]:
                is_stopped = not workload.pods and workload.key.kind != "CronJob"
                comes_first = surge_of(workload) > 0
                next_pods.append(
                    entry._replace(
                        today=numbers[key], is_stopped=is_stopped, comes_first=comes_first
                    )
                )
    return tuple(next_pods)


def lacking_pods(
    placer: Placer, entries: Iterable[NextPod], stage: Stage, placement: Placement
) -> list[NextPod]:
    """Return the next pods that there are no free devices for beside the pods of a placement."""
    lacks: dict[tuple[bytes, bool], bool] = {}
    lacking = []
    for entry in entries:
        key = entry.shape, stage.moves(entry.pod)
        if key not in lacks:
            lacks[key] = not placer.place_more(stage, placement, [entry.pod])
        if lacks[key]:
            lacking.append(entry)
    return lacking


def next_pod_notes(
    placer: Placer, entries: Sequence[NextPod], moments: Iterable[tuple[Stage, Placement]]
) -> list[tuple[str, ...]]:
    """Return the notes of each wave on the next pods that lack devices from it on.

    Args:
        placer: Places the pods.
        entries: The next pods.
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
        notes.append(tuple(_notes(begun, ends)))
    return notes


def _notes(begun: Iterable[NextPod], ends: dict[str, int]) -> Iterator[str]:
    """Yield notes on each group of next pods that lack devices equally long, by the wave that ends it; 0 without one."""

    def key(entry: NextPod) -> tuple[int, int]:
        return ends[entry.workload], entry.today

    for (end, today), group in groupby(sorted(begun, key=key), key=key):
        entries = tuple(group)
        number = f"{today} or more" if today == MOST_NEXT_PODS else str(today)
        until = f"until wave {end}" if end else "until devices are free"
        yield _NOTE.format(_names(entries), number, until)
        if rollouts := [entry for entry in entries if entry.comes_first]:
            yield _ROLLOUT.format(_names(rollouts), until)


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


def _copy(planned: PlannedPod, number: int) -> PlannedPod:
    """Return a pod with a number and a name that no pod of its workload has."""
    metadata = planned.pod.metadata
    name = f"{metadata.name.removesuffix('-next-0')}-next-{number}"
    pod = msgspec.structs.replace(
        planned.pod, metadata=msgspec.structs.replace(metadata, name=name)
    )
    key = PodKey(planned.key.workload, -1 - number)
    return msgspec.structs.replace(planned, key=key, pod=pod)


def start_notes(
    placer: Placer, entries: Iterable[NextPod], waves: Sequence[tuple[Moment, Attempt]]
) -> list[tuple[str, ...]]:
    """Return the notes of each wave but the last on stopped workloads that can be started after it.

    Their pods have claims by then, so they are on no node that a later wave drains.

    Args:
        placer: Places the pods.
        entries: The next pods of workloads.
        waves: The waves, each with the moment before it.
    """
    starts: dict[tuple[bytes, int], tuple[int, int]] = {}
    names: dict[tuple[int, int], list[str]] = {}
    for entry in entries:
        opted_in = _opted_in(entry, waves)
        if not entry.is_stopped or opted_in is None:
            continue
        key = entry.shape, opted_in
        if key not in starts:
            starts[key] = _first_start(placer, entry, waves, opted_in)
        names.setdefault(starts[key], []).append(entry.workload)
    notes: list[list[str]] = [[] for _ in waves]
    for (number, pods), workloads in sorted(names.items()):
        if pods and number < len(waves) - 1:
            devices = f"{MOST_NEXT_PODS} such pods or more"
            if pods < MOST_NEXT_PODS:
                devices = count_text(pods, "such pod")
            notes[number].append(_START.format(join_names(list(dict.fromkeys(workloads))), devices))
    return [tuple(own) for own in notes]


def _opted_in(entry: NextPod, waves: Sequence[tuple[Moment, Attempt]]) -> int | None:
    """Return the first wave that gives a next pod claims; None without one."""
    return next(
        (
            number
            for number, (moment, attempt) in enumerate(waves)
            if moment.stage_with(attempt).moves(entry.pod)
        ),
        None,
    )


def _first_start(
    placer: Placer, entry: NextPod, waves: Sequence[tuple[Moment, Attempt]], opted_in: int
) -> tuple[int, int]:
    """Return the first wave with devices from then on, and the number of pods that get some; 0 pods without one.

    Args:
        placer: Places the pods.
        entry: The next pod.
        waves: The waves, each with the moment before it.
        opted_in: The first wave after which the pod gets claims.
    """
    copies = entry.copies()
    first, pods = len(waves), 0
    fewest = len(copies)
    for number in reversed(range(opted_in, len(waves))):
        moment, attempt = waves[number]
        stage = moment.stage_with(attempt)
        fewest = min(fewest, len(placer.place_more(stage, attempt.after, copies)))
        if not fewest:
            break
        first, pods = number, fewest
        if attempt.during is not None:
            draining = frozenset(node.node.name for node in attempt.nodes)
            stage = msgspec.structs.replace(moment.stage, draining=draining, waits=True)
            during = attempt.drained(moment.placement)
            fewest = min(fewest, len(placer.place_more(stage, during, copies)))
            if not fewest:
                break
    return first, pods
