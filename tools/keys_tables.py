"""The tables of docs/vocabularies.md: every name of every vocabulary, made from what recognises it.

The prose around them is written by hand; a table stands between two markers.
"""

from pathlib import Path
from typing import Final

from webhook.keys import Key, Table
from webhook.vocabularies.arbiter import VOCABULARIES

PAGE: Final = Path(__file__).parent.parent / "docs" / "vocabularies.md"
BEGIN: Final = "<!-- keys of {name}, generated from its table in webhook/vocabularies -->\n"
END: Final = "<!-- end of keys -->\n"
HEADER: Final = "| name | where | counts | fate | in detail |\n| --- | --- | --- | --- | --- |\n"


def page() -> str:
    """Return the page with its tables as the code says.

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
    return text


def table(keys: Table) -> str:
    """Return the rows as Markdown."""
    return HEADER + "".join(map(_row, keys))


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (f": {key.case}" if key.case else "")
    return f"| {name} | {key.place} | {key.unit} | {key.fate} | {key.becomes} |\n"
