"""The kinds of pods that usually come, counted from those that came.

A pod counts once. What came long ago counts less: half as much after `HALF_LIFE_S`. An owner, such as a Job or a
Deployment, counts at most a tenth, or as much as each other one where there are fewer than ten; otherwise
one large Job would decide what the cluster keeps room for. Pods without an owner count each for themselves.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from allocator.strategies.pod_kinds import MAX_KINDS, DeviceDemand, PodKind

HALF_LIFE_S: Final = 24 * 3600.0
"""Seconds after which a pod counts half as much."""
MAX_SHARE: Final = 0.1
"""The share of all pods that one owner counts at most."""
MAX_COUNTS: Final = 2048
"""Kinds of owners that are remembered; of more the half that counts least is forgotten."""
MAX_SELECTORS: Final = 4096
"""Characters of the selectors of a kind. Pods with longer ones are not counted."""
MAX_DEMANDS: Final = 16
"""Requests of a kind. Pods with more are not counted."""
MAX_DIFFERENT_DEMANDS: Final = 128
"""Different requests of all kinds, each of which every decision compares with every device."""
MAX_WAIT: Final = 512
"""Pods after which the kinds are taken over again, at the latest."""
WHOLE: Final = 1000
"""The sum of the weights of kinds, roughly."""
MIN_CHANGE: Final = 200
"""The sum of the differences of weights from which kinds are taken over, that is where a tenth of the pods is of
another kind. All verdicts depend on the kinds, and between samples of a thousand pods there is as much by chance."""

_MOST_HALF_LIVES: Final = 40.0
"""Half-lives after which all weights are scaled down, so that none overflows."""

_Kind = tuple[tuple[DeviceDemand, ...], int, int]


class KindCounts:
    """The pods with devices that came, by kind and owner.

    Attributes:
        kinds: The kinds that were taken over last.
    """

    def __init__(self) -> None:
        """Begin without a pod."""
        self.kinds: tuple[PodKind, ...] = ()
        self._weights: dict[tuple[_Kind, str], float] = {}
        self._began_s: float | None = None
        self._total = 0
        self._next = 1

    def add(
        self,
        demands: tuple[DeviceDemand, ...],
        cpu_milli: int,
        memory: int,
        *,
        owner: str = "",
        at_s: float = 0.0,
    ) -> bool:
        """Count a pod; return True if other kinds are to be taken over.

        They are compared after 1, 2, 4, ... pods and then after every `MAX_WAIT`.

        Args:
            demands: Its devices; a pod without devices, or with very many, is not counted.
            cpu_milli: Its CPU, in thousandths of a core.
            memory: Its memory, in bytes.
            owner: The UID of its owner; empty if it has none.
            at_s: The time of its arrival, in seconds. The clock may begin anywhere.
        """
        selectors = sum(len(text) for demand in demands for text in demand.selectors)
        if not 0 < len(demands) <= MAX_DEMANDS or selectors > MAX_SELECTORS:
            return False
        if self._began_s is None:
            self._began_s = at_s
        # Later pods weigh more, which is as if earlier ones faded.
        half_lives = (at_s - self._began_s) / HALF_LIFE_S
        if half_lives > _MOST_HALF_LIVES:
            self._began_s = at_s
            # A power of minus thousands is 0, while one of thousands is no number.
            faded = 2.0**-half_lives
            self._weights = {key: old * faded for key, old in self._weights.items()}
            half_lives = 0.0
        weight = 2.0**half_lives
        key = ((demands, cpu_milli, memory), owner)
        self._weights[key] = self._weights.get(key, 0.0) + weight
        if len(self._weights) > MAX_COUNTS:
            latest_first = reversed(self._weights.items())
            heaviest = sorted(latest_first, key=lambda entry: entry[1], reverse=True)
            self._weights = dict(reversed(heaviest[: MAX_COUNTS // 2]))
        self._total += 1
        if self._total < self._next:
            return False
        self._next += min(self._next, MAX_WAIT)
        return self._renew()

    def _renew(self) -> bool:
        """Take the kinds over if enough weight moved; return True if it did."""
        kinds = self._most_frequent()
        before, after = _weights_of(self.kinds), _weights_of(kinds)
        moved = sum(abs(after.get(kind, 0) - before.get(kind, 0)) for kind in before | after)
        if moved < MIN_CHANGE:
            return False
        self.kinds = kinds
        return True

    def _most_frequent(self) -> tuple[PodKind, ...]:
        """Return the most frequent kinds, with weights in thousandths."""
        by_owner: defaultdict[str, float] = defaultdict(float)
        for (_, owner), weight in self._weights.items():
            by_owner[owner] += weight
        ownerless = by_owner.pop("", 0.0)
        most = _most_of_an_owner(by_owner.values(), ownerless)
        weights: defaultdict[_Kind, float] = defaultdict(float)
        for (kind, owner), weight in self._weights.items():
            weights[kind] += weight * min(1.0, most / by_owner[owner]) if owner else weight
        total = sum(weights.values())
        frequent = _within_bounds(sorted(weights.items(), key=lambda entry: entry[1], reverse=True))
        return tuple(
            PodKind(
                demands=demands,
                cpu_milli=cpu_milli,
                memory=memory,
                weight=max(1, int(WHOLE * weight / total)),
            )
            for (demands, cpu_milli, memory), weight in frequent
        )


def _within_bounds(frequent: Iterable[tuple[_Kind, float]]) -> list[tuple[_Kind, float]]:
    """Return the first of some kinds, without those that have too many further demands."""
    known_demands: set[DeviceDemand] = set()
    kinds: list[tuple[_Kind, float]] = []
    for kind, weight in frequent:
        demands = known_demands.union(kind[0])
        if len(demands) <= MAX_DIFFERENT_DEMANDS:
            known_demands = demands
            kinds.append((kind, weight))
        if len(kinds) == MAX_KINDS:
            break
    return kinds


def _most_of_an_owner(owned: Iterable[float], ownerless: float) -> float:
    """Return the weight that each owner counts at most, so that none has more than its share of the sum."""
    rest, largest = ownerless, sorted(owned, reverse=True)
    rest += sum(largest)
    for held_to_it, weight in enumerate(largest):
        share_of_others = 1 - MAX_SHARE * held_to_it
        if share_of_others <= 0:
            break
        most = MAX_SHARE * rest / share_of_others
        if weight <= most:
            return most
        rest -= weight
    # All are held to it: fewer than ten owners have more than a tenth each.
    return max(MAX_SHARE * ownerless, largest[-1]) if largest else 0.0


def _weights_of(kinds: Iterable[PodKind]) -> dict[_Kind, int]:
    return {(kind.demands, kind.cpu_milli, kind.memory): kind.weight for kind in kinds}
