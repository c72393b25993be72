"""Examples of codes that the command line cannot report: the webhook or the audit of a cluster does.

The last object of an example is created, and the others are in the cluster.
"""

from collections.abc import Mapping
from typing import Any, Final

from kube.names import GROUP_SCHEDULER_ANNOTATION
from testing.documents import Document
from tools.example_documents import (
    CLUSTER,
    IMAGE,
    SHARE,
    CodeExample,
    api_object,
    claim_template,
    container,
    device_class,
    devices_of_node,
    pod,
    pod_with_claims,
)

_DRIVER: Final = "gpu.example.com"
_OWNED: Final = api_object(
    "drawbridge.internal/v1alpha1",
    "AllocatorOwnership",
    {"drivers": [{"name": _DRIVER}]},
    "default",
)
_CLASS: Final = device_class(_DRIVER, _DRIVER)
_TEMPLATE: Final = claim_template("gpu", _DRIVER)
_BRIDGED: Final = (_OWNED, _CLASS, _TEMPLATE)
"""A driver that the bridge owns, and a template of claims for it."""


def _webhook(
    name: str,
    document: Document,
    *beside: Document,
    answer: str,
    snapshot: str = "",
    also: tuple[str, ...] = (),
    settings: Document | None = None,
) -> CodeExample:
    return CodeExample(
        name,
        document,
        beside,
        also=also,
        command="",
        snapshot=snapshot,
        settings=settings,
        component="webhook",
        answer=answer,
    )


def _definition(plural: str, group: str) -> Document:
    return api_object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        {"group": group},
        f"{plural}.{group}",
    )


def _deployment(limits: Mapping[str, str]) -> Document:
    labels = {"app": "main"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container(limits)]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return api_object("apps/v1", "Deployment", spec)


def _annotated(document: Document, **annotations: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def _group(scheduler: str = "", **fields: Any) -> Document:
    """Return a PodGroup of two pods, with the annotation of its scheduler unless that is empty."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, **fields}
    document = api_object("scheduling.k8s.io/v1beta1", "PodGroup", spec)
    return (
        _annotated(document, **{GROUP_SCHEDULER_ANNOTATION: scheduler}) if scheduler else document
    )


_MEMBER: Final = {"schedulingGroup": {"podGroupName": "main"}}
_LAUNCHER: Final = pod({"name": "main", "image": IMAGE}, **_MEMBER)
_GANG: Final = {
    "gang.scheduling.koordinator.sh/name": "ring",
    "gang.scheduling.koordinator.sh/min-available": "2",
}
_POLICY: Final = api_object(
    "drawbridge.internal/v1alpha1",
    "DeviceCompatibilityPolicy",
    {
        "driver": _DRIVER,
        "enforcement": "Enforce",
        "rules": [
            {
                "name": "whole",
                "selectors": [
                    {"cel": {"expression": f'device.attributes["{_DRIVER}"].mode == "whole"'}}
                ],
                "compatibleOnlyWith": {
                    "cel": {"expression": f'device.attributes["{_DRIVER}"].mode == "whole"'}
                },
            }
        ],
    },
)
_NODE: Final[Document] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a"},
    "status": {"allocatable": {"example.com/gpu": "1"}},
}

WEBHOOK_EXAMPLES: Final[Mapping[str, CodeExample]] = {
    "claimUnawareComponent": _webhook(
        "a Deployment in a cluster with Kueue",
        _deployment(SHARE),
        _definition("clusterqueues", "kueue.x-k8s.io"),
        snapshot=CLUSTER,
        answer="Warning: drawbridge[claimUnawareComponent]: resourceClaims: Kueue does not "
        "count these claims; add to its deviceClassMappings: {name: nvidia.com/gpu, "
        "deviceClassNames: [hami-core-gpu.project-hami.io]}; from 0.18 on it never "
        "admits pods with claims of other classes; it counts a share as a whole device, "
        "unless the mapping has sources with capacity (0.19, alpha)",
    ),
    "noScaleFromZero": _webhook(
        "a Deployment in a cluster with Karpenter",
        _deployment(SHARE),
        _definition("nodepools", "karpenter.sh"),
        snapshot=CLUSTER,
        also=("claimUnawareComponent",),
        answer="Warning: drawbridge[noScaleFromZero]: resourceClaims: no node is added for "
        "claims to a group that has none, unless its provider predicts devices: AWS's "
        "Karpenter and externalgrpc do not, Cluster API predicts them without attributes",
    ),
    "policyNotEnforced": _webhook(
        "a policy for a driver that kube-scheduler allocates",
        _POLICY,
        answer="Warning: drawbridge[policyNotEnforced]: spec.enforcement: the policy is "
        "accepted, but not enforced: kube-scheduler ignores policies",
    ),
    "shadowMode": _webhook(
        "a share in mode Shadow",
        pod(container(SHARE)),
        snapshot=CLUSTER,
        settings={"translation": {"mode": "Shadow"}},
        answer="Warning: drawbridge[shadowMode]: spec: would get claims of DeviceClass "
        "hami-core-gpu.project-hami.io in place of its device keys if Drawbridge were "
        "not in mode Shadow; nothing is changed",
    ),
    "gangNotAdopted": _webhook(
        "a gang of Koordinator where gangs are not adopted",
        _annotated(pod_with_claims("gpu"), **_GANG),
        *_BRIDGED,
        settings={"validation": {"adoptGangs": False}},
        answer="Warning: drawbridge[gangNotAdopted]: "
        "metadata.annotations[gang.scheduling.koordinator.sh/name]: the bridge places "
        "the pod by itself, not with the other pods of Koordinator gang ring: adoptGangs "
        "is off",
    ),
    "groupSchedulerUnknown": _webhook(
        "a launcher without devices before its PodGroup",
        _LAUNCHER,
        *_BRIDGED,
        answer="Pod rejected: spec.schedulingGroup.podGroupName: "
        "drawbridge[groupSchedulerUnknown]: the pod has no devices of its own, and "
        'PodGroup "main" does not exist yet, so it is not known whether its group goes '
        "to drawbridge-scheduler; all pods of a group need one scheduler; create it "
        "before its pods, with the annotation drawbridge.internal/scheduler: "
        "drawbridge-scheduler or default-scheduler; or write schedulerName into the pods",
    ),
    "duplicateResource": CodeExample(
        "a node whose GPU is offered by its device plugin, too",
        _NODE,
        (
            device_class(_DRIVER, _DRIVER, extendedResourceName="example.com/gpu"),
            devices_of_node(_DRIVER, {"name": "gpu-0"}),
        ),
        command="",
        snapshot="",
        component="audit",
        settings={"controllers": {"auditReports": "OpenReports"}},
        answer='"example.com/gpu" is offered by a device plugin, and as devices of '
        "gpu.example.com: one device can be given to two pods; stop the device plugin on "
        "this node",
    ),
}
"""Code to the objects for which the webhook or the audit reports it."""
