"""The memory that a cluster takes for keys of nodes: users choose the size of a claim."""

import gc
import tracemalloc

import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.interned_keys import InternedKeys, estimate_size
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    applied_configuration,
    attribute,
    classes,
    devices,
    node,
    result,
    slice_of,
)

CLAIMS = 300
PARAMETER_BYTES = 200_000
MAX_BYTES = 4 * 2**20
"""Less than a tenth of what all parameters have."""


def claim_with_parameters(number: int) -> ResourceClaim:
    """Return an allocated claim that is like no other, with large parameters."""
    text = f"{number:06}" * (PARAMETER_BYTES // 6)
    shared = result(share=f"share-{number}")
    return allocated_claim(shared, config=[applied_configuration(text=text)])


@pytest.mark.parametrize("uniform", [(), (DRIVER,)], ids=["any", "uniform"])
def test_usage_that_is_over_keeps_no_parameters(
    uniform: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allocator.cluster.verdict_cache.MAX_KEY_BYTES", MAX_BYTES // 2)
    cluster = Cluster(
        slices=[slice_of(*devices("gpu-0"))],
        nodes=[node()],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(uniform_config_drivers=frozenset(uniform)),
    )

    def use(number: int) -> None:
        claim = claim_with_parameters(number)
        cluster.allocate(claim)
        cluster.release(claim)

    use(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, CLAIMS):
            use(number)
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < MAX_BYTES


def test_keys_are_bounded_by_bytes_and_no_number_is_given_twice() -> None:
    keys = InternedKeys(max_keys=1000, max_bytes=10_000)

    numbers = [keys.number(("key", number, "x" * 500)) for number in range(100)]

    assert len(set(numbers)) == 100
    assert keys.bytes <= 10_000
    assert keys.number(("key", 99, "x" * 500)) == numbers[-1]
    assert keys.number(("key", 0, "x" * 500)) not in numbers


def test_the_size_of_a_key_is_that_of_all_its_parts() -> None:
    text = "x" * 5000

    for key in (text, (None, (True, text)), frozenset({("a", text)}), (attribute(text),)):
        assert 5000 < estimate_size(key) < 6000
