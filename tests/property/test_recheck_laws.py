"""The recheck of several allocations at once has the result of one after the other."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.compatibility.compile import compile_policy
from allocator.model.feature_gates import Features
from allocator.model.usage import gather_usage, with_claim
from allocator.search.attempt import AllocatorOptions
from allocator.search.recheck import are_compatible, find_conflict
from kube.api.resource import DeviceRequestAllocationResult, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    amount,
    applied_configuration,
    consumes,
    counter_set,
    device,
    node_with,
    policy,
    pool_of,
    result,
    rule,
)

pytestmark = pytest.mark.property

FEATURES: Final = Features(compatibility_groups=True)
MEMORY: Final = {"memory": amount("4Gi", default="1Gi", min="1Gi", step="1Gi")}
NODE: Final = node_with(
    pool_of(
        device("gpu-0", attributes={"mode": "whole", "uuid": "card-0"}),
        device("part-0", attributes={"mode": "part", "uuid": "card-0"}),
        device("shared-0", capacity=MEMORY, shared=True),
        device("shared-1", consumes(memory="3Gi"), capacity=MEMORY, shared=True),
        device("mig-0", consumes(memory="2Gi", groups=["mig"])),
        device("mig-1", consumes(memory="2Gi", groups=["mig", "mps"])),
        device("mps-0", consumes(memory="1Gi", groups=["mps"])),
        counters=[counter_set(memory="5Gi")],
    )
)
DEVICES: Final = tuple(entry.device for entry in NODE.devices)
WHOLE: Final = 'device.attributes["gpu.example.com"].mode == "whole"'
OPTIONS: Final = AllocatorOptions(
    features=FEATURES,
    policies=(compile_policy(policy(rule("whole", WHOLE, only=WHOLE))),),
    uniform_config_drivers=frozenset({DRIVER}),
)


@st.composite
def results(draw: st.DrawFn, request: str) -> DeviceRequestAllocationResult:
    chosen_device = draw(st.sampled_from(DEVICES))
    is_share = bool(chosen_device.allow_multiple_allocations) != (draw(st.integers(0, 9)) == 0)
    if not is_share:
        admin = draw(st.integers(0, 9)) == 0
        return result(chosen_device.name, request=request, admin_access=admin or None)
    share_id = str(draw(st.integers(0, 30)))
    memory = {"memory": f"{draw(st.integers(1, 3))}Gi"}
    return result(chosen_device.name, request=request, share=share_id, consumed=memory)


@st.composite
def claims(draw: st.DrawFn) -> Sequence[ResourceClaim]:
    """Allocated claims of few devices each, so that many of them have no conflict."""
    count = draw(st.integers(1, 4))
    return [
        allocated_claim(
            *(
                draw(results(f"req-{index}"))
                for index in range(draw(st.sampled_from((1, 1, 1, 2))))
            ),
            name=f"claim-{number}",
            config=[
                applied_configuration(apiVersion="example.com/v1", kind="Config", interval=interval)
                for interval in draw(st.lists(st.sampled_from(("Short", "Long")), max_size=1))
            ],
        )
        for number in range(count)
    ]


@given(claims(), st.integers(0, 2))
def test_claims_are_compatible_if_each_is_with_those_before(
    claims: Sequence[ResourceClaim], prepared_count: int
) -> None:
    prepared, new = claims[:prepared_count], claims[prepared_count:]
    before = usage = gather_usage(prepared, FEATURES)
    has_conflict = False
    for claim in new:
        has_conflict |= find_conflict(claim, NODE, usage, OPTIONS) is not None
        usage = with_claim(usage, claim, FEATURES)

    assert has_conflict != are_compatible(new, NODE, before, OPTIONS)
