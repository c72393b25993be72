"""Compatibility policies, compiled: which rules a device falls under, and what rules say of it.

A device falls under every rule whose selectors are all true of it, and has to meet all of them:
expressions are joined by "and", of the groups of several rules it keeps those that all of them name,
perhaps none, with which it goes together with nobody. The order of rules means nothing.

Nothing here compares two devices: each expression is asked about each device, once per distinct
projection of a device on what the expression looks at, and a pair is judged from the answers
(allocator/compatibility/constraint.py). n devices and e expressions cost at most n times e evaluations.

What cannot be judged forbids: an expression that does not compile makes its devices unusable, one
that raises keeps the pair apart.
"""

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

import msgspec

from allocator.model.devices import PublishedDevice
from allocator.model.selectors import projection, referenced_fields
from findings.field_path import FieldPath
from kube.api.policy import (
    PHYSICAL_ATTRIBUTES,
    CompatibilityRule,
    DeviceCompatibilityPolicy,
    Enforcement,
    Scope,
    Undeclared,
)
from kube.api.resource import CelSelector
from kube.cel.compile import Environment, Selector, compile_selector
from kube.cel.device import device_view, qualify_name
from kube.errors import InvalidSelector, NotBoolean, SelectorFailed, UnsupportedSelector

_REMEMBERED: Final = 65536
"""Profiles and answers that a policy remembers; beyond that it starts anew."""


class FaultKind(StrEnum):
    """Why an expression gave no answer."""

    INVALID = "ruleInvalid"
    NOT_BOOLEAN = "ruleNotBoolean"
    FAILED = "ruleEvaluationError"
    UNJUDGED = "ruleNotJudged"


class RuleFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one expression of a policy, whatever the device.

    Attributes:
        path: Of the expression in the policy.
        kind: INVALID, or UNJUDGED where our engine cannot tell what upstream's could.
    """

    rule: str
    path: FieldPath
    kind: FaultKind
    why: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What one expression says of one device.

    Attributes:
        kind: Why it says nothing; `yes` is false then.
    """

    yes: bool = False
    kind: FaultKind | None = None
    why: str = ""


class UnevaluatedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of which nobody knows what it says of a device.

    Attributes:
        is_final: The device is unusable, even where it would be alone: the rule is broken for all
            devices. Else the rule's selector gave no answer on this one, which has to stay alone.
    """

    rule: str
    kind: FaultKind
    why: str
    is_final: bool = False


class Profile(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """All that one policy can know of a device; one object for all devices that are alike.

    Attributes:
        number: From 0; devices with one number are treated alike wherever they are.
        rules: Names of the rules that apply, in the policy's order.
        groups: Groups that its rules give it; None when none of them names groups.
        accepts: The expressions of its rules, as numbers; all must be true of every other device.
        answers: What every expression of the policy, by number, says of this device.
        doubts: Rules that may apply and cannot be judged.
    """

    number: int
    rules: tuple[str, ...]
    groups: frozenset[str] | None
    accepts: tuple[int, ...]
    answers: tuple[Evaluation, ...]
    doubts: tuple[UnevaluatedRule, ...]

    @property
    def is_usable(self) -> bool:
        """Whether the device may be chosen at all."""
        return not any(doubt.is_final for doubt in self.doubts)


class CompiledRule(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A rule, ready to be asked.

    Attributes:
        selectors: Those that compile.
        groups: None when the rule names none.
        expression: Number of its `compatibleOnlyWith`; None without one, or when it is broken.
        selector_faults: Of selectors that do not compile: nobody knows whether the rule applies.
        expression_fault: Of the `compatibleOnlyWith`.
    """

    name: str
    selectors: tuple[Selector, ...]
    groups: frozenset[str] | None
    expression: int | None
    selector_faults: tuple[RuleFault, ...]
    expression_fault: RuleFault | None


def compile_policy(policy: DeviceCompatibilityPolicy) -> "CompiledPolicy":
    """Return a policy ready to judge devices; what is wrong with it is in `faults`."""
    return CompiledPolicy(policy)


