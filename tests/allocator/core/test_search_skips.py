"""What the search skips was in vain: a plain one, which skips nothing, ends in the same way."""

from random import Random

import pytest

from allocator.core.model import Budget, DeviceUse, Features, NodeDevices, Plan, Usage
from allocator.core.outcome import AttemptFailed, GaveUp
from allocator.core.problem import Problem, Rules, Table, bits, problem
from allocator.core.requests import asked
from allocator.core.search import search
from kube.api.resource import Device, DeviceRequest, ResourceClaim
from tests.allocator.builders import (
    DRIVER,
    alternative,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    distinct,
    first_of,
    match,
    node_with,
    pool_of,
    quantities,
    request,
)

MODEL = f"{DRIVER}/model"
IS_A = f'device.attributes["{DRIVER}"].?model.orValue("") == "a"'
FAILS = f'device.attributes["{DRIVER}"].model == "b"'
CHUNK = 200


class _Plain:
    """Every device for every request, in upstream's order; nothing remembered, nothing ahead."""

    def __init__(self, attempt: Problem) -> None:
        self._attempt = attempt
        self.chosen: list[tuple[Table, int]] = []

    def finds(self, claim: int = 0, index: int = 0) -> bool:
        """Return whether all requests from one on can be met.

        Raises:
            AttemptFailed: A device was looked at that ends the attempt.
        """
        tables = self._attempt.tables
        if claim == len(tables):
            return True
        if index == len(tables[claim]):
            return self.finds(claim + 1)
        return any(self._fills(table, 0, 0) for table in tables[claim][index])

    def _fills(self, table: Table, slot: int, start: int) -> bool:
        if slot == table.need:
            is_met = table.listed is None or slot > 0
            return is_met and self.finds(table.request.claim, table.request.index + 1)
        if table.listed is not None:
            return self._takes(table, slot, table.listed[slot])
        positions = [each for each in bits(table.candidates) if each >= start]
        return any(self._takes(table, slot, position) for position in positions)

    def _takes(self, table: Table, slot: int, position: int) -> bool:
        attempt, request, bit = self._attempt, table.request, 1 << position
        if self._is_in_use(table, position):
            return False
        if table.fatal & bit:
            raise AttemptFailed(table.failures[position])
        if table.listed is not None and table.refused & bit:
            return False
        present = any(position == other for _, other in self.chosen)
        further = bool(attempt.shareable & bit) and (present or bool(attempt.shared & bit))
        added = 0
        for tracker in attempt.trackers:
            if not tracker.add(request, position, further_share=further):
                break
            added += 1
        met = False
        if added == len(attempt.trackers):
            self.chosen.append((table, position))
            met = self._fills(table, slot + 1, position + 1)
            if not met:
                self.chosen.pop()
        if not met:
            for tracker in reversed(attempt.trackers[:added]):
                tracker.undo(request, position, further_share=further)
        return met

    def _is_in_use(self, table: Table, position: int) -> bool:
        return not self._attempt.shareable >> position & 1 and any(
            position == other
            and (not table.request.admin or holder.request.claim == table.request.claim)
            for holder, other in self.chosen
        )


def drawn_device(rng: Random, name: str) -> Device:
    model = rng.choice(("a", "b", "b", None))
    takes = [consumes(rng.choice(("one", "two")), slices=rng.choice((1, 2)))]
    return device(
        name,
        *(takes if rng.random() < 0.4 else ()),
        attributes={"model": model} if model else {},
        capacity={"m": "4"},
        shared=rng.random() < 0.3,
    )


def drawn_request(rng: Random, name: str) -> DeviceRequest:
    where = rng.choice(((), (), (IS_A,), (FAILS,) if rng.random() < 0.2 else ()))
    amount = rng.choice((None, None, {"m": 1}, {"m": 3}))
    kind = rng.random()
    if kind < 0.3:
        some = [alternative(f"s{n}", *where, count=2 - n, capacity=amount) for n in (0, 1)]
        return first_of(name, *some, alternative("last", count=rng.choice((1, 3, None))))
    if kind < 0.4:
        return request(name, *where, admin_access=True)
    if kind < 0.45:
        return request(name, *where, count=None)
    return request(name, *where, count=rng.choice((1, 1, 2)), capacity=amount)


def drawn_claim(rng: Random, name: str) -> ResourceClaim:
    rules = [rng.choice((match, distinct))(MODEL)] if rng.random() < 0.3 else []
    asks = [drawn_request(rng, f"r{number}") for number in range(rng.choice((1, 2, 3)))]
    return claim(*asks, name=name, constraints=rules)


def drawn(rng: Random) -> Problem:
    """Return a few claims on a few devices.

    Raises:
        AttemptFailed: There is nothing to search.
    """
    listed = [drawn_device(rng, f"d{number}") for number in range(rng.choice((3, 4, 5, 6)))]
    pool = pool_of(*listed, counters=[counter_set("one", slices=3), counter_set("two", slices=2)])
    node: NodeDevices = node_with(pool)
    share = DeviceUse(share_ids=frozenset("1"), capacity=quantities({"m": 1}))
    use = rng.choice((None, share, DeviceUse(exclusive=True)))
    held = Usage(pools={pool.id: {"d1": use}} if use is not None else {})
    claims = [drawn_claim(rng, f"c{number}") for number in range(rng.choice((1, 2, 3)))]
    return problem(node, asked(claims, classes(), Features()), held, Rules())


def plain(attempt: Problem) -> list[tuple[str, str]] | None:
    found = _Plain(attempt)
    if not found.finds():
        return None
    return [
        (table.request.full_name, attempt.node.devices[position].id.device)
        for table, position in found.chosen
    ]


def skipping(attempt: Problem) -> list[tuple[str, str]] | None:
    found = search(attempt, Budget())
    assert not isinstance(found, GaveUp)
    if not isinstance(found, Plan):
        return None
    return [(one.request.full_name, one.device.id.device) for some in found.choices for one in some]


@pytest.mark.parametrize("start", range(0, 800, CHUNK))
def test_a_plain_search_finds_the_same(start: int) -> None:
    for seed in range(start, start + CHUNK):
        try:
            attempt, again = drawn(Random(seed)), drawn(Random(seed))
        except AttemptFailed:
            continue
        if attempt.constraints is not None and any(
            one.listed is not None for some in attempt.tables for many in some for one in many
        ):
            # A constraint that excludes one of "all" devices ends the attempt.
            continue
        before = [tracker.state() for tracker in attempt.trackers]
        try:
            want = plain(again)
        except AttemptFailed:
            with pytest.raises(AttemptFailed):
                skipping(attempt)
            continue

        assert want == skipping(attempt), seed
        assert before == [tracker.state() for tracker in attempt.trackers], seed
