"""The part of an object that a recording keeps: the input of allocation, redacted as in snapshots. Pure.

Heartbeats, conditions, images and managers of fields are left out, so that a change that decides nothing is none.
"""

from collections.abc import Mapping
from typing import Any, Final

from answers.model.redaction import redact
from kube.names import GROUP
from translation.reading.legacy_pod import READ_ANNOTATIONS

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that a kubelet runs from a file; no scheduler places it."""
HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
"""The annotation of a node in which HAMi registers its cards."""
_ANNOTATIONS: Final = (f"{GROUP}/", "resource.kubernetes.io/")
_NAMED_ANNOTATIONS: Final = READ_ANNOTATIONS | {MIRROR, HAMI_REGISTER}
_METADATA: Final = ("name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp")
_NODE_SPEC: Final = ("taints", "unschedulable")
_NODE_STATUS: Final = ("allocatable", "declaredFeatures")
_POD_SPEC: Final = (
    *("affinity", "hostNetwork", "nodeName", "nodeSelector", "overhead", "preemptionPolicy"),
    *("priority", "priorityClassName", "resourceClaims", "resources", "runtimeClassName"),
    *("schedulerName", "schedulingGates", "schedulingGroup", "tolerations"),
    "topologySpreadConstraints",
)
_POD_STATUS: Final = (
    *("phase", "nominatedNodeName", "resourceClaimStatuses", "extendedResourceClaimStatus"),
)
_CONTAINER: Final = ("name", "resources", "restartPolicy")
_CONDITION: Final = ("type", "status", "reason")
_CLAIM_STATUS: Final = ("allocation", "reservedFor")


def project(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an object that are recorded, without apiVersion and kind.

    Args:
        document: The document as an API server returned it, with apiVersion and kind.
    """
    document = redact(document)
    fields: dict[str, Any] = {"metadata": _metadata(document.get("metadata") or {})}
    spec, status = document.get("spec"), document.get("status")
    match document["kind"]:
        case "Pod":
            fields["spec"], fields["status"] = _pod_spec(spec or {}), _pod_status(status or {})
        case "Node":
            fields["spec"] = _only(spec or {}, _NODE_SPEC)
            fields["status"] = _only(status or {}, _NODE_STATUS)
        case "Namespace":
            pass  # Its labels count, with which quotas select it.
        case "ResourceClaim":
            fields["spec"], fields["status"] = spec, _only(status or {}, _CLAIM_STATUS)
        case _:
            # The status of other kinds reports what somebody makes of them.
            fields["spec"] = spec
    return {name: value for name, value in fields.items() if value}


def _only(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = _only(metadata, _METADATA)
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name.startswith(_ANNOTATIONS) or name in _NAMED_ANNOTATIONS
    }
    return {**fields, "annotations": annotations} if annotations else fields


def _pod_spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = _only(spec, _POD_SPEC)
    for name in ("containers", "initContainers"):
        if spec.get(name):
            fields[name] = [_only(container, _CONTAINER) for container in spec[name]]
    volumes = [
        _only(volume, ("name", "persistentVolumeClaim"))
        for volume in spec.get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    ]
    return {**fields, "volumes": volumes} if volumes else fields


def _pod_status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = [
        _only(condition, _CONDITION)
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled"
    ]
    fields = _only(status, _POD_STATUS)
    return {**fields, "conditions": conditions} if conditions else fields
