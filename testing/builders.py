"""Builders of objects for table tests, short enough for rows of one line.

Documents are parsed dicts, as the API server sends them; `pod_view` returns the typed view. Keyword
arguments are short names of keys: `gpus(1, mem=3000)` has a limit of `nvidia.com/gpu` and one of
`nvidia.com/gpumem`.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from admission.pods import Answer, admit_created
from admission.updated_pods import admit_updated
from findings.finding import Finding
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceSlice
from kube.api.workloads import pod_path
from kube.jsonpatch import apply
from kube.names import REQUEST_ANNOTATION
from process.profiles.profile_files import load_profiles
from testing.documents import Document
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod
from translation.pipeline.translate import Outcome, Translated, translate
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import Profile
from translation.reading.arbiter import translating_vocabularies
from translation.reading.legacy_pod import container_paths, legacy_pod
from translation.record.derive import derive
from translation.record.record import decode_record

NVIDIA: Final = "gpu.nvidia.com"
HAMI: Final = "hami-core-gpu.project-hami.io"
EXAMPLE: Final = "gpu.example.com"
DRANET: Final = "dra.net"
SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
NAMESPACE: Final = "team-a"


# --- pods -----------------------------------------------------------------------------------------

_KEYS: Final = {
    "gpu": "nvidia.com/gpu",
    "shared": "nvidia.com/gpu.shared",
    "mem": "nvidia.com/gpumem",
    "pct": "nvidia.com/gpumem-percentage",
    "cores": "nvidia.com/gpucores",
    "priority": "nvidia.com/priority",
    "cpu": "cpu",
    "memory": "memory",
}


def limits(gpu: object = None, /, **amounts: object) -> dict[str, str]:
    """Return resource names to amounts; `mig_1g_5gb` is `nvidia.com/mig-1g.5gb`."""
    amounts_by_name = ({"gpu": gpu} if gpu is not None else {}) | amounts
    return {_key(name): str(amount) for name, amount in amounts_by_name.items()}


def _key(name: str) -> str:
    if name.startswith("mig_"):
        return "nvidia.com/mig-" + name.removeprefix("mig_").replace("_", ".")
    return _KEYS[name]


def container(
    name: str = "main", amounts: Mapping[str, object] | None = None, **fields: Any
) -> Document:
    """Return a container with requests that the API server has defaulted to its limits.

    Args:
        fields: The fields as in the API; `resources` replaces the `amounts`.
    """
    if amounts is not None:
        fields = {"resources": {"limits": dict(amounts), "requests": dict(amounts)}} | fields
    return {"name": name, "image": "registry.example/app:1"} | fields


def gpus(
    gpu: object = None,
    /,
    *,
    name: str = "main",
    fields: Mapping[str, Any] | None = None,
    **amounts: object,
) -> Document:
    """Return a container with NVIDIA's and HAMi's keys."""
    return container(name, limits(gpu, **amounts), **(fields or {}))


_KOORDINATOR: Final = {
    "gpu": "koordinator.sh/gpu",
    "core": "koordinator.sh/gpu-core",
    "memory": "koordinator.sh/gpu-memory",
    "ratio": "koordinator.sh/gpu-memory-ratio",
    "shared": "koordinator.sh/gpu.shared",
    "rdma": "koordinator.sh/rdma",
    "fpga": "koordinator.sh/fpga",
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "dcu": "dcu.com/gpu",
    "npu_core": "huawei.com/npu-core",
    "npu_cpu": "huawei.com/npu-cpu",
    "npu_dvpp": "huawei.com/npu-dvpp",
}


def koordinator_container(name: str = "main", /, **amounts: object) -> Document:
    """Return a container with Koordinator's keys."""
    return container(name, {_KOORDINATOR[key]: str(amount) for key, amount in amounts.items()})


def koordinator_annotations(**annotations: object) -> dict[str, str]:
    """Return Koordinator's annotations by short names; values other than text become JSON."""
    return {
        _ANNOTATIONS[name]: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in annotations.items()
    }


_ANNOTATIONS: Final = {
    "hint": "scheduling.koordinator.sh/device-allocate-hint",
    "joint": "scheduling.koordinator.sh/device-joint-allocate",
    "allocated": "scheduling.koordinator.sh/device-allocated",
    "partition": "scheduling.koordinator.sh/gpu-partition-spec",
    "replace": "pod.koordinator.sh/replace-resources",
}


def sidecar(gpu: object = None, /, *, name: str = "sidecar", **amounts: object) -> Document:
    """Return an init container that runs beside the app containers."""
    return gpus(gpu, name=name, fields={"restartPolicy": "Always"}, **amounts)


def pod(
    *containers: Document,
    init: Sequence[Document] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """Return a pod as in a review."""
    metadata: Document = {"name": "train"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if labels:
        metadata["labels"] = dict(labels)
    if init:
        spec = {"initContainers": list(init)} | spec
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers)} | spec,
    }


