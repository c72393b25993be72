"""A plain search without skips ends in the same way."""

from random import Random

import pytest

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import DeviceUse, Usage
from allocator.search.attempt import AllocatorOptions, Attempt, RequestCandidates, bits, lay_out
from allocator.search.search import search
from kube.api.resource import Device, DeviceRequest, ResourceClaim
from testing.allocation.builders import (
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

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.chosen: list[tuple[RequestCandidates, int]] = []

    def finds(self, claim: int = 0, index: int = 0) -> bool:
        """Return True if all requests from one on can be met.

        Raises:
            AttemptFailed: A device was looked at that ends the attempt.
        """
        tables = self._attempt.requests
        if claim == len(tables):
            return True
        if index == len(tables[claim]):
            return self.finds(claim + 1)
        return any(self._fills(table, 0, 0) for table in tables[claim][index])

    def _fills(self, table: RequestCandidates, slot: int, start: int) -> bool:
        if slot == table.count:
            is_met = table.all_positions is None or slot > 0
            return is_met and self.finds(table.request.claim, table.request.index + 1)
        if table.all_positions is not None:
            return self._takes(table, slot, table.all_positions[slot])
        positions = [bit for bit in bits(table.candidates) if bit >= start]
        return any(self._takes(table, slot, position) for position in positions)

    def _takes(self, table: RequestCandidates, slot: int, position: int) -> bool:
        attempt, request, bit = self._attempt, table.request, 1 << position
        if self._is_in_use(table, position):
            return False
        if table.fatal & bit:
            raise AttemptFailed(table.failures[position])
        if table.all_positions is not None and table.rejected & bit:
            return False
        present = any(position == other for _, other in self.chosen)
        further = bool(attempt.shareable & bit) and (present or bool(attempt.shared & bit))
        added = 0
        for constraint in attempt.constraints:
            if not constraint.add(request, position, further_share=further):
                break
            added += 1
        met = False
        if added == len(attempt.constraints):
            self.chosen.append((table, position))
            met = self._fills(table, slot + 1, position + 1)
            if not met:
                self.chosen.pop()
        if not met:
            for constraint in reversed(attempt.constraints[:added]):
                constraint.remove(request, position, further_share=further)
        return met

    def _is_in_use(self, table: RequestCandidates, position: int) -> bool:
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
        requests = [alternative(f"s{n}", *where, count=2 - n, capacity=amount) for n in (0, 1)]
        return first_of(name, *requests, alternative("last", count=rng.choice((1, 3, None))))
    if kind < 0.4:
        return request(name, *where, admin_access=True)
    if kind < 0.45:
        return request(name, *where, count=None)
    return request(name, *where, count=rng.choice((1, 1, 2)), capacity=amount)


def drawn_claim(rng: Random, name: str) -> ResourceClaim:
    rules = [rng.choice((match, distinct))(MODEL)] if rng.random() < 0.3 else []
    asks = [drawn_request(rng, f"r{number}") for number in range(rng.choice((1, 2, 3)))]
    return claim(*asks, name=name, constraints=rules)


def drawn_attempt(rng: Random) -> Attempt:
    """Return a few claims on a few devices.

    Raises:
        AttemptFailed: There is nothing to search.
    """
    listed_devices = [drawn_device(rng, f"d{number}") for number in range(rng.choice((3, 4, 5, 6)))]
    pool = pool_of(
        *listed_devices, counters=[counter_set("one", slices=3), counter_set("two", slices=2)]
    )
    node: NodeDevices = node_with(pool)
    share = DeviceUse(share_ids=frozenset("1"), capacity=quantities({"m": 1}))
    use = rng.choice((None, share, DeviceUse(exclusive=True)))
    usage = Usage(pools={pool.id: {"d1": use}} if use is not None else {})
    claims = [drawn_claim(rng, f"c{number}") for number in range(rng.choice((1, 2, 3)))]
    return lay_out(node, resolve_requests(claims, classes(), Features()), usage, AllocatorOptions())


def plain(attempt: Attempt) -> list[tuple[str, str]] | None:
    plain = _Plain(attempt)
    if not plain.finds():
        return None
    return [
        (table.request.full_name, attempt.node.devices[position].id.device)
        for table, position in plain.chosen
    ]


def skipping(attempt: Attempt) -> list[tuple[str, str]] | None:
    outcome = search(attempt, Budget())
    assert not isinstance(outcome, BudgetExhausted)
    if not isinstance(outcome, Plan):
        return None
    return [
        (first_choice.request.full_name, first_choice.device.id.device)
        for choice in outcome.choices
        for first_choice in choice
    ]


@pytest.mark.parametrize("start", range(0, 800, CHUNK))
def test_a_search_without_pruning_has_the_same_outcome(start: int) -> None:
    for seed in range(start, start + CHUNK):
        try:
            attempt, again = drawn_attempt(Random(seed)), drawn_attempt(Random(seed))
        except AttemptFailed:
            continue
        if attempt.attribute_constraints is not None and any(
            request_candidates.all_positions is not None
            for request_ in attempt.requests
            for many in request_
            for request_candidates in many
        ):
            # A constraint that excludes one of "all" devices ends the attempt.
            continue
        before = [constraint.state_key() for constraint in attempt.constraints]
        try:
            want = plain(again)
        except AttemptFailed:
            with pytest.raises(AttemptFailed):
                skipping(attempt)
            continue

        assert want == skipping(attempt), seed
        assert before == [constraint.state_key() for constraint in attempt.constraints], seed
