"""FirstFit: the strategy of Kubernetes itself.

Devices: upstream's order, by pool, slice and place in the slice.

Nodes: for each request with alternatives, 8 points minus the index of the chosen one, as a share of
the maximum of these requests; without alternatives 0 for every node.

====================================================  ======
chosen alternatives (0 is the first)                  score
====================================================  ======
none, all requests are `exactly`                      0
0                                                     100
1                                                     87
7                                                     12
0 and 7 of two requests                               56
====================================================  ======

Source: kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, computeScore. The
scheduler then normalizes the scores so that the best node has 100.
"""

from typing import Final

from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField
from allocator.model.usage import Usage
from allocator.strategies.alternatives import chosen_alternatives
from allocator.strategies.capacity_weights import NO_WEIGHTS
from allocator.strategies.pod_kinds import PodKind
from kube.api.resource import MAX_ALTERNATIVES


class FirstFit:
    """Upstream's order of devices and upstream's score of nodes."""

    name = "FirstFit"
    fields: tuple[DeviceField, ...] = ()
    reads_capacities = False
    kinds: tuple[PodKind, ...] = ()
    weights = NO_WEIGHTS

    def order(self, _node: NodeDevices, _usage: Usage, _pending: PendingClaims) -> None:
        """Return None: upstream's order."""
        return

    def score(self, _node: NodeDevices, _usage: Usage, plan: Plan) -> int:
        """Return upstream's score as a share of its maximum."""
        alternatives = chosen_alternatives(plan)
        if not alternatives:
            return 0
        most = MAX_ALTERNATIVES * len(alternatives)
        return 100 * (most - sum(alternatives)) // most


FIRST_FIT: Final = FirstFit()
