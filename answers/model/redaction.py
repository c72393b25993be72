"""The part of an object that a snapshot of a cluster keeps. Pure.

Commands read devices, not applications: command lines, environment variables, probes and the history
of `kubectl apply`, in all of which people keep passwords, are left out.
"""

from collections.abc import Mapping
from typing import Any, Final

from kube.api.workloads import pod_path, replace_at, resolve_path
from kube.names import FIELD_MANAGERS
from translation.reading.legacy_pod import READ_VARIABLES

_ANNOTATIONS: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "securityContext", "restartPolicy")
_CONTAINERS: Final = ("initContainers", "containers")
_LEFT_OUT_OF_PODS: Final = frozenset({"ephemeralContainers", "imagePullSecrets"})
_STORAGE: Final = ("name", "emptyDir", "persistentVolumeClaim")
"""The fields of a volume that tell what a pod leaves on its node."""
KUBELET_DIRECTORIES: Final = ("/plugins_registry", "/kubelet")
"""Ends of the directories of the kubelet that DRA drivers mount to register, wherever a distribution has them."""
_PERSISTENT: Final = frozenset(
    {"claimRef", "local", "hostPath", "nodeAffinity", "volumeName", "storageClassName"}
)


def redact(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object without the fields that a snapshot leaves out.

    Args:
        document: The document as an API server returned it, with apiVersion and kind.
    """
    kept_fields = {**document, "metadata": _metadata(document.get("metadata") or {})}
    if document["kind"] in {"PersistentVolume", "PersistentVolumeClaim"}:
        spec = document.get("spec") or {}
        return {**kept_fields, "spec": {key: spec[key] for key in sorted(_PERSISTENT & set(spec))}}
    path = pod_path(document["apiVersion"], document["kind"])
    if path is None:
        return kept_fields
    _, pod = resolve_path(kept_fields, path)
    return replace_at(kept_fields, path, _pod(pod)) if isinstance(pod, Mapping) else kept_fields


def _metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    kept_fields = {field: value for field, value in metadata.items() if field != "managedFields"}
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    if names := sorted(managers & FIELD_MANAGERS.keys()):
        kept_fields["managedFields"] = [{"manager": name} for name in names]
    if metadata.get("annotations"):
        kept_fields["annotations"] = _without(metadata["annotations"], _ANNOTATIONS)
    return kept_fields


def _pod(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = _without(pod.get("spec") or {}, _LEFT_OUT_OF_PODS)
    if spec.get("volumes"):
        spec["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    for field in _CONTAINERS:
        if spec.get(field):
            spec[field] = [_container(container) for container in spec[field]]
    metadata = {"metadata": _metadata(pod["metadata"])} if pod.get("metadata") else {}
    status = {"status": _status(pod["status"])} if pod.get("status") else {}
    return {**pod, **metadata, "spec": spec, **status}


def _volume(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    kept_fields = {field: volume[field] for field in _STORAGE if field in volume}
    path = str((volume.get("hostPath") or {}).get("path", ""))
    if path.rstrip("/").endswith(KUBELET_DIRECTORIES):
        kept_fields["hostPath"] = {"path": path}  # By it a plan knows a DRA driver.
    return kept_fields


def _container(container: Mapping[str, Any]) -> Mapping[str, Any]:
    kept_fields = {field: container[field] for field in _CONTAINER_FIELDS if field in container}
    variables = [
        {"name": variable["name"], "value": variable.get("value", "")}
        for variable in container.get("env") or ()
        if variable.get("name") in READ_VARIABLES
    ]
    return {**kept_fields, **({"env": variables} if variables else {})}


def _status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status without those of containers, since their messages are the application's."""
    return {field: value for field, value in status.items() if not field.endswith("Statuses")} | {
        field: status[field] for field in ("resourceClaimStatuses",) if field in status
    }


def _without(mapping: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}
