"""Hints about classes and claims that are written in a way that people copy from old examples.

The allocator treats such objects as Kubernetes does: they fail, or select nothing. A hint says why.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from allocator.pod_claims import pod_name
from kube.api.core import Pod
from kube.api.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimTemplate,
)
from webhook.legacy import containers, device_keys

_BARE: Final = re.compile(r"(?<![\w.\"'])(attributes|capacity)\s*\[")
_TYPED: Final = re.compile(
    r"\]\s*(?:\.\w+|\[[^]]*\])\.(string|int|bool|version|stringValue|intValue|boolValue|value)\b(?!\()"
)
_NO_DOMAIN: Final = re.compile(r"device\.(attributes|capacity)\[\s*([\"'])([^\"'./]+)\2\s*\]")
_DOTTED: Final = re.compile(r"device\.(attributes|capacity)\.(\w+)")


def hints(
    classes: Mapping[str, DeviceClass],
    claims: Iterable[ResourceClaim] = (),
    templates: Iterable[ResourceClaimTemplate] = (),
) -> list[str]:
    """Return what to change, each hint once."""
    return list(dict.fromkeys((*_of_classes(classes), *_of_claims(claims, templates))))


def legacy_hints(pod: Pod, mapped: Collection[str]) -> list[str]:
    """Return what to know of a pod that asks for devices in the manner of device plugins.

    Args:
        mapped: Extended resources that a DeviceClass maps.
    """
    keys = {key for _, container in containers(pod) for key in device_keys(container)}
    names = ", ".join(sorted(keys.difference(mapped)))
    if not names:
        return []
    return [
        (
            f"Pod {pod.metadata.namespace}/{pod_name(pod)}: {names} can only come from a device plugin,"
            " which is not looked at; `drawbridge translate` writes claims instead"
        )
    ]


def _of_classes(classes: Mapping[str, DeviceClass]) -> Iterator[str]:
    for name, each in sorted(classes.items()):
        yield from _of_selectors(f"DeviceClass {name}", each.spec.selectors)


def _of_claims(
    claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]
) -> Iterator[str]:
    for claim in claims:
        place = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
        yield from _of_claim(place, claim.spec.devices)
    for template in templates:
        place = f"ResourceClaimTemplate {template.metadata.namespace}/{template.metadata.name}"
        yield from _of_claim(place, template.spec.spec.devices)


def _of_claim(place: str, devices: DeviceClaim) -> Iterator[str]:
    for request in devices.requests or ():
        yield from _of_request(f"{place}, request {request.name}", request)


def _of_request(place: str, request: DeviceRequest) -> Iterator[str]:
    if request.exactly is None and not request.first_available:
        yield (
            f"{place}: since v1beta2 deviceClassName, selectors and count stand below `exactly:`; "
            "here it is missing, so nothing is asked for"
        )
    for asked in (request.exactly, *(request.first_available or ())):
        if asked is not None:
            yield from _of_selectors(place, asked.selectors)


def _of_selectors(place: str, selectors: Iterable[DeviceSelector] | None) -> Iterator[str]:
    for selector in selectors or ():
        if selector.cel is not None:
            for hint in _of_expression(selector.cel.expression):
                yield f"{place}: {hint}"


def _of_expression(expression: str) -> Iterator[str]:
    """Yield what is copied wrongly in an expression.

    >>> list(_of_expression('attributes["gpu.example.com"].model.string == "H100"'))[0]
    'write device.attributes[...], there is no variable attributes'
    """
    if bare := _BARE.search(expression):
        yield f"write device.{bare[1]}[...], there is no variable {bare[1]}"
    if typed := _TYPED.search(expression):
        yield f"leave out .{typed[1]}: an attribute is its value already"
    if lone := _NO_DOMAIN.search(expression):
        yield (
            f"device.{lone[1]}[...] takes the domain first, which is mostly the driver's name: "
            f'device.{lone[1]}["DOMAIN"].{lone[3]}'
        )
    if dotted := _DOTTED.search(expression):
        yield (
            f'write device.{dotted[1]}["DOMAIN"].{dotted[2]}; the domain is mostly the driver\'s name'
        )