class CompiledPolicy:
    """A policy ready to judge devices. Immutable but for what it remembers of devices.

    Attributes:
        source: As written.
        name: Of the policy.
        driver: Whose devices it is about.
        is_enforced: Whether it refuses; else it only tells what it would refuse.
        isolates: Whether devices without groups stay apart from devices with groups.
        is_pool_wide: Whether all devices of a pool are one neighbourhood.
        physical_attributes: (domain, identifier), in order.
        rules: In the policy's order.
        expressions: Distinct `compatibleOnlyWith`, by number.
        has_groups: Whether any rule names groups.
        faults: Expressions that do not compile, in the policy's order.
    """

    def __init__(self, policy: DeviceCompatibilityPolicy) -> None:
        """Compile every expression; `compile_policy` is the public way."""
        spec = policy.spec
        self.source = policy
        self.name = policy.metadata.name
        self.driver = spec.driver
        self.is_enforced = spec.enforcement != Enforcement.AUDIT
        self.isolates = spec.undeclared != Undeclared.COMPATIBLE
        self.is_pool_wide = spec.scope == Scope.POOL
        names = (
            PHYSICAL_ATTRIBUTES if spec.physical_attributes is None else spec.physical_attributes
        )
        self.physical_attributes = tuple(qualify_name(name, spec.driver) for name in names)
        self.expressions: list[Selector] = []
        self.rules = tuple(
            self._compiled(rule, FieldPath.of("spec", "rules", place))
            for place, rule in enumerate(spec.rules or ())
        )
        self.has_groups = any(rule.groups is not None for rule in self.rules)
        self.faults = tuple(fault for rule in self.rules for fault in _faults(rule))
        asked = [*self.expressions, *(one for rule in self.rules for one in rule.selectors)]
        self._places = referenced_fields(asked)
        self._places_by_text = {one.expression: referenced_fields([one]) for one in asked}
        self._profiles: dict[Hashable, Profile] = {}
        self._answers: dict[Hashable, Evaluation] = {}
        self._numbers: dict[Hashable, Profile] = {}

    def profile(self, published: PublishedDevice) -> Profile:
        """Return what the policy knows of a device of its driver."""
        key = projection(published, self._places)
        found = self._profiles.get(key)
        if found is None:
            if len(self._profiles) >= _REMEMBERED:
                self._profiles.clear()
                self._answers.clear()
            found = self._profiles[key] = self._made(published)
        return found

    def _made(self, published: PublishedDevice) -> Profile:
        answers = tuple(self._answer(each, published) for each in self.expressions)
        applying: list[CompiledRule] = []
        doubts: list[UnevaluatedRule] = []
        for rule in self.rules:
            applies, unsure = self._applies(rule, published)
            doubts += unsure
            if applies:
                applying.append(rule)
            if (applies or unsure) and rule.expression_fault is not None:
                doubts.append(_doubt(rule.expression_fault))
        named = [rule.groups for rule in applying if rule.groups is not None]
        groups = frozenset.intersection(*named) if named else None
        rules = tuple(rule.name for rule in applying)
        accepts = tuple(
            dict.fromkeys(rule.expression for rule in applying if rule.expression is not None)
        )
        known = (rules, groups, accepts, answers, tuple(doubts))
        return self._numbers.setdefault(
            known,
            Profile(
                number=len(self._numbers),
                rules=rules,
                groups=groups,
                accepts=accepts,
                answers=answers,
                doubts=tuple(doubts),
            ),
        )

    def _applies(
        self, rule: CompiledRule, published: PublishedDevice
    ) -> tuple[bool, list[UnevaluatedRule]]:
        """Return whether a device falls under a rule for certain, or what makes that unknown.

        As with "&&", one false selector decides, whatever the others do.
        """
        answers = [self._answer(each, published) for each in rule.selectors]
        if any(not answer.yes and answer.kind is None for answer in answers):
            return False, []
        doubts = [_doubt(fault) for fault in rule.selector_faults]
        doubts += [
            UnevaluatedRule(rule=rule.name, kind=answer.kind, why=answer.why)
            for answer in answers
            if answer.kind is not None
        ]
        return not doubts, doubts

    def _answer(self, selector: Selector, published: PublishedDevice) -> Evaluation:
        key = (
            selector.expression,
            projection(published, self._places_by_text[selector.expression]),
        )
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._evaluated(selector, published)
        return found

    def _evaluated(self, selector: Selector, published: PublishedDevice) -> Evaluation:
        try:
            return Evaluation(yes=selector.matches(device_view(self.driver, published.device)))
        except NotBoolean as error:
            return Evaluation(kind=FaultKind.NOT_BOOLEAN, why=str(error))
        except SelectorFailed as error:
            return Evaluation(kind=FaultKind.FAILED, why=str(error))
        except UnsupportedSelector as error:
            return Evaluation(kind=FaultKind.UNJUDGED, why=str(error))

    def _compiled(self, rule: CompatibilityRule, path: FieldPath) -> CompiledRule:
        selectors: list[Selector] = []
        faults: list[RuleFault] = []
        for place, selector in enumerate(rule.selectors or ()):
            made = _parsed(
                selector.cel, rule.name, path.child("selectors", place, "cel", "expression")
            )
            if isinstance(made, RuleFault):
                faults.append(made)
            else:
                selectors.append(made)
        only = rule.compatible_only_with
        expression: int | None = None
        fault: RuleFault | None = None
        if only is not None:
            made = _parsed(
                only.cel, rule.name, path.child("compatibleOnlyWith", "cel", "expression")
            )
            if isinstance(made, RuleFault):
                fault = made
            else:
                expression = self._numbered(made)
        return CompiledRule(
            name=rule.name,
            selectors=tuple(selectors),
            groups=frozenset(rule.compatibility_groups) if rule.compatibility_groups else None,
            expression=expression,
            selector_faults=tuple(faults),
            expression_fault=fault,
        )

    def _numbered(self, expression: Selector) -> int:
        for number, known in enumerate(self.expressions):
            if known.expression == expression.expression:
                return number
        self.expressions.append(expression)
        return len(self.expressions) - 1


def _parsed(cel: CelSelector | None, rule: str, path: FieldPath) -> Selector | RuleFault:
    if cel is None:
        # Some later kind of expression, which we cannot read.
        return RuleFault(rule=rule, path=path, kind=FaultKind.UNJUDGED, why="it is not CEL")
    try:
        return compile_selector(cel.expression, Environment.STORED)
    except InvalidSelector as error:
        return RuleFault(rule=rule, path=path, kind=FaultKind.INVALID, why=str(error))
    except UnsupportedSelector as error:
        return RuleFault(rule=rule, path=path, kind=FaultKind.UNJUDGED, why=str(error))


def _doubt(fault: RuleFault) -> UnevaluatedRule:
    return UnevaluatedRule(rule=fault.rule, kind=fault.kind, why=fault.why, is_final=True)


def _faults(rule: CompiledRule) -> tuple[RuleFault, ...]:
    last = () if rule.expression_fault is None else (rule.expression_fault,)
    return (*rule.selector_faults, *last)
