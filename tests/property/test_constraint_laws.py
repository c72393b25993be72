"""The laws that the search relies on in every rule about devices that are chosen together.

To undo restores the state, a refused device changes nothing, a refusal is told whenever there is
one, and devices that a rule sees alike can be swapped in any history.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.compatibility import constraint as compatibility
from allocator.compatibility.compile import compile_policy
from allocator.features import amount_bounds, constraints, consumer_limits
from allocator.features import co_tenant_config as sharing
from allocator.features import compatibility_groups as groups
from allocator.features import consumable_capacity as capacity
from allocator.features import partitionable_devices as counters
from allocator.features.constraints import AttributeConstraints, DeviceDemand
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.amount_bound import AmountBound, Counted
from allocator.model.constraint import Constraint, RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Consumer, DeviceUse, Usage
from kube.api.policy import Enforcement
from kube.api.resource import Device
from kube.cel.device import qualify_name
from testing.allocation.builders import (
    DRIVER,
    Version,
    amount,
    attribute_of,
    claim,
    configured_configuration,
    consumes,
    counter_set,
    device,
    distinct,
    match,
    node_with,
    policy,
    pool_of,
    quantities,
    resolved_request,
    rule,
)

pytestmark = pytest.mark.property

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
NAMES: Final = ("numa", "root")
ATTRIBUTES: Final = tuple(f"{DRIVERS[0]}/{name}" for name in NAMES)


class World(NamedTuple):
    """One attempt on one node."""

    node: NodeDevices
    usage: Usage
    pending: PendingClaims
    features: Features

    @property
    def requests(self) -> list[Request]:
        return [
            option for claim in self.pending.requests for options in claim for option in options
        ]


class Step(NamedTuple):
    """A request and a device to choose for it; False also stands for "take the latest back"."""

    request: int
    position: int
    further_share: bool
    is_undo: bool


# Few values, so that they meet.
plain: Final = st.sampled_from((1, 2, "1", True, Version("1.0.0")))
attributes: Final = st.dictionaries(
    st.sampled_from(NAMES), plain | st.lists(st.integers(1, 3), min_size=1, max_size=2)
)
numbers: Final = st.integers(0, 3).map(str)
capacities: Final = st.dictionaries(
    st.sampled_from("mn"),
    numbers | st.just(amount("4", "1", min="1", step="2")) | st.just(amount("3", "0", values="02")),
)
takes: Final = st.lists(
    st.builds(
        consumes,
        st.sampled_from(("one", "two")),
        groups=st.none() | st.sets(st.sampled_from("ab"), min_size=1).map(sorted),
        x=st.integers(0, 2),
    ),
    max_size=2,
)
parameters: Final[st.SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries(
    {"kind": st.sampled_from("AB"), "x": st.integers(0, 1)}
)


def _device(name: str) -> st.SearchStrategy[Device]:
    return st.builds(
        lambda consumed_counters, **fields: device(name, *consumed_counters, **fields),
        takes,
        attributes=attributes,
        capacity=capacities,
        shared=st.booleans(),
    )


def _use() -> st.SearchStrategy[DeviceUse]:
    return st.builds(
        lambda exclusive, used, is_shared: DeviceUse(
            exclusive=exclusive,
            share_ids=frozenset() if exclusive else frozenset("s"),
            capacity=quantities(used) or None,
            consumers=(
                Consumer(namespace="n", claim="c", request="r", parameters=tuple(is_shared)),
            ),
        ),
        st.booleans(),
        st.dictionaries(st.sampled_from("mn"), numbers),
        st.lists(parameters, max_size=2),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two pools of one to three devices, and two claims of up to two requests."""
    names = [
        [f"{driver[:3]}-{index}" for index in range(draw(st.integers(1, 3)))] for driver in DRIVERS
    ]
    pools = tuple(
        pool_of(
            *(draw(_device(name)) for name in here),
            elsewhere=[draw(_device("away"))],
            counters=[counter_set(name, x=draw(st.integers(0, 4))) for name in ("one", "two")],
            driver=driver,
        )
        for driver, here in zip(DRIVERS, names, strict=True)
    )
    usage = Usage(
        pools={
            pool.id: draw(st.dictionaries(st.sampled_from([*here, "away", "gone"]), _use()))
            for pool, here in zip(pools, names, strict=True)
        }
    )
    claims, requests = [], []
    for number in range(draw(st.integers(1, 2))):
        asking = draw(
            st.lists(st.dictionaries(st.sampled_from("mn"), numbers), min_size=1, max_size=2)
        )
        limits = st.builds(
            lambda make, name, who: make(name, *who),
            st.sampled_from((match, distinct)),
            st.sampled_from(ATTRIBUTES),
            st.just(()) | st.just(("r0",)),
        )
        claims.append(
            claim(
                constraints=draw(st.lists(limits, max_size=2)),
                config=[
                    configured_configuration(**draw(parameters))
                    for _ in range(draw(st.integers(0, 2)))
                ],
            )
        )
        drawn_value = draw(
            st.just({}) | st.just({ATTRIBUTES[0]: f'device.attributes["{DRIVERS[0]}"].root'})
        )
        requests.append(
            tuple(
                (
                    resolved_request(
                        f"r{index}", claim=number, capacity=texts or None, derived=drawn_value
                    ),
                )
                for index, texts in enumerate(asking)
            )
        )
    features = Features(
        list_type_attributes=draw(st.booleans()), compatibility_groups=True, derived_attributes=True
    )
    return World(
        node_with(*pools),
        usage,
        PendingClaims(claims=tuple(claims), requests=tuple(requests)),
        features,
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[Step]]:
    setting = draw(worlds())
    step = st.builds(
        Step,
        st.integers(0, len(setting.requests) - 1),
        st.integers(0, len(setting.node.devices) - 1),
        st.booleans(),
        st.booleans(),
    )
    return setting, draw(st.lists(step, max_size=12))


