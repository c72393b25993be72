"""What the search relies on in every rule about devices that are chosen together.

To undo restores the state, a refused device changes nothing, a refusal is told whenever there is
one, and devices that a rule sees alike can be swapped in any history.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.core import capacity, compatibility, constraints, counters, groups, sharing
from allocator.core.compatibility import compiled
from allocator.core.constraints import Constraints, Need
from allocator.core.model import (
    Asked,
    DeviceUse,
    Features,
    Holder,
    NodeDevices,
    Request,
    Usage,
)
from allocator.core.outcome import AttemptFailed
from allocator.core.tracker import Ahead, Tracker
from kube.api.policy import Enforcement
from kube.api.resource import Device
from tests.allocator.builders import (
    Version,
    amount,
    attribute_of,
    claim,
    configured,
    consumes,
    counter_set,
    device,
    distinct,
    match,
    node_with,
    policy,
    pool_of,
    quantities,
    rule,
    wanted,
)

pytestmark = pytest.mark.property

DRIVERS: Final = ("gpu.example.com", "nic.example.com")
NAMES: Final = ("numa", "root")
ATTRIBUTES: Final = tuple(f"{DRIVERS[0]}/{name}" for name in NAMES)


class World(NamedTuple):
    """One attempt on one node."""

    node: NodeDevices
    usage: Usage
    asked: Asked
    features: Features

    @property
    def requests(self) -> list[Request]:
        return [each for claim in self.asked.requests for options in claim for each in options]


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
        lambda taken, **fields: device(name, *taken, **fields),
        takes,
        attributes=attributes,
        capacity=capacities,
        shared=st.booleans(),
    )


def _use() -> st.SearchStrategy[DeviceUse]:
    return st.builds(
        lambda exclusive, used, said: DeviceUse(
            exclusive=exclusive,
            share_ids=frozenset() if exclusive else frozenset("s"),
            capacity=quantities(used) or None,
            holders=(Holder(namespace="n", claim="c", request="r", parameters=tuple(said)),),
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
                config=[configured(**draw(parameters)) for _ in range(draw(st.integers(0, 2)))],
            )
        )
        derived = draw(
            st.just({}) | st.just({ATTRIBUTES[0]: f'device.attributes["{DRIVERS[0]}"].root'})
        )
        requests.append(
            tuple(
                (wanted(f"r{index}", claim=number, capacity=each or None, derived=derived),)
                for index, each in enumerate(asking)
            )
        )
    features = Features(
        list_type_attributes=draw(st.booleans()), compatibility_groups=True, derived_attributes=True
    )
    return World(
        node_with(*pools), usage, Asked(claims=tuple(claims), requests=tuple(requests)), features
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[Step]]:
    world = draw(worlds())
    step = st.builds(
        Step,
        st.integers(0, len(world.requests) - 1),
        st.integers(0, len(world.node.devices) - 1),
        st.booleans(),
        st.booleans(),
    )
    return world, draw(st.lists(step, max_size=12))


POLICIES: Final = (
    compiled(
        policy(
            rule("ones", f"{attribute_of('?root')}.orValue(0) == 1", only="true", groups="ab"),
            rule("shared", "device.allowMultipleAllocations", groups="bc"),
            rule("alone", f"{attribute_of('?numa')}.orValue(0) == 2", only="false"),
        )
    ),
    compiled(
        policy(rule("twos", only=f"{attribute_of('root')} == 2"), enforcement=Enforcement.AUDIT)
    ),
)


MAKERS: Final[dict[str, Callable[[World], Tracker | None]]] = {
    "counters": lambda world: counters.tracker(world.node, world.usage, world.features),
    "groups": lambda world: groups.tracker(world.node, world.usage, world.features),
    "capacity": lambda world: capacity.tracker(
        world.node, world.usage, world.requests, world.features
    ),
    "constraints": lambda world: constraints.tracker(world.node, world.asked, world.features),
    "sharing": lambda world: sharing.tracker(world.node, world.usage, world.asked, world.features),
    "compatibility": lambda world: compatibility.tracker(
        world.node, world.usage, POLICIES, world.asked, {}
    ),
}


def answers(world: World, tracker: Tracker, steps: Sequence[Step]) -> Iterator[str]:
    """Play a history and check on the way that what is undone or refused leaves no trace."""
    done: list[tuple[Step, object]] = []
    for step in steps:
        if step.is_undo:
            if done:
                latest, before = done.pop()
                tracker.undo(
                    world.requests[latest.request],
                    latest.position,
                    further_share=latest.further_share,
                )
                assert before == tracker.state()
            continue
        request, before = world.requests[step.request], tracker.state()
        try:
            refusal = tracker.refusal(request, step.position, further_share=step.further_share)
            is_added = tracker.add(request, step.position, further_share=step.further_share)
        except AttemptFailed:
            assert before == tracker.state()
            yield "failed"
            continue
        assert is_added == (refusal is None)
        if is_added:
            done.append((step, before))
        else:
            assert before == tracker.state()
        yield "added" if is_added else "refused"


def trackers(world: World) -> dict[str, Tracker]:
    made = {name: make(world) for name, make in MAKERS.items()}
    return {name: tracker for name, tracker in made.items() if tracker is not None}


@given(history=histories())
def test_what_is_undone_or_refused_leaves_no_trace(history: tuple[World, list[Step]]) -> None:
    world, steps = history
    for tracker in trackers(world).values():
        assert all(answers(world, tracker, steps))


@given(history=histories())
def test_devices_that_are_seen_alike_can_be_swapped(history: tuple[World, list[Step]]) -> None:
    world, steps = history
    want = {name: list(answers(world, each, steps)) for name, each in trackers(world).items()}
    for one, other in combinations(range(len(world.node.devices)), 2):
        swapped = {one: other, other: one}
        moved = [
            step._replace(position=swapped.get(step.position, step.position)) for step in steps
        ]
        for name, tracker in trackers(world).items():
            if tracker.sees(one) == tracker.sees(other):
                assert (name, want[name]) == (name, list(answers(world, tracker, moved)))


@given(history=histories())
def test_choosing_more_never_makes_a_later_answer_better(
    history: tuple[World, list[Step]],
) -> None:
    world, steps = history
    for name, tracker in trackers(world).items():
        before = _refused(world, tracker)
        for _ in answers(world, tracker, [step for step in steps if not step.is_undo]):
            after = _refused(world, tracker)
            assert (name, before) == (name, before & after)
            before = after


@given(history=histories(), data=st.data())
def test_an_equal_outlook_means_equal_answers(
    history: tuple[World, list[Step]], data: st.DataObject
) -> None:
    world, steps = history
    first = data.draw(st.sampled_from(world.requests))
    positions = data.draw(st.integers(0, (1 << len(world.node.devices)) - 1))
    ahead = Ahead(claim=first.claim, index=first.index, positions=positions)
    for name, tracker in trackers(world).items():
        answered: dict[Hashable, frozenset[tuple[int, int]]] = {}
        for _ in answers(world, tracker, steps):
            refused = frozenset(
                (number, position)
                for number, position in _refused(world, tracker)
                if positions >> position & 1
                and (world.requests[number].claim, world.requests[number].index)
                >= (first.claim, first.index)
            )
            known = answered.setdefault(tracker.outlook(ahead), refused)
            assert (name, known) == (name, refused)


def _refused(world: World, tracker: Tracker) -> frozenset[tuple[int, int]]:
    """Return the number of each request and the positions that it cannot have now."""
    refused = set()
    for number, request in enumerate(world.requests):
        for position in range(len(world.node.devices)):
            try:
                if tracker.refusal(request, position, further_share=False) is not None:
                    refused.add((number, position))
            except AttemptFailed:
                continue
    return frozenset(refused)


def _made(world: World) -> Constraints | None:
    return constraints.tracker(world.node, world.asked, world.features)


@given(history=histories())
def test_allowed_is_what_would_be_added(history: tuple[World, list[Step]]) -> None:
    world, steps = history
    tracker = _made(world)
    if tracker is None:
        return
    list(answers(world, tracker, steps))
    for request in world.requests:
        allowed = tracker.allowed(request)
        for position in range(len(world.node.devices)):
            try:
                fits = tracker.refusal(request, position, further_share=False) is None
            except AttemptFailed:
                continue
            assert fits == bool(allowed >> position & 1)


@given(world=worlds(), data=st.data())
def test_what_is_hopeless_has_no_solution(world: World, data: st.DataObject) -> None:
    tracker = _made(world)
    if tracker is None:
        return
    everything = (1 << len(world.node.devices)) - 1
    needs = {
        request: Need(data.draw(st.integers(0, everything)), data.draw(st.integers(0, 3)))
        for request in world.requests
        if data.draw(st.booleans())
    }
    is_hopeless = tracker.hopeless(needs) is not None

    assert not (is_hopeless and _has_solution(world, tracker, list(needs.items()), used=0))


def _has_solution(
    world: World, tracker: Tracker, needs: Sequence[tuple[Request, Need]], used: int
) -> bool:
    """Return whether every request can have its devices; dedicated ones serve once per claim."""
    if not needs:
        return True
    (request, need), rest = needs[0], needs[1:]
    positions = range(len(world.node.devices))
    candidates = [at for at in positions if need.candidates >> at & 1 and not used >> at & 1]
    for chosen in combinations(candidates, need.devices):
        added = []
        for at in chosen:
            try:
                is_added = tracker.add(request, at, further_share=False)
            except AttemptFailed:
                is_added = False
            if not is_added:
                break
            added.append(at)
        dedicated = sum(
            1 << at for at in chosen if not world.node.devices[at].device.allow_multiple_allocations
        )
        found = len(added) == len(chosen) and _has_solution(world, tracker, rest, used | dedicated)
        for at in reversed(added):
            tracker.undo(request, at, further_share=False)
        if found:
            return True
    return False
