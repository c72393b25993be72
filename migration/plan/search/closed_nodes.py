"""Nodes that keep their pods and take no others, and nodes that are switched in vain, each with its reason. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from findings.text import join_names
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.model.plan import Held
from migration.plan.search.next_pods import started_pods
from migration.plan.search.unmovable import Unmovable
from migration.plan.search.usable_nodes import UsableNodes
from migration.plan.stage.stage import PodKey, Stage

_OUT_OF_USE: Final = "not ready, or two systems hand out its devices"
_UNKNOWN_DEVICES: Final = (
    "nothing here moves some of its pods, so that it is not known which of its devices these have"
)
_STAYS: Final = "pods on it never move"
NO_USER: Final = "no pod with claims would use its devices"
_LACKING: Final = "pods of {} keep device keys and would lack {}"
_AT_HOME: Final = " once they lose their own nodes, which stay as they are"
_STOPPED: Final = "; so would the next pods of {} when started"


def full_nodes(
    unmovable: Mapping[str, Unmovable],
    nodes_of: Mapping[str, Iterable[str]],
    not_counted: Collection[str],
) -> frozenset[str]:
    """Return the nodes of workloads that never move, and leave an unknown part of the devices there.

    Args:
        unmovable: Workload, as `Kind/namespace/name`, to the reason that it never moves.
        nodes_of: The same workloads to the nodes of their pods.
        not_counted: Workloads whose devices are not counted.
    """
    return frozenset(
        node
        for name, entry in unmovable.items()
        if not entry.leaves_room or name in not_counted
        for node in nodes_of[name]
    )


def unknown_nodes(
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Sequence[str]],
    counted: Collection[PodKey],
) -> frozenset[str]:
    """Return the nodes with pods of unknown devices: they would be rejected, or nothing here translates them.

    Args:
        workloads: The cluster's workloads.
        nodes_of: Workload, as `Kind/namespace/name`, to the nodes of its pods, in the order of their numbers.
        counted: The pods without a translation whose devices are known.
    """
    return frozenset(
        node
        for workload in workloads
        if workload.result is None
        for number, node in enumerate(nodes_of.get(workload.key.reference, ()))
        if node and PodKey(workload.key.reference, number) not in counted
    )


def closed_reasons(
    stage: Stage, unmoved: Collection[str], held_entries: Iterable[Held]
) -> Mapping[str, str]:
    """Return each node that keeps its pods and takes no others to the reason.

    Args:
        stage: The stage with these nodes.
        unmoved: Those with pods whose devices are unknown.
        held_entries: The objects that are held for workloads that never move, among them the other nodes.
    """
    reasons = {entry.object.removeprefix("Node//"): entry.reason for entry in held_entries}
    return {
        name: _OUT_OF_USE
        if name in stage.unready
        else _UNKNOWN_DEVICES
        if name in unmoved
        else reasons.get(name, _STAYS)
        for name in stage.closed
    }


def left_behind(
    workloads: Iterable[AssessedWorkload],
    stage: Stage,
    live: Mapping[PodKey, str],
    unmovable: Collection[str],
) -> Iterator[AssessedWorkload]:
    """Yield the workloads with pods that need resources of a device plugin.

    Args:
        workloads: The cluster's workloads.
        stage: The nodes and namespaces that have moved.
        live: The pods that run, with their nodes.
        unmovable: The workloads that never move, as `Kind/namespace/name`.
    """
    for workload in workloads:
        reference = workload.key.reference
        if workload.result is None:
            keys = (PodKey(reference, number) for number in range(workload.pods))
            is_served = all(live.get(key) in stage.switched for key in keys)
        else:
            is_served = workload.outcome is Outcome.NATIVE or stage.has_moved(workload)
        # Those that stay as they are keep their own nodes, and need no others.
        if workload.pods and not is_served and reference not in unmovable:
            yield workload


def stopped_behind(
    workloads: Iterable[AssessedWorkload], stage: Stage
) -> Iterator[AssessedWorkload]:
    """Yield the stopped workloads with next pods that would get claims with an opt-in, and have device keys at a stage."""
    for workload in workloads:
        is_native = workload.outcome is Outcome.NATIVE
        if started_pods(workload) and not is_native and not stage.has_moved(workload):
            yield workload


def at_home(nodes_of: Mapping[str, Iterable[str]], candidates: Collection[str]) -> frozenset[str]:
    """Return the workloads with all pods on nodes that no wave switches.

    Args:
        nodes_of: Workload to the nodes of its pods.
        candidates: The nodes that could be switched.
    """
    return frozenset(
        name
        for name, own in nodes_of.items()
        for nodes in [frozenset(own)]
        if nodes and "" not in nodes and nodes.isdisjoint(candidates)
    )


def vain_reasons(
    needs: Mapping[str, Sequence[str]],
    stopped: Mapping[str, Sequence[str]],
    cluster: AssessedCluster,
    usable: UsableNodes,
    *,
    at_home: Collection[str],
) -> dict[str, str]:
    """Return nodes with the reason that the switch of each would be in vain.

    Args:
        needs: Node to the workloads whose pods keep device keys, and may need its devices.
        stopped: Node to those without pods whose next pods would have device keys, and may need them, too.
        cluster: The cluster.
        usable: The nodes that pods may use.
        at_home: The workloads with all pods on nodes that no wave switches.
    """
    waiting = usable.waiting_pods(cluster.state) if needs else {}
    # Kubernetes serves these on both sides.
    native = (entry for entry in cluster.workloads if entry.outcome is Outcome.NATIVE)
    native_nodes = frozenset[str]().union(*map(usable.serving, native))
    reasons = {}
    for node, keeping in needs.items():
        pods = [name for name, places in waiting.items() if node in places]
        names, is_used = join_names(keeping), bool(pods) or node in native_nodes
        lacking = _LACKING.format(names, "its devices" if is_used else "them")
        if all(name in at_home for name in keeping):
            lacking += _AT_HOME
        if own := stopped.get(node):
            lacking += _STOPPED.format(join_names(own))
        if pods:
            verb = "waits" if len(pods) == 1 else "wait"
            text = f"{join_names(pods)} {verb} for claims with such devices, but "
            reasons[node] = text + lacking
        else:
            reasons[node] = lacking if is_used else f"{NO_USER}, and {lacking}"
    return reasons
