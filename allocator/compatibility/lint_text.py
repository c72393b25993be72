"""Findings that the text of a policy proves by itself, independent of the published devices.

Rules are evaluated on hypothetical devices: one for each combination of the texts that the policy
compares attributes with, another text, and no attribute. They stand for all devices whose attributes
are texts, as long as nothing but such comparisons decides an expression; nothing is claimed about
other expressions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import product
from math import prod
from typing import Final, NamedTuple

import msgspec

from allocator.compatibility.compile import (
    CompiledPolicy,
    CompiledRule,
    Evaluation,
    FaultKind,
    Profile,
    compile_policy,
)
from allocator.compatibility.lint_findings import SEVERITIES, Code, Place, PolicyFinding
from allocator.model.devices import DeviceId, PublishedDevice
from findings.field_path import FieldPath
from findings.text import join_names
from kube.api.policy import MAX_RULES, DeviceCompatibilityPolicy
from kube.api.resource import (
    Device,
    DeviceAttribute,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kube.cel.comparisons import compared_literals, is_decided_by_texts
from kube.cel.compile import Environment, Selector

MAX_EVALUATIONS: Final = 16_384
"""Hypothetical devices times expressions; where there are more, rules are not compared."""
MAX_NAMED: Final = 4
"""Rules that one message names."""
_SIMILAR: Final = 0.85
"""Ratio of difflib's SequenceMatcher from which one name may be a misspelling of another."""
_ACCEPTED: Final = Evaluation(yes=True)
_DIGITS: Final = re.compile(r"\d+")


def lint_text(policy: DeviceCompatibilityPolicy) -> tuple[PolicyFinding, ...]:
    """Return the findings about the text of a policy.

    All findings are warnings. Expressions that do not compile are left out, and so are policies with
    more rules than the API server accepts, since rules are compared in pairs.
    """
    if len(policy.spec.rules or ()) > MAX_RULES:
        return ()
    compiled_policy = compile_policy(policy)
    expressions = expressions_of(compiled_policy)
    findings = [
        *_contradictions(compiled_policy, expressions),
        *_misspellings(policy.spec.driver, expressions),
    ]
    order = {code: place for place, code in enumerate(Code)}
    return tuple(sorted(findings, key=lambda finding: (order[finding.code], str(finding.path))))


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """An expression of a policy that compiles.

    Attributes:
        rule: Index of its rule.
        rule_name: Name of its rule.
        is_selector: It selects the devices of the rule; else it is the `compatibleOnlyWith`.
        attributes: The attributes that the expression names; none where it may read any.
        texts: Attributes that it compares with texts, each with such a text.
        is_decided_by_texts: Hypothetical devices show all that it can say.
    """

    rule: int
    rule_name: str
    path: FieldPath
    is_selector: bool
    attributes: frozenset[Place]
    texts: tuple[tuple[Place, str], ...]
    is_decided_by_texts: bool


def expressions_of(policy: CompiledPolicy) -> tuple[Expression, ...]:
    """Return the expressions of a policy that compile, in its order."""
    return tuple(_expressions(policy))


def _expressions(policy: CompiledPolicy) -> Iterator[Expression]:
    sources = policy.source.spec.rules or ()
    for number, (rule, source) in enumerate(zip(policy.rules, sources, strict=True)):
        sound = {selector.expression: selector for selector in rule.selectors}
        for place, selector in enumerate(source.selectors or ()):
            if selector.cel is not None and selector.cel.expression in sound:
                path = _rule_path(number).child("selectors", place, "cel", "expression")
                yield _expression(rule, number, path, sound[selector.cel.expression])
        if rule.expression is not None:
            selector_of_others = policy.expressions[rule.expression]
            yield _expression(rule, number, _only_with_path(number), selector_of_others)


def _expression(rule: CompiledRule, number: int, path: FieldPath, selector: Selector) -> Expression:
    comparisons = compared_literals(selector.expression, Environment.STORED)
    return Expression(
        rule=number,
        rule_name=rule.name,
        path=path,
        is_selector=path != _only_with_path(number),
        attributes=selector.attributes or frozenset(),
        texts=tuple(
            ((comparison.domain, comparison.identifier), comparison.text)
            for comparison in comparisons
        ),
        is_decided_by_texts=is_decided_by_texts(selector.expression, Environment.STORED),
    )


