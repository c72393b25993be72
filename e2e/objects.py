"""Objects that stories apply, as plain dicts with what matters on one line."""

from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]

IMAGE: Final = "registry.internal/app:1"
"""Nobody pulls it: kwok plays the containers."""


def pod(
    name: str,
    *,
    claims: Mapping[str, str] | None = None,
    limits: Mapping[str, str | int] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container.

    Args:
        name: The pod's name.
        claims: Name in the pod to name of the ResourceClaimTemplate; the container uses all.
        limits: Of the container; requests follow by themselves.
        spec: More fields of the pod's spec.
    """
    uses = [{"name": each} for each in claims or ()]
    resources: Object = {"limits": dict(limits or {}), "claims": uses}
    container = {"name": "main", "image": IMAGE, "resources": resources}
    sources = [
        {"name": each, "resourceClaimTemplateName": template}
        for each, template in (claims or {}).items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": sources, **spec},
    }


def claim_template(name: str, device_class: str, *, count: int = 1) -> Object:
    """A ResourceClaimTemplate that asks for whole devices of a class."""
    exactly = {"deviceClassName": device_class, "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