POLICIES: Final = (
    compile_policy(
        policy(
            rule("ones", f"{attribute_of('?root')}.orValue(0) == 1", only="true", groups="ab"),
            rule("shared", "device.allowMultipleAllocations", groups="bc"),
            rule("alone", f"{attribute_of('?numa')}.orValue(0) == 2", only="false"),
        )
    ),
    compile_policy(
        policy(rule("twos", only=f"{attribute_of('root')} == 2"), enforcement=Enforcement.AUDIT)
    ),
)


def bounds_of(node: NodeDevices) -> Sequence[AmountBound]:
    """A bound of each form, on devices that count differently."""
    amounts = {device.id: number % 3 for number, device in enumerate(node.devices) if number != 1}
    ones = dict.fromkeys(amounts, 1)
    forms: tuple[dict[str, Any], ...] = (
        {"capacity": qualify_name("m", DRIVERS[0]), "total": 3 * 10**9},
        {"counted": Counted.ONCE_PER_DEVICE, "total": 4, "per_device": 3},
        {"counted": Counted.ONCE_PER_CLAIM, "total": 1, "per_request": 2, "amounts": ones},
    )
    return [AmountBound(**{"amounts": amounts, "driver": DRIVERS[0], **form}) for form in forms]


MAKERS: Final[dict[str, Callable[[World], Constraint | None]]] = {
    "counters": lambda setting: counters.build_constraint(
        setting.node, setting.usage, setting.features
    ),
    "groups": lambda setting: groups.build_constraint(
        setting.node, setting.usage, setting.features
    ),
    "capacity": lambda setting: capacity.build_constraint(
        setting.node, setting.usage, setting.requests, setting.features
    ),
    "constraints": lambda setting: constraints.build_constraint(
        setting.node, setting.pending, setting.features
    ),
    "sharing": lambda setting: sharing.build_constraint(
        setting.node, setting.usage, setting.pending, {DRIVER}, setting.features
    ),
    "consumer limits": lambda setting: consumer_limits.build_constraint(
        setting.node,
        setting.usage,
        {
            DRIVERS[0]: ConsumerLimit(per_device=2, per_node=4),
            DRIVERS[1]: ConsumerLimit(per_node=2),
        },
    ),
    "amount bounds": lambda setting: amount_bounds.AmountBounds(
        setting.node,
        bounds_of(setting.node),
        setting.requests,
        capacity.build_constraint(setting.node, setting.usage, setting.requests, setting.features),
    ),
    "compatibility": lambda setting: compatibility.build_constraint(
        setting.node, setting.usage, POLICIES, setting.pending, {}
    ),
}


def answers(setting: World, constraint: Constraint, steps: Sequence[Step]) -> Iterator[str]:
    """Play a history and check on the way that undone or refused steps leave no trace."""
    applied: list[tuple[Step, object]] = []
    for step in steps:
        if step.is_undo:
            if applied:
                latest, before = applied.pop()
                constraint.remove(
                    setting.requests[latest.request],
                    latest.position,
                    further_share=latest.further_share,
                )
                assert before == constraint.state_key()
            continue
        request, before = setting.requests[step.request], constraint.state_key()
        try:
            refusal = constraint.rejection(request, step.position, further_share=step.further_share)
            is_added = constraint.add(request, step.position, further_share=step.further_share)
        except AttemptFailed:
            assert before == constraint.state_key()
            yield "failed"
            continue
        assert is_added == (refusal is None)
        if is_added:
            applied.append((step, before))
        else:
            assert before == constraint.state_key()
        yield "added" if is_added else "refused"


def build_constraints(setting: World) -> dict[str, Constraint]:
    made_constraints = {name: make(setting) for name, make in MAKERS.items()}
    return {
        name: constraint for name, constraint in made_constraints.items() if constraint is not None
    }


@given(history=histories())
def test_removed_and_rejected_devices_leave_no_trace(history: tuple[World, list[Step]]) -> None:
    setting, steps = history
    for constraint in build_constraints(setting).values():
        assert all(answers(setting, constraint, steps))


