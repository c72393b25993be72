"""The pods of all workloads of a namespace: live ones, and next ones as of templates, those without devices too. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.device_pods import has_device_keys, pod_of
from migration.cluster.evidence import mapping_at
from migration.cluster.owners import (
    OwnerKey,
    chain_of_owners,
    controller,
    has_custom_template,
    owners_by_key,
)
from migration.cluster.stopped import has_ended, next_pods
from migration.cluster.workloads import Workload, group_workloads
from translation.reading.arbiter import VOCABULARIES
from translation.reading.custom_workloads import value_at, workload_kind
from translation.reading.workload_kinds import BLUEPRINTS

_BELOW: Final = frozenset({"Deployment", "StatefulSet", DAEMON_SET, "CronJob"})
"""Kinds whose template counts below an owner of a kind that is not read, too; a ReplicaSet may be an old revision."""

PodDocument = Mapping[str, Any]
"""A pod, or the metadata and the spec of a template."""


def pods_by_workload(
    objects: Iterable[SourceObject], namespaces: Collection[str], namespace: str
) -> dict[str, list[PodDocument]]:
    """Return workload, as `Kind/namespace/name`, to its live pods and the templates of its next ones.

    A WorkflowTemplate has those that run without devices once a person submits it; the others get claims then.

    Args:
        objects: The cluster's objects.
        namespaces: The namespaces of the workloads.
        namespace: The namespace for objects that name none.
    """
    objects = tuple(objects)
    pods: dict[str, list[PodDocument]] = {
        group.key.reference: [*_pods_of_group(group)]
        for group in group_workloads(objects, namespace)
        if group.key.namespace in namespaces
    }
    by_key = owners_by_key(objects, namespace)
    for key, source in by_key.items():
        if key.namespace not in namespaces or pods.get(key.reference):
            continue
        if templates := [*_templates_outside(key, source)]:
            chain = (entry.reference for entry in chain_of_owners(key, by_key))
            name = next((entry for entry in chain if entry in pods), key.reference)
            pods.setdefault(name, []).extend(templates)
    return pods


def scheduler_of(pod: object) -> str:
    """Return the scheduler that a pod names; empty without one."""
    return str(mapping_at(pod, "spec").get("schedulerName") or "")


def requests_devices(pod: PodDocument) -> bool:
    """Return True if a pod, or a template, requests devices."""
    document = {"apiVersion": "v1", "kind": "Pod", **pod}
    view = pod_of(SourceObject(document=document, source="", line=0))
    return view is not None and has_device_keys(view, VOCABULARIES)


def _pods_of_group(group: Workload) -> Iterator[PodDocument]:
    """Yield the live pods of a workload, and the templates of its own object."""
    yield from (pod.document for pod in group.pods)
    if group.owner is not None:
        yield from _template(group.owner)
    if group.custom is not None:
        yield from (entry.pod.document for entry in next_pods(group.custom, group.key.namespace))


def _templates_outside(key: OwnerKey, source: SourceObject) -> Iterator[PodDocument]:
    """Yield the templates of an object outside of workloads, or its scheduler alone if another object has them."""
    if has_custom_template(source):
        templates = [entry.pod.document for entry in next_pods(source, key.namespace)]
        row = workload_kind(source.api_version, source.kind)
        if source.kind in BLUEPRINTS:
            yield from (template for template in templates if not requests_devices(template))
        elif not templates and row is not None and row.scheduler_path and not has_ended(source):
            yield {"spec": {"schedulerName": value_at(source.document, row.scheduler_path)}}
    elif source.kind in _BELOW and controller(source) is not None:
        yield from _template(source)


def _template(source: SourceObject) -> Iterator[PodDocument]:
    """Yield the pod template of an object of Kubernetes."""
    path = pod_path(source.api_version, source.kind)
    _, template = resolve_path(source.document, path) if path else ((), None)
    if isinstance(template, Mapping):
        yield template
