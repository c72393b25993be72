"""Checks of a cluster before a wave, and before a node is drained, as values. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from answers.model.snapshot_kinds import KINDS
from answers.model.views import decode_view
from findings.finding import Code
from findings.text import join_names
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass
from kube.api.workloads import DAEMON_SET
from migration.assessment.blockers import (
    OLDEST_NVIDIA_DRIVER,
    check_readable,
    nvidia_driver,
)
from migration.assessment.claim_counts import ClaimShortage, describe_shortages
from migration.assessment.unserved import COLOCATE
from migration.cluster.evidence import is_ready, mapping_at, text_map
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.checks.checks import (
    Check,
    ClusterView,
    DrainAnswer,
    State,
    WaveAnswer,
    check_cluster,
    check_switched,
    failed_check,
    is_gone,
    note_check,
    ok_check,
)
from migration.plan.checks.drains import check_drain
from migration.plan.checks.driver_pods import check_driver_pods
from migration.plan.checks.early_labels import check_early_labels
from migration.plan.checks.gpu_labels import check_gpu_labels
from migration.plan.checks.unchanged import check_unchanged
from migration.plan.drivers.driver_daemon_sets import find_waiting
from migration.plan.drivers.vendors import unmap_command
from migration.plan.facts.device_plugins import DevicePlugins
from migration.plan.facts.environment import (
    REVERTING,
    changes,
    chart_names,
    in_repository,
    managed_note,
    read_managed,
)
from migration.plan.facts.kept_away import is_kept_away, is_remapped, kept_away, missing_labels
from migration.plan.facts.ready_pods import node_of
from migration.plan.facts.selecting import Stranded, stranded_pods
from migration.plan.facts.stuck_drains import running_pods, stuck_drains
from migration.plan.facts.work import Restart, read_restart
from migration.plan.model.plan import Held, Plan, PlannedNode, Wave
from translation.cluster.snapshot import WideMapping

DAEMON_SETS: Final = "daemonsets"
AGAIN: Final = "plan again from a new snapshot"
_UNPLACED: Final = (
    "no other node takes it or has the CPU and memory: it waits until a node that takes it is back"
)
_SWITCHED: Final = (
    "it has been switched already: go on with verify.sh of this wave, or take it back with rollback.sh; "
    "drawbridge wave continues only what it has begun"
)
_CORDONED: Final = (
    "it is as planned, but cordoned, and the end of this wave uncordons it: if it is to take no pods, plan again from a new "
    "snapshot"
)
_AWAITED: Final = "{}; among those that wait now, {} had a node when the plan was made: see that they get devices first, or {}"
_STRANDED: Final = "no node has the labels that it selects, also after this wave, so it waits for ever: let it select another label first"
_UNCOLOCATED: Final = (
    "no node that it may use offers the batch or mid amounts that it requests, also after this wave, since koordlet leaves "
    f"switched nodes, so it waits for ever: first {COLOCATE}"
)


def check_before(
    plan: Plan,
    wave: Wave,
    view: ClusterView,
    drain: Callable[[Wave], DrainAnswer],
    *,
    wide_mappings: Sequence[WideMapping],
    shortages: Sequence[ClaimShortage],
    in_vain: Sequence[Held] = (),
    workload_checks: Sequence[Check] = (),
) -> WaveAnswer:
    """Check that a wave may begin.

    Args:
        plan: The whole plan.
        wave: The wave.
        view: The cluster.
        drain: Returns what becomes of the pods of a wave if it begins now.
        wide_mappings: The mappings in force that give pods other devices than their keys mean, too.
        shortages: The lines of ResourceQuotas that let too few claims be created.
        in_vain: The nodes of the wave that next pods may use today, and not without claims that are not created.
        workload_checks: Those of workloads with pods on its nodes that nothing in the plan moves, or that come again nowhere.
    """
    checks = [
        *check_cluster(plan, view),
        *(
            failed_check(
                entry.subject, f"{entry.source} is not confirmed: plan again with {entry.flag}"
            )
            for entry in plan.proposals
        ),
        *(
            failed_check("Cluster//", blocker.message)
            for blocker in check_readable(view.unreadable)
        ),
        *(
            check_switched(node, view)
            for earlier in plan.waves
            if earlier.wave < wave.wave
            for node in earlier.nodes
        ),
        *(_check_unswitched(node, view) for node in wave.nodes),
        *(check for node in wave.nodes for check in check_drain(node, view)),
        *_check_environment(plan, wave, view),
        *_check_classes(plan, view),
        *_check_wide_mappings(plan, wide_mappings),
        *_check_chart_classes(plan, view),
        *_check_drivers(plan, wave, view),
        *check_driver_pods(plan, wave, view),
        *_check_kept_away(plan, wave, view),
        *_check_namespaces(wave, view),
        *check_early_labels(plan, wave, view),
        *check_gpu_labels(plan, wave, view),
        *check_unchanged(plan, wave, view),
        *_check_claim_counts(wave, view, shortages),
        *(failed_check(entry.object, f"{entry.reason}: {entry.fix}") for entry in in_vain),
        *_restart_notes(wave, view),
        *_gone_notes(wave, view),
        *_quota_notes(plan, wave),
    ]
    if not any(check.state is State.FAILED for check in checks):
        drained = drain(wave)
        checks += [
            failed_check(workload, f"{reason}: {AGAIN}")
            for workload, reason in drained.unserved.items()
        ]
        checks += [failed_check(workload, message) for workload, message in drained.early.items()]
        checks += [failed_check(name, message) for name, message in drained.rejected.items()]
        capacity = f"Wave//{wave.wave}"
        if drained.misfit:
            checks.append(failed_check(capacity, _misfit_text(drained)))
        elif wave.nodes:
            text = "all pods have devices while its nodes are drained, and once they are switched"
            checks.append(ok_check(capacity, text))
        stranded = stranded_pods(wave, plan.waves, drained.unplaced_pods, view.objects)
        checks += [
            note_check(pod, _text_of_unplaced(pod, stranded)) for pod in drained.unplaced_pods
        ]
        checks += [
            failed_check(f"Node//{entry.node}", entry.text)
            for entry in stuck_drains(
                view.evidence, running_pods(view.evidence), drained.unplaced_pods
            )
        ]
    return WaveAnswer(wave=wave.wave, checks=(*checks, *workload_checks))


def _text_of_unplaced(pod: str, stranded: Stranded) -> str:
    """Return the words for a pod that no other node takes while the nodes of a wave are drained."""
    if pod in stranded.uncolocated:
        return _UNCOLOCATED
    return _STRANDED if pod in stranded.pods else _UNPLACED


def _misfit_text(drained: DrainAnswer) -> str:
    if drained.awaited:
        return _AWAITED.format(drained.misfit, drained.awaited, AGAIN)
    return f"{drained.misfit}: {AGAIN}"


def _check_unswitched(node: PlannedNode, view: ClusterView) -> Check:
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if document is None:
        return failed_check(reference, "there is no such node: plan again from a new snapshot")
    if not is_ready(document):
        return failed_check(reference, "it is not ready")
    driver = nvidia_driver(text_map(document, "metadata", "labels"))
    if driver is not None and driver < OLDEST_NVIDIA_DRIVER:
        return failed_check(reference, f"NVIDIA's driver is {driver}, below {OLDEST_NVIDIA_DRIVER}")
    allocatable = text_map(document, "status", "allocatable")
    changed = [key for key, amount in node.resources.items() if allocatable.get(key) != amount]
    if changed:
        if node.labels.items() <= text_map(document, "metadata", "labels").items():
            return failed_check(reference, _SWITCHED)
        now = ", ".join(f"{key} {allocatable.get(key, '0')}" for key in changed)
        return failed_check(
            reference, f"it offers {now} and not what was planned: plan again from a new snapshot"
        )
    if mapping_at(document, "spec").get("unschedulable") is True:
        return note_check(reference, _CORDONED)
    return ok_check(reference, "is as planned")


def _check_environment(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield the checks of everything else in the cluster that would make a wave fail."""
    plugins = DevicePlugins(view.objects)
    for node in wave.nodes:
        reason = plugins.misgiving(node, plan.plugin_label)
        if reason and DAEMON_SETS in view.unreadable:
            yield note_check(f"Node//{node.name}", f"{DAEMON_SETS} cannot be read: {reason}")
        elif reason:
            yield failed_check(f"Node//{node.name}", reason)
    for reference, manager in read_managed(view.objects, plan).items():
        is_changed = changes(plan, wave, reference) or is_remapped(plan, reference)
        if not is_changed and not is_kept_away(plan, wave, reference):
            continue
        is_reverted = manager in REVERTING and not in_repository(plan, *reference.split("/", 2))
        check = failed_check if is_reverted else note_check
        yield check(reference, managed_note(plan, wave, reference, manager, view.objects))


