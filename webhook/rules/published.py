"""What claims ask for that nobody publishes: classes, devices, capacities.

Whether what is published is enough, on one node and all at once, is not decided here: that needs
the allocator's search. Here each request is looked at by itself, on the whole inventory.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from allocator.core.inventory import chain
from allocator.core.model import Expression
from kube.api.resource import DeviceClaim, DeviceClass, DeviceSelector
from webhook.findings import Code, Finding, shown, warning
from webhook.rules.asked import MAX_CHARACTERS, Asked, asked, at, characters, cost
from webhook.rules.claim import known, nearest
from webhook.rules.context import Context
from webhook.rules.inventory import Found
from webhook.rules.proof import standing, told
from webhook.rules.rule import OTHER_OBJECTS, ClaimRule, Class, ClassRule, Part, Subject

MAX_JUDGED: Final = 32
"""Ways to ask that are looked at in one claim."""

Claim = Subject[DeviceClaim]


def class_missing(claim: Claim, path: str, context: Context) -> Iterator[Finding]:
    """Yield classes that the state of the cluster does not have."""
    if not context.knows_classes:
        return
    for one in asked(claim.view):
        name = one.request.device_class_name
        if name and name not in context.classes:
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                at(path, one.path, "deviceClassName"),
                f"there is no DeviceClass {shown(name)} here",
                known(sorted(context.classes)),
            )


def claim_matches_nothing(claim: Claim, path: str, context: Context) -> Iterator[Finding]:
    """Yield requests that no published device answers, whichever alternative is taken."""
    ways = tuple(_found(claim, context))
    answered = {one.parent for one, _, found in ways if found.number or found.failed is not None}
    for one, device_class, _ in ways:
        if one.parent in answered:
            continue
        of_class = context.inventory.found(chain(_expressions(device_class.spec.selectors)))
        number, name = of_class.number, shown(device_class.metadata.name)
        if number:
            yield warning(
                Code.SELECTOR_MATCHES_NOTHING,
                at(path, one.path, "selectors"),
                f"{_none(number, 'published device')} of class {name} satisfies the selectors",
            )
        else:
            yield warning(
                Code.SELECTOR_MATCHES_NOTHING,
                at(path, one.path, "deviceClassName"),
                f"no published device is of class {name}",
            )


def selector_fails(claim: Claim, path: str, context: Context) -> Iterator[Finding]:
    """Yield selectors that raise on a published device, which ends the attempt for its node."""
    for one, _, found in _found(claim, context):
        if found.failed is not None:
            device, message = found.failed
            _, raised, why = message.partition("CEL runtime error: ")
            if not raised:
                continue  # It does not compile, or our engine cannot judge it.
            yield warning(
                Code.SELECTOR_FAILS,
                at(path, one.path, "selectors"),
                f"they fail on published device {device} ({why}), and may keep the pod off nodes that"
                " have such a device",
                "ask whether it is there first: has(device.attributes[...].name) && ...",
            )


def capacity_not_published(claim: Claim, path: str, context: Context) -> Iterator[Finding]:
    """Yield capacities that none of the devices has, by the literal name that slices use."""
    for one, _, found in _found(claim, context):
        capacity = one.request.capacity
        wanted = sorted((capacity and capacity.requests) or ())
        missing = [key for key in wanted if key not in found.capacities]
        if not missing or not found.number:
            continue
        by = standing(
            context,
            claim.namespace,
            drivers=found.drivers,
            classes=(one.request.device_class_name,),
            doubt="" if one.is_only else "another alternative may do",
        )
        for key in missing:
            yield from told(
                Code.CAPACITY_NOT_PUBLISHED,
                at(path, one.path, f"capacity.requests[{key}]"),
                f"{_none(found.number, 'selected device')} publishes a capacity {shown(key)}",
                by=by,
                fix=_spelt(key, found.capacities),
            )


def _none(number: int, what: str) -> str:
    """Return who does not, for a sentence.

    >>> _none(1, "published device"), _none(8, "published device")
    ('not even the only published device', 'none of the 8 published devices')
    """
    return f"none of the {number} {what}s" if number != 1 else f"not even the only {what}"


def _spelt(key: str, published: Iterable[str]) -> str:
    """Return advice, for names with and without a domain too: they are compared literally."""
    names = sorted(published)
    for name in names:
        if name.rpartition("/")[2] == key.rpartition("/")[2]:
            return f"write {shown(name)}, as slices have it"
    return nearest(key, names)


def class_matches_nothing(
    device_class: Subject[DeviceClass], path: str, context: Context
) -> Iterator[Finding]:
    """Yield a class that no published device belongs to, though its driver publishes some."""
    expressions = _expressions(device_class.view.spec.selectors)
    if not expressions or not context.inventory.devices:
        return
    if cost(device_class.view.spec.selectors) > MAX_CHARACTERS:
        return
    found = context.inventory.found(chain(expressions))
    drivers = {pool.driver for pool in context.inventory.pools}
    if (
        found.number
        or found.failed
        or not any(driver in each.text for driver in drivers for each in expressions)
    ):
        return
    yield warning(
        Code.SELECTOR_MATCHES_NOTHING,
        at(path, "spec.selectors"),
        f"{_none(len(context.inventory.devices), 'published device')} is of this class",
    )


def _found(claim: Claim, context: Context) -> Iterator[tuple[Asked, DeviceClass, Found]]:
    """Yield what selectors of class and request find, for every request of a known class."""
    if not context.inventory.devices or characters(claim.view) > MAX_CHARACTERS:
        return
    for _, one in zip(range(MAX_JUDGED), asked(claim.view), strict=False):
        device_class = context.classes.get(one.request.device_class_name)
        if device_class is not None:
            own = device_class.spec.selectors or ()
            selectors = (*own, *(one.request.selectors or ()))
            yield one, device_class, context.inventory.found(chain(_expressions(selectors)))


def _expressions(selectors: Iterable[DeviceSelector] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(text=selector.cel.expression, origin=f"selector {index}")
        for index, selector in enumerate(selectors or ())
        if selector.cel is not None
    )


RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.DEVICE_CLASS_MISSING,
        part=Part.CLAIM,
        rank=Class.NOW,
        judge=class_missing,
        cure="Install the driver that brings the class, or name one that is there.",
        why_not_cel=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.SELECTOR_MATCHES_NOTHING,
        part=Part.CLAIM,
        rank=Class.NOW,
        judge=claim_matches_nothing,
        cure="Compare the selectors with what slices publish.",
        why_not_cel=OTHER_OBJECTS,
    ),
    ClassRule(
        code=Code.SELECTOR_MATCHES_NOTHING,
        part=Part.CLASS,
        rank=Class.NOW,
        judge=class_matches_nothing,
        cure="Compare the selectors with what slices publish.",
        why_not_cel=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.SELECTOR_FAILS,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=selector_fails,
        cure="Ask first whether the attribute is there, with `has()`, or ask for the driver first.",
        why_not_cel=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.CAPACITY_NOT_PUBLISHED,
        part=Part.CLAIM,
        rank=Class.NEVER,
        judge=capacity_not_published,
        cure="Name a capacity literally as slices have it.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
