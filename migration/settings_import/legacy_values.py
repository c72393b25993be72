"""Values that readers of legacy settings yield, and functions that they share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.text import printable, quote_text
from kube.names import DEFAULT_SCHEDULER_NAME
from migration.settings_import.legacy_documents import LegacyDocument
from translation.reading.renamed_keys import renaming_fault

RENAMED_KEYS: Final = "renamedKeys"

Values = Mapping[str, Any]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of ours, and its source.

    Attributes:
        path: The path in the section `translation`, such as ("hami", "defaultCores").
    """

    path: tuple[str, ...]
    value: str | int | Mapping[str, Any]
    source: str

    @property
    def subject(self) -> object:
        """The subject of the setting: a field, or the key of a vocabulary that is renamed."""
        return (self.path[0], self.value) if self.path[0] == RENAMED_KEYS else self.path

    def line(self) -> str:
        """Return field and value."""
        text = self.value if isinstance(self.value, str | int) else "as its source has it"
        return f"{'.'.join(self.path)}: {text}"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that has no target."""

    source: str
    field: str
    text: str

    def line(self) -> str:
        """Return one line, without control characters."""
        return printable(f"{self.field} ({self.source}): {self.text}")


Read = Iterator[Setting | Note]


def section_of(values: Values, name: str) -> Values:
    """Return a mapping in a mapping; an empty one for anything else."""
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


def list_of(values: Values, field: str) -> Sequence[Any]:
    """Return a list in a mapping; an empty one for anything else."""
    items = values.get(field)
    return items if isinstance(items, list) else ()


def setting_text(value: object) -> str:
    """Return a value of a stranger as text of one line."""
    # The text of anything nested may be endless.
    if isinstance(value, str):
        return quote_text(value)
    return str(value) if isinstance(value, bool | int | float | None) else type(value).__name__


def adopted_scheduler(name: str, document: LegacyDocument) -> Setting:
    """Return the setting that gives the pods of a scheduler to the cluster's own."""
    return Setting(
        path=("adoptSchedulers", name), value=DEFAULT_SCHEDULER_NAME, source=document.source
    )


def read_names(
    values: Values, names: Mapping[str, str], document: LegacyDocument, place: str
) -> Read:
    """Yield the renamed keys of a section, and a note for each name that none can have.

    Args:
        names: Field to the name that a vocabulary has.
        place: The place of the section, before the field.
    """
    for field, own_name in names.items():
        name = values.get(field)
        if not isinstance(name, str) or name in {"", own_name}:
            continue
        fault = renaming_fault(name, own_name)
        if fault is None:
            yield Setting(path=(RENAMED_KEYS, name), value=own_name, source=document.source)
        else:
            yield Note(
                source=document.source, field=f"{place}{field}", text=f"{quote_text(name)} {fault}"
            )
