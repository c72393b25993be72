"""Objects of the examples of codes, in few words."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from testing.documents import Document

CLUSTER: Final = "examples/cluster/cluster.yaml"
"""The cluster of the examples, unless they name another."""
CHECK: Final = "check -f example.yaml"
"""The command of the examples, unless they name another."""
SHARE: Final[Mapping[str, str]] = {
    "nvidia.com/gpu": "1",
    "nvidia.com/gpumem": "4096",
    "nvidia.com/gpucores": "10",
}


GPU: Final = {"nvidia.com/gpu": "1"}
IMAGE: Final = "registry.k8s.io/pause:3.10"


class CodeExample(NamedTuple):
    """A manifest that yields one code, with the name of the case.

    Attributes:
        beside: The other objects of the manifest, before the one that has the finding.
        also: The codes that the manifest cannot but yield, too.
        command: The command that prints the code; `example.yaml` is the manifest.
        snapshot: The file of the cluster state; empty for none.
        settings: The content of the file of `--settings`; None for none.
        component: The part of Drawbridge that alone reports the code, for the document in a cluster
            with the others: `webhook` or `audit`; empty for the command.
        answer: The words of that component, whole.
        lines: The number of lines of the manifest that are shown; 0 for all.
    """

    name: str
    document: Document
    beside: tuple[Document, ...] = ()
    also: tuple[str, ...] = ()
    command: str = CHECK
    snapshot: str = CLUSTER
    settings: Document | None = None
    component: str = ""
    answer: str = ""
    lines: int = 0


def container(limits: Mapping[str, str], **fields: Any) -> Document:
    """Return a container with limits."""
    return {"name": "main", "image": IMAGE, **fields, "resources": {"limits": dict(limits)}}


def pod(container: Document, annotations: Mapping[str, str] | None = None, **spec: Any) -> Document:
    """Return a pod of one container."""
    metadata: Document = {"name": "main"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "containers": [container]},
    }


def annotated(name: str, value: str, limits: Mapping[str, str] = SHARE) -> Document:
    """Return a pod with limits and one annotation."""
    return pod(container(limits), {name: value})


def api_object(api_version: str, kind: str, spec: Any, name: str = "main") -> Document:
    """Return an object of any kind with a spec."""
    metadata = {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def resource_slice(
    name: str, *, slices: int, device: Document | None = None, **placement: Any
) -> Document:
    """Return a slice of `gpu.example.com`, as one of so many of its pool."""
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": slices}
    spec = {
        "driver": "gpu.example.com",
        "pool": pool,
        **(placement or {"nodeName": "node-a"}),
        "devices": [device or {"name": "gpu-0"}],
    }
    return api_object("resource.k8s.io/v1", "ResourceSlice", spec, name)


def device_class(name: str, driver: str, **spec: Any) -> Document:
    """Return a DeviceClass of all devices of a driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return api_object("resource.k8s.io/v1", "DeviceClass", {"selectors": selectors, **spec}, name)


def claim(device_class: str, **fields: Any) -> Document:
    """Return a claim with one request."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **fields}}
    return api_object("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": [request]}})


def pod_with_claims(*names: str, **spec: Any) -> Document:
    """Return a pod with a claim of each template, under the name of the template."""
    claims = [{"name": name, "resourceClaimTemplateName": name} for name in names]
    uses = {"claims": [{"name": name} for name in names]}
    main = {"name": "main", "image": IMAGE, "resources": uses}
    return pod(main, **spec, resourceClaims=claims)


def claim_template(name: str, device_class_name: str) -> Document:
    """Return a ResourceClaimTemplate with one request."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class_name}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return api_object("resource.k8s.io/v1", "ResourceClaimTemplate", spec, name)


def devices_of_node(driver: str, *devices: Document, node: str = "node-a") -> Document:
    """Return the only slice of a driver on a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}
    return api_object("resource.k8s.io/v1", "ResourceSlice", spec, node)


def in_use(document: Document, device: str, name: str) -> Document:
    """Return a claim with a device of `gpu.example.com`."""
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    return {**document, "metadata": {"name": name}, "status": status}
