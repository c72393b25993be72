"""Compiled compatibility policies: the rules that apply to a device, and their expressions' results.

A rule applies to a device if all its selectors are true of it. A device must satisfy all rules that
apply: every expression, and one group that all of them name. The order of rules does not matter.

Devices are not compared here: each expression is evaluated once per distinct projection of a device
on the fields that it reads, and `allocator.compatibility.pairs` compares two devices by the results.
So n devices and e expressions cost at most n times e evaluations.

Whatever cannot be evaluated rejects: an expression that does not compile makes its devices unusable,
one that fails makes two devices incompatible.
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
from kube.cel.compile import COST_PER_STEP, Environment, LocalSelector, compile_in_place
from kube.cel.device import device_view, qualify_name
from kube.cel.scope import current_scope
from kube.errors import InvalidSelector, NotBoolean, SelectorFailed, UnsupportedSelector

_MAX_CACHED: Final = 65536
"""Profiles and evaluations that a policy caches; beyond that the cache is cleared."""


class FaultKind(StrEnum):
    """The reason an expression has no result."""

    INVALID = "ruleInvalid"
    NOT_BOOLEAN = "ruleNotBoolean"
    FAILED = "ruleEvaluationError"
    NOT_EVALUATED = "ruleNotEvaluated"


class RuleFault(msgspec.Struct, frozen=True, kw_only=True):
    """The fault of an expression, independent of the device.

    Attributes:
        path: The path of the expression in the policy.
        kind: INVALID, or NOT_EVALUATED where our CEL engine does not support what upstream's does.
    """

    rule: str
    path: FieldPath
    kind: FaultKind
    why: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one expression on one device.

    Attributes:
        kind: The reason there is no result; `yes` is false then.
    """

    yes: bool = False
    kind: FaultKind | None = None
    why: str = ""


class UnevaluatedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that may apply to a device and that cannot be evaluated on it.

    Attributes:
        is_final: The device is unusable, since the rule does not compile. Else the rule's selector
            fails on this device, which is incompatible with all others.
    """

    rule: str
    kind: FaultKind
    why: str
    is_final: bool = False


class Profile(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The results of a policy on a device; one object for all devices with the same results.

    Attributes:
        number: The profile's number, from 0; devices with the same number get the same verdicts in
            every place.
        rules: Names of the rules that apply, in the policy's order.
        groups: Groups that all its rules name; None if none of them names groups.
        accepts: The expressions of its rules, as numbers; all must be true of every other device.
        owners: Names of the rules of `accepts`, in the same order; of equal expressions the first.
        answers: The results of all expressions of the policy on this device, by number.
        doubts: Rules that may apply and cannot be evaluated.
    """

    number: int
    rules: tuple[str, ...]
    groups: frozenset[str] | None
    accepts: tuple[int, ...]
    owners: tuple[str, ...]
    answers: tuple[Evaluation, ...]
    doubts: tuple[UnevaluatedRule, ...]

    @property
    def is_usable(self) -> bool:
        """Return True if the device may be chosen at all."""
        return not any(doubt.is_final for doubt in self.doubts)


