"""Manifests for codes of translations: each yields its code and no other."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from testing.documents import Document

_SHARE: Final[Mapping[str, str]] = {
    "nvidia.com/gpu": "1",
    "nvidia.com/gpumem": "4096",
    "nvidia.com/gpucores": "10",
}


class CodeExample(NamedTuple):
    """A manifest that yields one code, with the name of the case.

    Attributes:
        beside: The other objects of the manifest, before the one that has the finding.
    """

    name: str
    document: Document
    beside: tuple[Document, ...] = ()


def _container(limits: Mapping[str, str], **fields: Any) -> Document:
    image = "registry.k8s.io/pause:3.10"
    return {"name": "main", "image": image, **fields, "resources": {"limits": dict(limits)}}


def _pod(
    container: Document, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Document:
    metadata: Document = {"name": "main"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "containers": [container]},
    }


def _annotated(name: str, value: str, limits: Mapping[str, str] = _SHARE) -> Document:
    return _pod(_container(limits), {name: value})


def _with_variable(limits: Mapping[str, str], name: str, value: str) -> Document:
    return _pod(_container(limits, env=[{"name": name, "value": value}]))


def _service() -> Document:
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "main"},
        "spec": {"template": {"spec": {"containers": [_container(_SHARE)]}}},
    }


_GPU: Final = {"nvidia.com/gpu": "1"}
_TWO_GPUS: Final = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}

_FAILING: Final[Document] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "main"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "exactly": {
                        "deviceClassName": "gpu.nvidia.com",
                        "selectors": [
                            {
                                "cel": {
                                    "expression": 'device.attributes["gpu.nvidia.com"].parentUUID == "GPU-1"'
                                }
                            }
                        ],
                    },
                }
            ]
        }
    },
}
_GANG: Final[Document] = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "main"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
}
_TWO_OF_GANG: Final[Document] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "main"},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "schedulingGroup": {"podGroupName": "main"},
                "containers": [_container(_GPU)],
            }
        },
    },
}


def _object(api_version: str, kind: str, spec: Any, name: str = "main") -> Document:
    metadata = {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _slice(name: str, *, slices: int, device: Document | None = None, **placement: Any) -> Document:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": slices}
    spec = {
        "driver": "gpu.example.com",
        "pool": pool,
        **(placement or {"nodeName": "node-a"}),
        "devices": [device or {"name": "gpu-0"}],
    }
    return _object("resource.k8s.io/v1", "ResourceSlice", spec, name)


def _device_class(name: str, driver: str, **spec: Any) -> Document:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return _object("resource.k8s.io/v1", "DeviceClass", {"selectors": selectors, **spec}, name)


def _claim(device_class: str, **fields: Any) -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **fields}}
    return _object("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": [request]}})


def _policy(name: str) -> Document:
    spec = {"driver": "gpu.example.com", "rules": []}
    return _object("drawbridge.internal/v1alpha1", "DeviceCompatibilityPolicy", spec, name)


_DEFAULT_BELOW_MINIMUM: Final = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "2Gi"}},
        }
    },
}
_NOT_A_NUMBER: Final = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "example.com/gpus", "operator": "Gt", "values": ["many"]}]}
    ]
}
_MANY_CPUS: Final = {"limits": dict(_SHARE), "requests": {"cpu": "1000"}}
_PREPARATION: Final = {
    **_container({**_SHARE, "nvidia.com/gpumem": "8192"}),
    "name": "prepare",
}
_MEMBER: Final = _pod(
    {"name": "main", "image": "registry.k8s.io/pause:3.10"},
    schedulingGroup={"podGroupName": "main"},
)
EXAMPLES: Final[Mapping[str, CodeExample]] = {
    "negative": CodeExample(
        "less than no memory", _pod(_container({**_SHARE, "nvidia.com/gpumem": "-1"}))
    ),
    "invalidQuantity": CodeExample(
        "an amount with a space", _pod(_container({**_SHARE, "nvidia.com/gpumem": "8 GB"}))
    ),
    "cannotExpress": CodeExample(
        "a replica of a MIG device", _pod(_container({"nvidia.com/mig-1g.10gb.shared": "1"}))
    ),
    "limitDiffers": CodeExample(
        "a request below its limit", _pod({**_container({}), "resources": _TWO_GPUS})
    ),
    "nodeNameSet": CodeExample(
        "a pod that no scheduler places", _pod(_container(_SHARE), nodeName="hami-0")
    ),
    "emptyDeviceList": CodeExample("a list of no GPU", _annotated("nvidia.com/use-gpuuuid", ",")),
    "unknownMode": CodeExample(
        "a mode that HAMi does not have", _annotated("nvidia.com/vgpu-mode", "shared")
    ),
    "memoryAmountRequired": CodeExample(
        "cores of a card without memory", _pod(_container({"tencent.com/vcuda-core": "30"}))
    ),
    "wholeDevice": CodeExample(
        "a share that nobody else may use",
        _annotated("hami.io/gpu-scheduler-policy", "mutex", {**_GPU, "nvidia.com/gpumem": "4096"}),
    ),
    "invalidCombination": CodeExample(
        "memory as an amount and as a percentage",
        _pod(
            _container(
                {
                    "volcano.sh/vgpu-number": "1",
                    "volcano.sh/vgpu-memory": "4096",
                    "volcano.sh/vgpu-memory-percentage": "50",
                }
            )
        ),
    ),
    "privilegedShare": CodeExample(
        "a privileged container with a share",
        _pod(_container(_SHARE, securityContext={"privileged": True})),
    ),
    "noDeviceRequested": CodeExample(
        "memory of no GPU",
        _pod(_container({"nvidia.com/gpu": "0", "nvidia.com/gpumem": "4096"})),
    ),
    "devicesExposedByEnv": CodeExample(
        "all GPUs by a variable, beside a share",
        _with_variable(_SHARE, "NVIDIA_VISIBLE_DEVICES", "all"),
    ),
    "existingValueKept": CodeExample(
        "a priority in two places",
        _with_variable({**_SHARE, "nvidia.com/priority": "1"}, "CUDA_TASK_PRIORITY", "0"),
    ),
    "hostNetworkNic": CodeExample(
        "a NIC in the network of the node",
        _pod(_container({"openshift.io/mlnxnics": "1"}), hostNetwork=True),
    ),
    "gpuSharingNodeLabel": CodeExample(
        "nodes whose device plugin shares GPUs",
        _pod(_container(_SHARE), nodeSelector={"nvidia.com/gpu.sharing-strategy": "mps"}),
    ),
    "gpuDiscoveryNodeLabel": CodeExample(
        "nodes with two GPUs", _pod(_container(_SHARE), nodeSelector={"nvidia.com/gpu.count": "2"})
    ),
    "heldForPodLifetime": CodeExample(
        "a share of an init container",
        _pod(_container({"cpu": "1"}), initContainers=[{**_container(_SHARE), "name": "prepare"}]),
    ),
    "podTemplateNotRead": CodeExample("a Knative Service with a share", _service()),
    "malformedAnnotation": CodeExample(
        "a text where a list of types is expected",
        _annotated(
            "scheduling.koordinator.sh/device-joint-allocate",
            '{"deviceTypes": "gpu"}',
            {"koordinator.sh/gpu": "100"},
        ),
    ),
    "selectorFails": CodeExample("an attribute that whole GPUs do not have", _FAILING),
    "ambiguousOwner": CodeExample(
        "a GPU of the device plugin beside memory of Alibaba Cloud's",
        _pod(_container({**_GPU, "aliyun.com/gpu-mem": "3"})),
    ),
    "allocationIgnored": CodeExample(
        "the device of an earlier pod",
        _annotated(
            "scheduling.koordinator.sh/device-allocated",
            '{"gpu": [{"minor": 0}]}',
            {"koordinator.sh/gpu": "100"},
        ),
    ),
    "initRaisesLimit": CodeExample(
        "an init container with more memory",
        _pod(_container(_SHARE), initContainers=[_PREPARATION]),
    ),
    "notExclusive": CodeExample(
        "all cores of a GPU beside a part of its memory",
        _pod(_container({**_SHARE, "nvidia.com/gpucores": "100"})),
    ),
    "multusBesidePool": CodeExample(
        "a network of Multus beside an RDMA device",
        _annotated("k8s.v1.cni.cncf.io/networks", "rdma", {"rdma/hca_shared_devices_a": "1"}),
    ),
    "exceedsNodeResources": CodeExample(
        "more cores than any node has", _pod({**_container({}), "resources": _MANY_CPUS})
    ),
    "exceedsQuota": CodeExample(
        "two devices in a namespace that may have one",
        _claim("gpu.nvidia.com", allocationMode="ExactCount", count=2),
        (
            _object(
                "v1",
                "ResourceQuota",
                {"hard": {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "1"}},
            ),
        ),
    ),
    "quotaNotCounted": CodeExample(
        "a quota of GPUs that a claim does not charge",
        _pod(_container(_SHARE)),
        (_object("v1", "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "1"}}),),
    ),
    "limitRangeConflict": CodeExample(
        "containers that must have a GPU",
        _pod(_container(_SHARE)),
        (
            _object(
                "v1",
                "LimitRange",
                {"limits": [{"type": "Container", "min": {"nvidia.com/gpu": "1"}}]},
            ),
        ),
    ),
    "groupTooSmall": CodeExample("a group of three with one pod", _MEMBER, (_GANG,)),
    "noDevices": CodeExample(
        "a class of a driver that is not installed",
        _claim("card.example.com"),
        (_device_class("card.example.com", "card.example.com"),),
    ),
    "duplicateExtendedResource": CodeExample(
        "two classes for one name",
        _device_class("large", "gpu.example.com", extendedResourceName="example.com/gpu"),
        (_device_class("small", "gpu.example.com", extendedResourceName="example.com/gpu"),),
    ),
    "duplicatePolicyForDriver": CodeExample(
        "two policies for one driver", _policy("second"), (_policy("first"),)
    ),
    "invalidObject": CodeExample(
        "a text for the spec", _object("resource.k8s.io/v1", "ResourceClaim", "one GPU")
    ),
    "invalidProfile": CodeExample(
        "a profile without a driver",
        _object("drawbridge.internal/v1alpha1", "DeviceTranslationProfile", {}),
    ),
    "invalidRequestPolicy": CodeExample(
        "a default below the minimum", _slice("main", slices=1, device=_DEFAULT_BELOW_MINIMUM)
    ),
    "failingNodeSelector": CodeExample(
        "a text where a label is compared with a number",
        _slice("main", slices=1, nodeSelector=_NOT_A_NUMBER),
    ),
    "duplicateDevice": CodeExample(
        "one name in two slices of a pool", _slice("a", slices=2), (_slice("b", slices=2),)
    ),
    "sliceCountMismatch": CodeExample(
        "two numbers of slices of one pool",
        _slice("a", slices=2),
        (_slice("b", slices=3, device={"name": "gpu-1"}),),
    ),
}
"""Code to the manifest that yields it on the cluster of the examples."""


class ReasonExample(NamedTuple):
    """Manifests of a reason of simulations, with the name of the case."""

    name: str
    documents: tuple[Document, ...]


REASON_EXAMPLES: Final[Mapping[str, ReasonExample]] = {
    "attemptFailed": ReasonExample("an attribute that whole GPUs do not have", (_FAILING,)),
    "groupIncomplete": ReasonExample("a group of three, and a Job of two", (_GANG, _TWO_OF_GANG)),
}
"""Reason to the manifests for which `simulate` prints it on the cluster of the examples."""
