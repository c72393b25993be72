"""The metrics and labels that a PromQL expression names, against those that exist."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_METRIC: Final = re.compile(r"([a-z_:][a-z0-9_:]*)(?: (\w+))?(?: \{(.*)\})?")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABEL_LIST: Final = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
)
_MATCHERS: Final = re.compile(r"\{([^}]*)\}")
_WORD: Final = re.compile(r"(?<![\w:$.])[a-zA-Z_:][\w:]*")
_WORDS: Final = frozenset(
    {
        *("absent", "histogram_quantile", "increase", "max", "min", "min_over_time", "rate", "sum"),
        *("and", "count", "or", "time", "topk", "unless"),
    }
)
"""Functions and operators that are in use."""
_SCRAPED: Final = frozenset({"instance", "job", "namespace", "pod", "le"})
"""Labels that a scrape, or a histogram, adds."""
_SUFFIXES: Final = ("_bucket", "_count", "_sum")


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


def unknown_names(expression: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the metrics of an expression that do not exist, and the labels that none of them has.

    >>> unknown_names('sum by (a, c) (rate(x{b="1"}[5m])) > y', {"x": frozenset("a")})
    ['b', 'c', 'y']
    """
    text = _STRING.sub('""', expression)
    labels = {
        label.strip() for names in _LABEL_LIST.findall(text) for label in names.split(",") if names
    }
    labels |= {
        re.split(r"[=!]", matcher)[0].strip()
        for matchers in _MATCHERS.findall(text)
        for matcher in matchers.split(",")
    }
    bare = re.sub(r"\[[^]]*\]", "", _MATCHERS.sub("", _LABEL_LIST.sub("", text)))
    metrics = set(_WORD.findall(bare)) - _WORDS
    own = {label for metric in metrics for label in known.get(metric, ())}
    return sorted((metrics - known.keys()) | (labels - own - _SCRAPED - {""}))
