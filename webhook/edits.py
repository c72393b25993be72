"""What changes in a pod's document, as JSON Patch in a stable order.

Only what must change is touched: keys leave limits and requests one by one, arrays grow at their
end, what the pod already says stays. The document is a dict as it was parsed, so that fields which
we do not model survive.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kube.product import REQUEST_ANNOTATION
from webhook.claims import Claim
from webhook.intents import Variable
from webhook.jsonpatch import Operation, add, pointer, remove
from webhook.translation import Translated

CONTAINER_FIELDS: Final = ("initContainers", "containers")
MAX_LABEL: Final = 63


def translating(document: Mapping[str, Any], translated: Translated) -> list[Operation]:
    """Return the steps that turn a legacy pod into a DRA pod."""
    named = list(zip(_labels(document, translated.claims), translated.claims, strict=True))
    recorded: dict[str, set[str]] = {}
    for requested in translated.request.containers:
        recorded.setdefault(requested.name, set()).update(requested.limits)
    operations = stripping(document, recorded)
    for path, container in _containers(document):
        uses = list(_uses(container, named))
        operations += _appending(container.get("resources"), (*path, "resources"), "claims", uses)
        wanted = _variables(container, translated.variables)
        operations += _appending(container, path, "env", wanted)
    entries = [
        {"name": label, "resourceClaimTemplateName": claim.template} for label, claim in named
    ]
    operations += _appending(document.get("spec"), ("spec",), "resourceClaims", entries)
    operations += _annotating(document, translated.annotation)
    if translated.scheduler_name is not None:
        operations.append(add(pointer("spec", "schedulerName"), translated.scheduler_name))
    return operations


def stripping(
    document: Mapping[str, Any], recorded: Mapping[str, Collection[str]]
) -> list[Operation]:
    """Return the steps that take keys out of limits and requests.

    Args:
        recorded: Container name to the keys that leave it.
    """
    return list(_stripping(document, lambda name: recorded.get(name, ())))


def untranslating(
    document: Mapping[str, Any],
    claims: Iterable[Claim],
    limits: Mapping[str, Mapping[str, str]],
) -> list[Operation]:
    """Return the steps that make a translated pod the legacy pod that it was.

    Args:
        claims: That its request derives.
        limits: Container name to the keys and amounts that the request recorded.
    """
    ours = {claim.template for claim in claims}
    entries = (document.get("spec") or {}).get("resourceClaims") or []
    labels = {_name(e) for e in entries if e.get("resourceClaimTemplateName") in ours}
    operations: list[Operation] = []
    for path, container in _containers(document):
        resources = container.get("resources") or {}
        uses = resources.get("claims") or []
        operations += _removing((*path, "resources", "claims"), uses, labels)
        recorded = limits.get(_name(container), {})
        operations += _restoring(container, path, recorded)
    operations += _removing(("spec", "resourceClaims"), entries, labels)
    operations.append(remove(pointer("metadata", "annotations", REQUEST_ANNOTATION)))
    return operations


# --- parts ----------------------------------------------------------------------------------------

Path = tuple[str | int, ...]


def _containers(document: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    spec = document.get("spec") or {}
    for field in CONTAINER_FIELDS:
        for index, container in enumerate(spec.get(field) or ()):
            yield ("spec", field, index), container


def _name(named: Mapping[str, Any]) -> str:
    """Return the name of a container, or of a claim in the pod."""
    # As in the typed view: what has no name, or null, is the empty name.
    return named.get("name") or ""


def _stripping(
    document: Mapping[str, Any], keys_of: Callable[[str], Collection[str]]
) -> Iterator[Operation]:
    for path, container in _containers(document):
        leaving = keys_of(_name(container))
        for section in ("limits", "requests"):
            amounts = (container.get("resources") or {}).get(section) or {}
            gone = sorted(key for key in amounts if key in leaving)
            if gone and len(gone) == len(amounts):
                yield remove(pointer(*path, "resources", section))
            else:
                yield from (remove(pointer(*path, "resources", section, key)) for key in gone)


def _appending(
    parent: Mapping[str, Any] | None, path: Path, field: str, items: list[Any]
) -> Iterator[Operation]:
    """Yield steps that add items to an array, which is made where it is missing."""
    if not items:
        return
    if parent is None:
        yield add(pointer(*path), {field: items})
    elif parent.get(field):
        yield from (add(pointer(*path, field, "-"), item) for item in items)
    else:
        yield add(pointer(*path, field), items)


def _removing(path: Path, items: list[Any], labels: Collection[str]) -> Iterator[Operation]:
    gone = [index for index, item in enumerate(items) if _name(item) in labels]
    if gone and len(gone) == len(items):
        yield remove(pointer(*path))
    else:
        yield from (remove(pointer(*path, index)) for index in reversed(gone))


def _restoring(
    container: Mapping[str, Any], path: Path, recorded: Mapping[str, str]
) -> Iterator[Operation]:
    resources = container.get("resources")
    present = (resources or {}).get("limits") or {}
    missing = {key: amount for key, amount in sorted(recorded.items()) if key not in present}
    if not missing:
        return
    if resources is None:
        yield add(pointer(*path, "resources"), {"limits": missing})
    elif not present:
        yield add(pointer(*path, "resources", "limits"), missing)
    else:
        for key, amount in missing.items():
            yield add(pointer(*path, "resources", "limits", key), amount)


def _annotating(document: Mapping[str, Any], text: str) -> Iterator[Operation]:
    metadata = document.get("metadata")
    annotations = (metadata or {}).get("annotations")
    if metadata is None:
        yield add(pointer("metadata"), {"annotations": {REQUEST_ANNOTATION: text}})
    elif not annotations:
        yield add(pointer("metadata", "annotations"), {REQUEST_ANNOTATION: text})
    elif annotations.get(REQUEST_ANNOTATION) != text:
        yield add(pointer("metadata", "annotations", REQUEST_ANNOTATION), text)


def _uses(
    container: Mapping[str, Any], named: Iterable[tuple[str, Claim]]
) -> Iterator[Mapping[str, str]]:
    for label, claim in named:
        for use in claim.uses:
            if use.container == _name(container):
                yield {"name": label, "request": use.request}


def _variables(
    container: Mapping[str, Any], variables: Iterable[Variable]
) -> list[Mapping[str, str]]:
    there = {variable.get("name") for variable in container.get("env") or ()}
    return [
        {"name": variable.name, "value": variable.value}
        for variable in variables
        if variable.container == _name(container) and variable.name not in there
    ]


def _labels(document: Mapping[str, Any], claims: Iterable[Claim]) -> list[str]:
    """Return what the pod calls each claim in `spec.resourceClaims`.

    A name that the pod uses for something else is left to it; ours gets a number.
    """
    entries = (document.get("spec") or {}).get("resourceClaims") or []
    taken = {entry.get("name") for entry in entries}
    labels = []
    for claim in claims:
        label, number = claim.label, 1
        while label in taken:
            number += 1
            suffix = f"-{number}"
            label = claim.label[: MAX_LABEL - len(suffix)] + suffix
        taken.add(label)
        labels.append(label)
    return labels