class CompiledRule(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A rule, compiled.

    Attributes:
        selectors: The selectors that compile.
        groups: The groups that the rule names; None if it names none.
        expression: Number of its `compatibleOnlyWith`; None if it has none that compiles.
        selector_faults: The faults of selectors that do not compile, so it is unknown whether the
            rule applies.
        expression_fault: The fault of the `compatibleOnlyWith`.
    """

    name: str
    selectors: tuple[LocalSelector, ...]
    groups: frozenset[str] | None
    expression: int | None
    selector_faults: tuple[RuleFault, ...]
    expression_fault: RuleFault | None


def compile_policy(policy: DeviceCompatibilityPolicy) -> "CompiledPolicy":
    """Return a compiled policy; expressions that do not compile are in `faults`."""
    return CompiledPolicy(policy)


class CompiledPolicy:
    """A compiled policy. Immutable but for its cache of results.

    Attributes:
        source: The policy as written.
        name: The policy's name.
        driver: The driver of its devices.
        is_enforced: True if the policy rejects allocations; else it only reports those it would
            reject.
        isolates: True if devices without groups are incompatible with devices with groups.
        is_pool_wide: True if all devices of a pool are co-located.
        physical_attributes: The physical attributes as (domain, identifier), in order.
        rules: The compiled rules, in the policy's order.
        expressions: Distinct `compatibleOnlyWith`, by number.
        has_groups: True if any rule names groups.
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
        self.expressions: list[LocalSelector] = []
        self.rules = tuple(
            self._compile(rule, FieldPath.of("spec", "rules", place))
            for place, rule in enumerate(spec.rules or ())
        )
        self.has_groups = any(rule.groups is not None for rule in self.rules)
        self.faults = tuple(fault for rule in self.rules for fault in _faults(rule))
        selectors = [*self.expressions, *(own for rule in self.rules for own in rule.selectors)]
        self._places = referenced_fields(selectors)
        self._places_by_text = {
            selector.expression: referenced_fields([selector]) for selector in selectors
        }
        self._profiles: dict[Hashable, Profile] = {}
        self._answers: dict[Hashable, Evaluation] = {}
        self._numbers: dict[Hashable, Profile] = {}

    def profile(self, device: PublishedDevice) -> Profile:
        """Return the profile of a device of the policy's driver."""
        key = projection(device, self._places)
        profile = self._profiles.get(key)
        if profile is None:
            if len(self._profiles) >= _MAX_CACHED:
                self._profiles.clear()
                self._answers.clear()
            profile = self._profiles[key] = self._build_profile(device)
        return profile

    def _build_profile(self, device: PublishedDevice) -> Profile:
        answers = tuple(self._evaluate(expression, device) for expression in self.expressions)
        applying: list[CompiledRule] = []
        doubts: list[UnevaluatedRule] = []
        for rule in self.rules:
            applies, unsure = self._applies(rule, device)
            doubts += unsure
            if applies:
                applying.append(rule)
            if (applies or unsure) and rule.expression_fault is not None:
                doubts.append(_doubt(rule.expression_fault))
        group_names = [rule.groups for rule in applying if rule.groups is not None]
        groups = frozenset.intersection(*group_names) if group_names else None
        rules = tuple(rule.name for rule in applying)
        owners: dict[int, str] = {}
        for rule in applying:
            if rule.expression is not None:
                owners.setdefault(rule.expression, rule.name)
        accepts = tuple(owners)
        identity = (rules, groups, accepts, answers, tuple(doubts))
        return self._numbers.setdefault(
            identity,
            Profile(
                number=len(self._numbers),
                rules=rules,
                groups=groups,
                accepts=accepts,
                owners=tuple(owners.values()),
                answers=answers,
                doubts=tuple(doubts),
            ),
        )

    def _applies(
        self, rule: CompiledRule, device: PublishedDevice
    ) -> tuple[bool, list[UnevaluatedRule]]:
        """Return True if a rule certainly applies to a device, and the reasons for any doubt.

        As with "&&", one false selector decides, whatever the others do.
        """
        answers = [self._evaluate(selector, device) for selector in rule.selectors]
        if any(not answer.yes and answer.kind is None for answer in answers):
            return False, []
        doubts = [_doubt(fault) for fault in rule.selector_faults]
        doubts += [
            UnevaluatedRule(rule=rule.name, kind=answer.kind, why=answer.why)
            for answer in answers
            if answer.kind is not None
        ]
        return not doubts, doubts

    def _evaluate(self, selector: LocalSelector, device: PublishedDevice) -> Evaluation:
        key = (
            selector.expression,
            projection(device, self._places_by_text[selector.expression]),
        )
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._run(selector, device)
        return answer

    def _run(self, selector: LocalSelector, device: PublishedDevice) -> Evaluation:
        try:
            current_scope().meter.count(1 + selector.charge // COST_PER_STEP)
            return Evaluation(yes=selector.matches(device_view(self.driver, device.device)))
        except NotBoolean as error:
            return Evaluation(kind=FaultKind.NOT_BOOLEAN, why=str(error))
        except SelectorFailed as error:
            return Evaluation(kind=FaultKind.FAILED, why=str(error))
        except UnsupportedSelector as error:
            return Evaluation(kind=FaultKind.NOT_EVALUATED, why=str(error))

    def _compile(self, rule: CompatibilityRule, path: FieldPath) -> CompiledRule:
        selectors: list[LocalSelector] = []
        faults: list[RuleFault] = []
        for place, selector in enumerate(rule.selectors or ()):
            program = _compile_expression(
                selector.cel, rule.name, path.child("selectors", place, "cel", "expression")
            )
            if isinstance(program, RuleFault):
                faults.append(program)
            else:
                selectors.append(program)
        only = rule.compatible_only_with
        expression: int | None = None
        fault: RuleFault | None = None
        if only is not None:
            program = _compile_expression(
                only.cel, rule.name, path.child("compatibleOnlyWith", "cel", "expression")
            )
            if isinstance(program, RuleFault):
                fault = program
            else:
                expression = self._number_of(program)
        return CompiledRule(
            name=rule.name,
            selectors=tuple(selectors),
            groups=frozenset(rule.compatibility_groups) if rule.compatibility_groups else None,
            expression=expression,
            selector_faults=tuple(faults),
            expression_fault=fault,
        )

    def _number_of(self, expression: LocalSelector) -> int:
        for number, known_expression in enumerate(self.expressions):
            if known_expression.expression == expression.expression:
                return number
        self.expressions.append(expression)
        return len(self.expressions) - 1


def _compile_expression(
    cel: CelSelector | None, rule: str, path: FieldPath
) -> LocalSelector | RuleFault:
    if cel is None:
        # A kind of expression of a later version.
        return RuleFault(rule=rule, path=path, kind=FaultKind.NOT_EVALUATED, why="it is not CEL")
    try:
        return compile_in_place(cel.expression, Environment.STORED)
    except InvalidSelector as error:
        return RuleFault(rule=rule, path=path, kind=FaultKind.INVALID, why=str(error))
    except UnsupportedSelector as error:
        return RuleFault(rule=rule, path=path, kind=FaultKind.NOT_EVALUATED, why=str(error))


def _doubt(fault: RuleFault) -> UnevaluatedRule:
    return UnevaluatedRule(rule=fault.rule, kind=fault.kind, why=fault.why, is_final=True)


def _faults(rule: CompiledRule) -> tuple[RuleFault, ...]:
    last = () if rule.expression_fault is None else (rule.expression_fault,)
    return (*rule.selector_faults, *last)
