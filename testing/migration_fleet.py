"""A cluster of any size before a migration, the same for the same numbers.

Two of five nodes are HAMi's, the others have NVIDIA's device plugin. One namespace has six of ten
workloads, as `default` or `ml` often has; the others share the rest.
"""

import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from testing.migration import GPU, hami_node, plugin_node, workload

GPUS: Final = 8
"""Devices of a node."""
LARGE: Final = "ml"
"""The namespace with most workloads."""
_HAMI_OF_FIVE: Final = 2
_SHARES_OF_TEN: Final = 7
_LARGE_OF_TEN: Final = 6
_MOST_REPLICAS: Final = 8
_SHARE_MIB: Final = 10240
"""A quarter of the memory of a device of HAMi."""
_SHARES: Final = 4
"""Shares of a device."""
_SIZES: Final = {False: (1, 1, 1, 2, 2, 4, 8), True: (1, 1, 2)}
"""The sizes of a pod: whole devices, or shares of one device."""


class FleetSize(NamedTuple):
    """The size of a cluster.

    Attributes:
        nodes: The number of nodes with devices.
        workloads: Deployments.
        used_percent: The devices that the pods need; above 100 percent some wait for devices.
        namespaces: The number of namespaces beside the large one.
        seed: The seed of everything that is drawn by chance.
    """

    nodes: int
    workloads: int
    used_percent: int
    namespaces: int = 20
    seed: int = 12


def fleet(size: FleetSize) -> list[dict[str, Any]]:
    """Return the nodes, the Deployments and the pods of a cluster."""
    chance = random.Random(size.seed)
    names = [f"gpu-{number:03}" for number in range(size.nodes)]
    hami = [name for number, name in enumerate(names) if number % 5 < _HAMI_OF_FIVE]
    plugin = [name for number, name in enumerate(names) if number % 5 >= _HAMI_OF_FIVE]
    objects: list[dict[str, Any]] = [
        hami_node(name, GPUS) if name in set(hami) else plugin_node(name, GPUS) for name in names
    ]
    # What is free on a node: whole devices as one number, shares as one number for each device.
    free = {
        False: {name: [GPUS] for name in plugin},
        True: {name: [_SHARES] * GPUS for name in hami},
    }
    amounts = {
        is_share: sum(map(sum, nodes.values())) * size.used_percent // 100
        for is_share, nodes in free.items()
    }
    numbers = {
        is_share: [
            number for number in range(size.workloads) if (number % 10 < _SHARES_OF_TEN) is is_share
        ]
        for is_share in free
    }
    for is_share, members in numbers.items():
        for position, number in enumerate(members):
            mean = amounts[is_share] / (len(members) - position)
            amount = chance.choice([n for n in _SIZES[is_share] if n <= max(1, 2 * mean)])
            pods = max(1, min(_MOST_REPLICAS, round(mean / amount)))
            amounts[is_share] = max(0, amounts[is_share] - pods * amount)
            namespace = f"team-{number % size.namespaces:02}"
            objects += workload(
                f"web-{number:04}",
                _limits(amount, is_share=is_share),
                [_place(free[is_share], chance, amount) for _ in range(pods)],
                namespace=LARGE if number // 10 % 10 < _LARGE_OF_TEN else namespace,
            )
    return objects


def _limits(amount: int, *, is_share: bool) -> Mapping[str, str]:
    if is_share:
        return {GPU: "1", "nvidia.com/gpumem": str(amount * _SHARE_MIB)}
    return {GPU: str(amount)}


def _place(free: Mapping[str, list[int]], chance: random.Random, amount: int) -> str:
    """Return the node of a pod, any that has enough; empty if none has."""
    fitting = [name for name, parts in free.items() if max(parts) >= amount]
    if not fitting:
        return ""
    parts = free[chance.choice(fitting)]
    parts[next(index for index, left in enumerate(parts) if left >= amount)] -= amount
    return next(name for name, own in free.items() if own is parts)
