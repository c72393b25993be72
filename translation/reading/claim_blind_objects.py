"""Quotas, queues, LimitRanges and admission policies that name device keys, and so do not see claims.

A translated pod has claims, and neither a device key nor the implicit name of a DeviceClass. What counts,
bounds or forbids a key no longer applies to it: not always an error, since pods without a translation are
left, but nothing else tells the author.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import join_names, printable
from kube.api.extended_resources import IMPLICIT_PREFIX, implicit_class
from kube.api.foreign_quotas import BY_TYPE, FOREIGN_QUOTAS, ForeignQuota
from translation.model.dimensions import amount_fix, counts_amounts
from translation.model.intents import Vocabulary
from translation.reading.arbiter import VOCABULARIES

ADMISSION_POLICIES: Final = frozenset({"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"})
KINDS: Final = frozenset(
    {"ResourceQuota", "LimitRange", *ADMISSION_POLICIES, *(quota.kind for quota in FOREIGN_QUOTAS)}
)
"""The kinds that are searched; those of other schedulers in their groups only."""
MAX_VALUES: Final = 20_000
"""Objects, lists and texts that are searched in one document."""
MAX_TEXT: Final = 64 * 1024
"""Characters of a text that are searched; an expression of CEL has fewer."""
MAX_KEYS: Final = 5
"""Keys that are named in a finding."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
"""The prefix that HAMi's scheduler reads in a ResourceQuota."""
_CLASS_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"


def find_unseen_claims(
    document: Mapping[str, Any], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> Iterator[Finding]:
    """Yield a warning for an object that names device keys, and does not see claims.

    Args:
        document: An object of any kind.
        vocabularies: Extended by the resource names in profiles.
    """
    keys = find_named_keys(document, vocabularies)
    if keys:
        sorted_keys = sorted(keys)
        key_names = printable(join_names(sorted_keys, MAX_KEYS))
        yield warning(
            Code.CLAIMS_NOT_SEEN,
            keys[sorted_keys[0]],
            f"names {key_names}: translated pods have claims instead, which it does not see",
            _fix(document, sorted_keys, vocabularies.values()),
        )


def find_named_keys(
    document: Mapping[str, Any], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> dict[str, FieldPath]:
    """Return the device keys that an object names, with their places; none if it sees claims.

    A ResourceQuota that counts the devices of claims still sees neither their memory nor their compute.

    Args:
        document: An object of any kind.
        vocabularies: Extended by the resource names in profiles.
    """
    kind, spec = document.get("kind"), document.get("spec")
    if kind not in KINDS or not isinstance(spec, dict):
        return {}
    if kind in _FOREIGN_KINDS and _foreign_quota(document) is None:
        return {}
    counts_devices = kind == "ResourceQuota" and _counts_claims(spec)
    keys: dict[str, FieldPath] = {}
    for name, path in _resource_names(spec):
        is_key = implicit_class(name) or any(
            vocabulary.handles(name) for vocabulary in vocabularies.values()
        )
        if is_key and not (counts_devices and not counts_amounts(name, vocabularies.values())):
            keys.setdefault(name, path)
    quota = _foreign_quota(document)
    return keys | ({} if quota is None else _words_of_scheduler(quota.group, spec))


def find_resource_names(spec: object, group: str) -> frozenset[str]:
    """Return the resource names in the spec of another scheduler's quota, those of devices among them.

    Args:
        group: The object's API group.
    """
    names = {name for name, _ in _resource_names(spec)}
    return frozenset(names | _words_of_scheduler(group, spec).keys())


def _resource_names(spec: object) -> Iterator[tuple[str, FieldPath]]:
    """Yield each possible resource name, with its place."""
    for path, text in _texts(FieldPath.of("spec"), spec):
        for name in _NAME.findall(text.removeprefix(_REQUESTS).removeprefix(_LIMITS)[:MAX_TEXT]):
            yield name, path


def _fix(
    document: Mapping[str, Any], keys: Sequence[str], vocabularies: Collection[Vocabulary]
) -> str:
    quota = _foreign_quota(document)
    if quota is not None:
        return (
            f"pods that {quota.owner}'s scheduler keeps are counted as before; limit claims by a "
            "DeviceQuota (see drawbridge quota convert), or by Kueue"
        )
    match document.get("kind"):
        case "ResourceQuota":
            devices = [key for key in keys if not counts_amounts(key, vocabularies)]
            fixes = {amount_fix(key, vocabularies) for key in keys if key not in devices}
            return "; ".join([*([_DEVICES_FIX] if devices else []), *sorted(fixes)])
        case "LimitRange":
            return _LIMIT_RANGE_FIX
        case _:
            return _POLICY_FIX


def _foreign_quota(document: Mapping[str, Any]) -> ForeignQuota | None:
    """Return the kind of another scheduler's quota or queue."""
    return BY_TYPE.get((str(document.get("apiVersion")), str(document.get("kind"))))


def _words_of_scheduler(group: str, spec: object) -> dict[str, FieldPath]:
    """Return the device keys that a quota means by words of its own, with their places."""
    keys: dict[str, FieldPath] = {}
    for path, text in _texts(FieldPath.of("spec"), spec):
        key = _WORDS.get((group, text))
        if key is not None:
            keys.setdefault(key, path)
    return keys


_FOREIGN_KINDS: Final = frozenset(quota.kind for quota in FOREIGN_QUOTAS)
_WORDS: Final = {
    ("scheduling.run.ai", "gpu"): "nvidia.com/gpu",
    ("tensor-fusion.ai", "vram"): "tensor-fusion.ai/vram-request",
    ("tensor-fusion.ai", "tflops"): "tensor-fusion.ai/tflops-request",
}
"""API group and field that limits devices to the key that pods request them by."""
_POLICY_FIX: Final = "write the policy for resourceclaims and resourceclaimtemplates, too"
_LIMIT_RANGE_FIX: Final = "limit claims by a DeviceQuota, which has perRequest and perDevice"
_DEVICES_FIX: Final = f"count DEVICECLASS{_CLASS_SUFFIX}, too"
"""The fix of lines on devices."""


def _counts_claims(spec: Mapping[str, Any]) -> bool:
    """Return True if a quota counts the devices of a DeviceClass, so that its author knows of claims.

    Claims count under the implicit name of the class, too, but not in a quota with scopes.
    """
    hard = spec.get("hard")
    if not isinstance(hard, dict):
        return False
    has_scopes = bool(spec.get("scopes") or spec.get("scopeSelector"))
    return any(
        str(name).endswith(_CLASS_SUFFIX)
        or (not has_scopes and str(name).startswith(f"{_REQUESTS}{IMPLICIT_PREFIX}"))
        for name in hard
    )


def _texts(path: FieldPath, value: object) -> Iterator[tuple[FieldPath, str]]:
    """Yield the keys of maps and the texts below a value, each with a path, in any order."""
    pending: list[tuple[FieldPath, object]] = [(path, value)]
    for _ in range(MAX_VALUES):
        if not pending:
            return
        at, current = pending.pop()
        match current:
            case str():
                yield at, current
            case dict():
                for key, child in current.items():
                    if isinstance(key, str):
                        yield at, key
                        pending.append(
                            (at.child(key) if key.isidentifier() else at.key(key), child)
                        )
            case list():
                pending += [(at.child(index), child) for index, child in enumerate(current)]
            case _:
                pass
