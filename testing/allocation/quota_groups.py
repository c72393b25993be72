"""Random groups of pods with a DeviceQuota, and the largest placement within it, found by trying all of them."""

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Final, NamedTuple

NETWORK: Final = "network"
NODES: Final = ("node-a", "node-b", "node-c")


class Card(NamedTuple):
    """A device: its pool, named as the node or NETWORK, its amounts, and its model."""

    pool: str
    name: str
    memory: int
    cores: int
    model: str


class Wanted(NamedTuple):
    """The claim of a pod; an empty model takes any."""

    name: str
    devices: int
    model: str


class Case(NamedTuple):
    """A group on a cluster with limits on memory, cores and the number of devices."""

    cards: tuple[Card, ...]
    pods: tuple[tuple[Wanted, ...], ...]
    needs: int
    limits: tuple[int, int, int]

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [name for name in NODES if any(card.pool == name for card in self.cards)]


def random_case(seed: int) -> Case:
    """At most 3 pods, 3 nodes and 3 devices on each; some see a device in a network, or share a claim."""
    rng = Random(seed)
    pools = list(NODES[: rng.choice((1, 2, 3, 3))])
    if rng.random() < 0.2:
        pools.append(NETWORK)
    sizes = rng.choice(((1, 2), (1, 2, 4), (1, 3, 4)))
    is_uniform = rng.random() < 0.3
    cards: list[Card] = []
    for pool in pools:
        size = rng.choice(sizes), rng.choice(sizes)
        for number in range(rng.randint(1, 2 if pool == NETWORK else 3)):
            memory, cores = size if is_uniform else (rng.choice(sizes), rng.choice(sizes))
            cards.append(Card(pool, f"gpu-{number}", memory, cores, rng.choice("xxy")))
    shape = rng.choice((1, 1, 2)), rng.choice(("", "", "x"))
    common = Wanted("common", 1, "")
    has_common = rng.random() < 0.2
    pods: list[tuple[Wanted, ...]] = []
    for number in range(rng.choice((1, 2, 2, 3, 3))):
        if rng.random() < 0.3:
            shape = rng.choice((1, 1, 2)), rng.choice(("", "", "x"))
        shared = (common,) if has_common and rng.random() < 0.7 else ()
        is_launcher = number > 0 and rng.random() < 0.1
        own = () if is_launcher else (Wanted(f"p{number}", *shape),)
        pods.append((*own, *shared))
    total = sum(wanted.devices for claims in pods for wanted in claims)
    return Case(
        cards=tuple(cards),
        pods=tuple(pods),
        needs=rng.randint(max(1, len(pods) - 1), len(pods)),
        limits=(
            rng.randint(1, 2 * total + 1),
            rng.randint(total, 4 * total) if rng.random() < 0.4 else 99,
            rng.randint(1, total + 1) if rng.random() < 0.2 else 99,
        ),
    )


def most_members(case: Case) -> int:
    """The number of members of the largest placement within the limits, found by trying all of them."""
    names = case.nodes
    best = 0

    def visit(number: int, placed: int, used: frozenset[Card], common: str) -> None:
        nonlocal best
        best = max(best, placed)
        if number == len(case.pods) or placed + len(case.pods) - number <= best:
            return
        for name in names:
            for taken, then in _choices(case.pods[number], case.cards, used, name, common):
                if is_within(used | taken, case.limits):
                    visit(number + 1, placed + 1, used | taken, then)
        visit(number + 1, placed, used, common)

    visit(0, 0, frozenset(), "")
    return best


def _choices(
    claims: tuple[Wanted, ...],
    cards: tuple[Card, ...],
    used: frozenset[Card],
    name: str,
    common: str,
) -> Iterator[tuple[frozenset[Card], str]]:
    """Yield the cards for claims on a node, and the place of the shared claim then."""
    if not claims:
        yield frozenset(), common
        return
    wanted, rest = claims[0], claims[1:]
    if wanted.name == "common" and common:
        if common in {name, NETWORK}:
            yield from _choices(rest, cards, used, name, common)
        return
    free = [
        card
        for card in cards
        if card not in used and card.pool in {name, NETWORK} and wanted.model in {"", card.model}
    ]
    for chosen in combinations(free, wanted.devices):
        then = common
        if wanted.name == "common":
            then = chosen[0].pool
        for others, last in _choices(rest, cards, used | set(chosen), name, then):
            yield frozenset(chosen) | others, last


def is_within(used: frozenset[Card], limits: tuple[int, int, int]) -> bool:
    memory, cores, devices = limits
    return (
        sum(card.memory for card in used) <= memory
        and sum(card.cores for card in used) <= cores
        and len(used) <= devices
    )
