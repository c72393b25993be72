"""What a DeviceCompatibilityPolicy cannot mean by itself.

Whether its rules are symmetric, and ever true, is found on the published devices, by the validator.
"""

from collections.abc import Iterator
from typing import Final

from kube.api.policy import DeviceCompatibilityPolicy, in_force
from webhook.findings import Code, Finding, error, warning
from webhook.rules.asked import at
from webhook.rules.claim import twice
from webhook.rules.context import Context
from webhook.rules.rule import OTHER_OBJECTS, OUR_KIND, Class, Part, PolicyRule, Subject

MAX_GROUPS: Final = 2
"""Of one rule, as KEP-5963 allows a device on one counter set."""

Policy = Subject[DeviceCompatibilityPolicy]


def names(policy: Policy, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of rules that stand twice."""
    yield from twice((one.name for one in policy.view.spec.rules or ()), at(path, "spec.rules"))


def groups(policy: Policy, path: str, _context: Context) -> Iterator[Finding]:
    """Yield rules with more groups than a device may have, or one twice."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        found = rule.compatibility_groups or ()
        place = at(path, f"spec.rules[{index}].compatibilityGroups")
        if len(found) > MAX_GROUPS:
            yield error(
                Code.INVALID_GROUPS,
                place,
                f"{len(found)} groups, and a device has at most {MAX_GROUPS}",
            )
        if len(set(found)) < len(found):
            yield error(Code.INVALID_GROUPS, place, "a group stands twice", "name it once")


def says_nothing(policy: Policy, path: str, _context: Context) -> Iterator[Finding]:
    """Yield rules that neither group devices nor ask anything of others."""
    for index, rule in enumerate(policy.view.spec.rules or ()):
        only_with = rule.compatible_only_with
        if not rule.compatibility_groups and (only_with is None or only_with.cel is None):
            yield error(
                Code.RULE_SAYS_NOTHING,
                at(path, f"spec.rules[{index}]"),
                "the rule has neither compatibilityGroups nor compatibleOnlyWith, so it forbids nothing",
                "add one of them, or remove the rule",
            )


def taken(policy: Policy, path: str, context: Context) -> Iterator[Finding]:
    """Yield that another policy of the driver counts instead."""
    driver, own = policy.view.spec.driver, policy.view.metadata.name
    others = [one for one in context.policies if one.metadata.name != own]
    counting = in_force([*others, policy.view])[driver].metadata.name
    if counting != own:
        yield warning(
            Code.DRIVER_TAKEN,
            at(path, "spec.driver"),
            f"DeviceCompatibilityPolicy {counting} is about {driver} too and counts instead",
            f"change {counting}, or delete it",
        )


RULES: Final[tuple[PolicyRule, ...]] = (
    PolicyRule(
        code=Code.DUPLICATE_NAME,
        part=Part.POLICY,
        rank=Class.WRONG,
        judge=names,
        cure="Give each entry a name of its own.",
        why_not_cel=OUR_KIND,
    ),
    PolicyRule(
        code=Code.INVALID_GROUPS,
        part=Part.POLICY,
        rank=Class.WRONG,
        judge=groups,
        cure="Name at most two groups, each once.",
        why_not_cel=OUR_KIND,
    ),
    PolicyRule(
        code=Code.RULE_SAYS_NOTHING,
        part=Part.POLICY,
        rank=Class.WRONG,
        judge=says_nothing,
        cure="Give the rule groups or an expression, or remove it.",
        why_not_cel=OUR_KIND,
    ),
    PolicyRule(
        code=Code.DRIVER_TAKEN,
        part=Part.POLICY,
        rank=Class.ADVICE,
        judge=taken,
        cure="Say it in the older policy, or delete that one.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
