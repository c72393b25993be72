"""The plan of a migration, from the objects of a cluster. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from cli.answers.assessment.assess import AssessedCluster, assess_cluster
from cli.answers.assessment.assumed import find_target
from cli.answers.assessment.blockers import (
    OLDEST_NVIDIA_DRIVER,
    Blocker,
    check_readable,
    check_version,
    nvidia_driver,
)
from cli.answers.assessment.gates import check_shares
from cli.answers.assessment.node_devices import NodeDevices, Source
from cli.answers.assessment.outcomes import AssessedWorkload, Outcome
from cli.answers.assessment.workloads import Workload, group_workloads
from cli.answers.plan.driver_release import find_driver_release
from cli.answers.plan.evidence import Evidence, mapping_at, read_evidence, text_map
from cli.answers.plan.model import Held, Plan, PlannedNode, is_name, is_namespace
from cli.answers.plan.placement import Placer, Stage
from cli.answers.plan.vendors import (
    driver_label,
    gpu_operator_version,
    node_notes,
    plugin_daemon_sets,
    switch_labels,
)
from cli.answers.plan.waves import Candidate, Planner, Policy, Waves
from cli.answers.quota_conversion import ConvertedQuota, convert_quotas
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL
from translation.profiles.profile import Profile
from translation.snapshot import TranslationOptions

_OTHER_REASONS = 3
"""Workloads that the reason of a held namespace names."""


class PlanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that is to be moved.

    Attributes:
        profiles: Driver to profile.
        namespace: Of objects that name none.
        version: Of the API server; empty when it is not known.
        gates: As of `has_gate`.
        unreadable: Resources that could not be read.
    """

    objects: tuple[SourceObject, ...]
    profiles: Mapping[str, Profile]
    options: TranslationOptions
    namespace: str
    version: str
    gates: Mapping[str, bool] = {}
    unreadable: tuple[str, ...] = ()


class BuiltPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with the quotas that are written beside it, by file name."""

    plan: Plan
    quotas: Mapping[str, Mapping[str, Any]]


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with its quotas converted, assessed, and ready to be placed."""

    objects: tuple[SourceObject, ...]
    quotas: tuple[ConvertedQuota, ...]
    cluster: AssessedCluster
    evidence: Evidence
    groups: Mapping[str, Workload]

    def planner(self, policy: Policy) -> Planner:
        """Return the planner of the cluster."""
        references = [workload.key.reference for workload in self.cluster.workloads]
        nodes = {reference: _nodes_of(self.groups[reference]) for reference in references}
        return Planner(self.cluster, self.evidence, nodes, Placer(self.cluster), policy)

    def stage(self) -> Stage:
        """Return the stage of the cluster as it is."""
        return Stage(
            switched=frozenset(
                node.node for node in self.cluster.nodes if node.source is Source.DRA
            ),
            opted_in=_opted_in(self.objects),
            labels={},
        )


def build_plan(
    question: PlanQuestion, policy: Policy, progress: Callable[[int], None]
) -> BuiltPlan:
    """Return the plan of a cluster's migration.

    Args:
        question: The cluster.
        policy: The sizes of waves.
        progress: Called with the number of nodes that have a wave.
    """
    prepared = _prepare(question)
    operator = gpu_operator_version(prepared.objects)
    stage = prepared.stage()
    candidates, blocked = _candidates(prepared, question, operator)
    blocked += _held_by_evidence(candidates, prepared)
    names = {entry.object for entry in blocked}
    candidates = [
        _with_bare_pods(entry, prepared.evidence)
        for entry in candidates
        if f"Node//{entry.node.name}" not in names
    ]
    namespaces, held_namespaces = _namespaces(
        prepared.cluster.workloads,
        stage.opted_in,
        tuple(check_shares(prepared.cluster.workloads, question.version)),
    )
    blocked += held_namespaces
    obstacles = [
        Held(object="Cluster//", reason=blocker.message, fix=blocker.fix)
        for blocker in (*check_version(question.version), *check_readable(question.unreadable))
    ]
    waves = Waves(waves=(), held=tuple(obstacles))
    if not obstacles:
        planner = prepared.planner(policy)
        waves = planner.plan(candidates, namespaces, stage, progress)
    drivers = sorted({driver for entry in candidates for driver in entry.node.devices})
    plan = Plan(
        kubernetes_version=question.version,
        wave_nodes=policy.wave_nodes,
        keep_free=policy.keep_free,
        gpu_operator=operator,
        driver_release=find_driver_release(prepared.objects),
        drivers={driver: "=".join(driver_label(driver)) for driver in drivers},
        mapped_classes=_mapped_classes(prepared.cluster.workloads),
        plugins=tuple(
            plugin
            for plugin in plugin_daemon_sets(prepared.objects, operator)
            if is_namespace(plugin.namespace) and is_name(plugin.name)
        ),
        waves=waves.waves,
        held=(*blocked, *waves.held),
        quotas=_quota_files(prepared.quotas),
    )
    return BuiltPlan(plan=plan, quotas=_quota_documents(prepared.quotas))


