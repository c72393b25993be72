"""The courses of the pods that leave the nodes of a wave: evicted, waited for, or asked about. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kube.api.workloads import DAEMON_SET
from migration.cluster.evidence import Evidence
from migration.cluster.workloads import Workload
from migration.plan.model.plan import PlannedWork, Wave
from migration.plan.search.device_map import Course, Leaving, WaveDetails
from migration.plan.search.wave_pods import ending_names, is_waited_out, pod_keys, pod_name
from migration.plan.stage.stage import PodKey


class PodCourses(NamedTuple):
    """The pods that decide on the course of one that leaves its node, by namespace and name.

    Attributes:
        keys: Each pod to its number in its workload.
        ending: Those that run to their end, also by that of their group.
        bound: Those with devices and a volume of one node.
        running_out: The workloads with pods that a script waits for until they end.
        with_devices: The workloads whose pods request devices, as `Kind/namespace/name`.
    """

    keys: Mapping[tuple[str, str], PodKey]
    ending: Collection[tuple[str, str]]
    bound: Collection[tuple[str, str]]
    running_out: Collection[str]
    with_devices: Collection[str]


def read_courses(
    work: Mapping[str, Sequence[PlannedWork]],
    evidence: Evidence,
    groups: Mapping[str, Workload],
    *,
    bound: Collection[tuple[str, str]],
    with_devices: Collection[str],
) -> PodCourses:
    """Return the pods of a cluster, for the courses of those of each wave.

    Args:
        work: Node to the pods that lose something when they are evicted, as of today.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        bound: Those of `PodCourses`.
        with_devices: Those of `PodCourses`.
    """
    keys, ending = pod_keys(groups), ending_names(evidence, work)
    running_out = {
        key.workload
        for items in work.values()
        for item in items
        if is_waited_out(item, ending) and (key := keys.get(pod_name(item))) is not None
    }
    return PodCourses(keys, ending, bound, running_out, with_devices)


def with_leaving(details: WaveDetails, wave: Wave, pods: PodCourses) -> WaveDetails:
    """Return the details of a wave with the course of the pods that leave its nodes.

    A Job's pod is where it is today until its node is drained, whatever its place among devices is.
    """
    waiting = {course: Counter[str]() for course in (Course.BOUND, Course.ASKS, Course.ENDS)}
    for item in wave.work:
        key = pods.keys.get(pod_name(item))
        if item.waits and key is not None:
            course = Course.ENDS if is_waited_out(item, pods.ending) else Course.ASKS
            waiting[course][key.workload] += 1
        elif key is not None and pod_name(item) in pods.bound:
            waiting[Course.BOUND][key.workload] += 1
    leaving = [
        Leaving(
            reference,
            number - waiting[Course.ASKS][reference] - waiting[Course.BOUND][reference],
            _course(reference),
        )
        for reference, number in details.evicted.items()
        if reference not in pods.running_out
    ]
    leaving += [
        Leaving(reference, number, course, has_devices=reference in pods.with_devices)
        for course, counts in waiting.items()
        for reference, number in sorted(counts.items())
    ]
    return msgspec.structs.replace(
        details, leaving=tuple(entry for entry in leaving if entry.pods > 0)
    )


def with_pod_counts(wave: Wave, details: WaveDetails) -> Wave:
    """Return a wave with the numbers of pods with devices that leave its nodes, and that its drains evict."""
    leaving = [entry for entry in details.leaving if entry.has_devices]
    return msgspec.structs.replace(
        wave,
        moved_pods=sum(entry.pods for entry in leaving),
        evicted_pods=sum(entry.pods for entry in leaving if entry.is_evicted),
    )


def _course(reference: str) -> Course:
    """Return the course of pods that a drain meets, by the kind of their workload."""
    kinds = {DAEMON_SET: Course.STAYS, "Pod": Course.BY_HAND}
    return kinds.get(reference.partition("/")[0], Course.MOVES)