def pod_view(document: Mapping[str, Any]) -> Pod:
    """Return the typed view of a pod."""
    return convert(document, Pod)


def legacy_view(*containers: Document, init: Sequence[Document] = ()) -> LegacyPod:
    """Return the part of a pod that vocabularies read."""
    return legacy_pod(pod_view(pod(*containers, init=init)))


# --- the cluster ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, Profile]:
    """Return the shipped profiles by driver."""
    return load_profiles()


def device(
    name: str = "gpu-0",
    *,
    shared: bool | None = None,
    attributes: Mapping[str, str | int] | None = None,
    capacity: Mapping[str, Any] | None = None,
) -> Document:
    """Return a device of a slice, with text and number attributes, and text capacities."""
    document: Document = {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in (attributes or {}).items()},
        "capacity": {
            key: {"value": value} if isinstance(value, str) else value
            for key, value in (capacity or {}).items()
        },
    }
    return document if shared is None else document | {"allowMultipleAllocations": shared}


def _attribute(value: str | int) -> Document:
    return {"string": value} if isinstance(value, str) else {"int": value}


def amount(value: str, default: str | None = None, **valid_range: str) -> Document:
    """Return a capacity with a request policy; `valid_range` has min, max and step."""
    policy: Document = {"validRange": valid_range} if valid_range else {}
    return {"value": value, "requestPolicy": policy | ({"default": default} if default else {})}


def hami_gpu(
    memory: str = "80Gi", model: str = "NVIDIA A100-SXM4-80GB", uuid: str = "GPU-0"
) -> Document:
    """Return a GPU as HAMi's driver publishes it."""
    return device(
        shared=True,
        attributes={"type": "hami-gpu", "uuid": uuid, "productName": model},
        capacity={
            "memory": amount(memory, memory, min="1Mi", step="1Mi"),
            "cores": amount("100", "100", min="0", max="100", step="1"),
        },
    )


def nvidia_gpu(
    memory: str = "80Gi",
    *,
    shared: bool | None = None,
    replicas: bool = False,
    default: str | None = None,
) -> Document:
    """Return a GPU as NVIDIA's driver publishes it."""
    capacity: Document = {"memory": amount(memory, default) if default is not None else memory}
    if replicas:
        capacity["shares"] = amount("4", "1")
    return device(
        shared=shared,
        attributes={"type": "gpu", "uuid": "GPU-0", "productName": "NVIDIA A100"},
        capacity=capacity,
    )


def device_at_root(root: str, gpu: Document | None = None) -> Document:
    """Return a device, by default HAMi's GPU, that publishes its PCIe root."""
    document = copy.deepcopy(gpu or hami_gpu())
    document["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": root}
    return document


def in_partitions(gpu: Document, *sizes: int) -> Document:
    """Return a GPU of NVIDIA's driver that is in the first partition of each of these sizes."""
    document = copy.deepcopy(gpu)
    document["attributes"] |= {f"partition{size}": {"int": size} for size in sizes}
    return document


def mig_device(memory: str = "9728Mi", profile: str = "1g.10gb") -> Document:
    """Return a MIG device as NVIDIA's driver publishes it."""
    return device(
        attributes={"type": "mig", "parentUUID": "GPU-0", "profile": profile},
        capacity={"memory": memory},
    )


def driver_slice(
    driver: str, *devices: Document, pool: str = "node-1", generation: int = 1
) -> ResourceSlice:
    """Return a ResourceSlice of a driver."""
    return convert(
        {
            "metadata": {"name": f"{pool}-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": pool,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": [
                    {**document, "name": f"gpu-{index}"} for index, document in enumerate(devices)
                ],
            },
        },
        ResourceSlice,
    )


def translation_snapshot(*slices: ResourceSlice, **fields: Any) -> TranslationSnapshot:
    """Return a snapshot with the shipped profiles, the facts of slices, and further fields."""
    summaries = [facts for slice_ in slices if (facts := summary(slice_, profiles())) is not None]
    return TranslationSnapshot(
        **{"profiles": profiles(), "facts": facts_by_driver(summaries)} | fields
    )


# --- answers --------------------------------------------------------------------------------------


def finding_texts(findings: Iterable[Finding]) -> list[str]:
    """Return each finding as its public words `severity code path`."""
    return [f"{finding.severity} {finding.code} {finding.path}" for finding in findings]


def finding_codes(findings: Iterable[Finding]) -> list[str]:
    """Return each finding as `severity code`."""
    return [f"{finding.severity} {finding.code}" for finding in findings]


def record_of(document: Mapping[str, Any]) -> Document:
    """Return the translation record of a pod, parsed."""
    text = document["metadata"]["annotations"][REQUEST_ANNOTATION]
    record: Document = msgspec.json.decode(text)
    return record


