"""Contexts for tables: the objects besides the one that is validated."""

from typing import Any

from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from rules.context.context import Context
from rules.context.inventory import Inventory
from testing.documents import (
    EXAMPLE,
    NVIDIA,
    Document,
    attributes,
    cel,
    device,
    exactly,
    resource_slice,
)
from testing.rule_cases import NAMESPACE


def named_class(name: str, *expressions: str, **spec: Any) -> DeviceClass:
    document = {
        "metadata": {"name": name},
        "spec": {"selectors": [cel(expression) for expression in expressions], **spec},
    }
    return convert(document, DeviceClass)


def typed_device_class(name: str, type_: str) -> DeviceClass:
    """A class of NVIDIA's, in the words of its chart."""
    driver = f"device.driver == '{NVIDIA}'"
    return named_class(name, f"{driver} && device.attributes['{NVIDIA}'].type == '{type_}'")


CLASSES = (
    typed_device_class(NVIDIA, "gpu"),
    typed_device_class("mig.nvidia.com", "mig"),
    named_class("any.nvidia.com", f"device.driver == '{NVIDIA}'"),
    named_class(EXAMPLE, f"device.driver == '{EXAMPLE}'"),
    named_class("nobody.example.com", "device.driver == 'nobody.example.com'"),
)

GPUS = resource_slice(
    device("gpu-0", **attributes(model="small"), capacity={"memory": {"value": "40Gi"}}),
    device("gpu-1", **attributes(model="large", index=1), capacity={"memory": {"value": "80Gi"}}),
)
"""Two devices, of which one has an index."""


def context(*slices: Document, **more: Any) -> Context:
    """A cluster with these slices, and the classes above."""
    fields: dict[str, Any] = {
        "classes": {class_.metadata.name: class_ for class_ in CLASSES},
        "inventory": Inventory(convert(slice_, ResourceSlice) for slice_ in slices),
        "applied_together": True,
    }
    return Context(**fields | more)


def with_templates(**requests: tuple[str, ...]) -> Context:
    """A cluster with templates that have requests of these names."""
    templates = {
        (NAMESPACE, name): convert(
            {"spec": {"devices": {"requests": [exactly(request) for request in claim_requests]}}},
            ResourceClaim,
        ).spec.devices
        for name, claim_requests in requests.items()
    }
    return context(templates=templates, has_all_claims=True)
