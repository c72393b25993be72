"""Split documents into objects: Lists are flattened, as in kubectl."""

from collections.abc import Iterator, Mapping
from typing import Any

from kube.manifests.source import (
    CHART_FILES,
    KUSTOMIZATIONS,
    LocatedDocument,
    SourceObject,
    json_type,
    raise_at,
)


def flatten(located_document: LocatedDocument, source: str) -> Iterator[SourceObject]:
    """Yield the objects of a document; a List yields its items.

    Raises:
        ObjectFileError: The document, or an item, is not an object with apiVersion and kind.
    """
    document, line = located_document.value, located_document.line
    if document is None:
        return
    if not isinstance(document, dict):
        raise_at(source, line, f"expected an object, found {json_type(document)}")
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if value is None or value == "":
            raise_at(source, line, f"{field} is missing{_build_hint(source)}")
        if not isinstance(value, str):
            raise_at(source, line, f"{field} is {json_type(value)}, not a string")
    if not _is_list(document):
        yield SourceObject(document=document, source=source, line=line)
        return
    for index, item in enumerate(document.get("items") or ()):
        at = (
            located_document.item_lines[index] if index < len(located_document.item_lines) else line
        )
        if not isinstance(item, dict):
            raise_at(source, at, f"items[{index}]: expected an object, found {json_type(item)}")
        yield from flatten(LocatedDocument(value=_with_type(item, document), line=at), source)


def _build_hint(source: str) -> str:
    """Return advice for a file that another program builds manifests from; or nothing."""
    directory, _, name = source.rpartition("/")
    if name in KUSTOMIZATIONS:
        return f"; build it first: kubectl kustomize {directory or '.'} | drawbridge ... -f -"
    if name in CHART_FILES:
        return f"; render the chart first: helm template {directory or '.'} | drawbridge ... -f -"
    return ""


def _is_list(document: Mapping[str, Any]) -> bool:
    """Return True if this is a `List`, or an `...List` with items (null if Go had none)."""
    if document["kind"] == "List":
        return isinstance(document.get("items"), list | None)
    kind: str = document["kind"]
    return (
        kind.endswith("List") and "items" in document and isinstance(document["items"], list | None)
    )


def _with_type(item: dict[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    kind = parent["kind"].removesuffix("List")
    if not kind or "kind" in item or "apiVersion" in item:
        return item
    return {"apiVersion": parent["apiVersion"], "kind": kind, **item}
