"""A small cluster with devices of one driver, pods and claims for it, and a call of `simulate`."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing import documents
from testing.command import drawbridge
from testing.documents import Document, api_object

DRIVER = "gpu.example.com"


def device_class(name: str = "gpu", **metadata: Any) -> Document:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return api_object("DeviceClass", name, **metadata, spec={"selectors": [selector]})


def node(name: str, **spec: Any) -> Document:
    return api_object("Node", name, labels={"kubernetes.io/hostname": name}, spec=spec)


def slice_of(node_name: str, *devices: Document, **spec: Any) -> Document:
    fields: Document = {"driver": DRIVER, **spec}
    two = ({"name": "gpu-0"}, {"name": "gpu-1"})
    return documents.resource_slice(
        *(devices or two), node=node_name, name=f"{node_name}-slice", **fields
    )


def claim(name: str, count: int = 1, **exactly: Any) -> Document:
    fields = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count} | exactly
    return documents.claim({"name": "gpu", "exactly": fields}, name=name, namespace="team")


def holding(name: str, device: str, node_name: str) -> Document:
    result = {"request": "gpu", "driver": DRIVER, "pool": node_name, "device": device}
    return {
        **claim(name),
        "status": {"allocation": {"devices": {"results": [result]}, **pinned(node_name)}},
    }


def pinned(node_name: str) -> Document:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def using(name: str, *claims: str, **spec: Any) -> Document:
    return api_object(
        "Pod",
        name,
        "team",
        spec={
            "resourceClaims": [{"name": claim_, "resourceClaimName": claim_} for claim_ in claims],
            "containers": [{"name": "main", "image": "main"}],
            **spec,
        },
    )


STATE = (
    device_class(),
    node("node-a"),
    node("node-b"),
    slice_of("node-a"),
    slice_of("node-b"),
)


def simulate(
    *documents: Document, snapshot: Iterable[Document] = STATE, options: Iterable[object] = ()
) -> Result:
    with TemporaryDirectory() as folder:
        state = Path(folder) / "cluster.yaml"
        state.write_text(dump_yaml(snapshot))
        call = ("simulate", "-f", "-", "--snapshot", state, *options)
        return drawbridge(*call, stdin=dump_yaml(documents))
