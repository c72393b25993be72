"""The containers of a pod, as the fix of a name that none of them has."""

from collections.abc import Sequence

from findings.similar_names import ALIKE, most_similar_name
from findings.text import join_names, quote_text


def suggest_container(name: str, names: Sequence[str]) -> str:
    """Return the fix of a name that no container of a pod has: the similar one, and the others.

    >>> suggest_container("torch", ["pytorch"])
    'did you mean "pytorch"? It is the only container'
    >>> suggest_container("x", ["pytorch", "proxy"])
    'write the name of a container: "pytorch", "proxy"'
    """
    similar = most_similar_name(name, names, ALIKE)
    listed_names = join_names([quote_text(container) for container in names])
    if not similar:
        return f"write the name of a container: {listed_names}"
    others = "It is the only container" if len(names) == 1 else f"The containers are {listed_names}"
    return f"did you mean {quote_text(similar)}? {others}"
