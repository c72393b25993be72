"""The law for Koordinator: its scheduler could have granted all that ours grants, or it is told.

The reference is Koordinator's allocator for one pod on unused cards. Source: koordinator-sh/koordinator
a7a1b76, pkg/webhook/pod/mutating/device_resource_spec.go; pkg/scheduler/plugins/deviceshare, utils.go
(ValidateDeviceRequest), devicehandler_gpu.go (calcDesiredRequestsAndCountForGPU, fillGPUTotalMem) and
device_allocator.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.builders import HAMI
from testing.legacy import Amounts, LegacyPod, Scenario, run_scenario

pytestmark = pytest.mark.property

GPU, CORE, MEMORY, RATIO, SHARED = (
    f"koordinator.sh/{name}"
    for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared")
)
MEBIBYTE: Final = 2**20
TOLD: Final = frozenset({"wholeDevice", "notExclusive", "equalMemorySizes", "memorySizesMerged"})
"""The codes of findings about grants that differ."""


class Requested(NamedTuple):
    """The request of a pod for each of several cards; memory in MiB, or a ratio."""

    cards: int
    core: int
    memory: int | None
    ratio: int | None


def requested_by(limits: Mapping[str, int]) -> Requested | None:
    """Read the keys of a pod as Koordinator does; None for a combination that it rejects."""
    deprecated = limits.get(GPU, 0)
    core = limits.get(CORE, deprecated)
    ratio = limits.get(RATIO, deprecated) or None
    memory = limits[MEMORY] // MEBIBYTE if MEMORY in limits else None
    percentages = [amount for amount in (core, ratio or 0) if amount > 100]
    if any(amount % 100 for amount in percentages):
        return None
    count = limits.get(SHARED) or max((ratio or 0) // 100, 1)
    if core % count or (ratio or 0) % count or (memory or 0) % count:
        return None
    return Requested(
        cards=count,
        core=core // count,
        memory=None if memory is None else memory // count,
        ratio=None if ratio is None else ratio // count,
    )


def grants(cards: Sequence[int], requested: Requested) -> Iterator[tuple[Amounts, ...]]:
    """Yield every combination of grants of a pod on the unused cards of one node."""
    if requested.core > 100 or (requested.ratio or 0) > 100:
        return
    for chosen in combinations(cards, requested.cards):
        amounts = [
            total * (requested.ratio or 0) // 100 if requested.memory is None else requested.memory
            for total in chosen
        ]
        if all(amount <= total for amount, total in zip(amounts, chosen, strict=True)):
            yield tuple(sorted((amount, requested.core) for amount in amounts))
            # Nobody else can be on a card without memory, so all of its cores are the pod's.
            if not requested.core and amounts == list(chosen):
                yield tuple(sorted((amount, 100) for amount in amounts))


percents = st.sampled_from((10, 25, 50, 100))
limits_of_one = st.one_of(
    st.fixed_dictionaries({GPU: st.sampled_from((25, 50, 100, 150, 200, 300))}),
    st.fixed_dictionaries({RATIO: st.sampled_from((25, 50, 100, 200))}),
    st.fixed_dictionaries({CORE: percents, RATIO: percents}),
    st.fixed_dictionaries(
        {CORE: percents, MEMORY: st.sampled_from((1024, 4096, 9216)).map(MEBIBYTE.__mul__)}
    ),
    st.fixed_dictionaries(
        {SHARED: st.just(2), CORE: st.sampled_from((50, 100)), RATIO: st.sampled_from((50, 100))}
    ),
)
nodes = st.dictionaries(
    st.sampled_from(("a", "b")),
    st.lists(st.sampled_from((8000, 10000, 16384)), min_size=1, max_size=3),
    min_size=1,
)


@given(nodes, limits_of_one)
def test_ours_grants_nothing_that_koordinator_would_not_without_a_word(
    cards: dict[str, list[int]], limits: dict[str, int]
) -> None:
    requested = requested_by(limits)
    possible = (
        set()
        if requested is None
        else {amounts for totals in cards.values() for amounts in grants(totals, requested)}
    )
    scenario = Scenario(
        name="random",
        source="",
        nodes={name: [*totals] for name, totals in cards.items()},
        pods=(LegacyPod(limits=limits, legacy=[]),),
    )

    (result,) = run_scenario(scenario, HAMI)

    reported_codes = result.codes & TOLD
    if result.grant is None:
        assert not possible or reported_codes, f"Koordinator grants one of {sorted(possible)[:3]}"
    else:
        assert result.grant.gpus in possible or reported_codes, (
            f"Koordinator grants none of {result.grant}"
        )


def test_the_reference_refuses_and_grants() -> None:
    half, both = requested_by({GPU: 50}), requested_by({GPU: 200})

    assert requested_by({GPU: 150}) is None
    assert half is not None
    assert both is not None
    assert [((8192, 50),)] == list(grants([16384], half))
    assert [] == list(grants([16384], both))
    assert [((16384, 100), (16384, 100))] == list(grants([16384, 16384], both))
