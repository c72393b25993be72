"""Shares that are counted in percent of a card's cores and in blocks of its memory, per container.

Below 100 percent a container gets a share of one card, with an amount of memory. Multiples of 100 are
whole cards. What the systems that count so have in common; each is a file in `vocabularies`.
"""

from collections.abc import Iterator

import msgspec

from findings.finding import Code, Finding
from translation.model.intents import DeviceKind, Intent, LegacyContainer
from translation.model.share_amounts import AmountReader, Unit, in_bytes


class CardShare(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one system.

    Attributes:
        cores: The resource name of percents of a card.
        memory: The resource name of the memory.
        unit: The unit of the memory.
        step: Percentages below 100 are multiples of this.
        memory_only: A container may request memory without cores, which sets no limit of cores.
    """

    cores: str
    memory: str
    unit: Unit
    step: int = 1
    memory_only: bool = False


def translate_share(
    container: LegacyContainer, share: CardShare, findings: list[Finding], *, cards: int = 1
) -> Iterator[Intent]:
    """Yield the intent for the cards of a container; none for zero amounts.

    Args:
        cards: The number of cards among which the amounts are divided, at least 1.
    """
    if not (share.cores in container.limits or share.memory in container.limits):
        return
    faults: list[Finding] = []
    reader = AmountReader(container, faults)
    cores, memory = reader.integer(share.cores), reader.memory(share.memory, share.unit)
    if not faults:
        _check(reader, share, cores or 0, memory, cards)
    findings += faults
    if faults or not (cores or memory):
        return
    paths = container.limit_paths(
        {"count": share.cores, "cores": share.cores, "memory": share.memory}
    )
    paths.setdefault("count", container.limit_path(share.memory))
    whole = cores is not None and cores >= 100 and cores == 100 * max(cards, cores // 100)
    if whole and cores is not None:
        yield Intent(
            container=container.name,
            kind=DeviceKind.GPU,
            count=cores // 100,
            exclusive=True,
            cores_percent=100,
            paths=paths,
        )
        return
    yield Intent(
        container=container.name,
        kind=DeviceKind.GPU,
        count=cards,
        memory=in_bytes((memory or 0) // cards, share.unit),
        cores_percent=(cores or 0) // cards,
        paths=paths,
    )


def _of_each(share: CardShare, cores: int, memory: int | None, cards: int) -> str:
    """Return the totals for the amounts that a container has, if they are those of each card."""
    amounts = [(share.cores, cores), (share.memory, memory or 0)]
    totals = [f"{key}: {amount * cards}" for key, amount in amounts if amount]
    parts = [str(amount) for _, amount in amounts if amount]
    return f"{' and '.join(totals)} for {' and '.join(parts)} of each card"


def _check(
    reader: AmountReader, share: CardShare, cores: int, memory: int | None, cards: int
) -> None:
    """Add an error for amounts that are no share of so many cards."""
    if cards == 1 and cores > 100 and cores % 100:
        reader.fail(
            Code.OUT_OF_RANGE,
            share.cores,
            f"{cores} percent is neither a share of one card nor a number of whole cards",
            "write at most 100, or a multiple of 100",
        )
    elif cores < 100 and cores % share.step:
        reader.fail(
            Code.OUT_OF_RANGE,
            share.cores,
            f"{cores} percent is not a multiple of {share.step}",
            f"write a multiple of {share.step}",
        )
    elif not cores and memory and not share.memory_only:
        reader.fail(
            Code.INVALID_COMBINATION,
            share.memory,
            f"requests no card without {share.cores}",
            f"add {share.cores}",
        )
    elif cards > 1 and (cores % cards or (memory or 0) % cards):
        key, amount = (share.cores, cores) if cores % cards else (share.memory, memory or 0)
        part = amount // cards + 1
        reader.fail(
            Code.INVALID_COMBINATION,
            key,
            f"{amount} cannot be divided among {cards} cards: amounts are totals of all cards",
            f"write {_of_each(share, cores, memory, cards)}, or {key}: {part * cards} for {part} of each",
        )
    elif cards > 1 and cores > 100 * cards:
        reader.fail(
            Code.OUT_OF_RANGE,
            share.cores,
            f"{cores} percent is more than {cards} cards have",
            f"write at most {100 * cards}",
            right=100 * cards,
        )
    elif cores and cores % (100 * cards) and not memory:
        reader.fail(
            Code.MEMORY_AMOUNT_REQUIRED,
            share.cores,
            f"a share of a card needs an amount of memory, {share.memory}",
            f"add {share.memory}",
        )
