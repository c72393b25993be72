"""A small inventory of a driver of its own, and the party that rejects an object, for stories of validation.

Each story names its own driver, since the high-water mark remembers what others have published.
"""

import http.client
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from e2e.access import Access, Object, stream
from e2e.inventory import device_class, kwok_node
from testing.documents import api_object, resource_slice
from webhook.reviews import BUSY

DRA: Final = "resource.k8s.io/v1"
MARK: Final = "drawbridge-inventory"


class Who(StrEnum):
    """The parties that may reject an object, in the order of their calls."""

    NOBODY = "nobody"
    DECODER = "decoder"
    """The API server, while it reads: unknown fields, wrong types."""
    VALIDATION = "validation"
    """The API server's own rules, or the schema of our CustomResourceDefinition."""
    POLICY = "policy"
    """A ValidatingAdmissionPolicy of manifests/policies."""
    WEBHOOK = "webhook"


def refusing_party(code: int, message: str) -> Who:
    """Return the party that refused a request, as its status tells."""
    if code < http.client.BAD_REQUEST:
        return Who.NOBODY
    if "admission webhook" in message:
        return Who.WEBHOOK
    if "ValidatingAdmissionPolicy" in message:
        return Who.POLICY
    return Who.DECODER if code == http.client.BAD_REQUEST else Who.VALIDATION


def posted(cluster: Access, document: Object, namespace: str, *options: str) -> tuple[int, str]:
    """Try to create an object, strictly as kubectl does; return status and message."""
    path = cluster.kind(document["kind"]).path(namespace)
    query = "&".join(("dryRun=All", "fieldValidation=Strict", *options))
    code, body = cluster.request("POST", f"{path}?{query}", document)
    return code, str(json.loads(body).get("message", ""))


def created(cluster: Access, document: Object, namespace: str, *options: str) -> tuple[int, str]:
    """Create an object with kubectl; return its exit code and standard error."""
    arguments = ("create", "-n", namespace, *options, "-f", "-")
    output = cluster.kubectl(*arguments, input=stream(document), check=False)
    return output.returncode, output.stderr


def tried(cluster: Access, document: Object, namespace: str) -> tuple[int, str]:
    """Create an object without keeping it; return kubectl's exit code and words, once the webhook has time for it."""
    answers: list[tuple[int, str]] = []

    def is_answered() -> bool:
        answers.append(created(cluster, document, namespace, "--dry-run=server"))
        return BUSY not in answers[-1][1]

    cluster.wait_until(is_answered, "the webhook has time for the object")
    return answers[-1]


# --- the inventory --------------------------------------------------------------------------------


def gpu(name: str, memory: str, *, root: str = "pci0000:00", **fields: Any) -> Object:
    """A device with memory, under a PCIe root."""
    return {
        "name": name,
        "attributes": {
            "model": {"string": "large" if memory == "80Gi" else "small"},
            "resource.kubernetes.io/pcieRoot": {"string": root},
        },
        "capacity": {"memory": {"value": memory}},
        **fields,
    }


def shared_gpu(name: str) -> Object:
    """A device that is shared by amounts of 1Gi plus steps of 3Gi, up to 37Gi."""
    gpu_ = gpu(name, "40Gi", allowMultipleAllocations=True)
    gpu_["capacity"]["memory"]["requestPolicy"] = {
        "default": "1Gi",
        "validRange": {"min": "1Gi", "step": "3Gi", "max": "37Gi"},
    }
    return gpu_


def published(
    driver: str,
    node: str,
    devices: Sequence[Object],
    *,
    part: int = 0,
    parts: int = 1,
    generation: int = 1,
) -> Object:
    """One of `parts` slices of a node's pool."""
    return resource_slice(
        *devices,
        driver=driver,
        node=node,
        name=f"{node}-{driver}-{part}",
        generation=generation,
        count=parts,
    )


def class_of(driver: str, *, name: str = "") -> Object:
    """The class of all devices of a driver."""
    return device_class(name or driver, f"device.driver == '{driver}'")


def add_nodes(cluster: Access, driver: str, nodes: Mapping[str, Sequence[Object]]) -> list[str]:
    """Make the driver's class, and nodes with devices; return their names."""
    cluster.apply(class_of(driver))
    return cluster.add_nodes(
        [kwok_node(name) for name in nodes],
        lambda name: [published(driver, name, nodes[name])],
    )


# --- objects --------------------------------------------------------------------------------------


def asking(device_class: str, **exactly: Any) -> Object:
    """The spec of a claim with one request."""
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **exactly}}
    return {"devices": {"requests": [request]}}


def claim(spec: Object, name: str = "wanted", **metadata: Any) -> Object:
    """A ResourceClaim."""
    return api_object("ResourceClaim", name, **metadata, spec=spec)


def template(spec: Object, name: str = "wanted") -> Object:
    """A ResourceClaimTemplate."""
    return api_object("ResourceClaimTemplate", name, spec={"spec": spec})


def amount(memory: str) -> Object:
    """The field of a request that asks for memory."""
    return {"requests": {"memory": memory}}
