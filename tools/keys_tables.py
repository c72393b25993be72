"""The generated tables of docs/vocabularies.md: every name of every vocabulary.

Each table is between two markers; the text around them is written by hand.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from translation.arbiter import VOCABULARIES
from translation.device_families import FAMILIES
from translation.keys import Key, Table

PAGE: Final = Path(__file__).parent.parent / "docs" / "vocabularies.md"
BEGIN: Final = "<!-- keys of {name}, generated from its table in translation/vocabularies -->\n"
FAMILIES_BEGIN: Final = (
    "<!-- keys that are not translated, generated from translation/device_families.py -->\n"
)
FAMILIES_HEADER: Final = (
    "| resources | annotations | keys of | what to do |\n| --- | --- | --- | --- |\n"
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
        before, begin, rest = text.partition(BEGIN.format(name=name))
        _, end, after = rest.partition(END)
        if not end:
            raise LookupError(f"{PAGE.name} has no place for the keys of {name}")
        text = f"{before}{begin}\n{table(vocabulary.table)}\n{end}{after}"
    before, begin, rest = text.partition(FAMILIES_BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise LookupError(f"{PAGE.name} has no place for keys that are not translated")
    return f"{before}{begin}\n{families_table()}\n{end}{after}"


def families_table() -> str:
    """Return the device families as Markdown."""
    rows = (
        f"| {_listed(family.resources)} | {_listed(family.annotations)} | {family.owner} | "
        f"{family.advice} |\n"
        for family in FAMILIES
    )
    return FAMILIES_HEADER + "".join(rows)


def _listed(patterns: Iterable[str]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in patterns)


def table(keys: Table) -> str:
    """Return the rows as Markdown."""
    return HEADER + "".join(map(_row, keys))


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (f": {key.case}" if key.case else "")
    return f"| {name} | {key.place} | {key.unit} | {key.outcome} | {key.becomes} |\n"
