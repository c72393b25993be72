"""The placement policies of HAMi and tensor-fusion, mapped to strategies.

A policy maps to the strategy that orders devices and nodes alike, where that allocates as many GPUs as the stock
scheduler on a production trace (docs/strategies.md). Those that spread shares over devices do not, and map to
FirstFit; the message names their strategy, for who wants it all the same. It is the one for what the other
scheduler does, not for what the name of the policy suggests:

* HAMi scores nodes and cards separately. Without an annotation it packs nodes and spreads cards.
  `topology-aware` takes the best connected cards, or the worst connected card for a request of one;
  nodes are still ordered by the node policy. `mutex` and `numa`, alone or in a list, are ignored here:
  the webhook translates `mutex` into the claim, and warns that it drops `numa`, a preference.
* HAMi's packing sorts cards by NUMA node before load; ours does not, since a card with a lower
  number is not fuller.
* tensor-fusion's modes name our first two strategies and its default, for both levels.

Source: Project-HAMi/HAMi, pkg/scheduler/policy/{node,gpu}_policy.go, pkg/util/util.go,
IsValidGPUSchedulerPolicy, pkg/device/nvidia/device.go, Fit; NexusGPU/tensor-fusion,
internal/gpuallocator/gpuallocator.go, NewStrategy.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.node_compact_device_low_load import NODE_COMPACT_DEVICE_LOW_LOAD
from allocator.strategies.topology_packed import TOPOLOGY_PACKED
from kube.names import STRATEGY_ANNOTATION

BINPACK: Final = "binpack"
SPREAD: Final = "spread"
TOPOLOGY_AWARE: Final = "topology-aware"

DEFAULT_NODE_POLICY: Final = BINPACK
"""HAMi's, when a pod names only a GPU policy."""
DEFAULT_GPU_POLICY: Final = SPREAD
"""HAMi's, when a pod names only a node policy."""

_NO_PLACEMENT: Final = frozenset({"mutex", "numa"})
_NODE_POLICIES: Final = (BINPACK, SPREAD)
_GPU_POLICIES: Final = (BINPACK, SPREAD, TOPOLOGY_AWARE)
_MAX_SHOWN: Final = 40


class PolicyMapping(msgspec.Struct, frozen=True, kw_only=True):
    """The strategy for a policy of another scheduler.

    Attributes:
        strategy: Name of the strategy; None if no policy is set or the policy is unknown.
        message: The loss of the mapping, or the reason there is none; empty if nothing is lost.
    """

    strategy: str | None = None
    message: str = ""


def _alike(strategy: str, loss: str = "") -> PolicyMapping:
    """Return the mapping of a policy to the strategy that orders devices alike."""
    return PolicyMapping(strategy=strategy, message=loss)


def _first_fit(strategy: str, loss: str = "") -> PolicyMapping:
    """Return the mapping of a policy with a strategy that spreads shares over devices."""
    more = f"; {loss}" if loss else ""
    return PolicyMapping(
        strategy=FIRST_FIT.name,
        message=f"FirstFit is used, since {strategy}, which orders devices so, spreads shares over devices, of which "
        f"fewer stay whole; to have it all the same, set {STRATEGY_ANNOTATION}: {strategy}{more}",
    )


HAMI: Final[Mapping[tuple[str, str], PolicyMapping]] = {
    (BINPACK, BINPACK): _alike(COMPACT_FIRST.name),
    (BINPACK, SPREAD): _first_fit(NODE_COMPACT_DEVICE_LOW_LOAD.name),
    (SPREAD, SPREAD): _first_fit(LOW_LOAD_FIRST.name),
    (BINPACK, TOPOLOGY_AWARE): _alike(TOPOLOGY_PACKED.name),
    (SPREAD, BINPACK): _first_fit(
        LOW_LOAD_FIRST.name, "no strategy spreads nodes and packs devices; both are spread"
    ),
    (SPREAD, TOPOLOGY_AWARE): _alike(
        TOPOLOGY_PACKED.name, "nodes are chosen by how near the devices are, not spread"
    ),
}
"""Node policy and GPU policy to the strategy."""

TENSOR_FUSION: Final[Mapping[str, PolicyMapping]] = {
    "CompactFirst": _alike(COMPACT_FIRST.name),
    "LowLoadFirst": _first_fit(LOW_LOAD_FIRST.name),
    "NodeCompactGPULowLoad": _first_fit(NODE_COMPACT_DEVICE_LOW_LOAD.name),
}
"""Placement mode to the strategy."""


def map_hami_policies(node_policy: str | None, gpu_policy: str | None) -> PolicyMapping:
    """Map `hami.io/node-scheduler-policy` and `hami.io/gpu-scheduler-policy` to a strategy.

    Args:
        node_policy: Value of the first annotation; None if absent.
        gpu_policy: Value of the second annotation, a comma-separated list of which the first
            placement policy counts; None if absent.

    >>> map_hami_policies(None, "binpack").strategy, map_hami_policies("spread", None).strategy
    ('CompactFirst', 'FirstFit')
    >>> map_hami_policies(None, "fastest")
    PolicyMapping(strategy=None, message='"fastest" is not a GPU policy of HAMi: binpack, spread, topology-aware')
    """
    nodes = (node_policy or "").strip()
    cards = [word.strip() for word in (gpu_policy or "").split(",") if word.strip()]
    if nodes and nodes not in _NODE_POLICIES:
        return _unknown(nodes, "node policy of HAMi", _NODE_POLICIES)
    for word in cards:
        if word not in _GPU_POLICIES and word not in _NO_PLACEMENT:
            return _unknown(word, "GPU policy of HAMi", _GPU_POLICIES)
    placements = [word for word in cards if word not in _NO_PLACEMENT]
    if not nodes and not placements:
        return PolicyMapping()
    return HAMI[nodes or DEFAULT_NODE_POLICY, placements[0] if placements else DEFAULT_GPU_POLICY]


def map_tensor_fusion_mode(mode: str | None) -> PolicyMapping:
    """Map a placement mode to a strategy.

    Unlike tensor-fusion, reject an unknown mode instead of using the default.
    """
    if not mode:
        return PolicyMapping()
    mapping = TENSOR_FUSION.get(mode)
    if mapping is None:
        return _unknown(mode, "placement mode of tensor-fusion", tuple(TENSOR_FUSION))
    return mapping


def _unknown(word: str, what: str, known_words: tuple[str, ...]) -> PolicyMapping:
    shown_word = word if len(word) <= _MAX_SHOWN else f"{word[:_MAX_SHOWN]}..."
    return PolicyMapping(message=f'"{shown_word}" is not a {what}: {", ".join(known_words)}')
