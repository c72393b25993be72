from typing import NamedTuple

import pytest

from allocator.strategies.registry import SPREADING, find_strategy
from allocator.strategies.scheduler_policies import (
    HAMI,
    TENSOR_FUSION,
    PolicyMapping,
    map_hami_policies,
    map_tensor_fusion_mode,
)
from kube.errors import FieldError
from kube.names import STRATEGY_ANNOTATION


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
        '"random" is not a node policy of HAMi: binpack, spread',
    ),
    Row(
        "an unknown GPU policy in a list",
        *(None, "binpack,fastest", None),
        '"fastest" is not a GPU policy of HAMi: binpack, spread, topology-aware',
    ),
    Row(
        "case counts, as in HAMi",
        *(None, "BinPack", None),
        '"BinPack" is not a GPU policy of HAMi: binpack, spread, topology-aware',
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_map_hami_policies(row: Row) -> None:
    mapping = map_hami_policies(row.node, row.gpu)

    if row.want is None:
        assert mapping == PolicyMapping(message=row.message)
        return
    if row.want not in SPREADING:
        assert mapping == PolicyMapping(strategy=row.want, message=row.message)
        return
    assert mapping.strategy == "FirstFit"
    assert f"{row.want}, which orders devices so, spreads shares over devices" in mapping.message
    assert mapping.message.endswith(row.message or f"{STRATEGY_ANNOTATION}: {row.want}")


def test_modes_of_tensor_fusion() -> None:
    modes = (None, "", "CompactFirst", "LowLoadFirst", "NodeCompactGPULowLoad", "Compact")

    policy_mappings = [map_tensor_fusion_mode(mode) for mode in modes]

    assert [mapping.strategy for mapping in policy_mappings] == [
        *(None, None),
        *("CompactFirst", "FirstFit", "FirstFit"),
        None,
    ]
    assert [mapping.message.rpartition(": ")[2] for mapping in policy_mappings[2:5]] == [
        "",
        "LowLoadFirst",
        "NodeCompactDeviceLowLoad",
    ]
    assert policy_mappings[5].message == (
        '"Compact" is not a placement mode of tensor-fusion: '
        "CompactFirst, LowLoadFirst, NodeCompactGPULowLoad"
    )


def test_every_policy_maps_to_a_strategy() -> None:
    meanings = (*HAMI.values(), *TENSOR_FUSION.values())
    names = [meaning.strategy or "" for meaning in meanings]

    assert [] == [name for name in names if isinstance(find_strategy(name), FieldError)]


def test_a_hostile_word_is_cut() -> None:
    assert len(map_hami_policies(None, "x" * 10_000).message) < 150