def translation_outcome(
    document: Mapping[str, Any],
    snapshot: TranslationSnapshot | None = None,
    options: TranslationOptions | None = None,
) -> Outcome:
    """Return the outcome of the translation of a pod in the tests' namespace."""
    snapshot, options = snapshot or translation_snapshot(), options or TranslationOptions()
    view = pod_view(document)
    return translate(
        legacy_pod(
            view, translating_vocabularies(view, vocabularies_in_force(options, snapshot.profiles))
        ),
        namespace=NAMESPACE,
        snapshot=snapshot,
        options=options,
    )


def translation_of(
    document: Mapping[str, Any],
    snapshot: TranslationSnapshot | None = None,
    options: TranslationOptions | None = None,
) -> Translated:
    """Return the translation of a pod; it must have one."""
    outcome = translation_outcome(document, snapshot, options)
    assert isinstance(outcome, Translated), finding_texts(outcome.findings)
    return outcome


def derived_claims(
    document: Mapping[str, Any], text: str, snapshot: TranslationSnapshot
) -> tuple[Claim, ...]:
    """Return the claims that derive from the text of a pod's translation record."""
    paths = container_paths(pod_view(document))
    return derive(decode_record(text), snapshot.profiles, paths).claims


def devices_of(claim: Claim) -> Document:
    """Return `spec.devices` of the template of a claim."""
    devices: Document = msgspec.json.decode(msgspec.json.encode(claim.spec["spec"]["devices"]))
    return devices


def exactly(
    class_name: str, count: int = 1, *selectors: str, name: str = "gpu", **capacity: str
) -> Document:
    """Return a request for devices of one class."""
    return {"name": name, "exactly": _request_fields(class_name, count, selectors, capacity)}


def alternative(
    name: str, class_name: str, count: int = 1, *selectors: str, **capacity: str
) -> Document:
    """Return an alternative of a request."""
    return {"name": name} | _request_fields(class_name, count, selectors, capacity)


def _request_fields(
    class_name: str, count: int, selectors: Sequence[str], capacity: Mapping[str, str]
) -> Document:
    fields: Document = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count,
    }
    if selectors:
        fields["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    if capacity:
        fields["capacity"] = {"requests": capacity}
    return fields


def distinct(driver: str, *requests: str) -> Document:
    """Return the constraint that all devices have different UUIDs."""
    return {"requests": list(requests or ("gpu",)), "distinctAttribute": f"{driver}/uuid"}


def admit(
    document: Mapping[str, Any],
    snapshot: TranslationSnapshot | None = None,
    options: TranslationOptions | None = None,
) -> tuple[Document, Answer]:
    """Answer the creation of a pod; return the patched pod and the answer."""
    answer = admit_created(
        document,
        pod_view(document),
        namespace=NAMESPACE,
        snapshot=snapshot or translation_snapshot(),
        options=options or TranslationOptions(),
    )
    after: Document = apply(document, answer.operations)
    return after, answer


def admit_update(
    document: Mapping[str, Any],
    old: Mapping[str, Any],
    options: TranslationOptions | None = None,
    *,
    opted_in: bool = False,
) -> tuple[Document, Answer]:
    """Answer the update of a pod; return the patched pod and the answer."""
    answer = admit_updated(
        document,
        pod_view(document),
        pod_view(old),
        snapshot=translation_snapshot(),
        options=options or TranslationOptions(),
        opted_in=opted_in,
    )
    after: Document = apply(document, answer.operations)
    return after, answer


def with_changes(document: Mapping[str, Any], **members: Any) -> Document:
    """Return a deep copy with other values; `spec__nodeName` is a path, None removes."""
    result = copy.deepcopy(dict(document))
    for path, value in members.items():
        *parents, last = path.split("__")
        target: Any = result
        for parent in parents:
            target = target[int(parent) if parent.isdigit() else parent]
        if value is None:
            del target[last]
        else:
            target[last] = value
    return result


def with_record(document: Mapping[str, Any], text: str) -> Document:
    """Return a pod with the text of a translation record."""
    result = copy.deepcopy(dict(document))
    result["metadata"].setdefault("annotations", {})[REQUEST_ANNOTATION] = text
    return result


def workload(template: Mapping[str, Any], kind: str = "Deployment", **metadata: Any) -> Document:
    """Return a workload with a pod template, without the name of the pod."""
    content: Any = {name: template[name] for name in ("metadata", "spec")}
    content["metadata"] = {k: v for k, v in content["metadata"].items() if k != "name"}
    version = "batch/v1" if kind in {"Job", "CronJob"} else "apps/v1"
    for field in reversed(pod_path(version, kind) or ()):
        content = {field: content}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "train"} | metadata,
        **content,
    }
