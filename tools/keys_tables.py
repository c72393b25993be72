"""The generated tables of docs/vocabularies.md: every name of every vocabulary.

Each table is between two markers; the text around them is written by hand.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from translation.cluster.routing import OWN, OWN_DRIVER, ROUTES
from translation.model.device_families import BOOKKEEPING, FAMILIES
from translation.model.keys import Key, Table
from translation.reading.arbiter import VOCABULARIES
from translation.reading.workload_kinds import WORKLOAD_KINDS, Shape

PAGE: Final = Path(__file__).parent.parent / "docs" / "vocabularies.md"
BEGIN: Final = "<!-- keys of {name}, generated from its table in translation/vocabularies -->\n"
FAMILIES_BEGIN: Final = (
    "<!-- keys that are not translated, generated from translation/model/device_families.py -->\n"
)
FAMILIES_HEADER: Final = (
    "| resources | annotations | keys of | what to do |\n| --- | --- | --- | --- |\n"
)
ROUTES_BEGIN: Final = "<!-- routes, generated from translation/cluster/routing.py -->\n"
ROUTES_HEADER: Final = (
    "| the keys of a vocabulary request | candidates, best first |\n| --- | --- |\n"
)
KINDS_BEGIN: Final = (
    "<!-- kinds of other projects, generated from translation/reading/workload_kinds.py -->\n"
)
KINDS_HEADER: Final = (
    "| apiVersion | kind | pods | in files | what its controller reads |\n"
    "| --- | --- | --- | --- | --- |\n"
)
END: Final = "<!-- end of keys -->\n"
HEADER: Final = "| name | place | unit | outcome | details |\n| --- | --- | --- | --- | --- |\n"


def page() -> str:
    """Return the page with its tables generated anew.

    Raises:
        LookupError: A vocabulary has no place for its table.
    """
    text = PAGE.read_text()
    for name, vocabulary in VOCABULARIES.items():
        begin = BEGIN.format(name=name)
        text = _replace_section(text, begin, table(vocabulary.table), f"the keys of {name}")
    text = _replace_section(text, ROUTES_BEGIN, routes_table(), "routes")
    text = _replace_section(text, KINDS_BEGIN, kinds_table(), "kinds of other projects")
    return _replace_section(text, FAMILIES_BEGIN, families_table(), "keys that are not translated")


def _replace_section(text: str, begin: str, content: str, name: str) -> str:
    before, marker, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not end:
        raise LookupError(f"{PAGE.name} has no place for {name}")
    return f"{before}{marker}\n{content}\n{end}{after}"


def routes_table() -> str:
    """Return the orders of candidate drivers as Markdown."""
    rows = (
        f"| {route.request} | {', '.join(_candidate(name) for name in route.order)}, "
        f"`{OWN_DRIVER}` |\n"
        for route in ROUTES
    )
    return ROUTES_HEADER + "".join(rows)


def _candidate(name: str) -> str:
    return "the vocabulary's own" if name == OWN else f"that of `{name}`"


def kinds_table() -> str:
    """Return the kinds of other projects as Markdown."""
    rows = (
        f"| {_join(entry.api_versions)} | {entry.kind} | "
        f"{_join('.'.join(path) for path in entry.paths)}"
        f"{'' if entry.shape is Shape.TEMPLATE else f' ({entry.shape.value})'} | "
        f"{'translated' if entry.has_claims else 'unchanged, its pods are translated'} | "
        f"{entry.caution} |\n"
        for entry in WORKLOAD_KINDS
    )
    return KINDS_HEADER + "".join(rows)


def families_table() -> str:
    """Return the device families as Markdown."""
    rows = (
        f"| {_join(family.resources)} | {_join(family.annotations)} | {family.owner} | "
        f"{family.advice} |\n"
        for family in FAMILIES
    )
    records = (
        f"|  | {_join(BOOKKEEPING)} | records of schedulers | nothing: they request no devices |\n"
    )
    return FAMILIES_HEADER + "".join(rows) + records


def _join(patterns: Iterable[str]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in patterns)


def table(keys: Table) -> str:
    """Return the rows as Markdown."""
    return HEADER + "".join(map(_row, keys))


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (f": {key.case}" if key.case else "")
    return f"| {name} | {key.place} | {key.unit} | {key.outcome} | {key.becomes} |\n"
