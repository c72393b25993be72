"""The numbers of parts that are tried for a wave, and those that fit. Pure."""

from collections.abc import Callable, Iterator


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
