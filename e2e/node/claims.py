"""Claims, and pods that use them on a real node."""

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.access import Object
from e2e.node.driver import DRIVER
from e2e.node.node import pod_on

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
    """A selector for one device; its uuid stands for its name, which CEL does not see."""
    return f'device.attributes["{DRIVER}"].uuid == "{device}"'


def claim(name: str, *requests: Request, **devices: Any) -> Object:
    """A claim; further fields are those of `spec.devices`."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
    }


def template(name: str, *requests: Request, **devices: Any) -> Object:
    """A template of such a claim."""
    made = claim(name, *requests, **devices)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": made["spec"]},
    }


def pod_with(
    node: str,
    name: str,
    claims: Sequence[str],
    *args: str,
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod whose container uses claims of these names.

    Args:
        args: Of the box program; `env` where there are none.
        requests: Claim to the one request of it that the container uses.
    """
    pod = pod_on(node, name, *(args or ("env",)), **spec)
    pod["spec"]["resourceClaims"] = [{"name": one, "resourceClaimName": one} for one in claims]
    (container, *_) = pod["spec"]["containers"]
    container["resources"] = {
        "claims": [
            {"name": one, **({"request": requests[one]} if requests and one in requests else {})}
            for one in claims
        ]
    }
    return pod


def configuration(*requests: str, **parameters: Any) -> Object:
    """Parameters of the driver for some requests, or for all."""
    config = {"apiVersion": "drawbridge.internal/v1alpha1", "kind": "DeviceConfig", **parameters}
    return {"requests": list(requests), "opaque": {"driver": DRIVER, "parameters": config}}
