"""Objects with their file and line, and the limits on input."""

from typing import Any, Final, NoReturn

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta
from kube.errors import ObjectFileError

MAX_BYTES: Final = 128 * 2**20
"""The largest file; a snapshot of 5,000 nodes and their slices has some tens of MB."""
MAX_DELIMITERS: Final = 10_000_000
"""The largest number of commas, brackets, dashes and line ends, which bounds the number of values
before they are built. At this limit the worst YAML takes about ten seconds."""
MAX_ALIASED_NODES: Final = 100_000
"""Values that aliases may copy in one file; kubectl's limit is about four times as high."""
STDIN: Final = "<stdin>"
SUFFIXES: Final = (".json", ".yaml", ".yml")
KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""Names of the file from which kustomize builds manifests."""
CHART: Final = "Chart.yaml"
"""The file that makes a directory a Helm chart."""
CHART_FILES: Final = (CHART, "values.yaml")


class SourceObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object as its file has it.

    Attributes:
        document: Dicts with string keys, lists, strings, numbers, booleans and None.
        source: The file's name, or `<stdin>`.
        line: The line on which the object begins, from 1.
    """

    document: dict[str, Any]
    source: str
    line: int

    @property
    def api_version(self) -> str:
        """`apiVersion`, never empty."""
        return str(self.document["apiVersion"])

    @property
    def kind(self) -> str:
        """`kind`, never empty."""
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        """`metadata.name`, or `metadata.generateName` as written; may be empty."""
        return self._metadata("name") or self._metadata("generateName")

    @property
    def is_named(self) -> bool:
        """Return True if the object has a name, not only a generateName."""
        return bool(self._metadata("name"))

    @property
    def namespace(self) -> str:
        """`metadata.namespace` as written; may be empty."""
        return self._metadata("namespace")

    def _metadata(self, field: str) -> str:
        metadata = self.document.get("metadata")
        value = metadata.get(field) if isinstance(metadata, dict) else None
        return value if isinstance(value, str) else ""


class ViewedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a file, converted to a view without its document.

    Attributes:
        value: The view; its `metadata` is an ObjectMeta.
        source: The file's name, or `<stdin>`.
    """

    api_version: str
    kind: str
    value: ApiStruct
    source: str

    @property
    def name(self) -> str:
        """`metadata.name`, or `metadata.generateName` as written; may be empty."""
        return self._metadata.name or self._metadata.generate_name

    @property
    def is_named(self) -> bool:
        """Return True if the object has a name, not only a generateName."""
        return bool(self._metadata.name)

    @property
    def namespace(self) -> str:
        """`metadata.namespace` as written; may be empty."""
        return self._metadata.namespace

    @property
    def _metadata(self) -> ObjectMeta:
        metadata: ObjectMeta = self.value.metadata  # type: ignore[attr-defined] # See above.
        return metadata


class LocatedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed value and its first line; `item_lines` has the lines of a List's items, if known."""

    value: Any
    line: int
    item_lines: tuple[int, ...] = ()


def check_size(text: bytes, source: str) -> None:
    """Reject a text that would take too long to parse.

    Raises:
        ObjectFileError: The text is too large or may have too many values.
    """
    if len(text) > MAX_BYTES:
        raise ObjectFileError(f"{source}:1: larger than {MAX_BYTES >> 20} MiB")
    if sum(text.count(mark) for mark in (b",", b"[", b"{", b"- ", b"\n")) > MAX_DELIMITERS:
        raise ObjectFileError(f"{source}:1: more than {MAX_DELIMITERS} values or lines")


def raise_at(source: str, line: int, message: str) -> NoReturn:
    """Raise ObjectFileError for a line of a file."""
    raise ObjectFileError(f"{source}:{line}: {message}")


def json_type(value: object) -> str:
    """Return the JSON type of a value, with its article.

    >>> json_type([]), json_type("x"), json_type(True)
    ('a list', 'a string', 'a boolean')
    """
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case None:
            return "null"
        case _:
            return "a number"
