"""Objects for tables, so that a row stays on one line.

Documents are dicts as they were parsed, the way the API server sends them; `seen` gives the typed
view. Keyword arguments are the short names of keys: `gpus(1, mem=3000)` is a limit on
`nvidia.com/gpu` and one on `nvidia.com/gpumem`.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from kube.api.core import Pod
from kube.api.meta import view
from kube.api.resource import ResourceSlice
from kube.product import REQUEST_ANNOTATION
from webhook.admission import Answer, admit_created, admit_updated
from webhook.claims import Claim
from webhook.findings import Finding
from webhook.intents import LegacyPod
from webhook.inventory import facts_by_driver, summary
from webhook.jsonpatch import apply
from webhook.legacy import legacy_pod
from webhook.profile import Profile
from webhook.shipped import load_profiles
from webhook.translation import Outcome, Translated, translate
from webhook.workloads import pod_path
from webhook.world import Options, World, vocabularies

NVIDIA: Final = "gpu.nvidia.com"
HAMI: Final = "hami-core-gpu.project-hami.io"
EXAMPLE: Final = "gpu.example.com"
DRANET: Final = "dra.net"
SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
NAMESPACE: Final = "team-a"

Document = dict[str, Any]

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
    """Resource names to amounts; `mig_1g_5gb` stands for `nvidia.com/mig-1g.5gb`."""
    named = ({"gpu": gpu} if gpu is not None else {}) | amounts
    return {_key(name): str(amount) for name, amount in named.items()}


def _key(name: str) -> str:
    if name.startswith("mig_"):
        return "nvidia.com/mig-" + name.removeprefix("mig_").replace("_", ".")
    return _KEYS[name]


def container(
    name: str = "main", amounts: Mapping[str, object] | None = None, **fields: Any
) -> Document:
    """A container whose requests the API server has defaulted to its limits.

    Args:
        fields: As in the API; `resources` replaces what `amounts` say.
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
    """A container that asks for devices."""
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


def koordinated(name: str = "main", /, **amounts: object) -> Document:
    """A container that asks for devices in Koordinator's words."""
    return container(name, {_KOORDINATOR[key]: str(amount) for key, amount in amounts.items()})


def hinted(**annotations: object) -> dict[str, str]:
    """Koordinator's annotations, by short names; what is no text becomes JSON."""
    return {
        _HINTS[name]: said if isinstance(said, str) else msgspec.json.encode(said).decode()
        for name, said in annotations.items()
    }


_HINTS: Final = {
    "hint": "scheduling.koordinator.sh/device-allocate-hint",
    "joint": "scheduling.koordinator.sh/device-joint-allocate",
    "allocated": "scheduling.koordinator.sh/device-allocated",
    "partition": "scheduling.koordinator.sh/gpu-partition-spec",
    "replace": "pod.koordinator.sh/replace-resources",
}


def sidecar(gpu: object = None, /, *, name: str = "sidecar", **amounts: object) -> Document:
    """An init container that runs beside the app containers."""
    return gpus(gpu, name=name, fields={"restartPolicy": "Always"}, **amounts)


def pod(
    *containers: Document,
    init: Sequence[Document] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """A pod as a review brings it."""
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


def seen(document: Mapping[str, Any]) -> Pod:
    """The typed view of a pod."""
    return view(document, Pod)


def legacy(*containers: Document, init: Sequence[Document] = ()) -> LegacyPod:
    """What vocabularies see of a pod."""
    return legacy_pod(seen(pod(*containers, init=init)))


# --- the cluster ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, Profile]:
    """The shipped profiles by driver."""
    return load_profiles()


def device(
    name: str = "gpu-0",
    *,
    shared: bool | None = None,
    attributes: Mapping[str, str | int] | None = None,
    capacity: Mapping[str, Any] | None = None,
) -> Document:
    """A device of a slice; text and numbers become attributes, text capacities become values."""
    made: Document = {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in (attributes or {}).items()},
        "capacity": {
            key: {"value": value} if isinstance(value, str) else value
            for key, value in (capacity or {}).items()
        },
    }
    return made if shared is None else made | {"allowMultipleAllocations": shared}


def _attribute(value: str | int) -> Document:
    return {"string": value} if isinstance(value, str) else {"int": value}


def amount(value: str, default: str | None = None, **span: str) -> Document:
    """A capacity with a request policy; `span` holds min, max and step."""
    policy: Document = {"validRange": span} if span else {}
    return {"value": value, "requestPolicy": policy | ({"default": default} if default else {})}


def hami_gpu(
    memory: str = "80Gi", model: str = "NVIDIA A100-SXM4-80GB", uuid: str = "GPU-0"
) -> Document:
    """A GPU as HAMi's driver publishes it."""
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
    """A GPU as NVIDIA's driver publishes it."""
    capacity: Document = {"memory": amount(memory, default) if default is not None else memory}
    if replicas:
        capacity["shares"] = amount("4", "1")
    return device(
        shared=shared,
        attributes={"type": "gpu", "uuid": "GPU-0", "productName": "NVIDIA A100"},
        capacity=capacity,
    )


def rooted(root: str, gpu: Document | None = None) -> Document:
    """A device, HAMi's GPU if none is given, that says under which PCIe root it is."""
    made = copy.deepcopy(gpu or hami_gpu())
    made["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": root}
    return made


