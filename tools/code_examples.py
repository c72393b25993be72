"""Manifests for codes of translations: each yields its code and no other but those that it names."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from testing.documents import Document
from tools.claim_examples import CLAIM_EXAMPLES
from tools.example_documents import (
    GPU,
    SHARE,
    CodeExample,
    annotated,
    api_object,
    claim,
    container,
    device_class,
    pod,
    resource_slice,
)
from tools.policy_examples import POLICY_EXAMPLES
from tools.translation_examples import TRANSLATION_EXAMPLES
from tools.webhook_examples import WEBHOOK_EXAMPLES


def _with_variable(limits: Mapping[str, str], name: str, value: str) -> Document:
    return pod(container(limits, env=[{"name": name, "value": value}]))


def _service() -> Document:
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "main"},
        "spec": {"template": {"spec": {"containers": [container(SHARE)]}}},
    }


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
                "containers": [container(GPU)],
            }
        },
    },
}


def _policy(name: str) -> Document:
    spec = {"driver": "gpu.example.com", "rules": []}
    return api_object("drawbridge.internal/v1alpha1", "DeviceCompatibilityPolicy", spec, name)


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
_MANY_CPUS: Final = {"limits": dict(SHARE), "requests": {"cpu": "1000"}}
_PREPARATION: Final = {
    **container({**SHARE, "nvidia.com/gpumem": "8192"}),
    "name": "prepare",
}
_MEMBER: Final = pod(
    {"name": "main", "image": "registry.k8s.io/pause:3.10"},
    schedulingGroup={"podGroupName": "main"},
)


def _many_selectors(number: int) -> Document:
    """Return a claim with so many different selectors, 32 in a request at most."""
    selectors = [
        {
            "cel": {
                "expression": f'!device.attributes["gpu.nvidia.com"].uuid.startsWith("GPU-{index:03}")'
            }
        }
        for index in range(number)
    ]
    requests = [
        {
            "name": f"gpu-{first // 32}",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "selectors": selectors[first : first + 32],
            },
        }
        for first in range(0, number, 32)
    ]
    return api_object("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": requests}})


_SHARE_OF_ONE: Final = {"nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "10"}
EXAMPLES: Final[Mapping[str, CodeExample]] = {
    **CLAIM_EXAMPLES,
    **POLICY_EXAMPLES,
    **TRANSLATION_EXAMPLES,
    **WEBHOOK_EXAMPLES,
    "tooLarge": CodeExample(
        "a share in each of 65 containers",
        api_object(
            "v1",
            "Pod",
            {
                "containers": [
                    {**container(_SHARE_OF_ONE), "name": f"main-{number}"} for number in range(65)
                ]
            },
        ),
        lines=18,
    ),
    "partiallyEvaluated": CodeExample(
        "170 selectors in one claim",
        _many_selectors(170),
        also=("notEvaluated",),
        lines=17,
    ),
    "negative": CodeExample(
        "less than no memory", pod(container({**SHARE, "nvidia.com/gpumem": "-1"}))
    ),
    "invalidQuantity": CodeExample(
        "an amount with a space", pod(container({**SHARE, "nvidia.com/gpumem": "8 GB"}))
    ),
    "cannotExpress": CodeExample(
        "a replica of a MIG device", pod(container({"nvidia.com/mig-1g.10gb.shared": "1"}))
    ),
    "limitDiffers": CodeExample(
        "a request below its limit", pod({**container({}), "resources": _TWO_GPUS})
    ),
    "nodeNameSet": CodeExample(
        "a pod that no scheduler places", pod(container(SHARE), nodeName="hami-0")
    ),
    "emptyDeviceList": CodeExample("a list of no GPU", annotated("nvidia.com/use-gpuuuid", ",")),
    "unknownMode": CodeExample(
        "a mode that HAMi does not have", annotated("nvidia.com/vgpu-mode", "shared")
    ),
    "memoryAmountRequired": CodeExample(
        "cores of a card without memory", pod(container({"tencent.com/vcuda-core": "30"}))
    ),
    "wholeDevice": CodeExample(
        "a share that nobody else may use",
        annotated("hami.io/gpu-scheduler-policy", "mutex", {**GPU, "nvidia.com/gpumem": "4096"}),
    ),
    "invalidCombination": CodeExample(
        "memory as an amount and as a percentage",
        pod(
            container(
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
        pod(container(SHARE, securityContext={"privileged": True})),
    ),
    "noDeviceRequested": CodeExample(
        "memory of no GPU",
        pod(container({"nvidia.com/gpu": "0", "nvidia.com/gpumem": "4096"})),
    ),
    "devicesExposedByEnv": CodeExample(
        "all GPUs by a variable, beside a share",
        _with_variable(SHARE, "NVIDIA_VISIBLE_DEVICES", "all"),
    ),
    "existingValueKept": CodeExample(
        "a priority in two places",
        _with_variable({**SHARE, "nvidia.com/priority": "1"}, "CUDA_TASK_PRIORITY", "0"),
    ),
    "hostNetworkNic": CodeExample(
        "a NIC in the network of the node",
        pod(container({"openshift.io/mlnxnics": "1"}), hostNetwork=True),
    ),
    "gpuSharingNodeLabel": CodeExample(
        "nodes whose device plugin shares GPUs",
        pod(container(SHARE), nodeSelector={"nvidia.com/gpu.sharing-strategy": "mps"}),
    ),
    "gpuDiscoveryNodeLabel": CodeExample(
        "nodes with two GPUs", pod(container(SHARE), nodeSelector={"nvidia.com/gpu.count": "2"})
    ),
    "heldForPodLifetime": CodeExample(
        "a share of an init container",
        pod(container({"cpu": "1"}), initContainers=[{**container(SHARE), "name": "prepare"}]),
    ),
    "podTemplateNotRead": CodeExample("a Knative Service with a share", _service()),
    "malformedAnnotation": CodeExample(
        "a text where a list of types is expected",
        annotated(
            "scheduling.koordinator.sh/device-joint-allocate",
            '{"deviceTypes": "gpu"}',
            {"koordinator.sh/gpu": "100"},
        ),
    ),
    "selectorFails": CodeExample("an attribute that whole GPUs do not have", _FAILING),
    "ambiguousOwner": CodeExample(
        "a GPU of the device plugin beside memory of Alibaba Cloud's",
        pod(container({**GPU, "aliyun.com/gpu-mem": "3"})),
    ),
    "allocationIgnored": CodeExample(
        "the device of an earlier pod",
        annotated(
            "scheduling.koordinator.sh/device-allocated",
            '{"gpu": [{"minor": 0}]}',
            {"koordinator.sh/gpu": "100"},
        ),
    ),
    "initRaisesLimit": CodeExample(
        "an init container with more memory",
        pod(container(SHARE), initContainers=[_PREPARATION]),
    ),
    "notExclusive": CodeExample(
        "all cores of a GPU beside a part of its memory",
        pod(container({**SHARE, "nvidia.com/gpucores": "100"})),
    ),
    "multusBesidePool": CodeExample(
        "a network of Multus beside an RDMA device",
        annotated("k8s.v1.cni.cncf.io/networks", "rdma", {"rdma/hca_shared_devices_a": "1"}),
    ),
    "exceedsNodeResources": CodeExample(
        "more cores than any node has", pod({**container({}), "resources": _MANY_CPUS})
    ),
    "exceedsQuota": CodeExample(
        "two devices in a namespace that may have one",
        claim("gpu.nvidia.com", allocationMode="ExactCount", count=2),
        (
            api_object(
                "v1",
                "ResourceQuota",
                {"hard": {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "1"}},
            ),
        ),
    ),
    "quotaNotCounted": CodeExample(
        "a quota of GPUs that a claim does not charge",
        pod(container(SHARE)),
        (api_object("v1", "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "1"}}),),
        also=("claimsNotSeen",),
    ),
    "limitRangeConflict": CodeExample(
        "containers that must have a GPU",
        pod(container(SHARE)),
        (
            api_object(
                "v1",
                "LimitRange",
                {"limits": [{"type": "Container", "min": {"nvidia.com/gpu": "1"}}]},
            ),
        ),
        also=("claimsNotSeen",),
    ),
    "groupTooSmall": CodeExample("a group of three with one pod", _MEMBER, (_GANG,)),
    "noDevices": CodeExample(
        "a class of a driver that is not installed",
        claim("card.example.com"),
        (device_class("card.example.com", "card.example.com"),),
    ),
    "duplicateExtendedResource": CodeExample(
        "two classes for one name",
        device_class("large", "gpu.example.com", extendedResourceName="example.com/gpu"),
        (device_class("small", "gpu.example.com", extendedResourceName="example.com/gpu"),),
    ),
    "duplicatePolicyForDriver": CodeExample(
        "two policies for one driver", _policy("second"), (_policy("first"),)
    ),
    "invalidObject": CodeExample(
        "a text for the spec", api_object("resource.k8s.io/v1", "ResourceClaim", "one GPU")
    ),
    "invalidProfile": CodeExample(
        "a profile without a driver",
        api_object("drawbridge.internal/v1alpha1", "DeviceTranslationProfile", {}),
    ),
    "invalidRequestPolicy": CodeExample(
        "a default below the minimum",
        resource_slice("main", slices=1, device=_DEFAULT_BELOW_MINIMUM),
    ),
    "failingNodeSelector": CodeExample(
        "a text where a label is compared with a number",
        resource_slice("main", slices=1, nodeSelector=_NOT_A_NUMBER),
    ),
    "duplicateDevice": CodeExample(
        "one name in two slices of a pool",
        resource_slice("a", slices=2),
        (resource_slice("b", slices=2),),
    ),
    "sliceCountMismatch": CodeExample(
        "two numbers of slices of one pool",
        resource_slice("a", slices=2),
        (resource_slice("b", slices=3, device={"name": "gpu-1"}),),
    ),
}
"""Code to the manifest that yields it."""


class ReasonExample(NamedTuple):
    """Manifests of a reason of simulations, with the name of the case."""

    name: str
    documents: tuple[Document, ...]


REASON_EXAMPLES: Final[Mapping[str, ReasonExample]] = {
    "attemptFailed": ReasonExample("an attribute that whole GPUs do not have", (_FAILING,)),
    "groupIncomplete": ReasonExample("a group of three, and a Job of two", (_GANG, _TWO_OF_GANG)),
}
"""Reason to the manifests for which `simulate` prints it on the cluster of the examples."""
