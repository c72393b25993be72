"""Selectors that cost as much as the API server lets their authors make them cost."""

import random
from typing import Final

LENGTH: Final = 9_700
"""Characters; the API server takes 10,240."""
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


def patterns(driver: str, chance: random.Random, length: int = LENGTH) -> str:
    """Return a selector of many regular expressions that all fail to match: 5 ms on each device.

    Each is different from those before, and reads what is different on each device.
    """
    terms: list[str] = []
    while sum(map(len, terms)) + 4 * len(terms) < length - 100:
        first, second = chance.choices(LETTERS, k=2)
        terms.append(f'device.attributes["{driver}"].uuid.matches(".*{first}.*{second}!")')
    return " || ".join(terms)


def true_patterns(driver: str, chance: random.Random) -> str:
    """Return a selector of as many regular expressions that selects all devices of the driver."""
    head = f'device.driver == "{driver}" && '
    return f"{head}!({patterns(driver, chance, LENGTH - len(head))})"


def lists(chance: random.Random, length: int = LENGTH) -> str:
    """Return a selector that copies a long list for each of its elements: it ended the worker."""
    numbers = ",".join("1" * (length // 2 - 25))
    return f"[{numbers}].map(x, x + 1).size() > {chance.randrange(10**6, 10**9)}"


def honest(driver: str, length: int = 510) -> str:
    """Return a selector that is too long to be evaluated in place, and true on every device."""
    terms: list[str] = []
    while sum(map(len, terms)) + 4 * len(terms) < length - 60:
        terms.append(f'device.attributes["{driver}"].uuid == "none-{len(terms)}"')
    return " || ".join([*terms, f'device.driver == "{driver}"'])
