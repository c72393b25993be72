"""Pods that KAI's webhook changes, so that the next ones are rejected once their namespace is opted in. Pure.

Source: kai-scheduler/KAI-Scheduler v0.14.0, pkg/admission/webhook/v1alpha2/gpusharing/gpu_sharing.go, Mutate;
pkg/operator/operands/admission/resources.go, buildWebhookSelectors; pkg/operator/operands/pod_grouper/resources.go and
pkg/podgrouper/pod_controller.go, which leave out the same namespaces; pkg/apis/kai/v1/global.go.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.text import join_names
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import DEFAULT_SCHEDULER_NAME
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.cluster.owners import kind_of
from migration.legacy.pod_sources import pods_by_workload, requests_devices, scheduler_of
from translation.vocabularies.kai import (
    FRACTION,
    MEMORY_MIB,
    SCHEDULERS,
    SHARED_CONFIG_MAP,
    VISIBLE_DEVICES,
)

KAI_WEBHOOK: Final = (
    "KAI's webhook makes their pods with shares refer to ConfigMaps that only KAI's binder creates, so next pods are rejected once "
    "their namespace is opted in (cannotExpress)"
)
_LEAVE: Final = (
    "right before {} opted in, no earlier, since KAI's pod grouper leaves a namespace with its webhook, and then KAI starts no next "
    "pod there, with a share or without: set spec.global.namespaceLabelSelector of KAI's Config to a label that all other namespaces "
    "of KAI have, and {} not; a snapshot with that Config (kubectl get "
    "configs.kai.scheduler -o yaml, as a second --snapshot) shows it"
)
_BESIDE_KAI: Final = (
    "its pods have shares that KAI's webhook changes, so they get claims only where KAI leaves the whole namespace, its pod grouper "
    "too, and {} would go on with KAI's scheduler there: pods that run would run on, and KAI would start no next one of these"
)
_LEAVE_TOGETHER: Final = (
    "move {} to a namespace of their own, or let them get claims or another scheduler, too"
)
_ENDING: Final = "wait for the end of {}, or delete {}"
_ENDING_KINDS: Final = frozenset({"Pod", "Job"})
"""Kinds whose pods end for good, and cannot change."""
_NAMES: Final = 5
"""Workloads that a reason names."""


class KaiWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """KAI's webhook, as live pods and KAI's Config show it.

    Attributes:
        pods: Namespace and name of the pods that it has changed, those of namespaces that it has left since, too.
        labels: Namespace to its labels.
        selectors: The labels, for each Config, of the namespaces that it goes on with.
        schedulers: The schedulers of these pods, and KAI's usual ones.
    """

    pods: frozenset[tuple[str, str]]
    schedulers: frozenset[str]
    labels: Mapping[str, Mapping[str, str]]
    selectors: tuple[Mapping[str, str], ...]

    def changes(self, namespace: str) -> bool:
        """Return True if it changes next pods with shares of a namespace."""
        own = self.labels.get(namespace, {})
        return bool(self.pods) and all(entry.items() <= own.items() for entry in self.selectors)

    def changes_pods_of(self, source: SourceObject) -> bool:
        """Return True if the pods of the template of an object have shares and KAI's scheduler."""
        _, template = resolve_path(source.document, pod_path(source.api_version, source.kind) or ())
        return _has_share(template) and scheduler_of(template) in self.schedulers


def find_kai_webhook(objects: Iterable[SourceObject]) -> KaiWebhook:
    """Return KAI's webhook of a cluster."""
    labels: dict[str, Mapping[str, str]] = {}
    selectors: list[Mapping[str, str]] = []
    pods: dict[tuple[str, str], str] = {}
    for source in objects:
        document = source.document
        if source.kind == "Namespace":
            labels[source.name] = text_map(document, "metadata", "labels")
        elif source.kind == "Config" and source.api_version.startswith("kai.scheduler/"):
            selectors.append(text_map(document, "spec", "global", "namespaceLabelSelector"))
        elif source.kind == "Pod" and _is_changed(document):
            pods[source.namespace or "default", source.name] = scheduler_of(document)
    return KaiWebhook(
        pods=frozenset(pods),
        schedulers=frozenset((*pods.values(), *SCHEDULERS)),
        labels=labels,
        selectors=tuple(selectors),
    )


def _has_share(pod: object) -> bool:
    """Return True if the annotations of a pod, or of the template of one, request a share of KAI."""
    annotations = text_map(pod, "metadata", "annotations")
    return not annotations.keys().isdisjoint((FRACTION, MEMORY_MIB))


class KaiPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of KAI in the namespaces with shares that its webhook changes.

    Attributes:
        changed: The workloads, as `Kind/namespace/name`, that get claims, and with shares that the webhook changes.
        by_namespace: Namespace of these to all workloads there whose pods name KAI's scheduler, those without devices too.
        leaving: Those of these whose next pods name another scheduler once they get claims.
    """

    changed: frozenset[str] = frozenset()
    by_namespace: Mapping[str, tuple[str, ...]] = {}
    leaving: frozenset[str] = frozenset()

    def staying_beside(self, share: str, moved: Collection[str]) -> tuple[str, ...]:
        """Return the other workloads of the namespace of a share that go on with KAI, so that KAI has to stay there.

        Args:
            share: A workload with shares.
            moved: The workloads that get claims by then.
        """
        return tuple(
            name
            for name in self.by_namespace.get(share.split("/")[1], ())
            if name != share and (name not in self.leaving or name not in moved)
        )


def find_kai_pods(
    objects: Iterable[SourceObject],
    changed: frozenset[str],
    next_schedulers: Mapping[str, str],
    namespace: str,
) -> KaiPods:
    """Return the pods of KAI beside shares that its webhook changes.

    Args:
        objects: The cluster's objects.
        changed: The workloads with these shares, at least one, as `Kind/namespace/name`.
        next_schedulers: Workload that gets claims to the scheduler that its pods name then.
        namespace: The namespace for objects that name none.
    """
    pods = pods_by_workload(objects, {name.split("/")[1] for name in changed}, namespace)
    # KAI's Config may give its scheduler another name.
    shares = {scheduler_of(pod) for name in changed for pod in pods.get(name, ())}
    # A pod grouper serves one name, so a pod of Run:ai's stays as it is beside shares of KAI's.
    schedulers = shares - {DEFAULT_SCHEDULER_NAME, ""} or {*SCHEDULERS}
    own = {
        name: [pod for pod in pods[name] if scheduler_of(pod) in schedulers]
        for name in sorted(pods)
    }
    by_namespace: dict[str, list[str]] = {}
    for name, of_kai in own.items():
        if of_kai:
            by_namespace.setdefault(name.split("/")[1], []).append(name)
    return KaiPods(
        changed=changed,
        by_namespace={name: tuple(names) for name, names in by_namespace.items()},
        leaving=frozenset(
            name
            for name, scheduler in next_schedulers.items()
            # The head of a RayCluster without devices stays with KAI while its workers leave.
            if scheduler not in schedulers
            and len({requests_devices(pod) for pod in own.get(name, ())}) <= 1
        ),
    )


def staying_with_kai(names: Sequence[str]) -> tuple[str, str]:
    """Return the reason that shares of KAI stay beside other pods of it, and the fix.

    Args:
        names: The workloads of these others, as `Kind/namespace/name`.
    """
    ending = [name for name in names if kind_of(name) in _ENDING_KINDS]
    ways = []
    if len(ending) < len(names):
        ways.append(_LEAVE_TOGETHER.format("the others" if ending else "those"))
    if ending:
        pronoun = "it" if len(ending) == 1 else "them"
        ways.append(_ENDING.format(join_names(ending, _NAMES), pronoun))
    fix = f"{', and '.join(ways)}; then plan again from a new snapshot"
    return _BESIDE_KAI.format(join_names(names, _NAMES)), fix


def leave_kai_webhook(namespaces: Sequence[str]) -> str:
    """Return the way to take namespaces out of KAI's webhook."""
    verb = "is" if len(namespaces) == 1 else "are"
    pronoun = "it has" if len(namespaces) == 1 else "these have"
    return _LEAVE.format(f"{join_names(namespaces)} {verb}", pronoun)


def _is_changed(pod: Mapping[str, Any]) -> bool:
    """Return True if a pod without claims has a share of KAI, and variables from a ConfigMap of its binder."""
    annotations = text_map(pod, "metadata", "annotations")
    return (
        SHARED_CONFIG_MAP in annotations
        and _has_share(pod)
        and not list_at(pod, "spec", "resourceClaims")
        and any(
            mapping_at(variable).get("name") == VISIBLE_DEVICES
            and bool(mapping_at(variable, "valueFrom", "configMapKeyRef"))
            for container in list_at(pod, "spec", "containers")
            for variable in list_at(mapping_at(container), "env")
        )
    )
