"""Pods that KAI's webhook changes, so that the next ones are rejected once their namespace is opted in. Pure.

Source: kai-scheduler/KAI-Scheduler v0.14.0, pkg/admission/webhook/v1alpha2/gpusharing/gpu_sharing.go, Mutate;
pkg/operator/operands/admission/resources.go, buildWebhookSelectors; pkg/apis/kai/v1/global.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from translation.vocabularies.kai import FRACTION, MEMORY_MIB, SHARED_CONFIG_MAP, VISIBLE_DEVICES

KAI_WEBHOOK: Final = (
    "KAI's webhook makes their pods with shares refer to ConfigMaps that only KAI's binder creates, so next pods are rejected once "
    "their namespace is opted in (cannotExpress)"
)
_LEAVE: Final = (
    "right before {} opted in, no earlier, since KAI starts no share without its webhook: set spec.global.namespaceLabelSelector of "
    "KAI's Config to a label that all other namespaces of KAI have, and {} not; a snapshot with that Config (kubectl get "
    "configs.kai.scheduler -o yaml, as a second --snapshot) shows it"
)


def pods_of_kai_webhook(objects: Iterable[SourceObject]) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that KAI's webhook has changed, of namespaces that it goes on with."""
    labels: dict[str, Mapping[str, str]] = {}
    selectors: list[Mapping[str, str]] = []
    changed: list[tuple[str, str]] = []
    for source in objects:
        document = source.document
        if source.kind == "Namespace":
            labels[source.name] = text_map(document, "metadata", "labels")
        elif source.kind == "Config" and source.api_version.startswith("kai.scheduler/"):
            selectors.append(text_map(document, "spec", "global", "namespaceLabelSelector"))
        elif source.kind == "Pod" and _is_changed(document):
            changed.append((source.namespace or "default", source.name))
    return frozenset(
        (namespace, name)
        for namespace, name in changed
        if all(own.items() <= labels.get(namespace, {}).items() for own in selectors)
    )


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
        and not annotations.keys().isdisjoint((FRACTION, MEMORY_MIB))
        and not list_at(pod, "spec", "resourceClaims")
        and any(
            mapping_at(variable).get("name") == VISIBLE_DEVICES
            and bool(mapping_at(variable, "valueFrom", "configMapKeyRef"))
            for container in list_at(pod, "spec", "containers")
            for variable in list_at(mapping_at(container), "env")
        )
    )
