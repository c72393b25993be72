"""Claims, and pods that use them on a real node."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from e2e.access import Access, Object
from e2e.node.driver import DRIVER
from e2e.node.node import pod_on
from testing.documents import api_object

Request = Mapping[str, Any]


def request(name: str = "gpu", device_class: str = DRIVER, **exactly: Any) -> Object:
    """A request; amounts as `capacity={"memory": "10Gi"}`."""
    capacity = exactly.pop("capacity", None)
    selector = exactly.pop("where", None)
    if capacity is not None:
        exactly["capacity"] = {"requests": dict(capacity)}
    if selector is not None:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def named(device: str) -> str:
    """A selector for one device; its uuid stands for its name, since CEL does not see names."""
    return f'device.attributes["{DRIVER}"].uuid == "{device}"'


def claim(name: str, *requests: Request, **devices: Any) -> Object:
    """A claim; further fields are those of `spec.devices`."""
    return api_object(
        "ResourceClaim",
        name,
        spec={"devices": {"requests": list(requests) or [request()], **devices}},
    )


def template(name: str, *requests: Request, **devices: Any) -> Object:
    """A template of such a claim."""
    claim_ = claim(name, *requests, **devices)
    return api_object("ResourceClaimTemplate", name, spec={"spec": claim_["spec"]})


def pod_with(
    node: str,
    name: str,
    claims: Sequence[str],
    *args: str,
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod with a container that uses claims of these names.

    Args:
        args: The arguments of the box program; `env` if there are none.
        requests: Claim to the one request of it that the container uses.
    """
    pod = pod_on(node, name, *(args or ("env",)), **spec)
    pod["spec"]["resourceClaims"] = [
        {"name": claim_, "resourceClaimName": claim_} for claim_ in claims
    ]
    (container, *_) = pod["spec"]["containers"]
    container["resources"] = {
        "claims": [
            {
                "name": claim_,
                **({"request": requests[claim_]} if requests and claim_ in requests else {}),
            }
            for claim_ in claims
        ]
    }
    return pod


def deployment(node: str, template_name: str, **spec: Any) -> Object:
    """A deployment `app` of one pod at a time with a claim of a template.

    Args:
        spec: More fields of its pods' spec.
    """
    pod = pod_with(node, "app", [template_name], **spec)
    source = {"name": template_name, "resourceClaimTemplateName": template_name}
    pod["spec"]["resourceClaims"] = [source]
    labels = {"app": "app"}
    return api_object(
        "Deployment",
        "app",
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    )


def held_deployment(node: str, template_name: str) -> Object:
    """One pod at a time, held back from the scheduler until it is let go."""
    return deployment(node, template_name, schedulingGates=[{"name": "e2e/held"}])


def configuration(*requests: str, **parameters: Any) -> Object:
    """Parameters of the driver for some requests, or for all."""
    config = {"apiVersion": "drawbridge.internal/v1alpha1", "kind": "DeviceConfig", **parameters}
    return {"requests": list(requests), "opaque": {"driver": DRIVER, "parameters": config}}


def allocate_by_hand(
    cluster: Access, namespace: str, name: str, node: str, device: str, *, pool: str = ""
) -> None:
    """Write the allocation of a claim as cluster admin, without asking anybody.

    Args:
        node: The node of the device.
        pool: The pool of the inventory; empty for the one with the node's name.
    """
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": f"{node}/{pool}" if pool else node,
        "device": device,
    }
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    # The scheduler would add the time, and the API server refuses any change of an allocation.
    allocation = {
        "allocationTimestamp": "2026-01-01T00:00:00Z",
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    document = json.dumps({"status": {"allocation": allocation}})
    words = ("--subresource=status", "--type=merge", "-p", document)
    cluster.kubectl("patch", "resourceclaim", "-n", namespace, name, *words)
