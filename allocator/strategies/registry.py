"""All strategies by name, and the choice of the strategy of an attempt."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from allocator.strategies.best_fit import BEST_FIT, BestFit
from allocator.strategies.capacity_weights import CapacityWeights
from allocator.strategies.compact_first import COMPACT_FIRST, CompactFirst
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE, FragmentationAware
from allocator.strategies.low_load_first import LOW_LOAD_FIRST, LowLoadFirst
from allocator.strategies.node_compact_device_low_load import (
    NODE_COMPACT_DEVICE_LOW_LOAD,
    NodeCompactDeviceLowLoad,
)
from allocator.strategies.scheduler_policies import map_hami_policies
from allocator.strategies.strategy import Strategy
from allocator.strategies.topology_packed import TOPOLOGY_PACKED, TopologyPacked
from kube.errors import FieldError
from kube.names import STRATEGY_ANNOTATION

ALL: Final[tuple[Strategy, ...]] = (
    FIRST_FIT,
    COMPACT_FIRST,
    LOW_LOAD_FIRST,
    NODE_COMPACT_DEVICE_LOW_LOAD,
    TOPOLOGY_PACKED,
    BEST_FIT,
    FRAGMENTATION_AWARE,
)
"""The strategies in the order of messages and documentation."""

DEFAULT: Final = FIRST_FIT.name
"""The default, which behaves like the stock scheduler."""

PATH: Final = f"metadata.annotations[{STRATEGY_ANNOTATION}]"

HAMI_NODE_POLICY: Final = "hami.io/node-scheduler-policy"
HAMI_GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"

_BY_NAME: Final[Mapping[str, Strategy]] = {strategy.name: strategy for strategy in ALL}
_WEIGHTED: Final[Mapping[str, Callable[[CapacityWeights], Strategy]]] = {
    BEST_FIT.name: BestFit,
    COMPACT_FIRST.name: CompactFirst,
    FRAGMENTATION_AWARE.name: lambda weights: FragmentationAware(weights=weights),
    LOW_LOAD_FIRST.name: LowLoadFirst,
    NODE_COMPACT_DEVICE_LOW_LOAD.name: NodeCompactDeviceLowLoad,
    TOPOLOGY_PACKED.name: TopologyPacked,
}
"""Strategies that read loads."""
_MAX_SHOWN: Final = 40


SPREADING: Final = frozenset({"LowLoadFirst", "NodeCompactDeviceLowLoad"})
"""Strategies that spread shares over devices."""
ALLOCATES_LESS: Final = (
    "LowLoadFirst and NodeCompactDeviceLowLoad spread shares over devices, so fewer stay whole: on a production trace "
    "of 1,213 nodes they allocate 93.4 and 93.1 % of the GPUs, and kube-scheduler's own scores 93.8 %"
)
"""The cost of spreading. Source: docs/strategies.md."""


def find_strategy(name: str, path: str = "strategy") -> Strategy | FieldError:
    """Return the strategy with this name.

    Args:
        name: Name of the strategy.
        path: Field path of the name, for the error.

    >>> find_strategy("BestFit").name
    'BestFit'
    >>> print(find_strategy("binpack").message)
    "binpack" is not a strategy
    """
    strategy = _BY_NAME.get(name)
    if strategy is not None:
        return strategy
    shown_name = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
    return FieldError(
        path=path,
        message=f'"{shown_name}" is not a strategy',
        fix=f"one of {', '.join(_BY_NAME)}",
    )


@lru_cache(maxsize=64)
def with_weights(strategy: Strategy, weights: CapacityWeights) -> Strategy:
    """Return a strategy that counts capacities by weights; the same if it reads no loads."""
    build = _WEIGHTED.get(strategy.name)
    if build is None or not (weights.drivers or weights.pools):
        return strategy
    return build(weights)


def requested_strategy(
    pod_annotations: Mapping[str, str], class_annotations: Mapping[str, Mapping[str, str]]
) -> str | FieldError | None:
    """Return the name of the strategy that a pod or one of its DeviceClasses requests; None if none does.

    The pod's annotation comes before those of its DeviceClasses, and these before the configuration.
    HAMi's annotations on a pod count if ours is absent and they name a strategy; the translation
    reports what is lost in the mapping. All claims of a pod are allocated in one attempt with one
    strategy: if several classes name one, the first counts, in the order in which the pod's claims
    request them. No strategy changes whether a pod fits, so this never rejects a pod.

    Args:
        pod_annotations: Annotations of the pod; empty for a claim without a pod.
        class_annotations: Class name to annotations, in the order of the requests.

    >>> gpu, nic = {STRATEGY_ANNOTATION: "BestFit"}, {STRATEGY_ANNOTATION: "TopologyPacked"}
    >>> requested_strategy({}, {"gpu": gpu, "nic": nic})
    'BestFit'
    >>> requested_strategy({STRATEGY_ANNOTATION: "FirstFit"}, {"gpu": gpu})
    'FirstFit'
    >>> requested_strategy({HAMI_GPU_POLICY: "binpack"}, {"gpu": gpu})
    'CompactFirst'
    """
    value = pod_annotations.get(STRATEGY_ANNOTATION)
    if value is not None:
        return _validate_name(value, PATH)
    hami = map_hami_policies(
        pod_annotations.get(HAMI_NODE_POLICY), pod_annotations.get(HAMI_GPU_POLICY)
    )
    if hami.strategy is not None:
        return hami.strategy
    for name, annotations in class_annotations.items():
        value = annotations.get(STRATEGY_ANNOTATION)
        if value is not None:
            return _validate_name(value, f"deviceClass[{name}].{PATH}")
    return None


def _validate_name(value: str, path: str) -> str | FieldError:
    strategy = find_strategy(value.strip(), path)
    return strategy if isinstance(strategy, FieldError) else strategy.name