def _check_classes(plan: Plan, view: ClusterView) -> Iterator[Check]:
    """Check that the planned classes map their resource names, and no other class takes them."""
    in_force = _mappings_in_force(view)
    for resource, name in plan.mapped_classes.items():
        document = view.find("DeviceClass", name)
        reference = f"DeviceClass//{name}"
        if document is None:
            yield failed_check(reference, "there is none: install its DRA driver, see prepare.sh")
        elif mapping_at(document, "spec").get("extendedResourceName") != resource:
            yield failed_check(reference, f"it does not map {resource}: run prepare.sh")
        elif (winner := in_force.get(resource, name)) != name:
            yield failed_check(
                f"DeviceClass//{winner}",
                f"it maps {resource}, too, and Kubernetes takes it, not {name}: {unmap_command(winner)}",
            )
        else:
            yield ok_check(reference, f"maps {resource}")


def _check_wide_mappings(plan: Plan, mappings: Iterable[WideMapping]) -> Iterator[Check]:
    """Check that no class gives pods with a device key other devices than it means.

    A pod that is created between two waves without a claim would get them, on a node that has been switched.
    """
    for mapping in mappings:
        # That another class takes a planned name has been told.
        if mapping.resource not in plan.mapped_classes:
            yield failed_check(
                f"DeviceClass//{mapping.device_class}",
                f"it maps {mapping.resource}, and {mapping.reason} ({Code.MAPPING_TOO_WIDE}), so pods that have the key "
                f"still would get any of them on switched nodes: {unmap_command(mapping.device_class)}",
            )


