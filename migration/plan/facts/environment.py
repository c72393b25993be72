"""Other participants in a migration: unknown device plugins, queues, GitOps. Pure.

Sources: argo-cd, resource tracking; fluxcd/kustomize-controller and helm-controller,
labels of what they apply; Helm 3, annotations of a release; the names of field managers are theirs, too.
The label of GKE's device plugin is in NVIDIA's documents of the GPU Operator (google-gke: --node-labels of the pool).
GKE's addon manager and AKS take back what was changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final

import msgspec

from findings.finding import Code
from findings.text import join_names, reference_text
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from kube.names import FIELD_MANAGERS, TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.assessment.chart_names import CHART_MAPPINGS
from migration.cluster.evidence import controller_kind, list_at, mapping_at, text_map
from migration.cluster.node_devices import Source
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.operator_policy import POLICY_CHANGES, needs_policy_changes
from migration.plan.drivers.vendors import (
    CHART_CLASSES,
    hami_notes,
    is_koordlet,
    registers_devices,
)
from migration.plan.facts.device_plugins import DevicePlugins
from migration.plan.facts.repository_patches import (
    KUSTOMIZE,
    patch_file,
    patch_place,
    read_helm_releases,
    template_step,
    wave_step,
)
from migration.plan.facts.selecting import selecting_notes
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan, Wave, is_name
from migration.plan.neighbours.kai_shares import (
    kai_namespaces,
    kai_webhook_notes,
    reservation_notes,
)
from migration.plan.neighbours.kept_schedulers import kept_scheduler_notes
from migration.plan.neighbours.koordinator_nodes import koordinator_driver_notes
from migration.plan.neighbours.kueue import native_queue_notes, queue_notes, queued_workloads
from migration.plan.neighbours.node_autoscalers import (
    autoscaler_notes,
    halt_notes,
    nodes_left_in_pools,
)
from migration.plan.neighbours.priorities import priority_note
from migration.plan.neighbours.statements import exporter_notes
from translation.model.intents import Vocabulary
from translation.reading.claim_blind_objects import KINDS as CLAIM_BLIND_KINDS
from translation.reading.claim_blind_objects import MAX_KEYS, find_named_keys

_MARKS: Final = (
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux"),
    ("annotations", "meta.helm.sh/release-name", "Helm"),
)
REVERTING: Final = frozenset({"Argo CD", "Flux"})
"""The managers that compare a cluster with a repository all the time."""
_HELM: Final = "Helm"
_RELEASE: Final = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
"""The annotations of an object of a release, with its namespace and its name."""


def manager_of(document: Mapping[str, Any]) -> str:
    """Return the manager of an object: `Argo CD`, `Flux` or `Helm`; empty if none is known."""
    for field, key, manager in _MARKS:
        if key in mapping_at(document, "metadata", field):
            return manager
    for entry in list_at(document, "metadata", "managedFields"):
        field_manager = str(mapping_at(entry).get("manager"))
        if field_manager in FIELD_MANAGERS:
            return FIELD_MANAGERS[field_manager]
    return ""


def taken_back_text(manager: str, references: Iterable[str], change: str) -> str:
    """Return the sentence that a manager takes a change of some objects back, after advice for it.

    Args:
        manager: The manager, one of `REVERTING`.
        references: The objects, as `Kind/namespace/name`.
        change: The changed part of them.
    """
    return (
        f"; {manager} manages {join_names(list(references))}, and takes back what kubectl changes: change {change} in its "
        "repository"
    )


def read_managed(objects: Iterable[SourceObject], plan: Plan) -> dict[str, str]:
    """Return `Kind/namespace/name` to the manager, for the objects that a plan changes."""
    plugins = {(entry.namespace, entry.name) for entry in plan.plugins}
    namespaces = {name for wave in plan.waves for name in wave.opted_in}
    with_quotas = {name for wave in plan.waves for name in plan.quota_namespaces(wave)}
    labelled = {
        workload.object for wave in plan.waves for workload in wave.workloads if workload.labelled
    }
    quotas = {(entry.namespace, entry.name) for entry in plan.replaced_lines}
    classes = remapped_classes(plan)
    managed = {}
    for source in objects:
        is_changed = (
            (source.kind == "Namespace" and source.name in namespaces)
            or f"{source.kind}/{source.namespace or 'default'}/{source.name}" in labelled
            or (source.kind == "DeviceClass" and source.name in classes)
            or (
                source.kind == DAEMON_SET
                and (source.namespace or "default", source.name) in plugins
            )
            or (
                source.kind == "ResourceQuota"
                and source.namespace in with_quotas
                and (
                    (source.namespace, source.name) in quotas
                    or _is_converted(plan, source.namespace, source.name)
                )
            )
        )
        manager = manager_of(source.document) if is_changed else ""
        if manager:
            managed[f"{source.kind}/{source.namespace or ''}/{source.name}"] = manager
    return dict(sorted(managed.items()))


def remapped_classes(plan: Plan) -> frozenset[str]:
    """Return the DeviceClasses that `prepare.sh`, or a repository, gives a resource name, or takes one from."""
    unmapped = (entry.device_class for entry in plan.wide_mappings)
    return frozenset((*plan.mapped_classes.values(), *unmapped, *chart_names(plan)))


def chart_names(plan: Plan) -> dict[str, str]:
    """Return driver of a plan to the foreign resource name of the class in its chart, unless the plan maps it there, too."""
    return {
        driver: resource
        for driver, resource in CHART_MAPPINGS.items()
        if driver in plan.drivers and plan.mapped_classes.get(resource) != driver
    }


def in_repository(plan: Plan, kind: str, namespace: str, name: str) -> bool:
    """Return True if scripts wait until a repository has changed an object, and do not change it themselves.

    Where no object of the plan is seen to be of Argo CD or Flux, a person applies them all from a repository, but for
    a class that a driver's chart brings when `prepare.sh` or a person installs it: a patch for what no repository has
    is ignored by kustomize, without a word.
    """
    if plan.format != KUSTOMIZE:
        return False
    managers = plan.managed
    if not REVERTING.isdisjoint(managers.values()):
        return managers.get(f"{kind}/{namespace}/{name}") in REVERTING
    # A name that a class has already is not its chart's.
    is_mapped = any(mapping.device_class == name for mapping in plan.wide_mappings)
    is_of_chart = not is_mapped and _is_installed(plan, CHART_CLASSES.get(name, name))
    return not (kind == "DeviceClass" and is_of_chart)


def _is_installed(plan: Plan, driver: str) -> bool:
    """Return True if a driver's chart is installed or upgraded before the first wave, and not from a repository."""
    release = plan.driver_release if driver == NVIDIA else None
    return driver in plan.drivers and not (release is not None and release.in_repository)


