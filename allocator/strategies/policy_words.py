"""HAMi's and tensor-fusion's policy words as strategies.

Each word maps to what the other scheduler does for it, not to what it sounds like:

* HAMi judges nodes and cards apart. Without an annotation it packs nodes and spreads cards.
  `topology-aware` takes the best connected cards, or the worst connected one where one is asked;
  the nodes are still ordered by the node policy. `mutex` and `numa`, alone or in a list, say what
  a pod gets rather than where; the webhook turns them into the claim, and here they are passed over.
* HAMi's packing sorts cards by NUMA node before it sorts them by load; ours does not, since the
  one with the lower number is no fuller than the other.
* tensor-fusion's modes name our first two strategies and its default, for both levels.

Source: Project-HAMi/HAMi, pkg/scheduler/policy/{node,gpu}_policy.go, pkg/util/util.go,
IsValidGPUSchedulerPolicy, pkg/device/nvidia/device.go, Fit; NexusGPU/tensor-fusion,
internal/gpuallocator/gpuallocator.go, NewStrategy.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.node_compact_device_low_load import NODE_COMPACT_DEVICE_LOW_LOAD
from allocator.strategies.topology_packed import TOPOLOGY_PACKED

BINPACK: Final = "binpack"
SPREAD: Final = "spread"
TOPOLOGY_AWARE: Final = "topology-aware"

DEFAULT_NODE_POLICY: Final = BINPACK
"""HAMi's, when a pod names only a GPU policy."""
DEFAULT_GPU_POLICY: Final = SPREAD
"""HAMi's, when a pod names only a node policy."""

_ELSEWHERE: Final = frozenset({"mutex", "numa"})
_NODE_POLICIES: Final = (BINPACK, SPREAD)
_GPU_POLICIES: Final = (BINPACK, SPREAD, TOPOLOGY_AWARE)
_SHOWN: Final = 40


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """What foreign words mean here.

    Attributes:
        strategy: Name of a strategy; None where the words name none, or nothing was said.
        message: What is lost, or why there is none; empty where nothing is.
    """

    strategy: str | None = None
    message: str = ""


HAMI: Final[Mapping[tuple[str, str], Meaning]] = {
    (BINPACK, BINPACK): Meaning(strategy=COMPACT_FIRST.name),
    (BINPACK, SPREAD): Meaning(strategy=NODE_COMPACT_DEVICE_LOW_LOAD.name),
    (SPREAD, SPREAD): Meaning(strategy=LOW_LOAD_FIRST.name),
    (BINPACK, TOPOLOGY_AWARE): Meaning(strategy=TOPOLOGY_PACKED.name),
    (SPREAD, BINPACK): Meaning(
        strategy=LOW_LOAD_FIRST.name,
        message="no strategy spreads nodes and packs devices; both are spread",
    ),
    (SPREAD, TOPOLOGY_AWARE): Meaning(
        strategy=TOPOLOGY_PACKED.name,
        message="nodes are chosen by how near the devices are, not spread",
    ),
}
"""(node policy, GPU policy) to their meaning."""

TENSOR_FUSION: Final[Mapping[str, str]] = {
    "CompactFirst": COMPACT_FIRST.name,
    "LowLoadFirst": LOW_LOAD_FIRST.name,
    "NodeCompactGPULowLoad": NODE_COMPACT_DEVICE_LOW_LOAD.name,
}
"""Placement mode to the name of a strategy."""


def from_hami(node_policy: str | None, gpu_policy: str | None) -> Meaning:
    """Return what `hami.io/node-scheduler-policy` and `hami.io/gpu-scheduler-policy` ask for.

    Args:
        node_policy: One word; None where the annotation is absent.
        gpu_policy: Words with commas between them, of which the first that names a placement
            counts; None where the annotation is absent.

    >>> from_hami(None, "binpack").strategy, from_hami("spread", None).strategy
    ('CompactFirst', 'LowLoadFirst')
    >>> from_hami(None, "fastest")
    Meaning(strategy=None, message='"fastest" is no GPU policy of HAMi: binpack, spread, topology-aware')
    """
    nodes = (node_policy or "").strip()
    cards = [word.strip() for word in (gpu_policy or "").split(",") if word.strip()]
    if nodes and nodes not in _NODE_POLICIES:
        return _unknown(nodes, "node policy of HAMi", _NODE_POLICIES)
    for word in cards:
        if word not in _GPU_POLICIES and word not in _ELSEWHERE:
            return _unknown(word, "GPU policy of HAMi", _GPU_POLICIES)
    placements = [word for word in cards if word not in _ELSEWHERE]
    if not nodes and not placements:
        return Meaning()
    return HAMI[nodes or DEFAULT_NODE_POLICY, placements[0] if placements else DEFAULT_GPU_POLICY]


def from_tensor_fusion(mode: str | None) -> Meaning:
    """Return what a placement mode asks for.

    Unlike tensor-fusion, which takes any other word for its default.
    """
    if not mode:
        return Meaning()
    found = TENSOR_FUSION.get(mode)
    if found is None:
        return _unknown(mode, "placement mode of tensor-fusion", tuple(TENSOR_FUSION))
    return Meaning(strategy=found)


def _unknown(word: str, what: str, known: tuple[str, ...]) -> Meaning:
    shown = word if len(word) <= _SHOWN else f"{word[:_SHOWN]}..."
    return Meaning(message=f'"{shown}" is no {what}: {", ".join(known)}')
