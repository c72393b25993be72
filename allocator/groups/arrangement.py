"""The arrangement of a group among nodes that the strategy of its claims stands for."""

from collections.abc import Mapping
from typing import Final

from allocator.groups.model import Arrangement
from allocator.strategies.by_node_pool import StrategyByPool
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.strategy import Strategy

_ARRANGEMENTS: Final[Mapping[str, Arrangement]] = {
    FIRST_FIT.name: Arrangement.FIRST_FIT,
    LOW_LOAD_FIRST.name: Arrangement.SPREAD,
}


def arrangement_of(strategy: Strategy) -> Arrangement:
    """Return the arrangement of a group among nodes that a strategy stands for.

    Members are close to each other with every strategy that does not spread.

    >>> arrangement_of(FIRST_FIT)
    <Arrangement.FIRST_FIT: 'FirstFit'>
    """
    if isinstance(strategy, StrategyByPool):
        # Members of a group may be in several pools, so these do not decide how it is spread.
        return arrangement_of(strategy.default)
    return _ARRANGEMENTS.get(strategy.name, Arrangement.PACKED)