def _is_converted(plan: Plan, namespace: str, name: str) -> bool:
    """Return True if a ResourceQuota gets lines for claims."""
    return f"{namespace}.{name}.yaml" in plan.quotas.get(namespace, ())


def with_environment(
    plan: Plan,
    objects: Sequence[SourceObject],
    vocabularies: Mapping[str, Vocabulary],
    nodes_by_use: NodesByUse,
    plugins: DevicePlugins,
) -> Plan:
    """Return a plan with the managers of its objects, and with notes on its waves' surroundings.

    Args:
        plan: The plan.
        objects: The cluster's objects.
        vocabularies: The vocabularies in force, by name.
        nodes_by_use: The nodes by the pods that run there.
        plugins: The cluster's device plugins.
    """
    # A large cluster has a hundred thousand pods of controllers, which all but one note leave out, and hundreds of waves.
    is_pod = [source.kind == "Pod" for source in objects]
    pods = tuple(compress(objects, is_pod))
    objects = tuple(
        source
        for source, is_one in zip(objects, is_pod, strict=True)
        if not is_one or not controller_kind(source.document)
    )
    priorities = priority_note(plan, objects, pods)
    managed = read_managed(objects, plan)
    releases = read_helm_releases(objects, managed)
    plan = msgspec.structs.replace(plan, managed=managed, helm_releases=releases)
    labels, queued = _labels_of_namespaces(objects), queued_workloads(objects)
    halts = halt_notes(plan.waves, objects)
    of_kai = {wave.wave: kai_namespaces(wave, nodes_by_use.changed_by_kai) for wave in plan.waves}
    nodes = [node for wave in plan.waves for node in wave.nodes]
    left_nodes = nodes_left_in_pools(plan, objects)
    first = next((wave.wave for wave in plan.waves if wave.nodes), 0)
    blind_objects = [source for source in objects if source.kind in CLAIM_BLIND_KINDS]
    waves = (
        msgspec.structs.replace(
            wave,
            former_labels=_former_labels(wave, labels),
            kai_namespaces=of_kai[wave.wave],
            notes=(
                *wave.notes,
                *(_mapping_notes(plan) if wave.wave == 1 else ()),
                *((POLICY_CHANGES,) if wave.wave == 1 and needs_policy_changes(plan) else ()),
                *((priorities,) if priorities and wave.wave == first else ()),
                *_plugin_notes(wave, plan.plugin_label, plugins),
                *(plugins.lookalike_notes(nodes) if wave.wave == 1 else ()),
                *environment_notes(plan, wave, objects, nodes_by_use, halts, left_nodes=left_nodes),
                *_quota_notes(wave, blind_objects, vocabularies),
                *queue_notes(wave, queued, objects),
                *kept_scheduler_notes(plan, wave, nodes_by_use.kept_schedulers, objects),
                *reservation_notes(wave, objects),
                *kai_webhook_notes(of_kai[wave.wave]),
                *(
                    native_queue_notes(plan, queued, objects, nodes_by_use)
                    if wave.wave == 1
                    else ()
                ),
            ),
        )
        for wave in plan.waves
    )
    return msgspec.structs.replace(plan, waves=tuple(waves))


