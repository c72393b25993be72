"""A cache of the nodes that pods may use, shared by pods with the same demands on a node.

Of a cluster with several kinds of nodes a pod may often use one kind only, and a decision about it
looks at all the others, too. Users choose how long the demands of a pod are, so long ones are charged to the answer
for each node. What is known of nodes by its end is kept, so that the next attempt gets further.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from allocator.pods.node_eligibility import demands_on_nodes, is_eligible
from kube.api.core import Node, Pod
from kube.cel.scope import current_scope
from kube.collections.least_recently_used import LeastRecentlyUsed

MAX_DEMANDS: Final = 32
"""Kinds of pods of which is remembered which nodes they may use."""
FREE_BYTES: Final = 1024
"""Bytes of a pod's demands, as JSON, that are compared with a node at no charge."""
BYTES_PER_STEP: Final = 128
"""Bytes of longer demands that are compared with a node in a step, some 3 us."""
MAX_NODES: Final = 16_384
"""Nodes that are remembered; beyond it all are forgotten, since nodes come and go for years."""


class EligibleNodes:
    """The nodes that pods may use, as decided by `is_eligible`. Not thread-safe."""

    def __init__(self) -> None:
        self._numbers = LeastRecentlyUsed[bytes, int](MAX_DEMANDS)
        self._last_number = 0
        # Name to the node as it was then, and number of a demand to whether the node meets it.
        self._answers: dict[str, tuple[Node, dict[int, bool]]] = {}

    def of(self, pod: Pod) -> Callable[[Node], bool]:
        """Return a predicate that is true for the nodes that a pod may use.

        It raises AnswerInterrupted where the answer in whose scope it is called may not take so long.

        >>> from kube.api.meta import ObjectMeta
        >>> EligibleNodes().of(Pod())(Node(metadata=ObjectMeta(name="a")))
        True
        """
        key = demands_on_nodes(pod.spec)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._last_number = self._last_number + 1
        steps = len(key) // BYTES_PER_STEP if len(key) > FREE_BYTES else 0
        return partial(self._is_eligible, pod, number, steps)

    def _is_eligible(self, pod: Pod, number: int, steps: int, node: Node) -> bool:
        name = node.metadata.name
        remembered = self._answers.get(name)
        # A node that changes is another object.
        if remembered is None or remembered[0] is not node:
            if len(self._answers) >= MAX_NODES:
                self._answers.clear()
            remembered = self._answers[name] = node, {}
        answers = remembered[1]
        answer = answers.get(number)
        if answer is None:
            if steps:
                current_scope().meter.count(steps)
            if len(answers) >= 2 * MAX_DEMANDS:  # Most of them are of demands that are forgotten.
                answers.clear()
            answer = answers[number] = is_eligible(pod, node)
        return answer
