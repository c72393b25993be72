"""The commands of a way back for pods with claims again: their labels are not of its wave. Pure.

The cluster is asked for them: workloads that were created or scaled since the plan was made may have pods on the nodes.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from cli.runbooks.daemon_set_runbook import lasting_daemon_sets, leaving_drivers
from cli.runbooks.shell import command
from kube.api.workloads import DAEMON_SET
from kube.names import TRANSLATE_SELECTED
from migration.cluster.owners import kind_of
from migration.plan.drivers.vendors import COMPANIONS
from migration.plan.model.plan import RUN_OUT, Plan, PlannedNode, PlannedWorkload, Wave

_NO_NEXT_PODS: Final = RUN_OUT | {"Pod"}
"""Kinds with pods that nothing creates again, or that may begin later."""


def lasting_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the lines for a way back: leaving drivers, labels that it takes off, its restarts, and labels of earlier waves."""
    nodes = [node for node in wave.nodes if _has_leaving(plan, node)]
    if not nodes:
        return
    drivers = sorted({driver for node in nodes for driver in leaving_drivers(plan, node)})
    leaving = [name for driver in drivers for name in (driver, *COMPANIONS.get(driver, ()))]
    yield "# Pods with claims for devices of other drivers find these again, and are not asked about."
    yield from (command("driver_leaves", driver) for driver in leaving)
    labels = {name: wave.former_labels.get(name) for name in wave.opted_in}
    labelled = [workload.object for workload in wave.workloads if workload.labelled]
    if labels:
        yield "# These pods get device keys again, and are not asked about."
    for namespace, former in labels.items():
        selected = (TRANSLATE_SELECTED,) if former == TRANSLATE_SELECTED else ()
        yield command("keys_again", f"namespace/{namespace}", *selected)
    yield from (command("keys_again", reference) for reference in labelled)
    restarted = [
        workload.object
        for workload in wave.workloads
        if workload.is_restarted and not workload.on_delete
    ]
    if restarted:
        yield "# These are waited for when they are restarted, and not as evicted ones."
        yield " \\\n  ".join([command("restarts"), *map(command, restarted)])
    switched = _switched_before(plan, wave)
    if switched:
        yield "# Earlier waves had devices for as many pods of these namespaces."
    daemon_sets = sorted(
        {
            (entry.namespace, entry.name)
            for node in nodes
            for entry, _ in lasting_daemon_sets(plan, wave, node)
        }
    )
    for namespace, pods in sorted(switched.items()):
        names = (name for place, name in daemon_sets if place == namespace)
        yield command("switched_before", namespace, str(pods), *names)


def claim_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the question before a way back evicts pods with claims again.

    Another node may have devices for them. What is free of a device, of memory and of partitions is known to the
    scheduler alone, so that is left to a person.
    """
    nodes = [node.name for node in wave.nodes if _has_leaving(plan, node)]
    if nodes:
        yield command("stop_at_claims", *nodes)


def noted_lines(plan: Plan, wave: Wave, node: PlannedNode) -> Iterator[str]:
    """Yield the command that notes the workloads of pods with claims or device keys of a driver before a drain.

    Those that the last step waits for by the plan are noted, too: a way back of an aborted switch evicts pods of them with
    devices of the plugin, and leaves out nodes that were not drained.
    """
    if _planned_workloads(plan, wave) or _has_leaving(plan, node):
        yield command("note_evicted", node.name)


def planned_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the command that names the workloads that a way back notes on each node before its drain, and waits for."""
    workloads = [workload.object for workload in _planned_workloads(plan, wave)]
    if workloads and wave.nodes:
        yield "# The switch has evicted pods of these, unless they ended before; they are noted, too, before each drain of the way back."
        yield " \\\n  ".join([command("evicted_before"), *map(command, workloads)])


def returning_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the command that waits until evicted pods are ready again.

    They are those that the way back has noted on its nodes, and those that the switch has evicted: if it was aborted, they
    may have no node yet. A restart by the way back is waited for before.
    """
    if not wave.nodes:
        return
    words = [
        command(f"{workload.object}={workload.ready_pods or 0}")
        for workload in _planned_workloads(plan, wave)
    ]
    yield "# Stops if pods that ran before are not ready again after half an hour, and names them."
    nodes = " ".join(node.name for node in wave.nodes)
    yield " \\\n  ".join([command("wait_for_evicted", nodes), *words])


def _planned_workloads(plan: Plan, wave: Wave) -> list[PlannedWorkload]:
    """Return the workloads with pods that a switch evicts and that no way back restarts."""
    switched = {
        *(entry.reference for node in wave.nodes for entry in node.daemon_sets),
        *(work.owner for work in wave.work),
    }
    early = [workload for workload in plan.opted_in_before if workload.object in switched]
    native = [
        workload
        for workload in wave.workloads
        if not workload.is_translated and kind_of(workload.object) not in _NO_NEXT_PODS
    ]
    by_name = {workload.object: workload for workload in (*early, *native, *wave.evicted_workloads)}
    return list(by_name.values())


def _has_leaving(plan: Plan, node: PlannedNode) -> bool:
    """Return True if a DRA driver leaves a node on the way back: pods with claims of others find their devices again."""
    return any(leaving_drivers(plan, node))


def _switched_before(plan: Plan, wave: Wave) -> Counter[str]:
    """Return the namespaces that earlier waves have opted in, with the pods that these have given claims."""
    pods: Counter[str] = Counter()
    for earlier in plan.waves:
        if earlier.wave >= wave.wave:
            break
        for namespace in earlier.opted_in:
            pods[namespace] += 0
        for workload in earlier.workloads:
            kind, namespace, _ = workload.object.split("/", 2)
            if kind != DAEMON_SET and workload.is_translated:
                pods[namespace] += workload.pods
    return pods
