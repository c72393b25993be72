"""Names in DRA objects: duplicates, malformed qualified names, the closest known name."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.similar_names import ALIKE, MISSPELT, most_similar_name
from findings.text import quote_text
from rules.model.formats import A_LABEL, A_SUBDOMAIN, is_dns_subdomain, to_dns_label

LocatedName = tuple[FieldPath, str]
"""A path and the name there."""
MAX_COMPARED: Final = 128
"""Names among which the closest is searched."""
_NUMBER: Final = re.compile(r"[0-9]+")
MAX_LISTED: Final = 8
"""Names in one suggestion."""


def find_duplicates(
    names: Iterable[str], path: FieldPath, *, field: str = "name"
) -> Iterator[Finding]:
    """Yield a finding for every name that is used twice."""
    counts: Counter[str] = Counter()
    for index, name in enumerate(names):
        counts[name] += 1
        if counts[name] == 2:
            yield error(
                Code.DUPLICATE_NAME,
                path.child(index, field),
                f"duplicate name {quote_text(name)}",
                "use a unique name",
            )


def find_repeated_names(names: Iterable[str], path: FieldPath) -> Iterator[Finding]:
    """Yield a finding for every entry that repeats an earlier one, in a list of names."""
    earlier_names: set[str] = set()
    for index, name in enumerate(names):
        if name in earlier_names:
            yield error(
                Code.DUPLICATE_NAME,
                path.child(index),
                f"duplicate name {quote_text(name)}",
                "remove it",
            )
        earlier_names.add(name)


def find_unfit_names(
    names: Iterable[LocatedName], is_valid: Callable[[str], bool], expected_form: str
) -> Iterator[Finding]:
    """Yield a finding for every name that the API server rejects, with the expected form."""
    for path, name in names:
        if not is_valid(name):
            label = to_dns_label(name) if expected_form == A_LABEL else ""
            fix = f"use {quote_text(label)}" if label and label != name else ""
            message = f"{quote_text(name)} must be {expected_form}"
            yield error(Code.INVALID_NAME, path, message, fix)


def find_unfit_object_name(name: str) -> Iterator[Finding]:
    """Yield a finding for the name of an object that the API server rejects; it may be empty."""
    names = [(FieldPath.of("metadata", "name"), name)] if name else []
    yield from find_unfit_names(names, is_dns_subdomain, A_SUBDOMAIN)


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return a suggestion: the closest known name, or the known names.

    >>> suggest_name("gup", ["gpu", "nic"])
    'did you mean "gpu"?'
    >>> suggest_name("x", ["gpu", "nic"])
    'known names: "gpu", "nic"'
    """
    known_names = tuple(islice(names, MAX_COMPARED))
    closest = closest_name(name, known_names)
    return f"did you mean {quote_text(closest)}?" if closest else list_names(known_names)


def closest_name(name: str, names: Iterable[str]) -> str:
    """Return the known name that a suggestion names; empty if it lists several, or none.

    >>> closest_name("Gup", ["gpu", "nic"]), closest_name("x", ["gpu", "nic"])
    ('gpu', '')
    """
    names_by_lower = {known_name.lower(): known_name for known_name in islice(names, MAX_COMPARED)}
    closest = most_similar_name(name.lower(), names_by_lower, ALIKE)
    return names_by_lower[closest] if closest else ""


def find_similar_name(name: str, names: Iterable[str]) -> str:
    """Return the known name probably meant by a misspelt one; empty without one.

    Names that differ in a number are of a series.

    >>> find_similar_name("shraed-gpu", ["shared-gpu"]), find_similar_name("gpu-1", ["gpu-2"])
    ('shared-gpu', '')
    """
    stem = _NUMBER.sub("", name)
    candidates = (
        candidate for candidate in islice(names, MAX_COMPARED) if _NUMBER.sub("", candidate) != stem
    )
    return most_similar_name(name, candidates, MISSPELT)


def list_names(names: Iterable[str]) -> str:
    """Return a suggestion that lists the first known names; empty if there are none."""
    quoted_names = [quote_text(name) for name in names]
    if len(quoted_names) > MAX_LISTED:
        quoted_names = [*quoted_names[:MAX_LISTED], "..."]
    return f"known names: {', '.join(quoted_names)}" if quoted_names else ""


def find_malformed_names(names: Iterable[tuple[FieldPath, str]]) -> Iterator[Finding]:
    """Yield a finding for every name, with its path, that no selector can refer to."""
    for path, name in names:
        if name.count("/") > 1:
            domain, _, identifier = name.partition("/")
            yield error(
                Code.MALFORMED_QUALIFIED_NAME,
                path,
                f"{quote_text(name)} has several slashes; selectors read domain"
                f" {quote_text(domain)} and identifier {quote_text(identifier)}",
                "use one domain, one slash and a C identifier",
            )
