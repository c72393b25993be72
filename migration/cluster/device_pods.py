"""The pods of a workload that request devices: live ones, next ones as of its templates, and the schedulers that they leave for claims."""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from answers.model.views import decode_view
from findings.finding import Code
from findings.text import quote_text
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.stopped import NextPods, next_pods
from migration.cluster.workloads import Workload
from migration.settings_import.legacy_settings import KOORDINATOR_SCHEDULER
from translation.cluster.native_allocation import makes_claims_of_names
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import Vocabulary
from translation.reading.arbiter import requests_devices
from translation.reading.legacy_pod import containers, legacy_pod
from translation.reading.untranslated_keys import is_probable_device_key
from translation.vocabularies import tensorfusion

_OF_SHARES: Final = frozenset({"hami-scheduler", KOORDINATOR_SCHEDULER, tensorfusion.SCHEDULER})
"""Schedulers that pods leave together with the shares that these hand out. Koordinator's quotas and gangs are named by
findings on the pods."""
LEFT_SCHEDULER_FIX: Final = (
    "limit claims by a DeviceQuota or by Kueue, and start groups of pods by Kueue; or an administrator lists it in the setting "
    "translation.adoptSchedulers with its own name, if it allocates claims"
)


def with_device_pods(workload: Workload, vocabularies: Mapping[str, Vocabulary]) -> Workload:
    """Return a workload without a template that is read, with those of its pods that request devices.

    A RayCluster has a head, and an MPIJob a launcher, that requests none.
    """
    pods = tuple(source for source in workload.pods if _has_device_keys(source, vocabularies))
    return msgspec.structs.replace(workload, pods=pods) if pods else workload


def next_device_pods(
    workload: Workload, vocabularies: Mapping[str, Vocabulary]
) -> tuple[NextPods, ...]:
    """Return the next pods of a workload of another project that request devices, as of its templates.

    There are none where a live one requests some, or has claims. Those of equal templates are those of one.
    """
    if workload.custom is None or any(
        _has_claims(source) or _has_device_keys(source, vocabularies) for source in workload.pods
    ):
        return ()
    return tuple(
        entry
        for entry in _join_equal(next_pods(workload.custom, workload.key.namespace))
        if _has_device_keys(entry.pod, vocabularies)
    )


def _join_equal(entries: Iterable[NextPods]) -> Iterator[NextPods]:
    """Yield the next pods of each group of equal templates, at the place of its first one."""
    groups: dict[bytes, list[NextPods]] = {}
    for entry in entries:
        key = msgspec.json.encode(entry.pod.document, order="sorted")
        groups.setdefault(key, []).append(entry)
    for group in groups.values():
        yield NextPods(group[0].pod, sum(entry.number for entry in group))


def _has_claims(source: SourceObject) -> bool:
    _, claims = resolve_path(source.document, ("spec", "resourceClaims"))
    return bool(claims)


def _has_device_keys(source: SourceObject, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return True if an object is a pod that requests devices, as `has_device_keys` has it."""
    pod = pod_of(source)
    return pod is not None and has_device_keys(pod, vocabularies)


def has_device_keys(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return True if a pod requests devices, be it by a resource name that nothing here translates."""
    return any(
        is_probable_device_key(key) for _, container in containers(pod) for key in container.limits
    ) or requests_devices(legacy_pod(pod, vocabularies), vocabularies)


def pod_of(source: SourceObject) -> Pod | None:
    """Return a pod, or the pod template of an object, as a view; None if it cannot be read."""
    path = pod_path(source.api_version, source.kind)
    _, document = resolve_path(source.document, path or ())
    pod = decode_view(document, Pod) if isinstance(document, Mapping) else None
    return pod if isinstance(pod, Pod) else None


def without_labels(source: SourceObject, names: Collection[str]) -> SourceObject:
    """Return a pod, or an object with a template, without some labels of its pods."""
    path = (*(pod_path(source.api_version, source.kind) or ()), "metadata", "labels")
    _, present = resolve_path(source.document, path)
    if not isinstance(present, Mapping) or not any(name in present for name in names):
        return source
    document = copy.deepcopy(source.document)
    _, labels = resolve_path(document, path)
    for name in names:
        labels.pop(name, None)
    return msgspec.structs.replace(source, document=document)


def without_namespace_labels(
    snapshot: TranslationSnapshot, namespace: str, names: Collection[str]
) -> TranslationSnapshot:
    """Return a snapshot without some labels of a namespace."""
    labels = snapshot.namespaces.get(namespace, {})
    if not any(name in labels for name in names):
        return snapshot
    others = {key: value for key, value in labels.items() if key not in names}
    namespaces = {**snapshot.namespaces, namespace: others}
    return msgspec.structs.replace(snapshot, namespaces=namespaces)


def has_other_scheduler(
    pods: Iterable[SourceObject], bridge_scheduler: str, options: TranslationOptions
) -> bool:
    """Return True if a webhook gave live pods to a legacy system's scheduler that they have to leave.

    Args:
        bridge_scheduler: schedulerName of the bridge.
    """
    specs = (pod.document.get("spec") for pod in pods)
    names = (spec.get("schedulerName", "") for spec in specs if isinstance(spec, Mapping))
    return any(
        isinstance(name, str) and options.scheduler_for(name, bridge_scheduler) != name
        for name in names
    )


def has_foreign_scheduler(pods: Iterable[SourceObject], bridge_scheduler: str) -> bool:
    """Return True if live pods have a scheduler that makes no claims of names that classes map, be it by a webhook.

    Args:
        bridge_scheduler: schedulerName of the bridge.
    """
    views = (pod_of(source) for source in pods)
    return any(
        view is not None and not makes_claims_of_names(view.spec.scheduler_name, bridge_scheduler)
        for view in views
    )


def left_schedulers(
    sources: Iterable[SourceObject], snapshot: TranslationSnapshot, options: TranslationOptions
) -> tuple[str, ...]:
    """Return the schedulers that pods leave only because a label opts them in.

    None of those for which an administrator chose another, or that hand out shares and nothing else.

    Args:
        sources: Pods, and objects with a template of pods.
    """
    pods = [pod for source in sources if (pod := pod_of(source)) is not None]
    names = {pod.spec.scheduler_name for pod in pods if leaves_scheduler(pod, snapshot, options)}
    return tuple(sorted(names - _OF_SHARES))


def leaves_scheduler(pod: Pod, snapshot: TranslationSnapshot, options: TranslationOptions) -> bool:
    """Return True if a pod leaves its scheduler only because a label opts it in, as the webhook decides it."""
    return options.scheduler_for(pod.spec.scheduler_name, snapshot.bridge_scheduler) is None


def left_scheduler_loss(name: str) -> str:
    """Return the loss of pods that leave a scheduler.

    >>> left_scheduler_loss("volcano")
    'leaves scheduler "volcano": its queues, fair share and gangs no longer apply [schedulerReplaced]'
    """
    return (
        f"leaves scheduler {quote_text(name)}: its queues, fair share and gangs no longer apply "
        f"[{Code.SCHEDULER_REPLACED}]"
    )