def _check_chart_classes(plan: Plan, view: ClusterView) -> Iterator[Check]:
    """Check that no class of a chart maps a foreign name that prepare.sh takes from it; an upgrade of the chart sets it again."""
    for name, resource in chart_names(plan).items():
        document = view.find("DeviceClass", name)
        # That another class takes a planned name has been told.
        if (
            resource not in plan.mapped_classes
            and mapping_at(document, "spec").get("extendedResourceName") == resource
        ):
            yield failed_check(
                f"DeviceClass//{name}",
                f"it maps {resource}, which means devices of another driver, so pods for whole devices would get shares, or "
                "none: run prepare.sh",
            )


def _mappings_in_force(view: ClusterView) -> Mapping[str, str]:
    """Return resource name to the DeviceClass that Kubernetes takes for it."""
    documents = (source.document for source in view.objects if source.kind == "DeviceClass")
    classes = (decode_view(document, DeviceClass) for document in documents)
    return extended_resources(entry for entry in classes if isinstance(entry, DeviceClass))


def _check_drivers(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Check that each driver that a wave needs will come to its nodes.

    Without the driver a node has no devices after its drain, and stays cordoned.
    """
    publishing = {driver for devices in view.devices.values() for driver in devices}
    for driver in sorted({driver for node in wave.nodes for driver in node.devices}):
        reference = f"Driver//{driver}"
        label = plan.drivers.get(driver, "")
        release = plan.driver_release if driver == NVIDIA else None
        waiting = find_waiting(view.objects, label, release.namespace if release else "")
        missing = f"no DaemonSet has the node selector {label}"
        if waiting.drivers:
            names = join_names(waiting.drivers)
            yield ok_check(reference, f"a DaemonSet waits for {label}: {names}")
        elif DAEMON_SETS in view.unreadable:
            yield note_check(
                reference, f"{DAEMON_SETS} cannot be read: see that one waits for {label}"
            )
        elif waiting.named:
            names = join_names(waiting.named)
            yield note_check(
                reference,
                f"{names} waits for {label}, and has no volume plugins_registry of the kubelet, in which "
                "drivers register: see that it is the driver",
            )
        elif driver in publishing:
            yield note_check(
                reference, f"it has devices on other nodes, and {missing}: see that it comes here"
            )
        elif waiting.others:
            names = join_names(waiting.others)
            yield failed_check(
                reference,
                f"only {names} waits for {label}, which is not the driver: install that, see prepare.sh",
            )
        else:
            yield failed_check(reference, f"{missing}: install the driver, see prepare.sh")


def _check_kept_away(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Check that DaemonSets of legacy systems leave the nodes that are switched.

    One that has come since the plan was made, under another name, is not in the plan, and an older version of the command
    may have planned another label.
    """
    plugins = DevicePlugins(view.objects)
    staying = {
        (entry.namespace, entry.name): entry.labels
        for entry in kept_away(view.objects, plan.gpu_operator, wave.nodes, plugins)
    }
    documents = {
        (source.namespace or "default", source.name): source.document
        for source in view.objects
        if source.kind == DAEMON_SET
    }
    for plugin in plan.plugins:
        reference = f"{DAEMON_SET}/{plugin.namespace}/{plugin.name}"
        document = documents.get((plugin.namespace, plugin.name))
        labels = " or ".join(plugin.labels)
        if document is None and DAEMON_SETS in view.unreadable:
            yield note_check(
                reference, f"{DAEMON_SETS} cannot be read: see that it leaves nodes with {labels}"
            )
        elif document is not None and (missing := missing_labels(document, plugin.labels)):
            where = " or ".join(missing)
            yield failed_check(
                reference, f"it would stay on nodes with {where}, beside the driver: run prepare.sh"
            )
        elif document is None:
            yield note_check(reference, "it is gone, and prepare.sh leaves it out")
        elif (plugin.namespace, plugin.name) not in staying:
            yield ok_check(reference, f"leaves nodes with {labels}")
        else:
            continue
        staying.pop((plugin.namespace, plugin.name), None)
    for (namespace, name), required in sorted(staying.items()):
        where = " or ".join(missing_labels(documents[namespace, name], required))
        yield failed_check(
            f"{DAEMON_SET}/{namespace}/{name}",
            f"it would stay on nodes with {where}, beside the driver: plan again from a new snapshot",
        )


def _check_namespaces(wave: Wave, view: ClusterView) -> Iterator[Check]:
    for name in wave.opted_in:
        reference = f"Namespace//{name}"
        document = view.find("Namespace", name)
        if document is None:
            yield failed_check(reference, "there is no such namespace")
        elif "deletionTimestamp" in mapping_at(document, "metadata"):
            yield failed_check(reference, "it is being deleted")
        else:
            yield ok_check(reference, "exists")


def _check_claim_counts(
    wave: Wave, view: ClusterView, shortages: Iterable[ClaimShortage]
) -> Iterator[Check]:
    """Check that the claims of pods that leave the nodes of a wave, and of its namespaces, can be created.

    Where no workload has pods, their next ones may come to the nodes of any wave: that is noted.
    """
    nodes = {node.name for node in wave.nodes}
    for shortage in shortages:
        if not shortage.stops_pods:
            continue
        groups = (view.groups.get(name) for name in shortage.workloads)
        pods = [pod for group in groups if group is not None for pod in group.pods]
        fails = (
            shortage.is_early
            or (shortage.namespace in wave.opted_in and not shortage.is_native)
            or any(str(node_of(pod)) in nodes for pod in pods)
        )
        reason, fix = describe_shortages([shortage])
        if fails:
            yield failed_check(shortage.quota, f"{reason}: {fix}")
        elif not pods:
            yield note_check(shortage.quota, f"{reason}: {fix}")


def _restart_notes(wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield the workloads that a restart takes something from, as they are now."""
    for workload in wave.workloads:
        group = view.groups.get(workload.object)
        restart = read_restart(group) if workload.is_restarted and group is not None else Restart()
        if restart.losses:
            verb = "switch.sh asks before it restarts it" if restart.asks else "it is restarted"
            yield note_check(workload.object, f"{verb}: {'; '.join(restart.losses)}")


def _gone_notes(wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield the workloads that scripts change or restart, and that somebody has deleted since the plan was made."""
    for workload in wave.workloads:
        resource = KINDS.get(workload.object.partition("/")[0])
        is_read = resource is not None and resource.plural not in view.unreadable
        if workload.is_restarted and is_read and is_gone(workload, view):
            yield note_check(workload.object, "it is gone, and the scripts leave it out")


def _quota_notes(plan: Plan, wave: Wave) -> Iterator[Check]:
    """Yield the joint effect of the quotas that a wave applies."""
    for namespace in plan.quota_namespaces(wave):
        for file in plan.quotas.get(namespace, ()):
            for effect in plan.quota_effects.get(file, ()):
                name = file.removeprefix(f"{namespace}.").removesuffix(".yaml")
                yield note_check(f"ResourceQuota/{namespace}/{name}", f"with this wave {effect}")
