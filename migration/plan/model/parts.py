"""The parts that get claims together: namespaces, or some workloads of a namespace; and their number in a wave. Pure.

A part of a namespace is workloads whose pod template gets a label, which is a rollout. So only `divisible`
workloads have parts, those whose new pods have the label.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads that get claims together.

    Attributes:
        workloads: The workloads whose templates get the label, as `Kind/namespace/name`; empty for
            all that are left of the namespace, whose own label does it.
    """

    namespace: str
    workloads: tuple[str, ...] = ()

    @property
    def completes(self) -> bool:
        """Return True if the namespace has claims as a whole with this part."""
        return not self.workloads

    def has_any(self, workloads: Iterable[str]) -> bool:
        """Return True if it has one of some workloads, as `Kind/namespace/name`."""
        return any(
            name.split("/")[1] == self.namespace if self.completes else name in self.workloads
            for name in workloads
        )


class Divisible(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads that can get claims by themselves, as `Kind/namespace/name`.

    Attributes:
        together: Sets of them of which none gets claims before the others.
    """

    workloads: frozenset[str]
    together: tuple[frozenset[str], ...] = ()

    def groups(self, workloads: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the workloads that move by themselves, with those that move together at the place of the last one.

        Args:
            workloads: Some of the workloads of a namespace, in their order.
        """
        left, groups = set(workloads), list[tuple[str, ...]]()
        for name in workloads:
            own = next((names for names in self.together if name in names), frozenset([name]))
            left.discard(name)
            if own.isdisjoint(left):
                groups.append(tuple(entry for entry in workloads if entry in own))
        return groups


class AwaitedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes for a namespace: the first switch of them comes before its opt-in as a whole.

    Attributes:
        workload: The workload with claims that its next pods need them for, as `Kind/namespace/name`, which moves by
            itself no earlier; empty for native pods of whole GPUs.
    """

    nodes: frozenset[str]
    workload: str = ""

    def is_for(self, part: Part) -> bool:
        """Return True if a part has to wait for them."""
        return part.completes or self.workload in part.workloads

    def text(self, part: str) -> str:
        """Return the text about them for a part."""
        if not self.workload:
            return f"{part} has pods of whole GPUs, and no node of their driver is switched by then"
        return f"the next pods of {self.workload} would get claims, and no node with devices for these is switched by then"


def whole_namespaces(
    names: Iterable[str], workloads: Iterable[AssessedWorkload]
) -> tuple[Part, ...]:
    """Return namespaces as parts, those with the fewest pods that have to move first.

    Pods of DaemonSets stay on their nodes, where they get claims with the node.
    """
    pods = Counter[str]()
    for workload in workloads:
        if workload.outcome is not Outcome.NATIVE and workload.key.kind != DAEMON_SET:
            pods[workload.key.namespace] += workload.pods
    return tuple(
        Part(namespace=name) for name in sorted(names, key=lambda name: (pods[name], name))
    )


def bare_pods(workloads: Iterable[AssessedWorkload]) -> Iterator[str]:
    """Yield the pods without a controller, as `Kind/namespace/name`: their author, such as a JupyterHub, creates the next ones."""
    return (workload.key.reference for workload in workloads if workload.key.kind == "Pod")


def servable_parts(
    names: Iterable[str],
    unserved: Collection[str],
    workloads: Sequence[AssessedWorkload],
    selected: Collection[str],
    divisible: Divisible,
    *,
    partial: Collection[str] = (),
) -> tuple[Part, ...]:
    """Return namespaces as parts, without the workloads that no node would serve with claims.

    A namespace with such a workload is never opted in as a whole.

    Args:
        names: The namespaces.
        unserved: The workloads that stay as they are, as `Kind/namespace/name`.
        workloads: The cluster's workloads.
        selected: Workloads that have claims already.
        divisible: Workloads that can get claims by themselves.
        partial: Further namespaces that are never opted in as a whole.
    """
    incomplete = {
        *partial,
        *(
            workload.key.namespace
            for workload in workloads
            if workload.key.reference in unserved and workload.outcome is not Outcome.NATIVE
        ),
    }
    servable: list[Part] = []
    for part in whole_namespaces(names, workloads):
        if part.namespace in incomplete:
            movable = _movable(part.namespace, workloads, selected, divisible.workloads)
            names = [entry.key.reference for entry in movable]
            servable += [
                Part(namespace=part.namespace, workloads=own)
                for own in divisible.groups([name for name in names if name not in unserved])
            ]
        else:
            servable.append(part)
    return tuple(servable)


def divide(
    parts: Sequence[Part],
    names: Collection[str],
    workloads: Sequence[AssessedWorkload],
    selected: Collection[str],
    divisible: Divisible,
    *,
    waiting: Collection[str] = (),
    staying: Collection[str] = (),
) -> tuple[Part, ...]:
    """Return parts with some namespaces divided into their workloads, those with the fewest pods first.

    Args:
        parts: Whole namespaces.
        names: The namespaces to divide.
        workloads: The cluster's workloads.
        selected: Workloads that have claims already.
        divisible: Workloads that can get claims by themselves.
        waiting: Namespaces whose own label may come too late, so that none of their workloads moves with it alone.
        staying: Workloads that run without a node that moves, which come last.
    """
    divided: list[Part] = []
    for part in parts:
        if part.namespace in names and part.completes:
            movable = _movable(part.namespace, workloads, selected, divisible.workloads)
            movable.sort(key=lambda workload: workload.key.reference in staying)
            count = sum(1 for _ in _getting_claims(part.namespace, workloads, selected))
            groups = divisible.groups([workload.key.reference for workload in movable])
            if len(movable) == count and part.namespace not in waiting:
                groups = groups[:-1]  # The last ones move with the namespace itself.
            divided += [Part(namespace=part.namespace, workloads=own) for own in groups]
        divided.append(part)
    return tuple(divided)


def _movable(
    namespace: str,
    workloads: Iterable[AssessedWorkload],
    selected: Collection[str],
    divisible: Collection[str],
) -> list[AssessedWorkload]:
    """Return the workloads of a namespace that can get claims by themselves, those with the fewest pods first."""
    getting_claims = _getting_claims(namespace, workloads, selected)
    return sorted(
        (workload for workload in getting_claims if workload.key.reference in divisible),
        key=lambda workload: (workload.pods, workload.key),
    )


def _getting_claims(
    namespace: str, workloads: Iterable[AssessedWorkload], selected: Collection[str]
) -> Iterator[AssessedWorkload]:
    """Yield the workloads of a namespace that have no claims yet, and are to get some."""
    for workload in workloads:
        if (
            workload.key.namespace == namespace
            and workload.result is not None
            and workload.outcome is not Outcome.NATIVE
            and workload.key.reference not in selected
        ):
            yield workload


def largest_fitting(fitting: int, too_many: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, between one that does and one that does not."""
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if fits(middle):
            fitting = middle
        else:
            too_many = middle
    return fitting


def share_of_wave(parts: int, size: int, nodes: int) -> int:
    """Return the number of parts that a wave should opt in.

    The last wave should have none: pods that are not opted in fit no switched node, so as long as there
    are such pods the last nodes of their system cannot be drained together.

    Args:
        parts: The number of parts that are not opted in.
        size: Nodes of this wave, and of each wave after it but the last.
        nodes: The number of nodes that are not switched, those of this wave among them.

    >>> [share_of_wave(12, 14, nodes) for nodes in (40, 26, 14, 12)]
    [6, 12, 12, 12]
    """
    left = nodes - size
    if left <= 0:
        return parts
    of_last_wave = (left - 1) % size + 1
    return -(-parts * size // (nodes - of_last_wave))


def numbers_to_try(share: int, most: int) -> Iterator[int]:
    """Yield the numbers of parts to try: the share, more up to all, then fewer.

    >>> list(numbers_to_try(2, 6)), list(numbers_to_try(0, 0))
    ([2, 3, 5, 6, 1, 0], [0])
    """
    yield share
    step, number = 1, share
    while number < most:
        number = min(number + step, most)
        yield number
        step *= 2
    step, number = 1, share
    while number > 0:
        number = max(number - step, 0)
        yield number
        step *= 2
