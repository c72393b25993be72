"""The outcome of the translation for each workload."""

import copy
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from admission.native_mappings import MappableNames
from admission.pods import Decision
from admission.recorded_pods import restored_document
from answers.manifests.translate import TranslatedObject, translate_objects
from findings.finding import Code, Finding, Severity
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import DEFAULT_SCHEDULER_NAME, TRANSLATE_LABEL
from migration.cluster.device_pods import (
    has_foreign_scheduler,
    leaves_scheduler,
    left_schedulers,
    pod_of,
    with_device_pods,
    without_labels,
    without_namespace_labels,
)
from migration.cluster.owners import OwnerKey, has_template
from migration.cluster.unread_templates import unread_template
from migration.cluster.workloads import Workload, group_workloads, translation_shape
from translation.cluster.native_allocation import is_native
from translation.cluster.snapshot import (
    Mode,
    TolerationPolicy,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod
from translation.preflight.preconditions.native_allocation import passed_through
from translation.reading.arbiter import requests_devices
from translation.reading.legacy_pod import HAMI_OPT_OUT_LABELS, OPT_OUT_LABELS, legacy_pod
from translation.vocabularies.kai import SHARED_CONFIG_MAP

_OF_THE_CLUSTER: Final = frozenset(
    {
        Code.CLAIM_UNAWARE_COMPONENT,
        Code.CLASS_CONFIG_MISSING,
        Code.DEVICE_CLASS_MISSING,
        Code.FOREIGN_SCHEDULER,
        Code.MAPPING_TOO_WIDE,
        Code.SCHEDULER_REPLACED,
    }
)
"""Warnings about the cluster, which lose nothing of a pod."""
_LEFT_ALONE: Final = frozenset({Code.OPTED_OUT, Code.ALREADY_CONVERTED, Code.NODE_NAME_SET})
_REMARKS: Final = frozenset({Code.FOREIGN_SCHEDULER, Code.KEPT_BESIDE_CLAIMS})
"""Findings that are told of a workload that loses nothing."""
_UNREAD: Final = frozenset({Code.UNTRANSLATED_DEVICE_KEY, Code.POD_TEMPLATE_NOT_READ})


class Outcome(StrEnum):
    """The outcome of a workload."""

    NATIVE = "native"
    """Kubernetes alone serves it once a DeviceClass maps its resource names."""
    TRANSLATED = "translated"
    LOSSY = "lossy"
    """Translated, and part of what it requests is lost or changed."""
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It is left alone, or requests devices in a way that is not read."""


_NOT_TRANSLATED: Final = frozenset({Outcome.REFUSED, Outcome.UNKNOWN})


class AssessedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that requests devices.

    Attributes:
        findings: The worst first.
        keys: The resource names that it requests.
        counted_keys: Those that quotas count of its pods, with the one that HAMi's webhook adds.
        unmapped: The resource names that no class maps, for a native workload: name to the
            DeviceClass that has to map it.
        classes: The class of the devices that each name means, for a native workload.
        result: The translation of its pods; None if they are not translated.
        members: Namespace and name of its live pods.
        template: The pod of its template, for a workload without live pods that is not translated; else None.
        pod_outcome: The outcome of the pods that its controller creates; its own is unknown where nothing here moves it.
        next_classes: The DeviceClasses that the claims of these pods name, where nothing here moves it.
        translations: Live pod to its own translation, where nothing here moves it.
        suspended: It is suspended, and has no pods; it counts with none.
        left_schedulers: The schedulers of its pods that these leave with claims, and whose queues and gangs end there.
        next_pods: The number of pods at a time of its templates, for a workload of another project that counts with none.
    """

    key: OwnerKey
    pods: int
    outcome: Outcome
    findings: tuple[Finding, ...]
    keys: frozenset[str]
    counted_keys: frozenset[str] = frozenset()
    unmapped: Mapping[str, str] = {}
    classes: Mapping[str, str] = {}
    result: TranslatedObject | None = None
    members: frozenset[tuple[str, str]] = frozenset()
    template: Pod | None = None
    pod_outcome: Outcome = Outcome.UNKNOWN
    next_classes: frozenset[str] = frozenset()
    translations: Mapping[tuple[str, str], TranslatedObject] = {}
    suspended: bool = False
    left_schedulers: tuple[str, ...] = ()
    next_pods: int = 0

    @property
    def gets_claims(self) -> bool:
        """Return True if nothing here moves it, and its next pods get claims once its namespace is opted in."""
        is_translated = self.pod_outcome in {Outcome.TRANSLATED, Outcome.LOSSY}
        return is_translated and self.outcome is Outcome.UNKNOWN

    @property
    def is_uncounted(self) -> bool:
        """Return True if quotas alone have its next pods rejected; other errors hide theirs."""
        is_refused = self.pod_outcome is Outcome.REFUSED
        return is_refused and Code.QUOTA_NOT_COUNTED.value in self.codes

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings that decided, each once."""
        return tuple(dict.fromkeys(finding.code.value for finding in self.findings))

    @property
    def fix(self) -> str:
        """Return the first thing to do; empty when nothing is to be done."""
        mappings = ", and ".join(
            f"extendedResourceName: {key} to DeviceClass {name}"
            for key, name in self.unmapped.items()
        )
        if mappings:
            return f"add {mappings}"
        return next((finding.fix for finding in self.findings if finding.fix), "")


def assess_workload(
    workload: Workload,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
    mapped_resources: Mapping[str, str] | None,
    *,
    mappable_names: MappableNames,
) -> AssessedWorkload | None:
    """Return the outcome of a workload; None when it requests no devices.

    Args:
        snapshot: The snapshot without resource names that classes map, so that each pod is
            translated.
        namespace: The namespace for objects that name none.
        mapped_resources: Resource name to the DeviceClass that maps it; None where classes cannot.
        mappable_names: The names that classes serve exactly, or could.
    """
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    owner = workload.owner if has_template(workload.owner) else None
    if owner is None:
        workload = with_device_pods(workload, vocabularies)
    objects = (owner,) if owner is not None else workload.pods
    source_object = next((as_created(source, snapshot) for source in objects), None)
    if source_object is None:
        return None
    pod = pod_of(source_object)
    legacy = legacy_pod(pod, vocabularies) if pod is not None else None
    requests = legacy is not None and requests_devices(legacy, vocabularies)
    is_whole = (
        requests
        and legacy is not None
        and mapped_resources is not None
        and _is_native_once_mapped(legacy, snapshot, options)
        and all(map(mappable_names.has, sorted(legacy.keys())))
        and not has_foreign_scheduler(workload.pods, snapshot.bridge_scheduler)
    )
    if is_whole:
        source_object = without_labels(source_object, OPT_OUT_LABELS)
        snapshot = without_namespace_labels(
            _without_quotas(snapshot), workload.key.namespace, OPT_OUT_LABELS
        )
        # Its pods keep their keys, so the API server alone gives them tolerations of these.
        options = msgspec.structs.replace(options, tolerations=TolerationPolicy.DETECTED)
    result = translate_adopted(source_object, snapshot, options, namespace)
    findings = _sort_findings(_without_uncounted(result.findings))
    is_unread = any(finding.code in _UNREAD for finding in findings)
    if not requests and not is_unread and not _has_errors(findings):
        return None
    keys = legacy.keys() if legacy is not None else frozenset()
    outcome = _outcome(result, is_unread=is_unread)
    if is_whole and legacy is not None:
        outcome, findings = _served_by_classes(outcome, findings, legacy, mapped_resources or {})
    if outcome in {Outcome.NATIVE, Outcome.TRANSLATED}:
        findings = tuple(finding for finding in findings if finding.code in _REMARKS)
    pod_outcome = outcome
    if owner is None and workload.key.kind != "Pod" and outcome is not Outcome.REFUSED:
        is_native = outcome is Outcome.NATIVE
        reason = unread_template(workload, keys, is_native=is_native)
        if reason is not None:
            outcome, findings = Outcome.UNKNOWN, (*findings, reason)
    is_native = outcome is Outcome.NATIVE and mapped_resources is not None
    classes = _classes_of_keys(keys, result.claims, mappable_names) if is_native else {}
    assessed = AssessedWorkload(
        key=workload.key,
        pods=workload.pod_count,
        outcome=outcome,
        findings=findings,
        keys=keys,
        counted_keys=keys.union(
            vocabulary.added_key
            for vocabulary in vocabularies.values()
            if vocabulary.added_key is not None and any(map(vocabulary.handles, keys))
        ),
        unmapped={
            key: name for key, name in classes.items() if key not in (mapped_resources or ())
        },
        classes=classes,
        result=None if outcome in _NOT_TRANSLATED else result,
        template=pod if outcome in _NOT_TRANSLATED and not workload.pods else None,
        members=frozenset(
            (source.namespace or namespace, source.name) for source in workload.pods if source.name
        ),
        pod_outcome=pod_outcome,
        suspended=workload.is_suspended,
        left_schedulers=left_schedulers((source_object, *workload.pods), snapshot, options)
        if pod_outcome in {Outcome.TRANSLATED, Outcome.LOSSY}
        else (),
        translations=_translations_by_pod(workload.pods, snapshot, options, namespace)
        if outcome is Outcome.UNKNOWN and pod_outcome is not Outcome.UNKNOWN
        else {},
    )
    if not assessed.gets_claims:
        return assessed
    names = frozenset(name for claim in result.claims for name in claim.class_names())
    return msgspec.structs.replace(assessed, next_classes=names)


def _served_by_classes(
    outcome: Outcome,
    findings: tuple[Finding, ...],
    legacy: LegacyPod,
    mapped_resources: Mapping[str, str],
) -> tuple[Outcome, tuple[Finding, ...]]:
    """Return the outcome and the findings of a pod that Kubernetes serves once classes map its names.

    Where they do today, it serves even a pod that nothing here translates, whatever the driver of the class.
    """
    if outcome in {Outcome.TRANSLATED, Outcome.LOSSY}:
        return Outcome.NATIVE, findings
    if outcome is Outcome.REFUSED and legacy.keys() <= mapped_resources.keys():
        return Outcome.UNKNOWN, (passed_through(legacy, mapped_resources),)
    return outcome, findings


def only_native_namespaces(workloads: Iterable[AssessedWorkload]) -> frozenset[str]:
    """Return the namespaces with workloads that Kubernetes serves itself, and no others: no label changes anything."""
    outcomes: dict[str, set[Outcome]] = {}
    for workload in workloads:
        outcomes.setdefault(workload.key.namespace, set()).add(workload.outcome)
    return frozenset(name for name, own in outcomes.items() if own == {Outcome.NATIVE})


def claiming_namespaces(workloads: Iterable[AssessedWorkload]) -> frozenset[str]:
    """Return the namespaces with pods that get claims of a translation; quotas of others stay.

    Pods that quotas alone reject get claims once these are changed, so all lines for them have to be there by then.
    """
    return frozenset(
        workload.key.namespace
        for workload in workloads
        if workload.pod_outcome in {Outcome.TRANSLATED, Outcome.LOSSY} or workload.is_uncounted
    )


def group_with_devices(
    objects: Iterable[SourceObject], assessed: Iterable[AssessedWorkload], namespace: str
) -> Iterator[Workload]:
    """Yield the workloads of a cluster; assessed ones with the pods that were assessed, in the same order.

    Args:
        namespace: The namespace for objects that name none.
    """
    members = {workload.key: workload.members for workload in assessed}
    for group in group_workloads(objects, namespace):
        own = members.get(group.key)
        yield msgspec.structs.replace(
            group,
            pods=tuple(
                pod
                for pod in group.pods
                if own is None or (pod.namespace or namespace, pod.name) in own
            ),
        )


def _is_native_once_mapped(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return True if Kubernetes serves a pod as soon as a class maps its resource names."""
    mapped_resources = dict.fromkeys(legacy.keys(), "any")
    all_mapped = msgspec.structs.replace(
        snapshot, publishes=None, extended_resources=mapped_resources
    )
    return is_native(legacy, all_mapped, options)


def _without_quotas(snapshot: TranslationSnapshot) -> TranslationSnapshot:
    """Return a snapshot for pods that keep their keys, since quotas go on counting these."""
    return msgspec.structs.replace(snapshot, quotas={}, limit_ranges={})


def _classes_of_keys(
    keys: Iterable[str], claims: Iterable[Claim], names: MappableNames
) -> dict[str, str]:
    """Return resource name to the class of the devices of that name; none for unknown ones."""
    classes = {key: name for claim in claims for key, name in claim.classes_by_key()}
    # A key with an amount of 0 has no request, and without a class for it Kubernetes does not serve the others.
    serving = ((key, classes.get(key) or names.class_name(key)) for key in sorted(keys))
    return {key: name for key, name in serving if name}


def translate_adopted(
    source_object: SourceObject,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
) -> TranslatedObject:
    """Translate an object as if its namespace had the label that opts in: pods leave schedulers that nobody adopted.

    Nor does HAMi's label count there that keeps its webhook away.
    """
    options = msgspec.structs.replace(options, mode=Mode.OPT_OUT)
    (result,) = translate_objects(
        [source_object], snapshot=snapshot, options=options, namespace=namespace
    )
    if any(finding.code is Code.OPTED_OUT for finding in result.findings):
        place = source_object.namespace or namespace
        source_object = without_labels(source_object, HAMI_OPT_OUT_LABELS)
        snapshot = without_namespace_labels(snapshot, place, HAMI_OPT_OUT_LABELS)
        (result,) = translate_objects(
            [source_object], snapshot=snapshot, options=options, namespace=namespace
        )
    foreign = [finding for finding in result.findings if finding.code is Code.FOREIGN_SCHEDULER]
    pod = pod_of(source_object)
    if not foreign or pod is None or not leaves_scheduler(pod, snapshot, options):
        return result
    adopting = msgspec.structs.replace(
        options,
        adopt_schedulers={
            **options.adopt_schedulers,
            pod.spec.scheduler_name: DEFAULT_SCHEDULER_NAME,
        },
    )
    (adopted_object,) = translate_objects(
        [source_object], snapshot=snapshot, options=adopting, namespace=namespace
    )
    return msgspec.structs.replace(adopted_object, findings=(*foreign, *adopted_object.findings))


def translating_every_pod(snapshot: TranslationSnapshot) -> TranslationSnapshot:
    """Return a snapshot without mapped keys, and with all pods of namespaces that move in parts."""
    return msgspec.structs.replace(
        snapshot,
        extended_resources={},
        classes=None,
        namespaces={
            name: {**labels, TRANSLATE_LABEL: "true"} if snapshot.is_selective(name) else labels
            for name, labels in snapshot.namespaces.items()
        },
    )


def as_created(source: SourceObject, snapshot: TranslationSnapshot) -> SourceObject:
    """Return a live object as its author wrote it: without a node, a status, and claims of a translation."""
    document = copy.deepcopy(source.document)
    document.pop("status", None)
    path = pod_path(source.api_version, source.kind)
    _, spec = resolve_path(document, (*(path or ()), "spec"))
    if source.kind == "Pod" and isinstance(spec, dict):
        spec.pop("nodeName", None)
        # KAI's webhook added it, and another pod of the author has it only where that webhook goes on.
        _, annotations = resolve_path(document, ("metadata", "annotations"))
        if isinstance(annotations, dict):
            annotations.pop(SHARED_CONFIG_MAP, None)
    created = msgspec.structs.replace(source, document=document)
    pod = pod_of(created) if source.kind == "Pod" else None
    if pod is None:
        return created
    restored = restored_document(document, pod, snapshot)
    return created if restored is None else msgspec.structs.replace(source, document=dict(restored))


def _outcome(result: TranslatedObject, *, is_unread: bool) -> Outcome:
    if _has_errors(result.findings) or result.document is None:
        return Outcome.REFUSED
    if is_unread or any(finding.code in _LEFT_ALONE for finding in result.findings):
        return Outcome.UNKNOWN
    decision = result.answer.decision if result.answer is not None else None
    if decision not in {Decision.TRANSLATED, Decision.ACCEPTED}:
        return Outcome.UNKNOWN
    losses = (
        finding
        for finding in result.findings
        if finding.severity is Severity.WARNING and finding.code not in _OF_THE_CLUSTER
    )
    return Outcome.LOSSY if any(losses) else Outcome.TRANSLATED


def _without_uncounted(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings on a workload, without those on quotas of one that has no claims because of other errors.

    Which quotas would count its claims is known once these are mended.
    """
    counted = [finding for finding in findings if finding.code is not Code.QUOTA_NOT_COUNTED]
    return counted if _has_errors(counted) else list(findings)


def _sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with the worst first; remarks only if they decide."""
    severities: Sequence[Severity] = list(Severity)
    decisive = (
        finding
        for finding in findings
        if finding.severity is not Severity.INFO
        or finding.code in {*_UNREAD, *_LEFT_ALONE, *_REMARKS}
    )
    return tuple(sorted(decisive, key=lambda finding: severities.index(finding.severity)))


def _has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.is_error for finding in findings)


def translated_pod(result: TranslatedObject) -> Mapping[str, Any] | None:
    """Return the pod, or the pod template, of a translated object."""
    path = pod_path(result.source.api_version, result.source.kind)
    if path is None or result.document is None:
        return None
    _, pod = resolve_path(result.document, path)
    return pod if isinstance(pod, Mapping) else None


def _translations_by_pod(
    pods: Iterable[SourceObject],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    namespace: str,
) -> dict[tuple[str, str], TranslatedObject]:
    """Return each pod to its translation; those of equal translations have the same one."""
    results, by_pod = dict[Hashable, TranslatedObject](), {}
    for source in pods:
        shape = translation_shape(source)
        if shape not in results:
            created = as_created(source, snapshot)
            results[shape] = translate_adopted(created, snapshot, options, namespace)
        by_pod[source.namespace or namespace, source.name] = results[shape]
    return by_pod


def devices_of_pod(workload: AssessedWorkload, pod: tuple[str, str] | None = None) -> Counter[str]:
    """Return DeviceClass to the devices that the claims of one pod request of it.

    Args:
        workload: The workload.
        pod: Namespace and name of a live pod, which may have a translation of its own.
    """
    result = workload.translations.get(pod, workload.result) if pod else workload.result
    claims = result.claims if result is not None else ()
    return sum((claim.devices() for claim in claims), Counter())


def mapped_classes(workloads: Iterable[AssessedWorkload]) -> dict[str, str]:
    """Return resource name to the DeviceClass that has to map it, for native workloads."""
    return dict(
        sorted((key, name) for workload in workloads for key, name in workload.unmapped.items())
    )
