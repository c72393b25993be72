"""CEL selectors of claims, classes and policies: do they compile, and can they be true.

What our engine cannot judge is never told as a fault. Expressions that compile and fail on every
device that they look at are as wrong as those that do not.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go. Frequent mistakes copied from
slides and older guides get a cure of their own.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from allocator.core.model import Features
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClaim, DeviceClass, DeviceSelector
from kube.cel.compile import Environment, compile_selector
from kube.cel.device import DeviceView
from kube.cel.literal import quote
from kube.errors import InvalidSelector, NotBoolean, SelectorFailed, UnsupportedSelector
from webhook.findings import Code, Finding, error, shown, warning
from webhook.rules.asked import MAX_CHARACTERS, asked, at
from webhook.rules.claim import every_asked
from webhook.rules.context import Context
from webhook.rules.rule import (
    BUILT_IN,
    NO_COMPILER,
    ClaimRule,
    Class,
    ClassRule,
    InServer,
    Part,
    PolicyRule,
    Subject,
)

Placed = tuple[str, str]
"""The path of an expression, and its text."""

MAX_JUDGED: Final = 256
"""Expressions of one object; a claim may have 32 requests of 8 alternatives with 32 selectors."""

_NAME: Final = r"""(?:\.\w+|\[\s*(?:"[^"]*"|'[^']*')\s*\])"""
_DOMAIN: Final = r"""device\s*\.\s*attributes\s*\[\s*(?:"[^"]*"|'[^']*')\s*\]"""
MEMBER: Final = rf"{_DOMAIN}\s*{_NAME}\s*\.(?:string|int|bool|version)\b(?!\s*\()"
"""The API's spelling of a value, which CEL has not: there the attribute is the value."""
_MEMBER: Final = re.compile(MEMBER)
_TOP_LEVEL: Final = re.compile(r"(?<![\w.])(?:attributes|capacity|driver)\s*[\[.=!]")
_ENGINE: Final = re.compile(r"compilation failed: ERROR: <input>:\d+:\d+: | \(in container ''\)")
"""Words of the engine that tell users nothing."""
_COMPARED: Final = re.compile(r"found no matching overload for '_([<>]=?)_'.*Quantity")
_OTHER_DEVICE: Final = DeviceView(driver="another.driver.invalid")

_RETIRED: Final[dict[tuple[str, str], str]] = {
    ("gpu.nvidia.com", "index"): "uuid",
    ("gpu.nvidia.com", "minor"): "uuid",
    ("gpu.nvidia.com", "parentIndex"): "parentUUID",
    ("gpu.nvidia.com", "pcieBusID"): 'device.attributes["resource.kubernetes.io"].pciBusID',
}
"""Attributes that drivers no longer publish, to those that replace them."""


def of_claim(claim: Subject[DeviceClaim], path: str) -> Iterator[Placed]:
    """Yield every expression of a claim."""
    for one in asked(claim.view):
        yield from _of_selectors(one.request.selectors, at(path, one.path, "selectors"))


def of_class(device_class: Subject[DeviceClass], path: str) -> Iterator[Placed]:
    """Yield every expression of a class."""
    yield from _of_selectors(device_class.view.spec.selectors, at(path, "spec.selectors"))


def of_policy(policy: Subject[DeviceCompatibilityPolicy], path: str) -> Iterator[Placed]:
    """Yield every expression of a policy."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        place = at(path, f"spec.rules[{index}]")
        yield from _of_selectors(rule.selectors, f"{place}.selectors")
        if rule.compatible_only_with is not None and rule.compatible_only_with.cel is not None:
            expression = rule.compatible_only_with.cel.expression
            yield f"{place}.compatibleOnlyWith.cel.expression", expression


def _of_selectors(selectors: Sequence[DeviceSelector] | None, path: str) -> Iterator[Placed]:
    for index, selector in enumerate(selectors or ()):
        if selector.cel is not None:
            yield f"{path}[{index}].cel.expression", selector.cel.expression


# --- does it compile ------------------------------------------------------------------------------


def claim_compiles(claim: Subject[DeviceClaim], path: str, context: Context) -> Iterator[Finding]:
    """Yield expressions of a claim that do not compile, and selectors that say nothing."""
    for one in asked(claim.view):
        yield from _empty(one.request.selectors, at(path, one.path, "selectors"))
    yield from _invalid(of_claim(claim, path), context.features)


def class_compiles(
    device_class: Subject[DeviceClass], path: str, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that do not compile, and selectors that say nothing."""
    yield from _empty(device_class.view.spec.selectors, at(path, "spec.selectors"))
    yield from _invalid(of_class(device_class, path), context.features)


def policy_compiles(
    policy: Subject[DeviceCompatibilityPolicy], path: str, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a policy that do not compile."""
    yield from _invalid(of_policy(policy, path), context.features)


def _empty(selectors: Sequence[DeviceSelector] | None, path: str) -> Iterator[Finding]:
    for index, selector in enumerate(selectors or ()):
        if selector.cel is None:
            yield error(
                Code.INVALID_SELECTOR,
                f"{path}[{index}]",
                "a selector needs cel.expression",
                "write the expression below cel",
            )


def _invalid(placed: Iterator[Placed], features: Features) -> Iterator[Finding]:
    for path, expression in _first(placed):
        message = fault(expression, environment(features))
        if message:
            said = f"{shown(expression)}: {message}"
            yield error(Code.INVALID_SELECTOR, path, said, _advice(expression, message))


def environment(features: Features) -> Environment:
    """Return how the API server reads a new expression."""
    return Environment.STORED if features.list_type_attributes else Environment.NEW


@lru_cache(maxsize=1024)
def fault(expression: str, how: Environment) -> str:
    """Return why an expression is none; empty where it is one, or where our engine cannot tell."""
    try:
        compile_selector(expression, how)
    except InvalidSelector as refusal:
        return _ENGINE.sub("", str(refusal))
    except UnsupportedSelector:
        return ""
    return ""


def _advice(expression: str, message: str) -> str:
    if _TOP_LEVEL.search(expression) and "undeclared reference" in message:
        return 'all is below device: device.attributes["domain"].name'
    if compared := _COMPARED.search(message):
        sign = compared[1]
        return f'compare quantities so: x.compareTo(quantity("1Gi")) {sign} 0'
    if "device.name" in expression or "device.pool" in expression:
        return "a selector sees driver, attributes, capacity and allowMultipleAllocations"
    if "must evaluate to bool" in message:
        return "compare it with what you want"
    return ""


def _first(placed: Iterator[Placed]) -> Iterator[Placed]:
    room = MAX_CHARACTERS
    for _, one in zip(range(MAX_JUDGED), placed, strict=False):
        room -= len(one[1])
        if room < 0:
            return
        yield one


def claim_partly(claim: Subject[DeviceClaim], path: str, _context: Context) -> Iterator[Finding]:
    """Yield a claim with more expressions than a review has time for."""
    number = sum(1 for _ in of_claim(claim, path))
    judged = sum(1 for _ in _first(of_claim(claim, path)))
    if number > judged:
        yield warning(
            Code.PARTLY_JUDGED,
            at(path, "requests"),
            f"of {number} expressions the first {judged} were judged",
            "make several claims",
        )


# --- does it fail on what it looks at -------------------------------------------------------------


def claim_members(claim: Subject[DeviceClaim], path: str, _context: Context) -> Iterator[Finding]:
    """Yield expressions of a claim that ask an attribute for the member that CEL has not."""
    yield from _members(of_claim(claim, path))


def class_members(
    device_class: Subject[DeviceClass], path: str, _context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that ask an attribute for the member that CEL has not."""
    yield from _members(of_class(device_class, path))


def policy_members(
    policy: Subject[DeviceCompatibilityPolicy], path: str, _context: Context
) -> Iterator[Finding]:
    """Yield expressions of a policy that ask an attribute for the member that CEL has not."""
    yield from _members(of_policy(policy, path))


def _members(placed: Iterator[Placed]) -> Iterator[Finding]:
    for path, expression in _first(placed):
        found = _MEMBER.search(expression)
        if found is not None:
            attribute, _, member = found[0].rpartition(".")
            yield error(
                Code.ATTRIBUTE_MEMBER,
                path,
                f"{shown(found[0])}: an attribute has no member {member}, so this fails on every"
                " device",
                f"write {attribute}",
            )


def claim_retired(claim: Subject[DeviceClaim], path: str, context: Context) -> Iterator[Finding]:
    """Yield expressions of a claim that ask for an attribute that its driver gave up."""
    yield from _retired(of_claim(claim, path), context.features)


def class_retired(
    device_class: Subject[DeviceClass], path: str, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that ask for an attribute that its driver gave up."""
    yield from _retired(of_class(device_class, path), context.features)


def _retired(placed: Iterator[Placed], features: Features) -> Iterator[Finding]:
    for path, expression in _first(placed):
        for domain, identifier in sorted(_attributes(expression, environment(features))):
            instead = _RETIRED.get((domain, identifier))
            if instead is not None:
                yield warning(
                    Code.RETIRED_ATTRIBUTE,
                    path,
                    f"driver {domain} publishes no attribute {identifier} any more, and an"
                    " expression that asks for it fails",
                    f"use {instead}",
                )


@lru_cache(maxsize=1024)
def _attributes(expression: str, how: Environment) -> frozenset[tuple[str, str]]:
    try:
        return compile_selector(expression, how).attributes or frozenset()
    except (InvalidSelector, UnsupportedSelector):
        return frozenset()


def unguarded(
    device_class: Subject[DeviceClass], path: str, _context: Context
) -> Iterator[Finding]:
    """Yield the expression of a class that raises on devices of another driver.

    A selector that raises ends the attempt for the whole node, whoever's device it was.
    """
    for place, expression in _first(of_class(device_class, path)):
        try:
            if not compile_selector(expression, Environment.STORED).matches(_OTHER_DEVICE):
                return
        except NotBoolean:
            return
        except SelectorFailed as failure:
            yield warning(
                Code.UNGUARDED_SELECTOR,
                place,
                f"{shown(expression)} fails on devices of any other driver ({failure}), and"
                " keeps pods off the nodes that have them",
                'ask first: device.driver == "..." && ...',
            )
            return
        except (InvalidSelector, UnsupportedSelector):
            return


def everything(
    device_class: Subject[DeviceClass], path: str, _context: Context
) -> Iterator[Finding]:
    """Yield a class that any device of any driver belongs to."""
    if not device_class.view.spec.selectors:
        yield warning(
            Code.SELECTS_EVERYTHING,
            at(path, "spec.selectors"),
            "without a selector every device of every driver is in this class",
            'select the driver: device.driver == "..."',
        )


_IN_CEL: Final = r"device\\.attributes\\[[^\\]]*\\](\\.\\w+|\\[[^\\]]*\\])\\.(string|int|bool|version)($|[^\\w(])"
_NO_MEMBER: Final = f'!has(s.cel) || !s.cel.expression.matches("{_IN_CEL}")'
_MEMBER_MESSAGE: Final = (
    "an attribute is its value in CEL and has no member string, int, bool or version; leave it out"
)


def _no_retired() -> str:
    """Return CEL: the selector `s` asks for no attribute that its driver gave up."""
    by_domain: dict[str, list[str]] = {}
    for domain, identifier in sorted(_RETIRED):
        by_domain.setdefault(domain, []).append(identifier)
    tests = (
        "s.cel.expression.matches("
        + quote(rf"""\[\s*["']{re.escape(domain)}["']\s*\](\.\??|\[\??["'])({"|".join(names)})\b""")
        + ")"
        for domain, names in by_domain.items()
    )
    return f"!has(s.cel) || !({' || '.join(tests)})"


_RETIRED_MESSAGE: Final = "a selector asks for an attribute that its driver no longer publishes"

RULES: Final[tuple[ClaimRule | ClassRule | PolicyRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_SELECTOR,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=claim_compiles,
        cure='Selectors say `device.attributes["domain"].name == ...` and must be true or false.',
        why_not_cel=BUILT_IN,
    ),
    ClassRule(
        code=Code.INVALID_SELECTOR,
        part=Part.CLASS,
        rank=Class.WRONG,
        judge=class_compiles,
        cure='Selectors say `device.attributes["domain"].name == ...` and must be true or false.',
        why_not_cel=BUILT_IN,
    ),
    PolicyRule(
        code=Code.INVALID_SELECTOR,
        part=Part.POLICY,
        rank=Class.WRONG,
        judge=policy_compiles,
        cure="Expressions of policies are selectors; `device` is the other device.",
        why_not_cel=NO_COMPILER,
    ),
    ClaimRule(
        code=Code.PARTLY_JUDGED,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=claim_partly,
        cure="Make several claims; what is judged is what the message says.",
        why_not_cel="the API server judges all of them",
    ),
    ClaimRule(
        code=Code.ATTRIBUTE_MEMBER,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=claim_members,
        cure="Leave the member out: in CEL an attribute is its value.",
        cel=InServer(
            expression=every_asked(f"!has(ask.selectors) || ask.selectors.all(s, {_NO_MEMBER})"),
            message=_MEMBER_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.ATTRIBUTE_MEMBER,
        part=Part.CLASS,
        rank=Class.WRONG,
        judge=class_members,
        cure="Leave the member out: in CEL an attribute is its value.",
        cel=InServer(
            expression=f"!has(object.spec.selectors) || object.spec.selectors.all(s, {_NO_MEMBER})",
            message=_MEMBER_MESSAGE,
        ),
    ),
    PolicyRule(
        code=Code.ATTRIBUTE_MEMBER,
        part=Part.POLICY,
        rank=Class.WRONG,
        judge=policy_members,
        cure="Leave the member out: in CEL an attribute is its value.",
        why_not_cel="in our CRD it would cost more than rules may; the status of the policy says it",
    ),
    ClaimRule(
        code=Code.RETIRED_ATTRIBUTE,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=claim_retired,
        cure="Use the attribute that the driver publishes now.",
        cel=InServer(
            expression=every_asked(f"!has(ask.selectors) || ask.selectors.all(s, {_no_retired()})"),
            message=_RETIRED_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.RETIRED_ATTRIBUTE,
        part=Part.CLASS,
        rank=Class.ADVICE,
        judge=class_retired,
        cure="Use the attribute that the driver publishes now.",
        cel=InServer(
            expression="!has(object.spec.selectors)"
            f" || object.spec.selectors.all(s, {_no_retired()})",
            message=_RETIRED_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.UNGUARDED_SELECTOR,
        part=Part.CLASS,
        rank=Class.ADVICE,
        judge=unguarded,
        cure='Ask for the driver first: `device.driver == "..." && ...`.',
        why_not_cel=NO_COMPILER,
    ),
    ClassRule(
        code=Code.SELECTS_EVERYTHING,
        part=Part.CLASS,
        rank=Class.ADVICE,
        judge=everything,
        cure='Select the driver: `device.driver == "..."`.',
        cel=InServer(
            expression="has(object.spec.selectors) && object.spec.selectors.size() > 0",
            message="without a selector every device of every driver is in this class",
        ),
    ),
)
