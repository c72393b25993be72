"""The enforcement of a DeviceCompatibilityPolicy by the schedulers and groups of a cluster.

kube-scheduler evaluates no policies. It evaluates compatibilityGroups in ResourceSlices where the
feature gate is on, so a policy is enforced where these reject all that it rejects. It is enforced for
drivers that the bridge owns, since nobody else may allocate their devices. Else it is enforced for the
pods of a scheduler that is configured as one that evaluates policies.

Source: docs/compatibility.md; KEP-5963 for groups.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.pairs import Occupancy, PolicyPool, counter_sets_of
from allocator.model.devices import PublishedDevice
from allocator.model.gated_pools import COMPATIBILITY_GATE
from allocator.model.scheduler_support import SchedulerSupport


class EnforcementReason(StrEnum):
    """The reason a policy is or is not enforced, as in its condition `Enforced`."""

    OWNED_DRIVER = "OwnedDriver"
    POLICY_AWARE_SCHEDULER = "PolicyAwareScheduler"
    COMPATIBILITY_GROUPS = "CompatibilityGroups"
    AUDIT = "Audit"
    NOT_ACCEPTED = "NotAccepted"
    NO_POLICY_AWARE_SCHEDULER = "NoPolicyAwareScheduler"


class PolicyEnforcement(msgspec.Struct, frozen=True, kw_only=True):
    """The enforcement of a policy, or the lack of it.

    Attributes:
        message: The component that enforces it, or the reason why none does.
        effect: The present effect of the policy; empty where it is enforced.
        fix: The step that would have it enforced; empty where it is enforced.
    """

    is_enforced: bool
    reason: EnforcementReason
    message: str
    effect: str = ""
    fix: str = ""


def policy_enforcement(
    policy: CompiledPolicy, support: SchedulerSupport, *, has_equivalent_groups: bool
) -> PolicyEnforcement:
    """Decide if the policy in force for a driver is enforced.

    Args:
        has_equivalent_groups: Published groups reject all that the policy rejects; see
            `groups_reject_the_same`.
    """
    if not policy.is_enforced:
        return PolicyEnforcement(
            is_enforced=False,
            reason=EnforcementReason.AUDIT,
            message="spec.enforcement is Audit",
            effect="nothing is rejected",
            fix="set spec.enforcement to Enforce",
        )
    if support.compatibility_groups and has_equivalent_groups:
        return PolicyEnforcement(
            is_enforced=True,
            reason=EnforcementReason.COMPATIBILITY_GROUPS,
            message=f"published compatibilityGroups reject what the policy rejects, and {COMPATIBILITY_GATE} is on",
        )
    if policy.driver in support.owned_drivers:
        return PolicyEnforcement(
            is_enforced=True,
            reason=EnforcementReason.OWNED_DRIVER,
            message="the bridge owns the driver and allocates by its policy; no other scheduler may "
            "allocate its devices",
        )
    if support.policy_aware:
        names = ", ".join(sorted(support.policy_aware))
        return PolicyEnforcement(
            is_enforced=True,
            reason=EnforcementReason.POLICY_AWARE_SCHEDULER,
            message=f"for pods with schedulerName {names}; other schedulers ignore policies",
        )
    return PolicyEnforcement(
        is_enforced=False,
        reason=EnforcementReason.NO_POLICY_AWARE_SCHEDULER,
        message="kube-scheduler ignores policies",
        effect="it may allocate devices that this one keeps apart; only claims that violate it by "
        "themselves are rejected",
        fix=f"give the driver to the bridge (drawbridge bridge own), publish compatibilityGroups that say the same (drawbridge matrix --as-groups) and "
        f"enable {COMPATIBILITY_GATE}, or schedule with a scheduler that evaluates policies and list it in "
        "policyAwareSchedulers",
    )


# --- groups of slices -----------------------------------------------------------------------------


def groups_reject_the_same(
    policy: CompiledPolicy, pools: Iterable[Sequence[PublishedDevice]]
) -> bool:
    """Return True if published groups reject every set of devices that a policy rejects.

    Groups relate devices of one counter set only, so the answer is no where the policy relates
    other devices. It is no without pools: nothing is published that could enforce it.

    Args:
        pools: The devices of each pool of the policy's driver.
    """
    answers = [_reject_the_same(policy, devices) for devices in pools]
    return bool(answers) and all(answers)


def _reject_the_same(policy: CompiledPolicy, devices: Sequence[PublishedDevice]) -> bool:
    if policy.is_pool_wide or not all(map(counter_sets_of, devices)):
        return False
    pool = PolicyPool(policy, devices)
    if any(pool.policy_device(device).profile.doubts for device in devices):
        return False
    for counter_set in sorted({name for device in devices for name in counter_sets_of(device)}):
        for members in _sets_that_groups_allow(counter_set, devices):
            occupancy = Occupancy(pool)
            for device in _two_of_each_kind(pool, members):
                occupancy.add(device)
            if any(True for _ in occupancy.inconsistent(("set", counter_set))):
                return False
    return True


def _sets_that_groups_allow(
    counter_set: str, devices: Collection[PublishedDevice]
) -> Iterator[list[PublishedDevice]]:
    """Yield the largest sets of devices of a counter set that may be in use together by groups."""
    members: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        for consumption in device.device.consumes_counters or ():
            if consumption.counter_set == counter_set:
                # Devices without groups are compatible with each other only.
                for group in consumption.compatibility_groups or ("",):
                    members.setdefault(group, []).append(device)
    yield from members.values()


def _two_of_each_kind(
    pool: PolicyPool, devices: Iterable[PublishedDevice]
) -> Iterator[PublishedDevice]:
    """Yield enough devices to find every conflict: at most two of those that are treated alike."""
    counts: dict[int, int] = {}
    for device in devices:
        kind = pool.policy_device(device).kind
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= 2:
            yield device
