"""ResourceQuotas of device keys, extended so that they count the claims of translated pods. Pure.

A quota of a resource name counts pods with that name, and no claims. A quota of a DeviceClass counts
the devices that claims request of it (KEP-4381), and nothing in Kubernetes counts shares of a device.
Both kinds of line can stand in one quota, so a quota works before, during and after a migration.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.pods.quota_usage import DEVICES_OF_CLASS
from cli.answers.translate import translate_objects
from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity
from translation.arbiter import find_device_keys
from translation.intents import Vocabulary
from translation.keys import ANY, KeyOutcome, Place
from translation.profiles.profile import Profile
from translation.snapshot import (
    Mode,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)

_PREFIXES: Final = ("requests.", "limits.")
_OWNERS: Final = ("nvidia", "hami", "koordinator")
"""The vocabularies that `nvidia.com/gpu` may belong to, by the other keys of a pod."""


class ConvertedQuota(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A quota that names device keys.

    Attributes:
        object: `ResourceQuota/namespace/name`.
        added: Lines to be added to `spec.hard`.
        not_convertible: Line that stays alone to the reason.
        document: The quota with the added lines; None where none is added.
    """

    object: str
    added: Mapping[str, str]
    not_convertible: Mapping[str, str]
    document: Mapping[str, Any] | None


def convert_quotas(
    objects: Iterable[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
) -> list[ConvertedQuota]:
    """Return each quota with device keys, in order.

    Args:
        profiles: Driver to profile.
        namespace: Of objects that name none.
    """
    snapshot = TranslationSnapshot(profiles=profiles)
    vocabularies = vocabularies_in_force(options, profiles)
    converted_quotas = []
    for source in objects:
        if (source.api_version, source.kind) != ("v1", "ResourceQuota") or not source.is_named:
            continue
        hard = _hard(source)
        keys = frozenset(find_device_keys({_resource_name(line) for line in hard}, vocabularies))
        lines = {line: amount for line, amount in hard.items() if _resource_name(line) in keys}
        if lines:
            reasons = {line: _reason(source, line, vocabularies.values()) for line in lines}
            added_amounts, missing = _added_lines(lines, reasons, snapshot, options)
            converted_quotas.append(_convert_quota(source, namespace, added_amounts, missing))
    return converted_quotas


def _reason(source: SourceObject, line: str, vocabularies: Iterable[Vocabulary]) -> str:
    """Explain why no quota can count a line for claims; empty where one can."""
    spec = source.document["spec"]
    if spec.get("scopes") or spec.get("scopeSelector"):
        return "a quota with scopes counts no claims"
    if not _counts_devices(_resource_name(line), vocabularies):
        return "no quota counts shares of a device; use a queue such as Kueue, or accept it"
    return ""


def _added_lines(
    lines: Mapping[str, str],
    reasons: Mapping[str, str],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> tuple[dict[str, Quantity], dict[str, str]]:
    """Return the lines for claims, and the lines that have none with the reason."""
    added_amounts: dict[str, Quantity] = {}
    missing: dict[str, str] = {}
    for line, amount in lines.items():
        classes = [] if reasons[line] else _classes_of(_resource_name(line), snapshot, options)
        if not classes:
            missing[line] = reasons[line] or "no driver serves this resource name"
        for name in classes:
            of_class = f"{name}{DEVICES_OF_CLASS}"
            added_amounts[of_class] = added_amounts.get(of_class, ZERO) + Quantity(amount)
    return added_amounts, missing


def _convert_quota(
    source: SourceObject,
    namespace: str,
    added_amounts: Mapping[str, Quantity],
    not_convertible: Mapping[str, str],
) -> ConvertedQuota:
    present = _hard(source)
    lines = {line: str(amount) for line, amount in added_amounts.items() if line not in present}
    return ConvertedQuota(
        object=f"ResourceQuota/{source.namespace or namespace}/{source.name}",
        added=lines,
        not_convertible=not_convertible,
        document=_with_lines(source, lines) if lines else None,
    )


def _hard(source: SourceObject) -> dict[str, str]:
    """Return the lines of a quota whose amounts are valid."""
    spec = source.document.get("spec")
    hard = spec.get("hard") if isinstance(spec, Mapping) else None
    return {
        str(line): str(amount)
        for line, amount in (hard.items() if isinstance(hard, Mapping) else ())
        if _is_quantity(amount)
    }


def _is_quantity(amount: object) -> bool:
    try:
        Quantity(str(amount))
    except ValueError:
        return False
    return True


def _resource_name(line: str) -> str:
    for prefix in _PREFIXES:
        line = line.removeprefix(prefix)
    return line


def _counts_devices(key: str, vocabularies: Iterable[Vocabulary]) -> bool:
    """Return whether the amount of a key is a number of devices."""
    return any(
        row.place is Place.LIMIT
        and row.outcome in {KeyOutcome.COUNT, KeyOutcome.CLASS}
        and _matches(key, row.name)
        for vocabulary in vocabularies
        for row in vocabulary.table
    )


def _matches(key: str, name: str) -> bool:
    before, wildcard, after = name.partition(ANY)
    if not wildcard:
        return key == name
    return len(key) > len(before + after) and key.startswith(before) and key.endswith(after)


def _classes_of(
    key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Sequence[str]:
    """Return the DeviceClasses of the claims of a pod with this key, whichever system owns it.

    A quota is converted before its namespace takes part, so the mode does not matter.
    """
    classes: set[str] = set()
    container = {"name": "probe", "image": "probe", "resources": {"limits": {key: "1"}}}
    probe = SourceObject(
        document={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {"containers": [container]},
        },
        source="a probe",
        line=0,
    )
    for owner in _OWNERS:
        owner_options = msgspec.structs.replace(options, default_gpu_owner=owner, mode=Mode.OPT_OUT)
        (result,) = translate_objects(
            [probe], snapshot=snapshot, options=owner_options, namespace="probe"
        )
        classes.update(name for claim in result.claims for name in claim.class_names())
    return sorted(classes)


def _with_lines(source: SourceObject, lines: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the quota to apply, without what the API server added."""
    document = copy.deepcopy(source.document)
    document.pop("status", None)
    document["metadata"] = {
        field: value
        for field, value in document["metadata"].items()
        if field in {"name", "namespace", "labels", "annotations"}
    }
    document["spec"]["hard"] = {**document["spec"]["hard"], **lines}
    return document
