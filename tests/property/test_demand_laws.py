"""A bound that counts never rules out a plan that a search finds."""

import pytest

from allocator.model import pools, slice_index, usage
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget, Plan
from allocator.model.requests import resolve_requests
from allocator.search.attempt import AllocatorOptions, lay_out
from allocator.search.bounds import Demand
from allocator.search.search import search
from testing.oracle.ours import objects
from testing.oracle.scenarios import seeded_document

pytestmark = pytest.mark.property

CHUNK = 100


@pytest.mark.parametrize("start", range(0, 600, CHUNK))
def test_what_was_found_was_never_too_much(start: int) -> None:
    for seed in range(start, start + CHUNK):
        objects_ = objects(seeded_document(seed))
        index = slice_index.build_index(objects_.slices, objects_.features)
        usage_ = usage.gather_usage(objects_.allocated_claims, objects_.features)
        for node in objects_.nodes:
            try:
                pending = resolve_requests(objects_.claims, objects_.classes, objects_.features)
                devices = pools.node_devices(index, node)
                attempt = lay_out(
                    devices, pending, usage_, AllocatorOptions(features=objects_.features)
                )
                outcome = search(attempt, Budget(steps=2_000))
            except AttemptFailed:
                continue
            if not isinstance(outcome, Plan) or attempt.may_abort or not attempt.requests:
                continue
            demand, chosen_mask = Demand(attempt), 0
            for claim, choices in enumerate(outcome.choices):
                claim_choices = list(choices)
                for index_, _ in enumerate(attempt.requests[claim]):
                    assert not demand.exceeds(claim, index_, chosen_mask), (
                        seed,
                        node.metadata.name,
                    )
                    # Walk the way that the search took, one request after the other.
                    while claim_choices and claim_choices[0].request.index == index_:
                        choice = claim_choices.pop(0)
                        position = devices.positions[choice.device.id]
                        shares = bool(attempt.shareable >> position & 1)
                        for constraint in attempt.constraints:
                            constraint.add(choice.request, position, further_share=shares)
                        chosen_mask |= 0 if shares else 1 << position
