from typing import NamedTuple

import pytest

from allocator.strategies.policy_words import (
    HAMI,
    TENSOR_FUSION,
    Meaning,
    from_hami,
    from_tensor_fusion,
)
from allocator.strategies.registry import strategy
from kube.errors import FieldError


class Row(NamedTuple):
    name: str
    node: str | None
    gpu: str | None
    want: str | None
    message: str = ""


ROWS = (
    Row("nothing said", None, None, None),
    Row("blank is nothing", " ", "", None),
    Row("packed on both levels", "binpack", "binpack", "CompactFirst"),
    Row("HAMi's defaults, said aloud", "binpack", "spread", "NodeCompactDeviceLowLoad"),
    Row("spread on both levels", "spread", "spread", "LowLoadFirst"),
    Row("packed GPUs on packed nodes by default", None, "binpack", "CompactFirst"),
    Row("spread GPUs on packed nodes by default", None, "spread", "NodeCompactDeviceLowLoad"),
    Row("spread nodes, spread GPUs by default", "spread", None, "LowLoadFirst"),
    Row("packed nodes, spread GPUs by default", "binpack", None, "NodeCompactDeviceLowLoad"),
    Row("topology", None, "topology-aware", "TopologyPacked"),
    Row(
        "topology on spread nodes",
        *("spread", "topology-aware", "TopologyPacked"),
        "nodes are chosen by how near the devices are, not spread",
    ),
    Row(
        "what we have no strategy for",
        *("spread", "binpack", "LowLoadFirst"),
        "no strategy spreads nodes and packs devices; both are spread",
    ),
    Row("the first placement of a list", None, "numa, binpack,spread", "CompactFirst"),
    Row("words for the claim alone", None, "mutex,numa", None),
    Row("and with a node policy", "spread", "mutex", "LowLoadFirst"),
    Row(
        "an unknown node policy",
        *("random", "binpack", None),
        '"random" is no node policy of HAMi: binpack, spread',
    ),
    Row(
        "an unknown GPU policy in a list",
        *(None, "binpack,fastest", None),
        '"fastest" is no GPU policy of HAMi: binpack, spread, topology-aware',
    ),
    Row(
        "case counts, as in HAMi",
        *(None, "BinPack", None),
        '"BinPack" is no GPU policy of HAMi: binpack, spread, topology-aware',
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_from_hami(row: Row) -> None:
    assert Meaning(strategy=row.want, message=row.message) == from_hami(row.node, row.gpu)


def test_modes_of_tensor_fusion() -> None:
    modes = (None, "", "CompactFirst", "LowLoadFirst", "NodeCompactGPULowLoad", "Compact")

    got = [from_tensor_fusion(mode) for mode in modes]

    assert [
        Meaning(),
        Meaning(),
        Meaning(strategy="CompactFirst"),
        Meaning(strategy="LowLoadFirst"),
        Meaning(strategy="NodeCompactDeviceLowLoad"),
        Meaning(
            message='"Compact" is no placement mode of tensor-fusion: '
            "CompactFirst, LowLoadFirst, NodeCompactGPULowLoad"
        ),
    ] == got


def test_every_word_means_a_strategy_that_exists() -> None:
    names = [meaning.strategy or "" for meaning in HAMI.values()] + list(TENSOR_FUSION.values())

    assert [] == [name for name in names if isinstance(strategy(name), FieldError)]


def test_a_hostile_word_is_cut() -> None:
    assert len(from_hami(None, "x" * 10_000).message) < 150