def _rule_path(rule: int) -> FieldPath:
    return FieldPath.of("spec", "rules", rule)


def _only_with_path(rule: int) -> FieldPath:
    return _rule_path(rule).child("compatibleOnlyWith", "cel", "expression")


def _warning(code: Code, message: str, path: FieldPath, fix: str = "") -> PolicyFinding:
    return PolicyFinding(severity=SEVERITIES[code], code=code, message=message, path=path, fix=fix)


# --- rules that contradict each other, or themselves ----------------------------------------------


class _Rule(NamedTuple):
    """A rule that hypothetical devices show all of; sets of these devices are bit masks.

    Attributes:
        devices: The devices that the rule selects.
        accepted: The devices that satisfy the rule's `compatibleOnlyWith`.
        undecided: The devices for which our engine cannot decide the rule's `compatibleOnlyWith`.
        is_unconditional: It has no `compatibleOnlyWith`.
    """

    number: int
    name: str
    devices: int
    accepted: int
    undecided: int
    is_unconditional: bool

    def refuses_all(self, devices: int) -> bool:
        """Return True if the rule certainly refuses all of the given devices."""
        return not (self.accepted | self.undecided) & devices


def _contradictions(
    policy: CompiledPolicy, expressions: Sequence[Expression]
) -> Iterator[PolicyFinding]:
    profiles = _hypothetical_profiles(policy, expressions)
    if not profiles:
        return
    rules = tuple(_decided_rules(policy, expressions, profiles))
    for rule in rules:
        yield from _never_true(rule, expressions)
    conditional = [rule for rule in rules if not rule.is_unconditional]
    for refusing in conditional:
        accepting = [
            rule.name
            for rule in conditional
            if rule.accepted & refusing.devices and refusing.refuses_all(rule.devices)
        ]
        if accepting:
            yield _warning(
                Code.ASYMMETRIC_RULE,
                f"rule {refusing.name} accepts no device of {_enumerate_rules(accepting)}, although "
                "the reverse is true; they are incompatible",
                _only_with_path(refusing.number),
            )


def _enumerate_rules(rules: Sequence[str]) -> str:
    if len(rules) == 1:
        return f"rule {rules[0]}"
    return f"rules {join_names(rules, MAX_NAMED)}"


def _decided_rules(
    policy: CompiledPolicy, expressions: Sequence[Expression], profiles: Sequence[Profile]
) -> Iterator[_Rule]:
    """Yield the rules that compile and that nothing but texts decides."""
    undecided_rules = {
        expression.rule for expression in expressions if not expression.is_decided_by_texts
    }
    for number, rule in enumerate(policy.rules):
        is_broken = bool(rule.selector_faults) or rule.expression_fault is not None
        if number in undecided_rules or is_broken:
            continue
        answers = [
            profile.answers[rule.expression] if rule.expression is not None else _ACCEPTED
            for profile in profiles
        ]
        yield _Rule(
            number=number,
            name=rule.name,
            devices=_mask(rule.name in profile.rules for profile in profiles),
            accepted=_mask(answer.yes for answer in answers),
            undecided=_mask(answer.kind is FaultKind.NOT_EVALUATED for answer in answers),
            is_unconditional=rule.expression is None,
        )


def _mask(members: Iterable[bool]) -> int:
    return sum(1 << place for place, is_member in enumerate(members) if is_member)


def _never_true(rule: _Rule, expressions: Sequence[Expression]) -> Iterator[PolicyFinding]:
    own = [expression for expression in expressions if expression.rule == rule.number]
    selectors = [expression for expression in own if expression.is_selector]
    if selectors and not rule.devices:
        yield _warning(
            Code.NEVER_TRUE_RULE,
            f"rule {rule.name} selects no device: no attributes make its selectors true",
            selectors[0].path
            if len(selectors) == 1
            else _rule_path(rule.number).child("selectors"),
        )
    for expression in own:
        # A constant `false` is how one says that nothing may come beside a device.
        if (
            not (expression.is_selector or rule.accepted or rule.undecided)
            and expression.attributes
        ):
            yield _warning(
                Code.NEVER_TRUE_RULE,
                f"compatibleOnlyWith of rule {rule.name} is false for every device",
                expression.path,
                'write "false" if no other device may be in use beside its devices',
            )


