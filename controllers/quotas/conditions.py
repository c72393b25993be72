"""The conditions of a DeviceQuota: Accepted, Enforced, AlertThresholdReached and UsageIncomplete.

Source: docs/quota.md; meta/v1 Condition.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

import msgspec

from controllers.model.conditions import dated_condition
from findings.text import count_text, join_names, printable, shorten
from kube.api.device_quota import DeviceQuotaStatus
from kube.api.policy import MAX_MESSAGE, Condition
from quotas.device_quotas.ledger import DeviceQuotaLedger
from quotas.device_quotas.limit_sums import LimitSums
from quotas.device_quotas.limits import Limit
from quotas.device_quotas.tenants import Account

MAX_LISTED: Final = 5
"""Limits or drivers in one message."""


class ConditionType(StrEnum):
    """The type of a condition; the text under each is the meaning of status True."""

    ACCEPTED = "Accepted"
    """Every limit can be evaluated."""
    ENFORCED = "Enforced"
    """No pod gets more than the limits allow."""
    ALERT_THRESHOLD_REACHED = "AlertThresholdReached"
    """Some limit is used above its threshold."""
    USAGE_INCOMPLETE = "UsageIncomplete"
    """The amounts of some devices in use, or of some claims, are not known."""


class ConditionReason(StrEnum):
    """The reason of a condition."""

    ACCEPTED = "Accepted"
    INVALID_SELECTOR = "InvalidSelector"
    """A selector does not compile; its limit lets nothing through."""
    SELECTOR_BUDGET_SPENT = "SelectorBudgetSpent"
    """The selectors of a limit take too many steps for the devices there are; it lets nothing through."""
    ENFORCED = "Enforced"
    AUDIT = "Audit"
    """The quota only reports."""
    BRIDGE_NOT_SERVING = "BridgeNotServing"
    """The bridge owns a driver, and does not say that it serves it."""
    NO_GATES = "NoGates"
    """Nothing holds pods back that use a driver of another scheduler."""
    BELOW_THRESHOLD = "BelowThreshold"
    THRESHOLD_REACHED = "ThresholdReached"
    COMPLETE = "Complete"
    DEVICES_NOT_PUBLISHED = "DevicesNotPublished"
    """No ResourceSlice has a device in use any more."""
    CLAIMS_NOT_EVALUATED = "ClaimsNotEvaluated"
    """Selectors of claims have no verdict yet."""


class ConditionState(msgspec.Struct, frozen=True):
    """A condition without its time."""

    type: ConditionType
    status: str
    reason: ConditionReason
    message: str

    def condition(self, before: DeviceQuotaStatus | None, generation: int, now: str) -> Condition:
        """Return the condition with the time since when its status has been the same.

        Args:
            before: The stored status.
            generation: The quota's generation.
            now: RFC 3339, in whole seconds.
        """
        condition = Condition(
            type=self.type.value,
            status=self.status,
            reason=self.reason.value,
            message=shorten(printable(self.message), MAX_MESSAGE),
            observed_generation=generation,
        )
        return dated_condition(condition, before.conditions if before is not None else None, now)


class Deciders(msgspec.Struct, frozen=True, kw_only=True):
    """The deciders about pods of a cluster.

    Attributes:
        owned_drivers: The drivers that the bridge owns.
        bridge_fault: The reason why the bridge does not serve them; empty if it does.
        gate_fault: The reason why pods of other schedulers are not held back; empty if they are.
    """

    owned_drivers: frozenset[str] = frozenset()
    bridge_fault: str = ""
    gate_fault: str = ""


def accepted_condition(limits: Iterable[Limit]) -> ConditionState:
    """Return the condition that every limit can be evaluated."""
    faults = [limit.devices.fault for limit in limits if limit.devices.fault is not None]
    type_ = ConditionType.ACCEPTED
    if not faults:
        return ConditionState(type_, "True", ConditionReason.ACCEPTED, "every limit is evaluated")
    texts = [f"{fault.path}: {fault.why}" for fault in faults]
    is_spent = all(fault.is_spent for fault in faults)
    return ConditionState(
        type_,
        "False",
        ConditionReason.SELECTOR_BUDGET_SPENT if is_spent else ConditionReason.INVALID_SELECTOR,
        f"{join_names(texts, MAX_LISTED)}; a limit that cannot be evaluated lets nothing through",
    )


def enforced_condition(limits: Sequence[Limit], deciders: Deciders) -> ConditionState:
    """Return the condition that no pod gets more than the limits allow."""
    type_, no = ConditionType.ENFORCED, "False"
    if not all(limit.is_enforced for limit in limits):
        message = "spec.enforcement is Audit: usage is reported, and no pod is held back"
        return ConditionState(type_, no, ConditionReason.AUDIT, message)
    drivers = {limit.driver for limit in limits}
    owned = sorted(drivers & deciders.owned_drivers)
    by_keys = {limit.driver for limit in limits if limit.legacy_keys}
    others = sorted((drivers - deciders.owned_drivers) | by_keys)
    if owned and deciders.bridge_fault:
        message = f"the bridge owns {join_names(owned, MAX_LISTED)}; {deciders.bridge_fault}"
        return ConditionState(type_, no, ConditionReason.BRIDGE_NOT_SERVING, message)
    if others and deciders.gate_fault:
        message = (
            f"other schedulers allocate {join_names(others, MAX_LISTED)}; {deciders.gate_fault}"
        )
        return ConditionState(type_, no, ConditionReason.NO_GATES, message)
    parts = [
        *([f"the bridge decides about {join_names(owned, MAX_LISTED)}"] if owned else []),
        *(
            [f"pods that use {join_names(others, MAX_LISTED)} are let through one by one"]
            if others
            else []
        ),
    ]
    return ConditionState(type_, "True", ConditionReason.ENFORCED, "; ".join(parts))


def threshold_condition(sums: Iterable[LimitSums]) -> ConditionState:
    """Return the condition that some account is used, or promised, above the threshold of its limit."""
    type_ = ConditionType.ALERT_THRESHOLD_REACHED
    reached: dict[str, str] = {}
    for of_limit in sums:
        limit = of_limit.limit
        for account, totals in islice(of_limit.above_threshold, 1):
            place = f" in namespace {account.namespace}" if account.namespace else ""
            reached[limit.name] = (
                f"limit {limit.name}: {limit.in_words(totals.committed)} of "
                f"{limit.max} used or promised{place}, above {limit.alert_percent} %"
            )
    if reached:
        message = join_names(list(reached.values()), MAX_LISTED)
        return ConditionState(type_, "True", ConditionReason.THRESHOLD_REACHED, message)
    message = "every limit is used below its threshold"
    return ConditionState(type_, "False", ConditionReason.BELOW_THRESHOLD, message)


def incomplete_condition(
    accounts: Iterable[Account], ledger: DeviceQuotaLedger, outstanding: Collection[object]
) -> ConditionState:
    """Return the condition that some amounts are not known.

    Args:
        outstanding: The claims of the quota's namespaces without a charge yet.
    """
    type_ = ConditionType.USAGE_INCOMPLETE
    if outstanding:
        message = f"the selectors of {count_text(len(outstanding), 'claim')} are not evaluated yet"
        return ConditionState(type_, "True", ConditionReason.CLAIMS_NOT_EVALUATED, message)
    limits = dict.fromkeys(
        account.limit.name for account in accounts if not ledger.is_complete(account)
    )
    if limits:
        message = (
            f"limit {join_names([*limits], MAX_LISTED)}: devices in use are not published any more; each counts as much "
            "as the largest that is"
        )
        return ConditionState(type_, "True", ConditionReason.DEVICES_NOT_PUBLISHED, message)
    message = "the amounts of all devices in use are known"
    return ConditionState(type_, "False", ConditionReason.COMPLETE, message)
