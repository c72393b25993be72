"""Recordings of small clusters: nodes, pods and quotas, their changes, and the replay of a file."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from answers.recording.delta import Delta, ObjectKey
from answers.recording.lines import (
    Change,
    Entry,
    Header,
    Mark,
    Moment,
    encode_entry,
    encode_header,
)
from answers.recording.projection import HAMI_REGISTER
from testing import hostile_objects
from testing.command import drawbridge
from testing.documents import Document, api_object
from testing.simulated_cluster import DRIVER, claim, device_class, holding, slice_of


def gpu(name: str, **fields: Any) -> Document:
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"milli": {"value": "1000"}},
        **fields,
    }


def node(name: str, cpu: int = 8, **labels: str) -> Document:
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    return api_object("Node", name, labels=labels, status={"allocatable": allocatable})


STATE = (
    device_class(),
    node("node-a", disk="ssd"),
    node("node-b"),
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-b", gpu("gpu-0"), gpu("gpu-1")),
)


def put(at: float, document: Document, *fields: str) -> Change:
    """Return the change that an object is there; with fields, only these are set."""
    metadata = document["metadata"]
    key = ObjectKey(
        api_version=document["apiVersion"],
        kind=document["kind"],
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
    )
    values = {
        name: value
        for name, value in document.items()
        if name not in {"apiVersion", "kind"} and (not fields or name in fields)
    }
    return Change(at=at, delta=Delta(object=key, set=values))


def gone(at: float, document: Document) -> Change:
    key = put(at, document).delta.object
    return Change(at=at, delta=Delta(object=key, deleted=True))


def pod(
    name: str, cpu: str = "1", *, on: str = "", claims: Sequence[str] = (), **spec: Any
) -> Document:
    return api_object(
        "Pod",
        name,
        "team",
        uid=f"uid-{name}",
        spec={
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": own, "resourceClaimName": own} for own in claims],
            "schedulerName": "default-scheduler",
            **({"nodeName": on} if on else {}),
            **spec,
        },
    )


def write(
    path: Path,
    entries: Sequence[Entry],
    state: Sequence[Document] = STATE,
    unreadable: tuple[str, ...] = (),
) -> Path:
    text = encode_header(Header(started_at="2026-11-20T08:00:00Z", unreadable=unreadable))
    first = [put(0.0, document) for document in state]
    for entry in (*first, Moment(at=0.0, mark=Mark.STATE), *entries):
        text += encode_entry(entry)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def replay(path: Path, *options: object, strategy: str = "stock", exits: int = 0) -> Document:
    outcome = drawbridge(
        "replay", "--snapshot", path, "--strategy", strategy, "-o", "json", *options
    )
    assert outcome.exit_code == exits, outcome.output
    document: Document = json.loads(outcome.stdout)
    return document


END = Moment(at=1000.0, mark=Mark.END)


PLAIN = (
    device_class(),
    node("node-a", disk="ssd"),
    node("node-b"),
    slice_of("node-a"),
    slice_of("node-b"),
)


def legacy(
    name: str,
    keys: Mapping[str, object] | None = None,
    *,
    on: str = "",
    cpu: str = "1",
    gpu: object = 0,
    gpumem: int = 0,
) -> Document:
    """Return a pod with device keys, names of nvidia.com."""
    requested = {"gpu": gpu, "gpumem": gpumem, **(keys or {})}
    limits = {f"nvidia.com/{key}": str(amount) for key, amount in requested.items() if amount}
    document = pod(name, cpu, on=on)
    document["spec"]["containers"][0]["resources"]["limits"] = limits
    return document


def plugin_node(name: str, gpus: int = 2, cpu: int = 8) -> Document:
    """Return a node with whole GPUs of a device plugin, and the labels of GPU feature discovery."""
    document = node(name, cpu=cpu)
    document["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100", "nvidia.com/gpu.memory": "81920"}
    document["metadata"]["labels"] = labels
    return document


def hami_node(name: str, gpus: int = 2) -> Document:
    """Return a node with cards that HAMi shares."""
    document = node(name, cpu=8)
    document["status"]["allocatable"]["nvidia.com/gpu"] = str(10 * gpus)
    cards = [
        {"id": f"GPU-{name}-{n}", "count": 10, "devmem": 81920, "devcore": 100, "type": "A100"}
        for n in range(gpus)
    ]
    document["metadata"]["annotations"] = {HAMI_REGISTER: json.dumps(cards)}
    return document


def device_quota(
    limit: Document, labels: Document | None = None, name: str = "few", **spec: Any
) -> Document:
    labels = {"kubernetes.io/metadata.name": "team"} if labels is None else labels
    limits = [{"name": "gpus", "driver": DRIVER, **limit}]
    return api_object(
        "DeviceQuota",
        name,
        spec={"namespaceSelector": {"matchLabels": labels}, "limits": limits, **spec},
    )


def resource_quota(hard: Document, namespace: str = "team", **spec: Any) -> Document:
    return api_object("ResourceQuota", "small", namespace, spec={"hard": hard, **spec})


def namespace(name: str, **labels: str) -> Document:
    return api_object("Namespace", name, labels=labels)


def template(name: str) -> Document:
    return api_object("ResourceClaimTemplate", name, "team", spec={"spec": claim("any")["spec"]})


def extended(name: str) -> Document:
    mapped = device_class(name)
    mapped["spec"]["extendedResourceName"] = "example.com/gpu"
    return mapped


def with_uid(document: Document, uid: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "uid": uid}}


def phase(document: Document, value: str, **status: Any) -> Document:
    return {**document, "status": {"phase": value, **status}}


FROM_TEMPLATE: Final[Document] = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]
}


GENERATED: Final[Document] = {
    "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]
}


DOCUMENTS: Final[Sequence[Document]] = (
    node("node-a"),
    node("node-a", cpu=2),
    node("node-b", disk="ssd"),
    {**node("node-b"), "spec": {"unschedulable": True}},
    {**node("node-b"), "status": {}},
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-a", {"name": "gpu-0"}),
    slice_of("node-b"),
    slice_of("node-b", allNodes=True, nodeName=None),
    device_class(),
    device_class("other"),
    extended("gpu"),
    {
        **device_class(),
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['a'].b"}}]},
    },
    {**device_class(), "spec": {"selectors": [{"cel": {"expression": "nonsense("}}]}},
    claim("a"),
    claim("a", 2),
    claim("a", -1),
    holding("a", "gpu-0", "node-a"),
    holding("a", "gpu-9", "nowhere"),
    holding("made", "gpu-1", "node-a"),
    with_uid(holding("a", "gpu-0", "node-b"), "another"),
    template("one"),
    pod("plain"),
    pod("plain", "-3"),
    pod("plain", on="node-a"),
    pod("plain", on="nowhere"),
    with_uid(pod("plain"), "another"),
    with_uid(pod("plain", on="node-b"), "another"),
    phase(pod("plain", on="node-a"), "Succeeded"),
    pod("claims", claims=["a"]),
    pod("claims", claims=["a"], on="node-a"),
    pod("shares", claims=["a"], on="node-a"),
    pod("made", **FROM_TEMPLATE),
    phase(pod("made", on="node-a", **FROM_TEMPLATE), "Running", **GENERATED),
    {
        **pod("extends"),
        "spec": {"containers": [{"resources": {"limits": {"example.com/gpu": "1"}}}]},
    },
    phase(
        pod("gated"), "Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]
    ),
    *hostile_objects.cluster_objects(),
    *hostile_objects.namespaced_objects(),
)


BASE: Final = (
    node("node-a", disk="ssd"),
    node("node-b"),
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-b"),
    device_class(),
    template("one"),
)


steps: Final = st.lists(
    st.tuples(
        st.sampled_from(DOCUMENTS), st.booleans() | st.just(True), st.sampled_from((0.0, 0.5, 30.0))
    ),
    max_size=14,
)


def course_of(taken: Sequence[tuple[Document, bool, float]], first: int) -> list[Entry]:
    """The entries of steps; the first ones are the first state."""
    entries: list[Entry] = [put(0.0, document) for document in BASE]
    second = 0.0
    for number, (document, stays, pause) in enumerate(taken):
        if number == first:
            entries.append(Moment(at=second, mark=Mark.STATE))
        second += pause
        change: Change = put(second, document) if stays else gone(second, document)
        entries.append(change)
    if first >= len(taken):
        entries.append(Moment(at=second, mark=Mark.STATE))
    return entries