def _hypothetical_profiles(
    policy: CompiledPolicy, expressions: Sequence[Expression]
) -> tuple[Profile, ...]:
    """Return the distinct profiles of hypothetical devices; none if there are too many."""
    texts: dict[Place, dict[str, None]] = {
        place: {} for expression in expressions for place in sorted(expression.attributes)
    }
    for expression in expressions:
        for place, text in expression.texts:
            texts.setdefault(place, {})[text] = None
    values = {
        place: (None, *known_texts, _other_than(known_texts))
        for place, known_texts in texts.items()
    }
    if prod(map(len, values.values())) * len(expressions) > MAX_EVALUATIONS:
        return ()
    profiles: dict[int, Profile] = {}
    for combination in product(*values.values()):
        device = _hypothetical(policy.driver, dict(zip(values, combination, strict=True)))
        profile = policy.profile(device)
        profiles[profile.number] = profile
    return tuple(profiles.values())


def _other_than(texts: Iterable[str]) -> str:
    """Return a text that is none of these."""
    return f"{max(texts, key=len, default='')}-other"


def _hypothetical(driver: str, attributes: Mapping[Place, str | None]) -> PublishedDevice:
    return PublishedDevice(
        id=DeviceId(driver, "", ""),
        device=Device(
            name="hypothetical",
            attributes={
                f"{domain}/{identifier}": DeviceAttribute(string=text)
                for (domain, identifier), text in attributes.items()
                if text is not None
            },
        ),
        slice=ResourceSlice(spec=ResourceSliceSpec(driver=driver, pool=ResourcePool(name=""))),
    )


# --- misspellings ---------------------------------------------------------------------------------


def _misspellings(driver: str, expressions: Sequence[Expression]) -> Iterator[PolicyFinding]:
    uses = Counter(place for expression in expressions for place in expression.attributes)
    for expression in expressions:
        for place in sorted(expression.attributes):
            likely = _likely_attribute(driver, place, uses)
            if likely is not None:
                yield _warning(
                    Code.UNKNOWN_ATTRIBUTE,
                    f"rule {expression.rule_name} reads {_place_name(place)}, which no other rule reads",
                    expression.path,
                    f"did you mean {_place_name(likely)}?",
                )
    texts_by_place: dict[Place, set[str]] = {}
    for expression in expressions:
        if expression.is_selector:
            for place, text in expression.texts:
                texts_by_place.setdefault(place, set()).add(text)
    for expression in expressions:
        for place, text in () if expression.is_selector else expression.texts:
            known_texts = texts_by_place.get(place, set())
            similar = _most_similar(text, known_texts) if text not in known_texts else None
            if similar is not None:
                yield _warning(
                    Code.UNKNOWN_LITERAL,
                    f'rule {expression.rule_name} accepts {_place_name(place)} "{text}", which no rule selects',
                    expression.path,
                    f'did you mean "{similar}"?',
                )


def _likely_attribute(driver: str, place: Place, uses: Mapping[Place, int]) -> Place | None:
    """Return the attribute that was probably meant; None if the name is no misspelling.

    Of two similar names that one is right which more expressions use; of a domain that is similar
    to the driver's name, the driver's.
    """
    domain, identifier = place
    if domain != driver and _most_similar(domain, (driver,)):
        return driver, identifier
    likely_names = [
        other for at, other in uses if at == domain and uses[at, other] > uses[place] == 1
    ]
    similar = _most_similar(identifier, likely_names)
    return None if similar is None else (domain, similar)


def _place_name(place: Place) -> str:
    return "/".join(place)


def _most_similar(name: str, known_names: Iterable[str]) -> str | None:
    """Return the known name that a name misspells; None if no known name is similar enough.

    Names that differ in their digits only are meant so.

    >>> _most_similar("MPSSharng", ["MPSSharing", "MIGSlicing"])
    'MPSSharing'
    >>> _most_similar("gpu-1", ["gpu-0"])
    """
    ratios = [
        (SequenceMatcher(a=name.lower(), b=other.lower()).ratio(), other)
        for other in sorted(known_names)
        if other != name and _DIGITS.sub("0", other) != _DIGITS.sub("0", name)
    ]
    ratio, similar = max(ratios, default=(0.0, ""))
    return similar if ratio >= _SIMILAR else None