def _labels_of_namespaces(objects: Iterable[SourceObject]) -> dict[str, str | None]:
    """Return namespace to the label that opts it in; None without one."""
    return {
        source.name: text_map(source.document, "metadata", "labels").get(TRANSLATE_LABEL)
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Namespace")
    }


def _former_labels(wave: Wave, labels: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the namespaces that a wave opts in to the label that they have when it begins."""
    return {
        name: TRANSLATE_SELECTED if name in wave.formerly_selective else labels.get(name)
        for name in wave.opted_in
    }


def _quota_notes(
    wave: Wave, objects: Iterable[SourceObject], vocabularies: Mapping[str, Vocabulary]
) -> Iterator[str]:
    """Yield a note for each quota or queue of others that stops counting pods that the wave gives claims."""
    namespaces = {
        workload.object.split("/")[1] for workload in wave.workloads if workload.is_translated
    }
    for source in objects:
        if source.kind == "ResourceQuota" or source.namespace not in namespaces:
            continue
        keys = find_named_keys(source.document, vocabularies)
        if keys:
            yield (
                f"{source.kind}/{source.namespace}/{source.name} counts {', '.join(sorted(keys)[:MAX_KEYS])}: "
                "not for the pods that get claims"
            )


def _mapping_notes(plan: Plan) -> Iterator[str]:
    """Yield a note for each DeviceClass that loses its resource name before the first wave."""
    for mapping in plan.wide_mappings:
        yield (
            f"DeviceClass {mapping.device_class} maps {mapping.resource}, and {mapping.reason} "
            f"({Code.MAPPING_TOO_WIDE}): prepare.sh takes the name from it, since pods that have the key still would get "
            "any of its devices on switched nodes; pods that run keep theirs"
        )


def _plugin_notes(wave: Wave, plugin_label: str, plugins: DevicePlugins) -> Iterator[str]:
    """Yield a note for each reason that device plugins of the wave's nodes would stay."""
    nodes_of: dict[str, list[str]] = {}
    for node in wave.nodes:
        if misgiving := plugins.misgiving(node, plugin_label):
            nodes_of.setdefault(misgiving, []).append(node.name)
    for misgiving, names in nodes_of.items():
        yield f"a device plugin, on {join_names(sorted(names))}: {misgiving}"


def environment_notes(
    plan: Plan,
    wave: Wave,
    objects: Sequence[SourceObject],
    nodes_by_use: NodesByUse,
    halts: Mapping[int, str],
    *,
    left_nodes: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield notes for a person on a wave's surroundings.

    Args:
        plan: The plan with the managers of its objects.
        wave: One of its waves.
        objects: The cluster's objects.
        nodes_by_use: The nodes by the pods that run there.
        halts: The notes of `halt_notes`.
        left_nodes: The nodes of `nodes_left_in_pools`.
    """
    earlier = [entry for entry in plan.waves if entry.wave < wave.wave]
    yield from hami_notes(wave, earlier, nodes_by_use.hami)
    yield from _koordlet_notes(wave, objects)
    yield from koordinator_driver_notes(wave, objects)
    for source, note in selecting_notes(plan, wave, objects):
        manager = manager_of(source.document)
        reference = f"{source.kind}/{source.namespace or 'default'}/{source.name}"
        is_reverted = manager in REVERTING
        yield note + (taken_back_text(manager, (reference,), "the template") if is_reverted else "")
    yield from exporter_notes(wave, earlier, objects)
    yield from autoscaler_notes(plan, wave, objects, nodes_by_use, halts, left_nodes=left_nodes)
    for reference, manager in plan.managed.items():
        kind = reference.partition("/")[0]
        is_of_wave = changes(plan, wave, reference)
        is_prepared = kind in {"DeviceClass", DAEMON_SET} and wave.wave == 1
        if is_of_wave or is_prepared:
            yield managed_note(plan, wave, reference, manager, objects)


def _koordlet_notes(wave: Wave, objects: Iterable[SourceObject]) -> Iterator[str]:
    """Yield a note on nodes of Koordinator if no DaemonSet of koordlet was seen."""
    has_nodes = any(node.source == Source.KOORDINATOR for node in wave.nodes)
    if has_nodes and not any(
        source.kind == DAEMON_SET and is_koordlet(source) and registers_devices(source)
        for source in objects
    ):
        yield (
            "no DaemonSet of koordlet was seen: keep koordlet from nodes with the driver's label by node affinity, "
            "or it registers the GPUs again"
        )


def changes(plan: Plan, wave: Wave, reference: str) -> bool:
    """Return True if a wave changes an object, given as `Kind/namespace/name`."""
    kind, namespace, name = reference.split("/", 2)
    if kind == "Namespace":
        return name in wave.opted_in
    if kind == "ResourceQuota":
        return namespace in plan.quota_namespaces(wave)
    return any(workload.labelled and workload.object == reference for workload in wave.workloads)


def managed_note(
    plan: Plan, wave: Wave, reference: str, manager: str, objects: Iterable[SourceObject]
) -> str:
    """Return a note for a person about an object that another system manages.

    Helm compares a new manifest with the last one and with the object: it sets what the chart sets, and leaves other fields
    alone. Source: Helm 3 and 4, three-way merge and server-side apply of an upgrade.

    Args:
        plan: The plan that changes the object.
        wave: The wave that it is changed with or before.
        reference: The object, as `Kind/namespace/name`.
        manager: Its manager.
        objects: The cluster's objects.
    """
    place = reference.replace("//", "/")
    if in_repository(plan, *reference.split("/", 2)):
        return f"{place} is managed by {manager}: {_repository_text(plan, wave, reference)}"
    if manager == _HELM and reference in {
        f"{DAEMON_SET}/{it.namespace}/{it.name}" for it in plan.plugins
    }:
        return (
            f"{place} is of Helm{_release_text(reference, objects)}: an upgrade takes back the affinity that prepare.sh sets, and "
            "the plugin comes to switched nodes, too: do not upgrade its chart until the migration is over; if it has been "
            "upgraded, run prepare.sh again at once; do not set it in values that are for other DaemonSets, too"
        )
    if manager == _HELM:
        return (
            f"{place} is of Helm{_release_text(reference, objects)}: an upgrade sets again what the chart sets itself, and keeps "
            "other fields that kubectl has changed, unless it is run with --force; set the same in the values of the "
            "chart if it has one for this, and look at the object after each upgrade"
        )
    way = f"plan with --format {KUSTOMIZE}"
    if plan.format == KUSTOMIZE:
        way = "the folder kustomize has no patch of it: plan again from a new snapshot"
    return f"{place} is managed by {manager}, which takes back what kubectl changes: {way}, and commit the patches"


def stopped_texts(plan: Plan) -> Iterator[str]:
    """Yield a sentence on each wave that its checks stop, since a manager of objects would take its changes back."""
    for wave in plan.waves:
        names = [
            reference_text(reference)
            for reference, manager in plan.managed.items()
            if manager in REVERTING
            and changes(plan, wave, reference)
            and not in_repository(plan, *reference.split("/", 2))
        ]
        if names:
            yield (
                f"preflight.sh stops wave {wave.wave}, since Argo CD or Flux would take its change of {join_names(names)} back: "
                f"before the first wave plan again with --format {KUSTOMIZE}."
            )


def _repository_text(plan: Plan, wave: Wave, reference: str) -> str:
    """Return the changes of an object in its repository, as an order; lines that DeviceQuotas replace have no patch."""
    kind, namespace, name = reference.split("/", 2)
    ways = []
    if kind != "ResourceQuota" or _is_converted(plan, namespace, name):
        labelled = {workload.object for workload in wave.workloads if workload.labelled}
        step, asking = "prepare", "prepare.sh"
        if kind == "Namespace":
            step, asking = wave_step(wave.wave), "switch.sh"
        elif reference in labelled:
            step, asking = template_step(wave.wave), "switch.sh"
        place, release = patch_place(plan, step, reference), plan.helm_releases.get(reference)
        ways.append(
            f"it is rendered from HelmRelease {release}, so a patch of the object itself would change nothing: add the entries of "
            f"{place} to spec.postRenderers of that HelmRelease when {asking} asks for it, not earlier"
            if release
            else f"its patch is {place}/{patch_file(kind, namespace, name)}: commit that folder when {asking} asks for it, not earlier"
        )
    for entry in plan.replaced_lines:
        if (kind, namespace, name) == ("ResourceQuota", entry.namespace, entry.name):
            lines = ", ".join(entry.lines)
            ways.append(f"take {lines} out of the repository when switch.sh says so")
    return ", and ".join(ways)


def _release_text(reference: str, objects: Iterable[SourceObject]) -> str:
    """Return ` release namespace/name` for an object of Helm; empty if it does not name one."""
    for source in objects:
        if f"{source.kind}/{source.namespace or ''}/{source.name}" == reference:
            notes = text_map(source.document, "metadata", "annotations")
            names = [notes.get(key, "") for key in _RELEASE]
            return f" release {'/'.join(names)}" if all(map(is_name, names)) else ""
    return ""
