"""The memory that a cluster takes for verdicts: users choose the size of a claim."""

import gc
import tracemalloc

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.meta import convert
from kube.api.resource import DeviceClaimConfiguration, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    claim,
    classes,
    devices,
    node,
    request,
    slice_of,
)

CLAIMS = 300
PARAMETER_BYTES = 200_000
MAX_BYTES = 4 * 2**20
"""Less than a tenth of what all parameters have."""


def claim_with_parameters(number: int) -> ResourceClaim:
    """Return a claim that is like no other, with large parameters."""
    text = f"{number:06}" * (PARAMETER_BYTES // 6)
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"text": text}}}
    return claim(request(), config=[convert(opaque, DeviceClaimConfiguration)])


def test_a_verdict_does_not_keep_the_parameters_of_its_claim() -> None:
    cluster = Cluster(
        slices=[slice_of(*devices("gpu-0"))],
        nodes=[node()],
        claims=(),
        classes=classes(),
        # Otherwise parameters make no difference between claims.
        options=AllocatorOptions(uniform_config_drivers=frozenset({DRIVER})),
    )

    def ask(number: int) -> None:
        for _, outcome, _ in cluster.verdicts(cluster.resolve([claim_with_parameters(number)])):
            del outcome

    ask(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, CLAIMS):
            ask(number)
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < MAX_BYTES
