"""A bound that counts never rules out what a search finds."""

import pytest

from allocator.core import pools, usage
from allocator.core.demand import Demand
from allocator.core.model import Budget, Plan
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules, problem
from allocator.core.requests import asked
from allocator.core.search import search
from tests.oracle.ours import objects
from tests.oracle.scenarios import seeded

pytestmark = pytest.mark.property

CHUNK = 100


@pytest.mark.parametrize("start", range(0, 600, CHUNK))
def test_what_was_found_was_never_too_much(start: int) -> None:
    for seed in range(start, start + CHUNK):
        given = objects(seeded(seed))
        index = pools.index(given.slices, given.features)
        held = usage.gathered(given.allocated, given.features)
        for node in given.nodes:
            try:
                wanted = asked(given.claims, given.classes, given.features)
                devices = pools.node_devices(index, node)
                attempt = problem(devices, wanted, held, Rules(features=given.features))
                found = search(attempt, Budget(steps=2_000))
            except AttemptFailed:
                continue
            if not isinstance(found, Plan) or attempt.is_treacherous or not attempt.tables:
                continue
            demand, taken = Demand(attempt), 0
            for claim, choices in enumerate(found.choices):
                chosen = list(choices)
                for index_, _ in enumerate(attempt.tables[claim]):
                    assert not demand.exceeds(claim, index_, taken), (seed, node.metadata.name)
                    # Walk the way that the search took, one request after the other.
                    while chosen and chosen[0].request.index == index_:
                        one = chosen.pop(0)
                        position = devices.positions[one.device.id]
                        shares = bool(attempt.shareable >> position & 1)
                        for tracker in attempt.trackers:
                            tracker.add(one.request, position, further_share=shares)
                        taken |= 0 if shares else 1 << position