def misfit_of(question: PlanQuestion, nodes: Sequence[str], keep_free: int) -> str:
    """Explain why the pods of some nodes find no devices elsewhere now; empty where they do."""
    prepared = _prepare(question)
    policy = Policy(wave_nodes=len(nodes), keep_free=keep_free)
    return prepared.planner(policy).misfit(prepared.stage(), frozenset(nodes))


def _prepare(question: PlanQuestion) -> _Prepared:
    quotas = tuple(
        convert_quotas(question.objects, question.profiles, question.options, question.namespace)
    )
    # Quotas are applied before a namespace is opted in, so that its pods are not rejected for them.
    objects = tuple(_converted(source, quotas, question.namespace) for source in question.objects)
    return _Prepared(
        objects=objects,
        quotas=quotas,
        cluster=assess_cluster(
            objects,
            question.profiles,
            question.options,
            namespace=question.namespace,
            version=question.version,
            gates=question.gates,
        ),
        evidence=read_evidence(objects, question.namespace),
        groups={
            group.key.reference: group for group in group_workloads(objects, question.namespace)
        },
    )


# --- nodes ----------------------------------------------------------------------------------------


def _candidates(
    prepared: _Prepared, question: PlanQuestion, operator: str
) -> tuple[list[Candidate], list[Held]]:
    """Return the nodes of legacy systems, and those of them that cannot be switched."""
    target_of = partial(find_target, profiles=question.profiles, drivers=question.options.profiles)
    labels = {node.metadata.name: node.labels for node in prepared.cluster.state.nodes}
    allocatable = {
        source.name: text_map(source.document, "status", "allocatable")
        for source in prepared.objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    candidates: list[Candidate] = []
    blocked: list[Held] = []
    for node in prepared.cluster.nodes:
        if node.source is None or not node.legacy:
            continue
        own = labels.get(node.node, {})
        reference = f"Node//{node.node}"
        devices = _expected_devices(node, node.source, target_of)
        driver = nvidia_driver(own)
        if not is_name(node.node):
            blocked.append(_invalid(reference))
        elif not devices:
            text = ", ".join(sorted({device.key for device in node.legacy}))
            reason = f"no profile of a DRA driver serves {text}"
            blocked.append(Held(object=reference, reason=reason, fix="add one with --profiles"))
        elif driver is not None and driver < OLDEST_NVIDIA_DRIVER:
            reason = f"NVIDIA's driver is {driver}, and its DRA driver needs {OLDEST_NVIDIA_DRIVER}"
            fix = f"upgrade the GPU driver of this node to {OLDEST_NVIDIA_DRIVER} or newer"
            blocked.append(Held(object=reference, reason=reason, fix=fix))
        else:
            switched = switch_labels(own, node.source, devices, operator)
            keys = {device.key for device in node.legacy}
            candidates.append(
                Candidate(
                    node=PlannedNode(
                        name=node.node,
                        source=node.source.value,
                        devices=devices,
                        resources={
                            key: amount
                            for key, amount in sorted(allocatable.get(node.node, {}).items())
                            if key in keys
                        },
                        uuids=tuple(
                            device.uuid
                            for device in node.legacy
                            if node.source in {Source.HAMI, Source.KOORDINATOR} and device.uuid
                        ),
                        labels=switched,
                        former_labels={label: own.get(label) for label in switched},
                    ),
                    notes=tuple(node_notes(own, node.source, devices, operator)),
                )
            )
    return candidates, blocked


def _expected_devices(
    node: NodeDevices, source: Source, target_of: Callable[..., Any]
) -> dict[str, int]:
    """Return driver to the number of devices that it has to publish."""
    counts: dict[str, int] = {}
    for device in node.legacy:
        target = target_of(device, source)
        if target is not None:
            driver = target.profile.driver
            counts[driver] = counts.get(driver, 0) + 1
    return dict(sorted(counts.items()))


def _held_by_evidence(candidates: Iterable[Candidate], prepared: _Prepared) -> list[Held]:
    """Return the nodes that cannot be drained, each with the first reason."""
    stuck: dict[str, str] = {}
    for workload in prepared.cluster.workloads:
        if workload.result is None:
            for node in _nodes_of(prepared.groups[workload.key.reference]):
                stuck.setdefault(node, f"{workload.key.reference} ({workload.outcome.value})")
    blocked = []
    for entry in candidates:
        name = entry.node.name
        blocking = next(prepared.evidence.blocking_budgets(name), None)
        if blocking is not None:
            budget, pod = blocking
            blocked.append(
                Held(
                    object=f"Node//{name}",
                    reason=f"PodDisruptionBudget {budget.namespace}/{budget.name} never allows the "
                    f"eviction of pod {pod.name}",
                    fix="raise maxUnavailable, lower minAvailable, or add a replica",
                )
            )
        elif name in stuck:
            blocked.append(
                Held(
                    object=f"Node//{name}",
                    reason=f"a pod of {stuck[name]} uses its devices, and would find none on other nodes "
                    "for certain",
                    fix="solve what assess reports of it, wait for it to end, or move it by hand",
                )
            )
    return blocked


def _with_bare_pods(entry: Candidate, evidence: Evidence) -> Candidate:
    """Return a node with a note on pods that `kubectl drain` does not evict."""
    names = [f"{pod.namespace}/{pod.name}" for pod in evidence.bare_pods(entry.node.name)]
    if not names:
        return entry
    note = (
        f"node {entry.node.name}: nothing creates {_join_names(names)} again, and kubectl drain stops at such "
        "pods: delete them first, and apply their manifests after the wave"
    )
    return msgspec.structs.replace(entry, notes=(*entry.notes, note))


# --- namespaces and workloads ---------------------------------------------------------------------


def _namespaces(
    workloads: Iterable[AssessedWorkload], opted_in: frozenset[str], defects: Iterable[Blocker]
) -> tuple[list[str], list[Held]]:
    """Return the namespaces to be opted in, and those that are held, each with the first reason.

    Args:
        workloads: Of the cluster.
        opted_in: Namespaces that take part already.
        defects: As of `check_shares`.
    """
    defect_of = {name: defect for defect in defects for name in defect.objects}
    names: dict[str, list[AssessedWorkload]] = {}
    for workload in workloads:
        if workload.key.namespace not in opted_in:
            names.setdefault(workload.key.namespace, []).append(workload)
    namespaces, blocked = [], []
    for name, members in sorted(names.items()):
        reference = f"Namespace//{name}"
        refused = [workload for workload in members if workload.outcome is Outcome.REFUSED]
        invalid = [workload for workload in members if not is_name(workload.key.name)]
        if not is_namespace(name):
            blocked.append(_invalid(reference))
        elif invalid:
            blocked.append(_invalid(invalid[0].key.reference))
        elif refused:
            texts = [
                f"{workload.key.reference} ({', '.join(workload.codes)})" for workload in refused
            ]
            fix = next((workload.fix for workload in refused if workload.fix), "")
            reason = f"pods would be rejected once it is opted in: {_join_names(texts)}"
            blocked.append(Held(object=reference, reason=reason, fix=fix))
        elif mistaken := [entry for entry in members if entry.key.reference in defect_of]:
            defect = defect_of[mistaken[0].key.reference]
            names_of_shares = _join_names([entry.key.reference for entry in mistaken])
            reason = f"{names_of_shares} would get shares: {defect.message}"
            blocked.append(Held(object=reference, reason=reason, fix=defect.fix))
        elif any(workload.result is not None for workload in members):
            namespaces.append(name)
    return namespaces, blocked


def _opted_in(objects: Iterable[SourceObject]) -> frozenset[str]:
    return frozenset(
        source.name
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Namespace")
        and mapping_at(source.document, "metadata", "labels").get(TRANSLATE_LABEL) == "true"
    )


def _mapped_classes(workloads: Iterable[AssessedWorkload]) -> dict[str, str]:
    """Return resource name to the DeviceClass that has to map it, for native workloads."""
    return dict(
        sorted(
            (key, name)
            for workload in workloads
            for key, name in workload.unmapped.items()
            if " " not in name
        )
    )


def _nodes_of(workload: Workload) -> list[str]:
    nodes = (mapping_at(pod.document, "spec").get("nodeName") for pod in workload.pods)
    return [node if isinstance(node, str) else "" for node in nodes]


def _invalid(reference: str) -> Held:
    return Held(
        object=reference,
        reason="the name is none that Kubernetes allows, so no command has it",
        fix="correct the snapshot",
    )


# --- quotas ---------------------------------------------------------------------------------------


def _converted(
    source: SourceObject, quotas: Iterable[ConvertedQuota], namespace: str
) -> SourceObject:
    """Return an object, a quota with the lines that it gets."""
    if source.kind != "ResourceQuota":
        return source
    reference = f"ResourceQuota/{source.namespace or namespace}/{source.name}"
    document = next(
        (quota.document for quota in quotas if quota.object == reference and quota.document), None
    )
    return source if document is None else msgspec.structs.replace(source, document=dict(document))


def _quota_files(quotas: Iterable[ConvertedQuota]) -> dict[str, tuple[str, ...]]:
    files: dict[str, list[str]] = {}
    for namespace, name, _ in _named_quotas(quotas):
        files.setdefault(namespace, []).append(f"{namespace}.{name}.yaml")
    return {namespace: tuple(sorted(names)) for namespace, names in sorted(files.items())}


def _quota_documents(quotas: Iterable[ConvertedQuota]) -> dict[str, Mapping[str, Any]]:
    return {
        f"{namespace}.{name}.yaml": document for namespace, name, document in _named_quotas(quotas)
    }


def _named_quotas(
    quotas: Iterable[ConvertedQuota],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield namespace, name and document of the quotas that are extended."""
    for quota in quotas:
        _, namespace, name = quota.object.split("/", 2)
        if quota.document is not None and is_namespace(namespace) and is_name(name):
            yield namespace, name, quota.document


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _OTHER_REASONS} more" if len(names) > _OTHER_REASONS else ""
    return f"{', '.join(names[:_OTHER_REASONS])}{more}"
