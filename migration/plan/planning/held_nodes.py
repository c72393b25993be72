"""The nodes of a plan without a wave, for reasons of their own. Pure."""

from collections.abc import Sequence

from migration.assessment.doubled import doubled_reasons
from migration.plan.drivers.driver_values import held_by_roots
from migration.plan.facts.device_plugins import (
    held_kept_names,
    held_offering_none,
    held_unknown_devices,
)
from migration.plan.model.plan import Held
from migration.plan.planning.chart_names import held_by_names, held_unused
from migration.plan.planning.daemon_sets import held_by_daemon_sets
from migration.plan.planning.prepared import PlanQuestion, PreparedCluster
from migration.plan.planning.unpublished import gpu_nodes
from migration.plan.search.moments import Candidate
from migration.plan.search.unmovable import held_by_pods, held_sliced, held_unavailable


def held_nodes(
    candidates: Sequence[Candidate],
    blocked: Sequence[Held],
    prepared: PreparedCluster,
    question: PlanQuestion,
) -> list[Held]:
    """Return the nodes that their pods, devices, names or drivers hold, each with the reason.

    Args:
        candidates: The nodes of legacy systems that could be switched.
        blocked: Those that cannot be, which are of the answer, too.
        prepared: The cluster.
        question: The question of the plan.
    """
    cluster, planned_nodes = prepared.cluster, [entry.node for entry in candidates]
    without_wave = [
        *blocked,
        *held_by_pods(candidates, cluster, prepared.live_nodes, prepared.evidence),
        *held_by_daemon_sets(candidates),
        *held_unavailable(
            candidates, question.objects, doubled_reasons(cluster.nodes, cluster.state)
        ),
        *held_offering_none(cluster.offering_none),
        *held_unknown_devices(prepared.unknown_devices),
        *held_kept_names(planned_nodes, cluster.names_in_use),
        *held_sliced(cluster.sliced),
    ]
    without_wave += held_by_names(
        cluster.chart_names, candidates, {entry.object for entry in without_wave}
    )
    without_wave += held_unused(
        cluster.chart_names, gpu_nodes(prepared.objects, question.profiles), question.profiles
    )
    without_wave += held_by_roots(
        planned_nodes, prepared.objects, {entry.object for entry in without_wave}
    )
    return without_wave
