"""The changes of a translation to a pod's document, as JSON Patch in a stable order.

The patch is minimal: keys are removed from limits and requests one by one, arrays are appended to,
and values that the pod already has stay. The document is a dict as it was parsed, so that fields
which we do not model survive.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kube.jsonpatch import Operation, add, pointer, remove
from kube.names import REQUEST_ANNOTATION
from translation.compiling.claims import Claim
from translation.model.intents import Variable
from translation.pipeline.translate import Translated

CONTAINER_FIELDS: Final = ("initContainers", "containers")
MAX_LABEL: Final = 63


def translate_pod(document: Mapping[str, Any], translated_pod: Translated) -> list[Operation]:
    """Return the operations that replace a pod's device keys by claims."""
    labelled_claims = list(
        zip(_labels(document, translated_pod.claims), translated_pod.claims, strict=True)
    )
    recorded_keys: dict[str, set[str]] = {}
    for container_record in translated_pod.record.containers:
        recorded_keys.setdefault(container_record.name, set()).update(container_record.limits)
    operations = strip_keys(document, recorded_keys)
    for path, container in _containers(document):
        uses = list(_uses(container, labelled_claims))
        operations += _append(container.get("resources"), (*path, "resources"), "claims", uses)
        variables = _missing_variables(container, translated_pod.variables)
        operations += _append(container, path, "env", variables)
    entries = [
        {"name": label, "resourceClaimTemplateName": claim.template}
        for label, claim in labelled_claims
    ]
    operations += _append(document.get("spec"), ("spec",), "resourceClaims", entries)
    operations += _annotate(document, translated_pod.annotation)
    if translated_pod.scheduler_name is not None:
        operations.append(add(pointer("spec", "schedulerName"), translated_pod.scheduler_name))
    return operations


def strip_keys(document: Mapping[str, Any], keys: Mapping[str, Collection[str]]) -> list[Operation]:
    """Return the operations that remove keys from limits and requests.

    Args:
        keys: Container name to the keys to remove.
    """
    return list(_strip_keys(document, lambda name: keys.get(name, ())))


def restore_pod(
    document: Mapping[str, Any],
    claims: Iterable[Claim],
    limits: Mapping[str, Mapping[str, str]],
) -> list[Operation]:
    """Return the operations that undo a translation.

    Args:
        claims: The claims that derive from the pod's record.
        limits: Container name to the recorded keys and amounts.
    """
    templates = {claim.template for claim in claims}
    entries = (document.get("spec") or {}).get("resourceClaims") or []
    labels = {
        _name(entry) for entry in entries if entry.get("resourceClaimTemplateName") in templates
    }
    operations: list[Operation] = []
    for path, container in _containers(document):
        resources = container.get("resources") or {}
        uses = resources.get("claims") or []
        operations += _remove_named((*path, "resources", "claims"), uses, labels)
        recorded_limits = limits.get(_name(container), {})
        operations += _restore_limits(container, path, recorded_limits)
    operations += _remove_named(("spec", "resourceClaims"), entries, labels)
    operations.append(remove(pointer("metadata", "annotations", REQUEST_ANNOTATION)))
    return operations


# --- parts ----------------------------------------------------------------------------------------

Path = tuple[str | int, ...]


