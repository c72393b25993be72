"""Neighbourhoods, tenants and enforcement; the verdicts themselves are in the worked rows."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.compatibility import constraint as compatibility
from allocator.compatibility.compile import compile_policy
from allocator.compatibility.constraint import MAX_DETAIL, PolicyConstraint, enforced_drivers
from allocator.compatibility.pairs import Clause, evaluate_devices, evaluate_pair
from allocator.model.devices import DeviceId, Pool
from allocator.model.outcome import Reason
from allocator.model.plan import Choice, Plan
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Consumer, DeviceUse, Usage
from kube.api.policy import DeviceCompatibilityPolicy, Enforcement, Scope, Undeclared
from kube.api.resource import Device
from testing.allocation.builders import (
    DRIVER,
    attribute_of,
    claim,
    consumes,
    counter_set,
    device,
    node_with,
    policy,
    pool_of,
    resolved_request,
    rule,
)

ALONE = policy(rule("alone", only="false"))
"""Whoever is a co-tenant of anybody is refused, so this shows who is a co-tenant."""
REQUEST = resolved_request()
ADMIN = resolved_request(admin=True)


# --- neighbourhoods -------------------------------------------------------------------------------


def named_device(on: Sequence[str] = (), **attributes: str) -> Device:
    return device("x", *(consumes(text) for text in on), attributes=attributes)


class Meeting(NamedTuple):
    name: str
    want: bool
    first: Device
    second: Device
    spec: Mapping[str, Any] = MappingProxyType({})


MEETINGS = (
    Meeting("a counter set in common", True, named_device(["a", "b"]), named_device(["b", "c"])),
    Meeting("no counter set in common", False, named_device(["a"]), named_device(["b"])),
    Meeting("counter sets beat attributes", False, named_device(["a"], uuid="1"), named_device(["b"], uuid="1")),
    Meeting("the same hardware", True, named_device(uuid="1"), named_device(uuid="1")),
    Meeting("other hardware", False, named_device(uuid="1"), named_device(uuid="2")),
    Meeting("a part and its whole", True, named_device(uuid="2", parentUUID="1"), named_device(uuid="1")),
    Meeting("a part of other hardware", False, named_device(uuid="1", parentUUID="2"), named_device(uuid="1")),
    Meeting("hardware under another name", True,
            named_device(serial="1"), named_device(serial="1"), {"physical_attributes": ("serial",)}),
    Meeting("a name with the driver's domain", False,
            named_device(serial="1"), named_device(serial="2"), {"physical_attributes": (f"{DRIVER}/serial",)}),
    Meeting("nothing tells the hardware of one", True, named_device(uuid="1"), named_device()),
    Meeting("nothing tells the hardware of either", True, named_device(), named_device()),
    Meeting("one consumes counters and one does not", True, named_device(["a"], uuid="1"), named_device(uuid="2")),
    Meeting("the whole pool", True, named_device(["a"]), named_device(["b"]), {"scope": Scope.POOL}),
)  # fmt: skip


@pytest.mark.parametrize("meeting", MEETINGS, ids=lambda meeting: meeting.name)
def test_who_are_co_tenants(meeting: Meeting) -> None:
    by = compile_policy(policy(rule("alone", only="false"), **meeting.spec))
    here, there = pool_of(meeting.first, msgspec.structs.replace(meeting.second, name="y")).devices

    assert meeting.want is not evaluate_pair(by, here, there).is_compatible


def test_devices_of_another_pool_or_driver_are_strangers() -> None:
    by = compile_policy(ALONE)
    pools = [pool_of(device("a")), pool_of(device("a"), pool="other")]
    foreign = pool_of(device("a"), device("b"), driver="nic.example.com")

    assert evaluate_devices([pool.devices[0] for pool in pools], by).is_compatible
    assert evaluate_devices(foreign.devices, by).is_compatible


def test_a_device_goes_together_with_itself() -> None:
    (single,) = pool_of(device("a")).devices

    assert evaluate_pair(compile_policy(ALONE), single, single).is_compatible


# --- groups of rules ------------------------------------------------------------------------------


def grouped_policy(undeclared: Undeclared = Undeclared.ISOLATED) -> DeviceCompatibilityPolicy:
    return policy(
        rule("soft", f'{attribute_of("?mode")}.orValue("") == "soft"', groups=["soft"]),
        rule("hard", f'{attribute_of("?mode")}.orValue("") == "hard"', groups=["hard"]),
        undeclared=undeclared,
    )


def of_mode(name: str, mode: str | None = None, groups: str | None = None) -> Device:
    attributes = {} if mode is None else {"mode": mode}
    return device(name, consumes(groups=groups), attributes=attributes)


@pytest.mark.parametrize(
    ("want", "undeclared", "devices"),
    [
        (True, Undeclared.ISOLATED, [of_mode("a", "soft"), of_mode("b", "soft")]),
        (False, Undeclared.ISOLATED, [of_mode("a", "soft"), of_mode("b", "hard")]),
        (False, Undeclared.ISOLATED, [of_mode("a", "soft"), of_mode("b")]),
        (True, Undeclared.ISOLATED, [of_mode("a"), of_mode("b")]),
        (True, Undeclared.COMPATIBLE, [of_mode("a", "soft"), of_mode("b")]),
        (False, Undeclared.COMPATIBLE, [of_mode("a", "soft"), of_mode("b", "hard")]),
        (False, Undeclared.ISOLATED, [of_mode("a", "soft", "x"), of_mode("b", "soft", "y")]),
        (False, Undeclared.ISOLATED, [of_mode("a", "soft", "x"), of_mode("b", "hard", "x")]),
        (True, Undeclared.COMPATIBLE, [of_mode("a", None, "x"), of_mode("b")]),
    ],
    ids=[
        "a common group of rules",
        "no common group of rules",
        "without groups beside with",
        "without groups beside without",
        "without groups beside with, where that is compatible",
        "no common group is never compatible",
        "groups of slices count beside those of rules",
        "and do not replace them",
        "what slices leave undeclared is compatible as well",
    ],
)
def test_groups_of_rules(want: bool, undeclared: Undeclared, devices: Sequence[Device]) -> None:
    by = compile_policy(grouped_policy(undeclared))

    assert want == evaluate_devices(pool_of(*devices).devices, by).is_compatible


def test_groups_of_two_entries_for_one_set_are_those_of_both() -> None:
    twice = device("a", consumes(groups="xy"), consumes(groups="yz"))
    x, y = device("b", consumes(groups="x")), device("c", consumes(groups="y"))
    a, b, c = pool_of(twice, x, y).devices
    by = compile_policy(policy())

    assert [False, True] == [
        evaluate_pair(by, first_device, a).is_compatible for first_device in (b, c)
    ]


@pytest.mark.parametrize(
    ("want", "devices"),
    [
        (Reason.GROUPS, [of_mode("a", None, "x"), of_mode("b", None, "y")]),
        (Reason.POLICY, [of_mode("a", "soft"), of_mode("b", "hard")]),
    ],
)
def test_groups_of_slices_and_of_rules_are_told_apart(
    want: Reason, devices: Sequence[Device]
) -> None:
    (cause,) = evaluate_devices(pool_of(*devices).devices, compile_policy(grouped_policy())).causes

    assert want is cause.reason


def test_groups_count_without_counters_too() -> None:
    devices = [
        device(name, attributes={"mode": mode, "uuid": uuid})
        for name, mode, uuid in (("a", "soft", "1"), ("b", "hard", "1"), ("c", "hard", "2"))
    ]
    a, b, c = pool_of(*devices).devices
    by = compile_policy(grouped_policy())

    (cause,) = evaluate_pair(by, b, a).causes

    assert (
        "device b has compatibility groups {hard} on hardware 1, devices in use there have {soft} in common"
        == cause.message
    )
    assert evaluate_pair(by, c, a).is_compatible


# --- the constraint ----------------------------------------------------------------------------------


def held_usage(pool: Pool, *names: str, namespace: str = "default", claims: int = 1) -> Usage:
    holders = tuple(
        Consumer(namespace=namespace, claim=f"secret-{number}", request="gpu")
        for number in range(claims)
    )
    return Usage(
        pools={pool.id: {name: DeviceUse(exclusive=True, consumers=holders) for name in names}}
    )


def tracked_policy_constraint(
    pool: Pool,
    *policies: DeviceCompatibilityPolicy,
    usage: Usage | None = None,
    admin: bool = False,
) -> PolicyConstraint:
    request = ADMIN if admin else REQUEST
    constraint = compatibility.build_constraint(
        node_with(pool),
        usage or Usage(),
        [compile_policy(policy_) for policy_ in policies],
        PendingClaims(claims=(claim(name="train"),), requests=(((request,),),)),
        {},
    )
    assert constraint is not None
    return constraint


def detail(constraint: PolicyConstraint, position: int, request: Request = REQUEST) -> str:
    refusal = constraint.rejection(request, position, further_share=False)
    return "" if refusal is None else refusal.predicate


PAIR = pool_of(device("a", consumes()), device("b", consumes()))


def test_no_tracker_without_a_policy_of_a_driver_of_the_node() -> None:
    pending_claims = PendingClaims(claims=(), requests=())
    foreign = compile_policy(policy(driver="nic.example.com"))

    assert (
        compatibility.build_constraint(node_with(PAIR), Usage(), [foreign], pending_claims, {})
        is None
    )


@pytest.mark.parametrize(
    ("want", "namespace", "claims"),
    [
        ("used by claim secret-0", "default", 1),
        ("used by claim secret-0, claim secret-1, claim secret-2, 2 more", "default", 5),
        ("used by a claim in another namespace", "team-b", 1),
        ("used by 5 claims in other namespaces", "team-b", 5),
    ],
)
def test_refusal_tells_holders_and_no_names_of_other_namespaces(
    want: str, namespace: str, claims: int
) -> None:
    usage = held_usage(PAIR, "a", namespace=namespace, claims=claims)

    message = detail(tracked_policy_constraint(PAIR, ALONE, usage=usage), 1)

    rule_ = "rule alone of DeviceCompatibilityPolicy policy"
    assert f"do not accept device a ({rule_}; {want})" == message


def test_refusal_names_the_rule_of_the_device_that_refuses() -> None:
    usage = held_usage(PAIR, "a")
    by = policy(rule("first", only="true"), rule("second", only="false"))

    message = detail(tracked_policy_constraint(PAIR, by, usage=usage), 1)

    assert "(rule second of DeviceCompatibilityPolicy policy; " in message


def test_refusal_by_the_groups_of_rules_names_the_policy() -> None:
    pool = pool_of(device("a", consumes()), device("b", consumes()))
    by_name = [rule(name, f'device.driver == "{DRIVER}"', groups=[name]) for name in ("x", "y")]
    usage = held_usage(pool, "a")

    message = detail(tracked_policy_constraint(pool, policy(*by_name), usage=usage), 1)

    assert "DeviceCompatibilityPolicy policy" in message


def test_refusal_tells_of_devices_chosen_in_the_same_attempt() -> None:
    constraint = tracked_policy_constraint(PAIR, ALONE)

    assert constraint.add(REQUEST, 0, further_share=False)

    assert "; used by request req-0 of this attempt)" in detail(constraint, 1)


def test_refusal_tells_of_devices_chosen_for_another_claim_of_the_attempt() -> None:
    pending_claims = PendingClaims(
        claims=(claim(name="train"), claim(name="test")), requests=(((REQUEST,),), ())
    )
    constraint = compatibility.build_constraint(
        node_with(PAIR), Usage(), [compile_policy(ALONE)], pending_claims, {}
    )
    assert constraint is not None

    assert constraint.add(REQUEST, 0, further_share=False)

    assert "; used by claim train of this attempt)" in detail(
        constraint, 1, resolved_request(claim=1)
    )


def test_refusal_is_bounded() -> None:
    long = "x" * 63
    names = [f"{long}-{number}" for number in range(20)]
    pool = pool_of(*(device(name, consumes("s" * 200, groups="a")) for name in names))
    usage = held_usage(pool, *names[1:], claims=3)
    by = policy(rule("one", only=f'{attribute_of("y" * 32)} == "{long}"'))

    assert len(detail(tracked_policy_constraint(pool, by, usage=usage), 0)) <= MAX_DETAIL


def test_a_further_share_is_not_compared_again() -> None:
    constraint = tracked_policy_constraint(PAIR, ALONE, usage=held_usage(PAIR, "a"))

    assert not constraint.add(REQUEST, 1, further_share=False)
    assert constraint.add(REQUEST, 1, further_share=True)
    assert constraint.rejection(REQUEST, 1, further_share=True) is None


def test_all_policies_of_a_driver_have_to_be_met() -> None:
    lenient = policy(rule("anything", only="true"), name="lenient")

    assert not tracked_policy_constraint(PAIR, lenient, ALONE, usage=held_usage(PAIR, "a")).add(
        REQUEST, 1, further_share=False
    )


def test_an_audited_policy_only_tells() -> None:
    policy_ = policy(rule("alone", only="false"), name="careful", enforcement=Enforcement.AUDIT)
    constraint = tracked_policy_constraint(PAIR, policy_)

    assert constraint.equivalence_key(0) == constraint.equivalence_key(1)
    assert all(constraint.add(REQUEST, place, further_share=False) for place in (0, 1))
    (audit_finding,) = constraint.audit_findings
    assert ("careful", "default/train", "req-0", "b") == (
        audit_finding.policy, audit_finding.claim, audit_finding.request, audit_finding.device.device,
    )  # fmt: skip
    assert "the rule of device b does not accept device a" in audit_finding.detail
    constraint.remove(REQUEST, 1, further_share=False)
    assert () == constraint.audit_findings


@pytest.mark.parametrize(
    ("want", "enforcement", "chosen"),
    [
        pytest.param(
            ["b"], Enforcement.AUDIT, "ab", id="the second of two that exclude each other"
        ),
        pytest.param(["a"], Enforcement.AUDIT, "a", id="beside a device in use"),
        pytest.param([], Enforcement.AUDIT, "ss", id="two shares of one device"),
        pytest.param([], Enforcement.ENFORCE, "ab", id="what is enforced is not audited"),
    ],
)
def test_audit_of_a_plan(want: list[str], enforcement: Enforcement, chosen: str) -> None:
    pool = pool_of(
        *(device(name, consumes()) for name in "abu"), device("s", consumes("other"), shared=True)
    )
    node = node_with(pool)
    by = {device_.id.device: device_ for device_ in node.devices}
    plan = Plan(
        node=node.node,
        choices=(
            tuple(
                Choice(request=REQUEST, device=by[name], consumed={} if name == "s" else None)
                for name in chosen
            ),
        ),
        alternatives=((0,),),
    )
    usage = held_usage(pool, "u") if chosen == "a" else Usage()
    compiled_policy = compile_policy(policy(rule("alone", only="false"), enforcement=enforcement))
    pending_claims = PendingClaims(claims=(claim(),), requests=(((REQUEST,),),))

    audit = compatibility.audit(
        plan, node, usage, [compiled_policy], pending=pending_claims, tombstones={}
    )

    assert want == [audit_finding.device.device for audit_finding in audit]


def test_only_enforced_policies_govern_a_driver() -> None:
    policy_ = policy(enforcement=Enforcement.AUDIT, driver="nic.example.com")
    both = [compile_policy(ALONE), compile_policy(policy_)]

    assert {DRIVER} == enforced_drivers(both)


def test_an_administrator_may_choose_a_device_in_use_but_no_other_beside_it() -> None:
    constraint = tracked_policy_constraint(PAIR, ALONE, usage=held_usage(PAIR, "a"), admin=True)

    assert not constraint.add(ADMIN, 1, further_share=False)
    assert constraint.add(ADMIN, 0, further_share=False)


def test_a_vanished_device_of_which_nothing_is_known_closes_its_pool() -> None:
    message = detail(tracked_policy_constraint(PAIR, policy(), usage=held_usage(PAIR, "gone")), 0)

    assert message.startswith("are co-located with device gone (allocated and no longer published")


@pytest.mark.parametrize(
    ("want", "on", "takes"),
    [
        pytest.param("counter x 2", "set-0", 3, id="too much"),
        pytest.param("", "set-0", 2, id="just enough is left"),
        pytest.param("", "set-1", 3, id="of another set"),
    ],
)
def test_a_vanished_device_still_takes_its_counters(want: str, on: str, takes: int) -> None:
    pool = pool_of(
        device("a", consumes(x=2)), counters=[counter_set(x=4), counter_set("set-1", x=4)]
    )
    (device_,) = pool_of(device("gone", consumes(on, x=takes))).devices
    usage = held_usage(pool, "gone")
    pending_claims = PendingClaims(claims=(claim(),), requests=(((REQUEST,),),))

    constraint = compatibility.build_constraint(
        node_with(pool), usage, [compile_policy(policy())], pending_claims, {device_.id: device_}
    )

    assert constraint is not None
    rejection = constraint.rejection(REQUEST, 0, further_share=False)
    assert want == (rejection.detail.partition(" (")[0] if rejection else "")
    assert rejection is None or rejection.reason is Reason.COUNTERS


def test_tenants_that_exclude_each_other_stay_and_nobody_joins_them() -> None:
    modes = ("a", "b", "c")
    pool = pool_of(*(device(mode, consumes(), attributes={"mode": mode}) for mode in modes))
    apart = policy(
        rule("a", f'{attribute_of("mode")} == "a"', only=f'{attribute_of("mode")} != "b"')
    )

    message = detail(tracked_policy_constraint(pool, apart, usage=held_usage(pool, "a", "b")), 2)

    assert message.startswith("are on counter set set-0 (devices in use there already violate")


def test_tenants_that_go_together_may_be_joined() -> None:
    pool = pool_of(*(device(name, consumes()) for name in "abc"))

    constraint = tracked_policy_constraint(
        pool, policy(rule("all", only="true")), usage=held_usage(pool, "a", "b")
    )

    assert constraint.add(REQUEST, 2, further_share=False)


@pytest.mark.parametrize(
    "tenants",
    [
        [of_mode("a", None, "x"), of_mode("b", None, "y")],
        [of_mode("a", "soft"), of_mode("b", "hard")],
    ],
    ids=["groups of slices", "groups of rules"],
)
def test_tenants_without_a_common_group_admit_not_even_what_goes_with_all(
    tenants: Sequence[Device],
) -> None:
    pool = pool_of(*tenants, of_mode("c"))
    by = grouped_policy(Undeclared.COMPATIBLE)

    assert tracked_policy_constraint(pool, by, usage=held_usage(pool, "a")).add(
        REQUEST, 2, further_share=False
    )
    message = detail(tracked_policy_constraint(pool, by, usage=held_usage(pool, "a", "b")), 2)
    assert message.startswith("are on counter set set-0 (devices in use there already violate")


def test_inconsistent_tenants_close_their_own_neighbourhood_only() -> None:
    sets = ("one", "one", "one", "two")
    pool = pool_of(*(device(f"d{place}", consumes(name)) for place, name in enumerate(sets)))
    constraint = tracked_policy_constraint(pool, ALONE, usage=held_usage(pool, "d0", "d1"))

    assert not constraint.add(REQUEST, 2, further_share=False)
    assert constraint.add(REQUEST, 3, further_share=False)


def test_it_matters_which_device_an_administrator_chose() -> None:
    """It may be chosen again, by another claim, and then is not compared with itself."""
    states = {}
    for admin in (False, True):
        for position in (0, 1):
            constraint = tracked_policy_constraint(PAIR, ALONE, admin=admin)
            assert constraint.add(ADMIN if admin else REQUEST, position, further_share=False)
            states[admin, position] = constraint.state_key()

    assert states[False, 0] == states[False, 1]
    assert states[True, 0] != states[True, 1]


@pytest.mark.parametrize("position", [0, 1])
def test_a_device_of_which_a_rule_is_in_doubt_stays_alone(position: int) -> None:
    pool = pool_of(
        device("sure", consumes(), attributes={"mode": "b"}), device("unsure", consumes())
    )
    by = policy(rule("a", f'{attribute_of("mode")} == "a"', only="true"))
    other = pool.devices[1 - position].id.device

    assert tracked_policy_constraint(pool, by).add(REQUEST, position, further_share=False)
    message = detail(tracked_policy_constraint(pool, by, usage=held_usage(pool, other)), position)
    assert "no such key: mode" in message


def test_causes_carry_their_clause_and_the_other_devices() -> None:
    a, b = PAIR.devices

    causes = evaluate_pair(compile_policy(ALONE), b, a).causes

    assert [Clause.REFUSES, Clause.REFUSED] == [cause.clause for cause in causes]
    assert {(DeviceId(DRIVER, "node-1", "a"),)} == {cause.others for cause in causes}
