"""Laws of a policy's status: pools that come, change and go leave nothing behind, in any order."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.devices import PoolId
from allocator.model.pools import whole_pool
from allocator.model.slice_index import build_index
from controllers.policies.status import (
    FEATURES,
    PolicyReport,
    differs_in_more_than_counts,
    usage_of,
)
from kube.api.policy import DeviceCompatibilityPolicy, DeviceCompatibilityPolicyStatus
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    attribute_of,
    consumes,
    counter_set,
    device,
    policy,
    result,
    rule,
    slice_of,
)

pytestmark = pytest.mark.property

NOW = "2026-11-20T12:00:00Z"
POOLS = ("a", "b", "c")
MODES = ("mig", "mps", "odd", "")
"""The modes of a device; "" for one without the attribute, so that rules may fail on it."""

Published = tuple[tuple[str, str], ...]
"""Mode and GPU of each device of a pool."""
Step = tuple[str, Published, frozenset[int]]
"""A pool, its devices (none: it goes), and which of them are in use."""

_devices = st.lists(
    st.tuples(st.sampled_from(MODES), st.sampled_from(("g0", "g1"))), max_size=5
).map(tuple)
steps = st.lists(
    st.tuples(st.sampled_from(POOLS), _devices, st.frozensets(st.integers(0, 4))), max_size=8
)


def _mode(name: str, *, careful: bool) -> str:
    attribute = f"device.attributes[{DRIVER!r}]"
    text = f'{attribute}.?mode.orValue("")' if careful else attribute_of("mode")
    return f'{text} == "{name}"'


policies = st.builds(
    lambda careful, accepts: policy(
        *(
            rule(
                mode,
                _mode(mode, careful=careful),
                only=" || ".join(_mode(accepted_mode, careful=careful) for accepted_mode in accept)
                or None,
            )
            for mode, accept in accepts.items()
        ),
        rule("all", groups=["x"]),
    ),
    st.booleans(),
    st.dictionaries(
        st.sampled_from(("mig", "mps")), st.frozensets(st.sampled_from(("mig", "mps")), max_size=2)
    ),
)


def claims(pool: str, held_indices: frozenset[int], count: int) -> list[ResourceClaim]:
    return [
        allocated_claim(result(f"d{number}", pool=pool), name=f"{pool}-{number}")
        for number in sorted(held_indices)
        if number < count
    ]


def check_step(report: PolicyReport, step: Step) -> None:
    """Let a report see one step."""
    pool, published, held_indices = step
    identity = PoolId(DRIVER, pool)
    if not published:
        report.forget(identity)
        return
    devices = [
        device(f"d{number}", consumes(gpu, x=1), attributes={"mode": mode} if mode else {})
        for number, (mode, gpu) in enumerate(published)
    ]
    sets = (counter_set("g0", x=4), counter_set("g1", x=4))
    slices = (
        slice_of(pool=pool, counters=sets, name=f"{pool}-sets", count=2),
        slice_of(*devices, pool=pool, count=2),
    )
    usage = usage_of(claims(pool, held_indices, len(published)))
    report.inspect(whole_pool(build_index(slices, FEATURES), identity), usage)


def status_of(report: PolicyReport) -> DeviceCompatibilityPolicyStatus:
    return report.status(None, report.policy.source, NOW)


@given(policies, steps)
def test_what_is_said_depends_on_what_is_there_and_not_on_how_it_came(
    policy_under_test: DeviceCompatibilityPolicy, given_steps: list[Step]
) -> None:
    report = PolicyReport(policy_under_test)
    for step in given_steps:
        check_step(report, step)
        status_of(report)  # It may remember what it said.
    last: Mapping[str, Step] = {step[0]: step for step in given_steps}
    fresh, reverse = PolicyReport(policy_under_test), PolicyReport(policy_under_test)
    for pool in sorted(last):
        check_step(fresh, last[pool])
    for pool in sorted(last, reverse=True):
        check_step(reverse, last[pool])

    assert status_of(fresh) == status_of(report) == status_of(reverse)


@given(policies, steps)
def test_a_status_that_is_said_again_is_the_same(
    policy_under_test: DeviceCompatibilityPolicy, given_steps: list[Step]
) -> None:
    report = PolicyReport(policy_under_test)
    for step in given_steps:
        check_step(report, step)
    first = status_of(report)

    again = report.status(first, policy_under_test, "2027-01-01T00:00:00Z")

    assert first == again
    assert not differs_in_more_than_counts(first, again)


@given(policies, steps)
def test_whoever_holds_devices_alone_breaks_nothing(
    policy_under_test: DeviceCompatibilityPolicy, given_steps: list[Step]
) -> None:
    report = PolicyReport(policy_under_test)
    for pool, published, held_indices in given_steps:
        check_step(report, (pool, published, frozenset(sorted(held_indices)[:1])))

    assert status_of(report).conflicts is None