def _containers(document: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    spec = document.get("spec") or {}
    for field in CONTAINER_FIELDS:
        for index, container in enumerate(spec.get(field) or ()):
            yield ("spec", field, index), container


def _name(item: Mapping[str, Any]) -> str:
    """Return the name of a container, or of a claim of the pod."""
    # As in the typed view, a missing name and null are the empty name.
    return item.get("name") or ""


def _strip_keys(
    document: Mapping[str, Any], keys_of: Callable[[str], Collection[str]]
) -> Iterator[Operation]:
    for path, container in _containers(document):
        stripped_keys = keys_of(_name(container))
        for section in ("limits", "requests"):
            amounts = (container.get("resources") or {}).get(section) or {}
            removed_keys = sorted(key for key in amounts if key in stripped_keys)
            if removed_keys and len(removed_keys) == len(amounts):
                yield remove(pointer(*path, "resources", section))
            else:
                yield from (
                    remove(pointer(*path, "resources", section, key)) for key in removed_keys
                )


def _append(
    parent: Mapping[str, Any] | None, path: Path, field: str, items: list[Any]
) -> Iterator[Operation]:
    """Yield the operations that append items to an array, and create it if it is missing."""
    if not items:
        return
    if parent is None:
        yield add(pointer(*path), {field: items})
    elif parent.get(field):
        yield from (add(pointer(*path, field, "-"), item) for item in items)
    else:
        yield add(pointer(*path, field), items)


def _remove_named(path: Path, items: list[Any], names: Collection[str]) -> Iterator[Operation]:
    removed_indexes = [index for index, item in enumerate(items) if _name(item) in names]
    if removed_indexes and len(removed_indexes) == len(items):
        yield remove(pointer(*path))
    else:
        yield from (remove(pointer(*path, index)) for index in reversed(removed_indexes))


def _restore_limits(
    container: Mapping[str, Any], path: Path, recorded_limits: Mapping[str, str]
) -> Iterator[Operation]:
    resources = container.get("resources")
    present = (resources or {}).get("limits") or {}
    # Amounts that are there may be defaults of a LimitRange, which were set again.
    for key, amount in ((resources or {}).get("requests") or {}).items():
        if recorded_limits.get(key, amount) != amount:
            yield add(pointer(*path, "resources", "requests", key), recorded_limits[key])
    missing = {
        key: text for key, text in sorted(recorded_limits.items()) if present.get(key) != text
    }
    if not missing:
        return
    if resources is None:
        yield add(pointer(*path, "resources"), {"limits": missing})
    elif not present:
        yield add(pointer(*path, "resources", "limits"), missing)
    else:
        for key, amount in missing.items():
            yield add(pointer(*path, "resources", "limits", key), amount)


def _annotate(document: Mapping[str, Any], text: str) -> Iterator[Operation]:
    metadata = document.get("metadata")
    annotations = (metadata or {}).get("annotations")
    if metadata is None:
        yield add(pointer("metadata"), {"annotations": {REQUEST_ANNOTATION: text}})
    elif not annotations:
        yield add(pointer("metadata", "annotations"), {REQUEST_ANNOTATION: text})
    elif annotations.get(REQUEST_ANNOTATION) != text:
        yield add(pointer("metadata", "annotations", REQUEST_ANNOTATION), text)


def _uses(
    container: Mapping[str, Any], labelled_claims: Iterable[tuple[str, Claim]]
) -> Iterator[Mapping[str, str]]:
    for label, claim in labelled_claims:
        for use in claim.uses:
            if use.container == _name(container):
                yield {"name": label, "request": use.request}


def _missing_variables(
    container: Mapping[str, Any], variables: Iterable[Variable]
) -> list[Mapping[str, str]]:
    existing = {variable.get("name") for variable in container.get("env") or ()}
    return [
        {"name": variable.name, "value": variable.value}
        for variable in variables
        if variable.container == _name(container) and variable.name not in existing
    ]


def _labels(document: Mapping[str, Any], claims: Iterable[Claim]) -> list[str]:
    """Return the name of each claim in `spec.resourceClaims`."""
    entries = (document.get("spec") or {}).get("resourceClaims") or []
    return claim_labels(claims, {_name(entry) for entry in entries})


def claim_labels(claims: Iterable[Claim], used_names: Collection[str]) -> list[str]:
    """Return names for claims of a pod, each its label, with a number if that name is used.

    Args:
        used_names: The names of the pod's other claims.
    """
    used = set(used_names)
    labels = []
    for claim in claims:
        label, number = claim.label, 1
        while label in used:
            number += 1
            suffix = f"-{number}"
            label = claim.label[: MAX_LABEL - len(suffix)] + suffix
        used.add(label)
        labels.append(label)
    return labels
