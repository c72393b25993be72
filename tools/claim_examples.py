"""Examples of codes about claims and their drivers."""

from collections.abc import Mapping
from typing import Any, Final

from testing.documents import Document
from tools.example_documents import (
    IMAGE,
    CodeExample,
    api_object,
    claim,
    claim_template,
    device_class,
    devices_of_node,
    in_use,
    pod,
    pod_with_claims,
    resource_slice,
)

_EXAMPLE: Final = "gpu.example.com"
_NVIDIA: Final = "gpu.nvidia.com"


def _namespace(**labels: str) -> Document:
    metadata: Document = {"name": "default"}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _configured(kind: str, name: str = "main", **parameters: Any) -> Document:
    """Return a claim for a GPU of NVIDIA with a configuration."""
    request = {"name": "gpu", "exactly": {"deviceClassName": _NVIDIA}}
    opaque = {
        "driver": _NVIDIA,
        "parameters": {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **parameters},
    }
    config = {"requests": ["gpu"], "opaque": opaque}
    spec = {"devices": {"requests": [request], "config": [config]}}
    return api_object("resource.k8s.io/v1", "ResourceClaim", spec, name)


def _sliced(name: str, interval: str) -> Document:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return _configured("GpuConfig", name, sharing=sharing)


def _spreading() -> Document:
    document = device_class("main", _EXAMPLE)
    annotations = {"drawbridge.internal/strategy": "LowLoadFirst"}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def _profile(**fields: Any) -> Document:
    device = {"class": _EXAMPLE, "sharing": "never", **fields}
    spec = {"driver": "card.example.com", "devices": {"device": device}}
    kind = "DeviceTranslationProfile"
    return api_object("drawbridge.internal/v1alpha1", kind, spec, "card.example.com")


_OWNED: Final = api_object(
    "drawbridge.internal/v1alpha1",
    "AllocatorOwnership",
    {"drivers": [{"name": _EXAMPLE}]},
    "default",
)
_TEMPLATE: Final = claim_template("gpu", _EXAMPLE)
_SHARED_GPU: Final = devices_of_node(
    _NVIDIA,
    {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "gpu"}},
    },
)
_ADMIN: Final = claim(_NVIDIA, adminAccess=True)
_MANY_ATTRIBUTES: Final = {f"feature{number}": "yes" for number in range(17)}
_GROUP: Final[Document] = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "main"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 1000}}},
}

CLAIM_EXAMPLES: Final[Mapping[str, CodeExample]] = {
    "adminAccessNotAllowed": CodeExample(
        "administrative access in a namespace without the label", _ADMIN, (_namespace(),)
    ),
    "featureGateOff": CodeExample(
        "administrative access in a cluster without it",
        _ADMIN,
        command="check -f example.yaml --feature-gates DRAAdminAccess=false",
    ),
    "invalidName": CodeExample(
        "a device with a name in upper case",
        resource_slice("main", slices=1, device={"name": "GPU_0"}),
    ),
    "strategyAllocatesLess": CodeExample("a class that spreads shares over devices", _spreading()),
    "mappingTooWide": CodeExample(
        "a class of all GPUs for the name of a MIG profile",
        device_class("main", _NVIDIA, extendedResourceName="nvidia.com/mig-3g.40gb"),
    ),
    "configMismatch": CodeExample(
        "a configuration of MIG devices for a whole GPU", _configured("MigDeviceConfig")
    ),
    "conflictingSharing": CodeExample(
        "MPS on a GPU that is shared by consumable capacity",
        _configured("GpuConfig", sharing={"strategy": "MPS"}),
        (device_class(_NVIDIA, _NVIDIA), _SHARED_GPU),
        also=("requiresFeatureGate",),
        snapshot="",
    ),
    "conflictingSharingConfig": CodeExample(
        "two intervals for one GPU",
        _sliced("second", "Long"),
        (device_class(_NVIDIA, _NVIDIA), _SHARED_GPU, _sliced("first", "Short")),
        also=("requiresFeatureGate",),
        snapshot="",
    ),
    "doesNotFitNow": CodeExample(
        "a claim for a device that another one has",
        claim(_EXAMPLE),
        (
            device_class(_EXAMPLE, _EXAMPLE),
            resource_slice("main", slices=1),
            in_use(claim(_EXAMPLE), "gpu-0", "holder"),
        ),
        snapshot="",
    ),
    "claimMissing": CodeExample(
        "a claim that nobody creates",
        pod(
            {"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "gpu"}]}},
            resourceClaims=[{"name": "gpu", "resourceClaimName": "main"}],
        ),
        snapshot="examples/busy/cluster.yaml",
    ),
    "driverOwnedByBridge": CodeExample(
        "a scheduler that cannot allocate a driver of the bridge",
        pod_with_claims("gpu", schedulerName="my-scheduler"),
        (_OWNED, _TEMPLATE),
    ),
    "driverNotOwned": CodeExample(
        "the scheduler of the bridge for another driver",
        pod_with_claims("gpu", schedulerName="drawbridge-scheduler"),
        (_OWNED, claim_template("gpu", _NVIDIA)),
    ),
    "driverOwnershipUnknown": CodeExample(
        "a template that does not exist yet", pod_with_claims("gpu"), (_OWNED,)
    ),
    "mixedDriverOwnership": CodeExample(
        "devices of a driver of the bridge and of another one",
        pod_with_claims("gpu", "other"),
        (
            _OWNED,
            device_class(_EXAMPLE, _EXAMPLE),
            device_class(_NVIDIA, _NVIDIA),
            _TEMPLATE,
            claim_template("other", _NVIDIA),
        ),
        snapshot="",
    ),
    "groupTooLarge": CodeExample(
        "a group of a thousand pods",
        pod({"name": "main", "image": IMAGE}, schedulingGroup={"podGroupName": "main"}),
        (_GROUP,),
    ),
    "profileTooLarge": CodeExample(
        "a profile that selects by 17 attributes", _profile(where=_MANY_ATTRIBUTES)
    ),
    "profileKeyNotServed": CodeExample(
        "a name that another driver serves", _profile(resources={"nvidia.com/gpu": {}})
    ),
    "shippedProfileReplaced": CodeExample(
        "a profile for a driver that has one",
        api_object(
            "drawbridge.internal/v1alpha1",
            "DeviceTranslationProfile",
            {
                "driver": _NVIDIA,
                "devices": {"device": {"class": _NVIDIA, "attributes": {"uuid": "uuid"}}},
            },
            _NVIDIA,
        ),
    ),
}
"""Code to the manifest that yields it."""