@given(history=histories())
def test_devices_with_equal_keys_can_be_swapped(history: tuple[World, list[Step]]) -> None:
    setting, steps = history
    want = {
        name: list(answers(setting, constraint, steps))
        for name, constraint in build_constraints(setting).items()
    }
    for number, other in combinations(range(len(setting.node.devices)), 2):
        swapped = {number: other, other: number}
        moved_steps = [
            step._replace(position=swapped.get(step.position, step.position)) for step in steps
        ]
        for name, constraint in build_constraints(setting).items():
            if constraint.equivalence_key(number) == constraint.equivalence_key(other):
                assert (name, want[name]) == (name, list(answers(setting, constraint, moved_steps)))


@given(history=histories())
def test_no_choice_changes_a_key(history: tuple[World, list[Step]]) -> None:
    setting, steps = history
    positions = range(len(setting.node.devices))
    for name, constraint in build_constraints(setting).items():
        untouched = MAKERS[name](setting)
        assert untouched is not None
        before = [untouched.equivalence_key(position) for position in positions]
        for _ in answers(setting, constraint, steps):
            after = [constraint.equivalence_key(position) for position in positions]
            assert (name, before) == (name, after)


@given(history=histories())
def test_constraints_are_monotonic(
    history: tuple[World, list[Step]],
) -> None:
    setting, steps = history
    for name, constraint in build_constraints(setting).items():
        before = _refused(setting, constraint)
        for _ in answers(setting, constraint, [step for step in steps if not step.is_undo]):
            after = _refused(setting, constraint)
            assert (name, before) == (name, before & after)
            before = after


@given(history=histories(), data=st.data())
def test_equal_residual_keys_mean_equal_answers(
    history: tuple[World, list[Step]], data: st.DataObject
) -> None:
    setting, steps = history
    first = data.draw(st.sampled_from(setting.requests))
    positions = data.draw(st.integers(0, (1 << len(setting.node.devices)) - 1))
    ahead = RemainingDemand(claim=first.claim, index=first.index, positions=positions)
    for name, constraint in build_constraints(setting).items():
        answered: dict[Hashable, frozenset[tuple[int, int]]] = {}
        for _ in answers(setting, constraint, steps):
            refused = frozenset(
                (number, position)
                for number, position in _refused(setting, constraint)
                if positions >> position & 1
                and (setting.requests[number].claim, setting.requests[number].index)
                >= (first.claim, first.index)
            )
            known = answered.setdefault(constraint.residual_key(ahead), refused)
            assert (name, known) == (name, refused)


def _refused(setting: World, constraint: Constraint) -> frozenset[tuple[int, int]]:
    """Return the number of each request and the positions that it cannot have now."""
    refused = set()
    for number, request in enumerate(setting.requests):
        for position in range(len(setting.node.devices)):
            try:
                if constraint.rejection(request, position, further_share=False) is not None:
                    refused.add((number, position))
            except AttemptFailed:
                continue
    return frozenset(refused)


def _build_constraint(setting: World) -> AttributeConstraints | None:
    return constraints.build_constraint(setting.node, setting.pending, setting.features)


@given(history=histories())
def test_allowed_positions_are_those_that_add_accepts(history: tuple[World, list[Step]]) -> None:
    setting, steps = history
    constraint = _build_constraint(setting)
    if constraint is None:
        return
    list(answers(setting, constraint, steps))
    for request in setting.requests:
        allowed_positions = constraint.allowed_positions(request)
        for position in range(len(setting.node.devices)):
            try:
                fits = constraint.rejection(request, position, further_share=False) is None
            except AttemptFailed:
                continue
            assert fits == bool(allowed_positions >> position & 1)


@given(setting=worlds(), data=st.data())
def test_infeasible_demands_have_no_solution(setting: World, data: st.DataObject) -> None:
    constraint = _build_constraint(setting)
    if constraint is None:
        return
    everything = (1 << len(setting.node.devices)) - 1
    needs = {
        request: DeviceDemand(data.draw(st.integers(0, everything)), data.draw(st.integers(0, 3)))
        for request in setting.requests
        if data.draw(st.booleans())
    }
    is_infeasible = constraint.infeasibility(needs) is not None

    assert not (is_infeasible and _has_solution(setting, constraint, list(needs.items()), used=0))


def _has_solution(
    setting: World, constraint: Constraint, needs: Sequence[tuple[Request, DeviceDemand]], used: int
) -> bool:
    """Return True if every request can have its devices; dedicated ones serve once per claim."""
    if not needs:
        return True
    (request, need), rest = needs[0], needs[1:]
    positions = range(len(setting.node.devices))
    candidates = [at for at in positions if need.candidates >> at & 1 and not used >> at & 1]
    for combination in combinations(candidates, need.devices):
        added = []
        for at in combination:
            try:
                is_added = constraint.add(request, at, further_share=False)
            except AttemptFailed:
                is_added = False
            if not is_added:
                break
            added.append(at)
        dedicated = sum(
            1 << at
            for at in combination
            if not setting.node.devices[at].device.allow_multiple_allocations
        )
        is_consistent = len(added) == len(combination) and _has_solution(
            setting, constraint, rest, used | dedicated
        )
        for at in reversed(added):
            constraint.remove(request, at, further_share=False)
        if is_consistent:
            return True
    return False
