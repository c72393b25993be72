"""The law of translation: the legacy scheduler could have granted all that ours grants, or it is told.

The reference is HAMi's Fit for one pod on unused cards: every choice of cards that its conditions
allow. Source: Project-HAMi/HAMi 4707fb0, pkg/device/nvidia/device.go, GenerateResourceRequests,
defaultExclusiveCoreIfNeeded and Fit, and pkg/scheduler/score.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.builders import HAMI
from testing.legacy import Amounts, Grant, LegacyPod, Scenario, run_scenario

pytestmark = pytest.mark.property

GPU, MEMORY, PERCENT, CORES = (
    f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores")
)
SPLIT_COUNT: Final = 10
TOLD: Final = frozenset({"wholeDevice", "notExclusive", "equalMemorySizes", "memorySizesMerged"})
"""The codes of findings that report a different grant of ours."""


class Card(NamedTuple):
    """A card, and the amounts that its consumers reserve."""

    total: int
    memory: int = 0
    cores: int = 0
    consumers: int = 0


class DeviceRequest(NamedTuple):
    """The request of one container for each card."""

    devices: int
    memory: int
    percent: int
    cores: int


def read_request(limits: Mapping[str, int]) -> DeviceRequest:
    """Read the keys of one container as HAMi does."""
    count = limits.get(GPU, 1 if limits else 0)
    memory, percent = limits.get(MEMORY, 0), limits.get(PERCENT, 0)
    if CORES in limits:
        cores = min(limits[CORES], 100)
    elif PERCENT in limits:
        cores = 100 if percent == 100 else 0
    else:
        cores = 0 if MEMORY in limits else 100
    return DeviceRequest(count, memory, 0 if memory else percent or 100, cores)


def with_consumer(card: Card, request: DeviceRequest) -> tuple[Card, Amounts] | None:
    """Return the card with one more consumer and that one's amounts; None if it does not fit."""
    memory = request.memory or card.total * request.percent // 100
    does_not_fit = (
        card.consumers >= SPLIT_COUNT
        or card.total - card.memory < memory
        or 100 - card.cores < request.cores
        or (request.cores == 100 and card.consumers > 0)
        or (request.cores == 0 and card.cores == 100)
    )
    if does_not_fit:
        return None
    used = Card(card.total, card.memory + memory, card.cores + request.cores, card.consumers + 1)
    return used, (memory, request.cores)


def grants(
    cards: Sequence[Card], containers: Sequence[DeviceRequest]
) -> Iterator[tuple[Amounts, ...]]:
    """Yield every combination of grants of a pod on the cards of one node."""
    if not containers:
        yield ()
        return
    first, *others = containers
    for chosen in combinations(range(len(cards)), first.devices):
        placed = [with_consumer(cards[index], first) for index in chosen]
        fitting = [first_values for first_values in placed if first_values is not None]
        if len(fitting) < len(placed):
            continue
        after = list(cards)
        for index, (card, _) in zip(chosen, fitting, strict=True):
            after[index] = card
        own = tuple(amounts for _, amounts in fitting)
        yield from ((*own, *rest) for rest in grants(after, others))


limits_of_one = st.fixed_dictionaries(
    {GPU: st.integers(1, 2)},
    optional={
        MEMORY: st.sampled_from((1000, 4000, 9000)),
        PERCENT: st.sampled_from((10, 33, 50, 100)),
        CORES: st.sampled_from((10, 50, 100)),
    },
)
nodes = st.dictionaries(
    st.sampled_from(("a", "b")),
    st.lists(st.sampled_from((8000, 10000, 16384)), min_size=1, max_size=3),
    min_size=1,
)


@given(nodes, st.lists(limits_of_one, min_size=1, max_size=2))
def test_ours_grants_nothing_that_hami_would_not_without_a_word(
    cards: dict[str, list[int]], containers: list[dict[str, int]]
) -> None:
    askeds = [read_request(limits) for limits in containers]
    possible = {
        tuple(sorted(amounts))
        for totals in cards.values()
        for amounts in grants([Card(total) for total in totals], askeds)
    }
    pod = LegacyPod(
        containers={f"c{index}": limits for index, limits in enumerate(containers)}, legacy=[]
    )
    scenario = Scenario(
        name="random",
        source="",
        nodes={name: [*totals] for name, totals in cards.items()},
        pods=(pod,),
    )

    (result,) = run_scenario(scenario, HAMI)

    texts = result.codes & TOLD
    if result.grant is None:
        assert not possible or texts, f"HAMi grants one of {sorted(possible)[:3]}"
    else:
        assert result.grant.gpus in possible or texts, f"HAMi grants none of {result.grant}"


def test_the_reference_refuses_and_grants() -> None:
    share, rest = read_request({GPU: 1, MEMORY: 6000}), read_request({GPU: 1})

    assert [((6000, 0),)] == list(grants([Card(10000)], [share]))
    assert list(grants([Card(10000)], [share, share])) == []
    assert list(grants([Card(10000)], [share, rest])) == []
    assert Grant(((10000, 100),)).gpus in list(grants([Card(10000)], [rest]))
