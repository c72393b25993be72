"""Caches that outlive an attempt keep nothing large of claims, as their writers choose the number."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from allocator.features.consumable_capacity import build_constraint
from allocator.model.feature_gates import Features
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Usage
from allocator.strategies.topology_packed import TOPOLOGY_PACKED
from testing.allocation.builders import (
    amount,
    claim,
    device,
    node_with,
    pool_of,
    request,
    resolved_request,
)

REQUESTS = 300
SELECTOR_BYTES = 200_000
MAX_BYTES = 20 * 2**20
"""Less than half of what all selectors have; some of the latest are cached as they are compiled."""
NODE = node_with(
    pool_of(
        device(
            "gpu-0",
            capacity={"memory": amount("80Gi", default="1Gi")},
            attributes={"resource.kubernetes.io/pcieRoot": "pci0000:00"},
            shared=True,
        )
    )
)


def consume(request_: Request) -> None:
    features = Features(consumable_capacity=True)
    constraint = build_constraint(NODE, Usage(), [request_], features)
    assert constraint is not None
    constraint.find_unsuitable(request_, 1)


def order(request_: Request) -> None:
    pending = PendingClaims(claims=(claim(request()),), requests=(((request_,),),))
    TOPOLOGY_PACKED.order(NODE, Usage(), pending)


@pytest.mark.parametrize("ask", [consume, order])
def test_selectors_of_a_request_that_is_over_are_not_kept(ask: Callable[[Request], None]) -> None:
    def ask_number(number: int) -> None:
        ask(resolved_request("gpu", f"{number:06}" * (SELECTOR_BYTES // 6)))

    ask_number(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, REQUESTS):
            ask_number(number)
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < MAX_BYTES
