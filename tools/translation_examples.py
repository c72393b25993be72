"""Examples of codes of translations that need settings, labels or devices of their own."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kube.names import REQUEST_ANNOTATION
from testing.command import answer
from testing.documents import Document
from tools.example_documents import (
    GPU,
    SHARE,
    CodeExample,
    annotated,
    api_object,
    claim_template,
    container,
    device_class,
    devices_of_node,
    pod,
)

_NVIDIA: Final = "gpu.nvidia.com"
_HYGON: Final = "dra.hygon.com"
_HAMI: Final = "hami-core-gpu.project-hami.io"
_SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
_HALF: Final = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
_NODE: Final[Document] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}


def _labelled(document: Document, **labels: str) -> Document:
    metadata = {**document["metadata"], "labels": labels}
    return {**document, "metadata": metadata}


def _opted_in(value: str = "true") -> Document:
    labels = {"drawbridge.internal/translate": value}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": labels},
    }


def _device(name: str, *, memory: str, shared: bool = False, **attributes: str | int) -> Document:
    """Return a device; amounts other than the memory are added by callers."""
    document: Document = {
        "name": name,
        "attributes": {
            key: {"int": value} if isinstance(value, int) else {"string": value}
            for key, value in attributes.items()
        },
        "capacity": {"memory": {"value": memory}},
    }
    if shared:
        document["allowMultipleAllocations"] = True
    return document


def _with_cores(document: Document, cores: str) -> Document:
    return {**document, "capacity": {**document["capacity"], "cores": {"value": cores}}}


def _dcu(number: int, units: str) -> Document:
    gpu = _device(f"dcu-{number}", memory="64Gi", shared=True, type="hcu", uuid=f"dcu-{number}")
    return _with_cores(gpu, units)


def _gpu_at(number: int, root: str) -> Document:
    document = _device(f"gpu-{number}", memory="80Gi", shared=True, type="hami-gpu")
    document["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": root}
    return _with_cores(document, "100")


def _ray_cluster() -> Document:
    template = {"spec": {"containers": [container(SHARE)]}}
    spec = {"workerGroupSpecs": [{"groupName": "main", "template": template}]}
    return api_object("ray.io/v1", "RayCluster", spec)


def _provisioned() -> tuple[Document, Document]:
    """Return a ProvisioningRequest, and the PodTemplate of its pods."""
    pod_sets = [{"count": 2, "podTemplateRef": {"name": "main"}}]
    spec = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "podSets": pod_sets}
    template = {"spec": {"containers": [container(SHARE)]}}
    head: Document = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "main"}}
    request = api_object("autoscaling.x-k8s.io/v1", "ProvisioningRequest", spec)
    return request, {**head, "template": template}


def _template_of_share() -> Document:
    """Return a template with the name of that of a share, and another content."""
    template, _ = answer(pod(container(SHARE)))["objects"]
    return claim_template(template["metadata"]["name"], _NVIDIA)


def _translated(**spec: Any) -> Document:
    """Return a pod with a share as it is translated, then with other fields of its spec."""
    _, translated = answer(pod(container(SHARE)))["objects"]
    return {**translated, "spec": {**translated["spec"], **spec}}


def _raised() -> Document:
    translated = _translated()
    (main,) = translated["spec"]["containers"]
    resources = {**main["resources"], "limits": {"nvidia.com/gpu": "2"}}
    return _translated(containers=[{**main, "resources": resources}])


def _of_unknown_profile() -> Document:
    translated = _translated()
    metadata = translated["metadata"]
    record = json.loads(metadata["annotations"][REQUEST_ANNOTATION])
    record["profiles"][0]["hash"] = "0" * 16
    annotations = {REQUEST_ANNOTATION: json.dumps(record)}
    return {**translated, "metadata": {**metadata, "annotations": annotations}}


def _settings(**translation: Any) -> Document:
    return {"translation": translation}


TRANSLATION_EXAMPLES: Final[Mapping[str, CodeExample]] = {
    "sharesNotSupported": CodeExample(
        "a share in a cluster that gives whole devices only",
        pod(container(SHARE)),
        command="check -f example.yaml --feature-gates DRAConsumableCapacity=false",
    ),
    "alreadyConverted": CodeExample(
        "a pod that HAMi's converter gave its claims",
        _labelled(pod(container(SHARE)), **{"hami.io/dra": "true"}),
    ),
    "notOptedIn": CodeExample(
        "a pod without the label in a namespace that has it selected",
        pod(container(SHARE)),
        (_opted_in("selected"),),
    ),
    "schedulerReplaced": CodeExample(
        "a scheduler of its own in a namespace that opted in",
        pod(container(SHARE), schedulerName="my-scheduler"),
        (_opted_in(),),
    ),
    "keptBesideClaims": CodeExample(
        "a NIC that stays with its device plugin",
        pod(container({**SHARE, "rdma/hca": "1"})),
        settings=_settings(keep=["rdma"]),
    ),
    "limitsEnforced": CodeExample("half of a GPU in Koordinator's keys", pod(container(_HALF))),
    "grantedWhereRejected": CodeExample(
        "a whole GPU, and a number of zero GPUs",
        pod(container({"koordinator.sh/gpu": "100", "koordinator.sh/gpu.shared": "0"})),
    ),
    "amountRoundedUp": CodeExample(
        "half a percent of a GPU in KAI's annotation",
        pod(container({}), {"gpu-fraction": "0.005"}, schedulerName="kai-scheduler"),
        settings=_settings(adoptSchedulers={"kai-scheduler": ""}),
    ),
    "duplicateClaim": CodeExample(
        "a claim for a share beside the keys of one",
        pod(container(SHARE), resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]),
        (claim_template("gpu", _HAMI),),
    ),
    "templateNotCounted": CodeExample(
        "a quota of shares beside a template for them",
        claim_template("main", _HAMI),
        (api_object("v1", "ResourceQuota", {"hard": {"requests.nvidia.com/gpumem": "4096"}}),),
        also=("claimsNotSeen",),
    ),
    "templateConflict": CodeExample(
        "a template that somebody else made of that name",
        pod(container(SHARE)),
        (_template_of_share(),),
    ),
    "controllerReadsKeys": CodeExample(
        "a RayCluster with a share, since KubeRay reads the key",
        _ray_cluster(),
        command="translate -f example.yaml",
    ),
    "noProvisionedCapacity": CodeExample(
        "a PodTemplate with a share for a ProvisioningRequest",
        _provisioned()[1],
        (_provisioned()[0],),
        command="translate -f example.yaml",
    ),
    "tooLong": CodeExample(
        "a list that names a type 150 times",
        annotated("nvidia.com/use-gputype", ",".join(["A100"] * 150)),
    ),
    "memorySizesMerged": CodeExample(
        "half of a GPU as a MIG device, where GPUs have two sizes",
        pod(
            container({**GPU, "nvidia.com/gpumem-percentage": "50"}),
            {"nvidia.com/vgpu-mode": "mig"},
        ),
        (
            _NODE,
            device_class(_NVIDIA, _NVIDIA),
            device_class("mig.nvidia.com", _NVIDIA),
            devices_of_node(
                _NVIDIA,
                _device("gpu-0", memory="40Gi", type="gpu"),
                _device("gpu-1", memory="80Gi", type="gpu"),
                _device("mig-0", memory="40Gi", type="mig", profile="4g.40gb"),
            ),
        ),
        snapshot="",
    ),
    "nominalMemory": CodeExample(
        "20480 MiB for Volcano, of which 2g.20gb has less",
        pod(
            container({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "20480"}),
            {"volcano.sh/vgpu-mode": "mig"},
        ),
        (
            _NODE,
            device_class(_NVIDIA, _NVIDIA),
            device_class("mig.nvidia.com", _NVIDIA),
            devices_of_node(
                _NVIDIA,
                _device("mig-0", memory="19968Mi", type="mig", profile="2g.20gb"),
                _device("mig-1", memory="40192Mi", type="mig", profile="3g.40gb"),
            ),
        ),
        snapshot="",
    ),
    "equalComputeUnits": CodeExample(
        "two DCUs, where they have two numbers of compute units",
        pod(
            container(
                {"hygon.com/dcunum": "2", "hygon.com/dcumem": "4000", "hygon.com/dcucores": "60"}
            )
        ),
        (
            _NODE,
            device_class(_HYGON, _HYGON),
            devices_of_node(_HYGON, _dcu(0, "120"), _dcu(1, "120"), _dcu(2, "60")),
        ),
        snapshot="",
    ),
    "noPartitionOfSize": CodeExample(
        "a partition of two GPUs, where there are only those of one",
        pod(
            container({"koordinator.sh/gpu": "200"}),
            {"scheduling.koordinator.sh/gpu-partition-spec": "{}"},
        ),
        (
            _NODE,
            device_class(_NVIDIA, _NVIDIA),
            devices_of_node(_NVIDIA, _device("gpu-0", memory="80Gi", type="gpu", partition1=0)),
        ),
        command=f"check -f example.yaml --profile koordinator={_NVIDIA}",
        snapshot="",
    ),
    "mixedHardware": CodeExample(
        "two GPUs with a NIC, where one node has them under one PCIe root and one under two",
        annotated(
            "scheduling.koordinator.sh/device-joint-allocate",
            '{"deviceTypes": ["gpu", "rdma"]}',
            {"koordinator.sh/gpu": "200", "koordinator.sh/rdma": "100"},
        ),
        (
            devices_of_node(
                _HAMI, _gpu_at(0, "pci0000:00"), _gpu_at(1, "pci0000:00"), node="together"
            ),
            devices_of_node(
                _HAMI, _gpu_at(0, "pci0000:00"), _gpu_at(1, "pci0000:80"), node="apart"
            ),
        ),
        snapshot="examples/koordinator/cluster.yaml",
    ),
    "translationRecordForged": CodeExample(
        "a translated pod that names another template",
        _translated(resourceClaims=[{"name": "gpu-main", "resourceClaimTemplateName": "main"}]),
    ),
    "translationRecordChanged": CodeExample(
        "a translated pod of one GPU that requests two", _raised()
    ),
    "translationNotSigned": CodeExample(
        "a translated pod in a namespace where pods without the label are not",
        _translated(),
        (_opted_in("selected"),),
        also=("notOptedIn",),
    ),
    "profileChanged": CodeExample(
        "a pod that was translated with an unknown profile", _of_unknown_profile()
    ),
    "gpusInParts": CodeExample(
        "a pod on a node that offers each GPU four times",
        {**pod(container(GPU), nodeName="node-a"), "status": {"phase": "Running"}},
        (
            {
                **_labelled(_NODE, **{"nvidia.com/gpu.replicas": "4"}),
                "status": {"allocatable": {"nvidia.com/gpu": "4"}},
            },
        ),
        command="assess --snapshot example.yaml",
        snapshot="",
    ),
    "classConfigMissing": CodeExample(
        "a virtual function of a class without the network's configuration",
        pod(container({"openshift.io/mlnxnics": "1"})),
        (device_class(_SRIOV, _SRIOV),),
        also=("envVarNotProvided", "noDevices"),
    ),
}
"""Code to the manifest that yields it."""
