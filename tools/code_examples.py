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
    """A manifest that yields one code, with the name of the case."""

    name: str
    document: Document


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