def mig_device(memory: str = "9728Mi", profile: str = "1g.10gb") -> Document:
    """A MIG device as NVIDIA's driver publishes it."""
    return device(
        attributes={"type": "mig", "parentUUID": "GPU-0", "profile": profile},
        capacity={"memory": memory},
    )


def published(
    driver: str, *devices: Document, pool: str = "node-1", generation: int = 1
) -> ResourceSlice:
    """A slice with these devices."""
    return view(
        {
            "metadata": {"name": f"{pool}-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": pool,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": [{**one, "name": f"gpu-{place}"} for place, one in enumerate(devices)],
            },
        },
        ResourceSlice,
    )


def world(*slices: ResourceSlice, **fields: Any) -> World:
    """The shipped profiles, the facts of these slices, and further fields of the picture."""
    summaries = [made for one in slices if (made := summary(one, profiles())) is not None]
    return World(**{"profiles": profiles(), "facts": facts_by_driver(summaries)} | fields)


# --- answers --------------------------------------------------------------------------------------


def told(findings: Iterable[Finding]) -> list[str]:
    """Each finding as `severity code path`, which is what scripts may rely on."""
    return [f"{one.severity} {one.code} {one.path}" for one in findings]


def codes(findings: Iterable[Finding]) -> list[str]:
    """Each finding as `severity code`, where a table has no need of the path."""
    return [f"{one.severity} {one.code}" for one in findings]


def request_of(document: Mapping[str, Any]) -> Document:
    """The request annotation of a translated pod, parsed."""
    text = document["metadata"]["annotations"][REQUEST_ANNOTATION]
    made: Document = msgspec.json.decode(text)
    return made


def outcome_of(
    document: Mapping[str, Any], picture: World | None = None, options: Options | None = None
) -> Outcome:
    """What becomes of a pod in the tests' namespace."""
    picture, options = picture or world(), options or Options()
    return translate(
        legacy_pod(seen(document), vocabularies(options, picture.profiles)),
        namespace=NAMESPACE,
        world=picture,
        options=options,
    )


def translated(
    document: Mapping[str, Any], picture: World | None = None, options: Options | None = None
) -> Translated:
    """What a pod becomes, which must be claims."""
    outcome = outcome_of(document, picture, options)
    assert isinstance(outcome, Translated), told(outcome.findings)
    return outcome


def devices_of(claim: Claim) -> Document:
    """`spec.devices` of the claims that a template makes."""
    devices: Document = msgspec.json.decode(msgspec.json.encode(claim.spec["spec"]["devices"]))
    return devices


def exactly(
    class_name: str, count: int = 1, *selectors: str, name: str = "gpu", **capacity: str
) -> Document:
    """A request for devices of one class."""
    return {"name": name, "exactly": _asked(class_name, count, selectors, capacity)}


def alternative(
    name: str, class_name: str, count: int = 1, *selectors: str, **capacity: str
) -> Document:
    """One of the alternatives of a request."""
    return {"name": name} | _asked(class_name, count, selectors, capacity)


def _asked(
    class_name: str, count: int, selectors: Sequence[str], capacity: Mapping[str, str]
) -> Document:
    asked: Document = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count,
    }
    if selectors:
        asked["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    if capacity:
        asked["capacity"] = {"requests": capacity}
    return asked


def distinct(driver: str, *requests: str) -> Document:
    """A constraint: different cards."""
    return {"requests": list(requests or ("gpu",)), "distinctAttribute": f"{driver}/uuid"}


def admitted(
    document: Mapping[str, Any], picture: World | None = None, options: Options | None = None
) -> tuple[Document, Answer]:
    """The pod after its creation was admitted, and the answer."""
    answer = admit_created(
        document,
        seen(document),
        namespace=NAMESPACE,
        world=picture or world(),
        options=options or Options(),
    )
    after: Document = apply(copy.deepcopy(dict(document)), answer.operations)
    return after, answer


def updated(
    document: Mapping[str, Any], old: Mapping[str, Any], options: Options | None = None
) -> tuple[Document, Answer]:
    """The pod after an update was admitted, and the answer."""
    answer = admit_updated(document, seen(document), seen(old), options=options or Options())
    after: Document = apply(copy.deepcopy(dict(document)), answer.operations)
    return after, answer


def changed(document: Mapping[str, Any], **members: Any) -> Document:
    """A deep copy with some members replaced; `spec__nodeName` is a path, None removes."""
    made = copy.deepcopy(dict(document))
    for path, value in members.items():
        *parents, last = path.split("__")
        place: Any = made
        for parent in parents:
            place = place[int(parent) if parent.isdigit() else parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return made


def with_request(document: Mapping[str, Any], text: str) -> Document:
    """The pod with this request annotation."""
    made = copy.deepcopy(dict(document))
    made["metadata"].setdefault("annotations", {})[REQUEST_ANNOTATION] = text
    return made


def workload(template: Mapping[str, Any], kind: str = "Deployment", **metadata: Any) -> Document:
    """An object that makes pods like the template, whose name is forgotten."""
    inside: Any = {name: template[name] for name in ("metadata", "spec")}
    inside["metadata"] = {k: v for k, v in inside["metadata"].items() if k != "name"}
    version = "batch/v1" if kind in {"Job", "CronJob"} else "apps/v1"
    for field in reversed(pod_path(version, kind) or ()):
        inside = {field: inside}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "train"} | metadata, **inside}
