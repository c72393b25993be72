"""The known name that is most similar to another one, in bounded time.

All names may be of users, who would choose the costliest: long names are not compared, and few are measured.
"""

import difflib
from collections.abc import Iterable
from functools import lru_cache
from heapq import nlargest
from itertools import takewhile
from typing import Final

MAX_SIMILAR_LENGTH: Final = 63
"""Characters of a name that is compared with others of users: the time grows with their square, and more."""
MAX_MEASURED: Final = 16
"""Names among those with the longest equal beginning or end that are measured."""
ALIKE: Final = 0.6
"""Part of the letters of two names that are equal where one may be meant by the other, as difflib has it."""
MISSPELT: Final = 0.8
"""Part of the letters of two names that are equal where one is probably a misspelling."""


def most_similar_name(name: str, candidates: Iterable[str], least_similarity: float) -> str:
    """Return the candidate most similar to a name; empty without one.

    >>> most_similar_name("trian", ["train", "serve"], MISSPELT)
    'train'
    """
    if len(name) > MAX_SIMILAR_LENGTH:
        return ""
    short = tuple(candidate for candidate in candidates if len(candidate) <= MAX_SIMILAR_LENGTH)
    return _most_similar(name, short, least_similarity)


@lru_cache(maxsize=16)
def _most_similar(name: str, short: tuple[str, ...], least_similarity: float) -> str:
    """Return the most similar candidate; a finding asks twice, for its words and for its rewrite."""
    nearest = nlargest(MAX_MEASURED, short, key=lambda candidate: _equal_end(name, candidate))
    closest = difflib.get_close_matches(name, nearest, n=1, cutoff=least_similarity)
    return closest[0] if closest else ""


def _equal_end(name: str, other: str) -> int:
    """Return the length of the longer of the equal beginning and the equal end of two names."""
    return max(equal_start(name, other), equal_start(name[::-1], other[::-1]))


def equal_start(name: str, other: str) -> int:
    """Return the length of the equal beginning of two texts."""
    pairs = zip(name, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
