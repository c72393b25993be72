"""FirstFit: what Kubernetes itself does.

Devices: upstream's order, by pool, slice and place in the slice.

Nodes: of each request with alternatives, 8 points less the index of the chosen one, as a share of
the most that these requests can have; without alternatives 0 for every node.

====================================================  ======
chosen alternatives (0 is the first)                  score
====================================================  ======
none, all requests are `exactly`                      0
0                                                     100
1                                                     87
7                                                     12
0 and 7 of two requests                               56
====================================================  ======

Source: kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, computeScore, which
the scheduler then stretches so that the best node has 100.
"""

from typing import Final

from allocator.core.inventory import Place
from allocator.core.model import Asked, NodeDevices, Plan, Usage
from allocator.strategies.alternatives import ranks
from kube.api.resource import MAX_ALTERNATIVES


class FirstFit:
    """Upstream's devices, upstream's preference of nodes."""

    name = "FirstFit"
    places: tuple[Place, ...] = ()
    weighs = False

    def order(self, _node: NodeDevices, _usage: Usage, _asked: Asked) -> None:
        """Return None: upstream's order."""
        return

    def score(self, _node: NodeDevices, _usage: Usage, plan: Plan) -> int:
        """Return upstream's score as a share of the highest it could be."""
        chosen = ranks(plan)
        if not chosen:
            return 0
        most = MAX_ALTERNATIVES * len(chosen)
        return 100 * (most - sum(chosen)) // most


FIRST_FIT: Final = FirstFit()
