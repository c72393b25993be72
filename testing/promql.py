"""The metrics and labels that a PromQL expression names, against those that exist.

A parser checks the syntax and the types, as `promtool check rules` does, whose build would take CI
minutes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector, parse, walk

_METRIC: Final = re.compile(r"([a-z_:][a-z0-9_:]*)(?: (\w+))?(?: \{(.*)\})?")
_SCRAPED: Final = frozenset({"cluster", "instance", "job", "namespace", "pod", "le"})
"""Labels that a scrape, or a histogram, adds."""
_SUFFIXES: Final = ("_bucket", "_count", "_sum")


class Names(NamedTuple):
    """The names in an expression; a selector without a metric has the empty name."""

    metrics: frozenset[str]
    labels: frozenset[str]


def known_metrics(lines: Iterator[str] | set[str]) -> Mapping[str, frozenset[str]]:
    """Return metric to labels, from the lines of `tools.public_names.metrics`."""
    known: dict[str, frozenset[str]] = {}
    for line in lines:
        match = _METRIC.fullmatch(line)
        assert match is not None, line
        name, kind, labels = match.groups()
        names = [name + suffix for suffix in _SUFFIXES] if kind == "histogram" else [name]
        known |= dict.fromkeys(names, frozenset((labels or "").replace(" ", "").split(",")) - {""})
    return known


def names_in(expression: str) -> Names:
    """Return the metrics and labels that an expression names.

    Raises:
        ValueError: It is not PromQL, or a function or an operator gets a value of a wrong type.
    """
    metrics: set[str] = set()
    labels: set[str] = set()

    def visit(node: Expr) -> None:
        match node:
            case VectorSelector():
                metrics.add(node.name or "")
                labels.update(matcher.name for matcher in node.matchers.matchers)
            case AggregateExpr() if node.modifier is not None:
                labels.update(node.modifier.labels)
            case BinaryExpr() if node.modifier is not None:
                labels.update(node.modifier.group_labels or ())
                if node.modifier.matching is not None:
                    labels.update(node.modifier.matching.labels)
            case _:
                pass

    walk(parse(expression), visit)
    return Names(frozenset(metrics), frozenset(labels))


def unknown_names(expression: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the metrics of an expression that do not exist, and the labels that none of them has.

    >>> unknown_names('sum by (a, c) (rate(x{b="1"}[5m])) > y', {"x": frozenset("a")})
    ['b', 'c', 'y']

    Raises:
        ValueError: As `names_in`.
    """
    names = names_in(expression)
    own = {label for metric in names.metrics for label in known.get(metric, ())}
    return sorted((names.metrics - known.keys()) | (names.labels - own - _SCRAPED))
