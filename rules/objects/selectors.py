"""CEL selectors of claims, classes and policies that do not compile or cannot be true.

An expression that the engine does not support is never reported. An expression that compiles but
errors on every device is as invalid as one that does not compile.

Source: k8s.io/dynamic-resource-allocation v0.37.1, cel/compile.go. Frequent mistakes copied from
slides and older guides get a fix of their own.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import Device, DeviceClaim, DeviceClass, DeviceSelector
from kube.cel.compile import Environment, compile_ahead, compile_selector
from kube.cel.device import NamedDevice
from kube.cel.texts import blank_texts
from kube.errors import InvalidSelector, NotBoolean, SelectorFailed, UnsupportedSelector
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    NEEDS_COMPILER,
    Category,
    CelRule,
    ClaimRule,
    ClassRule,
    PolicyRule,
    Scope,
    Subject,
    cel_for_all_alternatives,
)
from rules.model.engine_words import without_engine_words
from rules.model.fatal_errors import WAYS_IN_CEL, is_fatal
from rules.model.literal_arguments import find_faulty_argument
from rules.model.quantity_comparisons import compare_quantities, write_comparison
from rules.model.requests import MAX_CHARACTERS, list_alternatives
from rules.model.retired_attributes import RETIRED, no_retired
from rules.model.selector_fixes import (
    COMPARED,
    QUALIFIED,
    separate_name,
    suggest_fix,
    with_separate_names,
)

LocatedExpression = tuple[FieldPath, str]
"""The path of an expression, and its text."""

MAX_EXPRESSIONS: Final = 256
"""Evaluated expressions of one object; a claim may have 32 requests of 8 alternatives with 32 selectors."""

_NAME: Final = r"""(?:\.\w+|\[\s*(?:"[^"]*"|'[^']*')\s*\])"""
_DOMAIN: Final = r"""device\s*\.\s*attributes\s*\[\s*(?:"[^"]*"|'[^']*')\s*\]"""
MEMBER: Final = rf"{_DOMAIN}\s*{_NAME}\s*\.(?:string|int|bool|version)\b(?!\s*\()"
"""The API's spelling of a value. In CEL the attribute itself is the value."""
_MEMBER: Final = re.compile(MEMBER)
_OTHER_DEVICE: Final = NamedDevice("another.driver.invalid", Device(name="device"))


def claim_expressions(claim: Subject[DeviceClaim], path: FieldPath) -> Iterator[LocatedExpression]:
    """Yield every expression of a claim."""
    for alternative in list_alternatives(claim.view):
        yield from _locate(
            alternative.request.selectors, path.join(alternative.path).child("selectors")
        )


def class_expressions(
    device_class: Subject[DeviceClass], path: FieldPath
) -> Iterator[LocatedExpression]:
    """Yield every expression of a class."""
    yield from _locate(device_class.view.spec.selectors, path.child("spec", "selectors"))


def policy_expressions(
    policy: Subject[DeviceCompatibilityPolicy], path: FieldPath
) -> Iterator[LocatedExpression]:
    """Yield every expression of a policy."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        place = path.child("spec", "rules", index)
        yield from _locate(rule.selectors, place.child("selectors"))
        if rule.compatible_only_with is not None and rule.compatible_only_with.cel is not None:
            expression = rule.compatible_only_with.cel.expression
            yield place.child("compatibleOnlyWith", "cel", "expression"), expression


def _locate(
    selectors: Sequence[DeviceSelector] | None, path: FieldPath
) -> Iterator[LocatedExpression]:
    for index, selector in enumerate(selectors or ()):
        if selector.cel is not None:
            yield path.child(index, "cel", "expression"), selector.cel.expression


# --- expressions that do not compile --------------------------------------------------------------


def find_invalid_claim_selectors(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a claim that do not compile, and empty selectors."""
    for alternative in list_alternatives(claim.view):
        yield from _empty(
            alternative.request.selectors, path.join(alternative.path).child("selectors")
        )
    yield from _invalid(claim_expressions(claim, path), context.features)


def find_invalid_class_selectors(
    device_class: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that do not compile, and empty selectors."""
    yield from _empty(device_class.view.spec.selectors, path.child("spec", "selectors"))
    yield from _invalid(class_expressions(device_class, path), context.features)


def find_invalid_policy_expressions(
    policy: Subject[DeviceCompatibilityPolicy], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a policy that do not compile."""
    yield from _invalid(policy_expressions(policy, path), context.features)


def _empty(selectors: Sequence[DeviceSelector] | None, path: FieldPath) -> Iterator[Finding]:
    for index, selector in enumerate(selectors or ()):
        if selector.cel is None:
            yield error(
                Code.INVALID_SELECTOR,
                path.child(index),
                "cel.expression is required",
                "put the expression below cel",
            )


def _invalid(expressions: Iterator[LocatedExpression], features: Features) -> Iterator[Finding]:
    located = list(evaluated_expressions(expressions))
    compile_ahead((expression for _, expression in located), environment(features))
    for path, expression in located:
        fault = compile_fault(expression, environment(features))
        if fault:
            message = f"{quote_text(expression)}: {fault}"
            compared = _with_compared_quantities(expression, fault, environment(features))
            fix = write_comparison(expression) if compared else suggest_fix(expression, fault)
            invalid = error(Code.INVALID_SELECTOR, path, message, fix)
            yield invalid.rewritten(expression, compared or with_separate_names(expression))
        elif (faulty := find_faulty_argument(expression)) is not None:
            devices = "every device" if faulty.is_fatal else "each device that it is evaluated on"
            message = f"{quote_text(faulty.call)} errors on {devices}: {faulty.need}"
            finding = error if faulty.is_fatal else warning
            invalid = finding(Code.INVALID_SELECTOR, path, message, faulty.fix)
            spelling = faulty.spellings[0] if len(faulty.spellings) == 1 else ""
            yield invalid.rewritten(
                expression, expression.replace(faulty.call, spelling) if spelling else ""
            )


def environment(features: Features) -> Environment:
    """Return the environment that the API server compiles a new expression in."""
    return Environment.STORED if features.list_type_attributes else Environment.NEW


@lru_cache(maxsize=256)
def compile_fault(expression: str, env: Environment) -> str:
    """Return the reason an expression does not compile; empty if it does, or if the engine cannot tell."""
    try:
        compile_selector(expression, env)
    except InvalidSelector as refusal:
        return without_engine_words(str(refusal))
    except UnsupportedSelector:
        return ""
    return ""


def _with_compared_quantities(expression: str, fault: str, env: Environment) -> str:
    """Return an expression with its comparisons of quantities in CEL's spelling; empty if it does not compile either."""
    if not COMPARED.search(fault):
        return ""
    text = compare_quantities(expression)
    return text if text != expression and not compile_fault(text, env) else ""


def evaluated_expressions(expressions: Iterator[LocatedExpression]) -> Iterator[LocatedExpression]:
    """Yield the expressions that one review evaluates."""
    characters = 0
    for path, expression in islice(expressions, MAX_EXPRESSIONS):
        characters += len(expression)
        if characters > MAX_CHARACTERS:
            return
        yield path, expression


def find_excess_expressions(
    claim: Subject[DeviceClaim], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield a claim with more expressions than one review evaluates."""
    number = sum(1 for _ in claim_expressions(claim, path))
    evaluated_count = sum(1 for _ in evaluated_expressions(claim_expressions(claim, path)))
    if number > evaluated_count:
        yield warning(
            Code.PARTIALLY_EVALUATED,
            path.child("requests"),
            f"only the first {evaluated_count} of {number} expressions were evaluated",
            "split it into several claims",
        )


# --- expressions that always error ----------------------------------------------------------------


def find_claim_members(
    claim: Subject[DeviceClaim], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield expressions of a claim that read a member that attributes do not have in CEL."""
    yield from _members(claim_expressions(claim, path))


def find_class_members(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that read a member that attributes do not have in CEL."""
    yield from _members(class_expressions(device_class, path))


def find_policy_members(
    policy: Subject[DeviceCompatibilityPolicy], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield expressions of a policy that read a member that attributes do not have in CEL."""
    yield from _members(policy_expressions(policy, path))


def _members(expressions: Iterator[LocatedExpression]) -> Iterator[Finding]:
    for path, expression in evaluated_expressions(expressions):
        qualified = [name for name in _outside_texts(QUALIFIED, expression) if _reads_member(name)]
        members = qualified or _outside_texts(_MEMBER, expression)
        if not members:
            continue
        fatal = is_fatal(expression, [member.span() for member in members])
        devices = "every device" if fatal else "each device that it is evaluated on"
        if qualified:
            reason = "domain and name of an attribute are separate"
            fixed, rewritten = separate_name(members[0]), with_separate_names(expression)
        else:
            fixed, _, member = members[0][0].rpartition(".")
            reason = f"an attribute has no member {member}"
            rewritten = expression.replace(members[0][0], fixed)
        finding = error if fatal else warning
        yield finding(
            Code.UNKNOWN_ATTRIBUTE_MEMBER,
            path,
            f"{quote_text(members[0][0])}: {reason}, so this errors on {devices}",
            f"write {fixed}",
        ).rewritten(expression, rewritten)


def _outside_texts(pattern: re.Pattern[str], expression: str) -> list[re.Match[str]]:
    """Return the matches of a pattern that do not begin in a string literal or a comment."""
    matches = list(pattern.finditer(expression))
    blanked = blank_texts(expression) if matches else ""
    return [match for match in matches if not blanked[match.start()].isspace()]


def _reads_member(qualified_name: re.Match[str]) -> bool:
    return qualified_name["map"] == "attributes" and qualified_name["member"] is not None


def find_claim_retired(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a claim that read an attribute that its driver no longer publishes."""
    yield from _retired_names(claim_expressions(claim, path), context.features)


def find_class_retired(
    device_class: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield expressions of a class that read an attribute that its driver no longer publishes."""
    yield from _retired_names(class_expressions(device_class, path), context.features)


def _retired_names(
    expressions: Iterator[LocatedExpression], features: Features
) -> Iterator[Finding]:
    for path, expression in evaluated_expressions(expressions):
        for domain, identifier in sorted(_referenced_attributes(expression, environment(features))):
            replacement = RETIRED.get((domain, identifier))
            if replacement is not None:
                yield warning(
                    Code.RETIRED_ATTRIBUTE,
                    path,
                    f"driver {domain} no longer publishes attribute {identifier}, so the"
                    " expression errors",
                    f"use {replacement} where that device is meant, or an attribute that all its devices have",
                )


def _referenced_attributes(expression: str, env: Environment) -> frozenset[tuple[str, str]]:
    try:
        return compile_selector(expression, env).attributes or frozenset()
    except (InvalidSelector, UnsupportedSelector):
        return frozenset()


def find_unguarded_selector(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield the expression of a class that errors on devices of another driver.

    A selector that errors fails the attempt on the whole node, whatever class the device is of.
    """
    for place, expression in evaluated_expressions(class_expressions(device_class, path)):
        try:
            (verdict,) = compile_selector(expression, Environment.STORED).verdicts((_OTHER_DEVICE,))
        except (InvalidSelector, UnsupportedSelector):
            return
        if isinstance(verdict, SelectorFailed) and not isinstance(verdict, NotBoolean):
            yield warning(
                Code.UNGUARDED_SELECTOR,
                place,
                f"{quote_text(expression)} errors on devices of other drivers ({verdict}), so"
                " nodes with such devices cannot be used",
                'check the driver first: device.driver == "..." && ...',
            )
        if verdict is not True:
            return


def find_empty_selectors(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield a class that every device of every driver belongs to."""
    if not device_class.view.spec.selectors:
        yield warning(
            Code.SELECTS_EVERYTHING,
            path.child("spec", "selectors"),
            "without selectors every device of every driver is in this class",
            'select the driver: device.driver == "..."',
        )


_IN_CEL: Final = (
    r"""^([^'\"]|'([^'\\\\]|\\\\.)*'|\"([^\"\\\\]|\\\\.)*\")*"""
    r"device\\.attributes\\[([^\\]]*\\](\\.\\w+|\\[[^\\]]*\\])|[^\\]]*/[^\\]]*\\])"
    r"\\.(string|int|bool|version)($|[^\\w(])"
)
_NO_MEMBER: Final = (
    f'!has(s.cel) || !s.cel.expression.matches("{_IN_CEL}")'
    f' || s.cel.expression.matches("{WAYS_IN_CEL}")'
)
_MEMBER_MESSAGE: Final = "an attribute has no member string, int, bool or version in CEL; remove it"


_RETIRED_MESSAGE: Final = "a selector reads an attribute that its driver no longer publishes"

RULES: Final[tuple[ClaimRule | ClassRule | PolicyRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_SELECTOR,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_claim_selectors,
        fix='Write selectors as `device.attributes["domain"].name == ...`, returning a boolean.',
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClassRule(
        code=Code.INVALID_SELECTOR,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_invalid_class_selectors,
        fix='Write selectors as `device.attributes["domain"].name == ...`, returning a boolean.',
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    PolicyRule(
        code=Code.INVALID_SELECTOR,
        scope=Scope.POLICY,
        category=Category.INVALID,
        validate=find_invalid_policy_expressions,
        fix="Write expressions of policies like selectors; `device` is the other device.",
        no_cel_reason=NEEDS_COMPILER,
    ),
    ClaimRule(
        code=Code.PARTIALLY_EVALUATED,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_excess_expressions,
        fix="Split it into several claims.",
        no_cel_reason="the API server compiles all of them",
    ),
    ClaimRule(
        code=Code.UNKNOWN_ATTRIBUTE_MEMBER,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_claim_members,
        fix="Remove the member: in CEL the attribute itself is the value.",
        cel=CelRule(
            expression=cel_for_all_alternatives(
                f"!has(ask.selectors) || ask.selectors.all(s, {_NO_MEMBER})"
            ),
            message=_MEMBER_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.UNKNOWN_ATTRIBUTE_MEMBER,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_class_members,
        fix="Remove the member: in CEL the attribute itself is the value.",
        cel=CelRule(
            expression=f"!has(object.spec.selectors) || object.spec.selectors.all(s, {_NO_MEMBER})",
            message=_MEMBER_MESSAGE,
        ),
    ),
    PolicyRule(
        code=Code.UNKNOWN_ATTRIBUTE_MEMBER,
        scope=Scope.POLICY,
        category=Category.INVALID,
        validate=find_policy_members,
        fix="Remove the member: in CEL the attribute itself is the value.",
        no_cel_reason="in the CRD it would exceed the cost limit; the status of the policy reports it",
    ),
    ClaimRule(
        code=Code.RETIRED_ATTRIBUTE,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_claim_retired,
        fix="Use the replacement that the driver publishes.",
        cel=CelRule(
            expression=cel_for_all_alternatives(
                f"!has(ask.selectors) || ask.selectors.all(s, {no_retired()})"
            ),
            message=_RETIRED_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.RETIRED_ATTRIBUTE,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_class_retired,
        fix="Use the replacement that the driver publishes.",
        cel=CelRule(
            expression="!has(object.spec.selectors)"
            f" || object.spec.selectors.all(s, {no_retired()})",
            message=_RETIRED_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.UNGUARDED_SELECTOR,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_unguarded_selector,
        fix='Check the driver first: `device.driver == "..." && ...`.',
        no_cel_reason=NEEDS_COMPILER,
    ),
    ClassRule(
        code=Code.SELECTS_EVERYTHING,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_empty_selectors,
        fix='Select the driver: `device.driver == "..."`.',
        cel=CelRule(
            expression="has(object.spec.selectors) && object.spec.selectors.size() > 0",
            message="without selectors every device of every driver is in this class",
        ),
    ),
)
