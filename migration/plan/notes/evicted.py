"""Workloads with pods that the drains of waves evict, and that no script restarts. Pure."""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.owners import kind_of
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import count_ready_pods
from migration.plan.facts.rollouts import pod_selector, replaces_pods
from migration.plan.model.plan import RUN_OUT, PlannedWorkload, Wave
from migration.plan.search.device_map import Course, WaveDetails
from migration.plan.stage.stage import PodKey

_COURSES: Final = frozenset({Course.MOVES, Course.BOUND, Course.ASKS})
_LEFT_OUT: Final = RUN_OUT | {DAEMON_SET, "Pod"}
"""Kinds with pods that a drain leaves, that nothing creates again, or that may begin later."""
_NO_NEXT_PODS: Final = frozenset({"CronJob", "Pod"})
"""Kinds without a pod to wait for: nothing creates it again, or the next run would have waited before the plan, too."""


def with_evicted(
    wave: Wave,
    details: WaveDetails,
    workloads: Mapping[str, AssessedWorkload],
    groups: Mapping[str, Workload],
) -> Wave:
    """Return a wave with the workloads beside its own that have to run again after its drains.

    Args:
        wave: The wave.
        details: The pods that leave its nodes, with their course.
        workloads: Workload with devices, as `Kind/namespace/name`, to its outcome; a wave waits for no others.
        groups: Workload to its owner and its pods.
    """
    own = {entry.object for entry in wave.workloads}
    evicted = sorted({entry.workload for entry in details.leaving if entry.course in _COURSES})
    return replace(
        wave,
        evicted_workloads=tuple(
            PlannedWorkload(
                object=reference,
                pods=workloads[reference].pods,
                outcome=workloads[reference].outcome.value,
                ready_pods=count_ready_pods(groups[reference]),
            )
            for reference in evicted
            if reference in workloads
            and reference not in own
            and kind_of(reference) not in _LEFT_OUT
        ),
    )


def opted_in_workloads(
    unrestarted: Collection[PodKey],
    selected: Collection[str],
    workloads: Mapping[str, AssessedWorkload],
    groups: Mapping[str, Workload],
) -> tuple[PlannedWorkload, ...]:
    """Return the workloads with device keys in spite of a label from before the plan.

    Their next pods get claims, after a way back, too.

    Args:
        unrestarted: The pods that run with device keys in spite of their opt-in.
        selected: Workloads, as `Kind/namespace/name`, with the label in their template.
        workloads: Workload to its outcome.
        groups: Workload to its owner and its pods.
    """
    references = sorted({key.workload for key in unrestarted})
    return tuple(
        PlannedWorkload(
            object=reference,
            pods=workloads[reference].pods,
            outcome=workloads[reference].outcome.value,
            labelled=reference in selected,
            selector=pod_selector(groups[reference]),
            on_delete=not replaces_pods(groups[reference]),
            ready_pods=count_ready_pods(groups[reference]),
        )
        for reference in references
        if kind_of(reference) not in _NO_NEXT_PODS
    )
