"""Quotas, LimitRanges and admission policies that name device keys, and so do not see claims.

A translated pod has no device key any more. What counts, bounds or forbids a key no longer applies to
it: not always an error, since pods without a translation are left, but nothing else tells the author.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable
from translation.arbiter import VOCABULARIES
from translation.intents import Vocabulary

ADMISSION_POLICIES: Final = frozenset({"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"})
KINDS: Final = frozenset({"ResourceQuota", "LimitRange", *ADMISSION_POLICIES})
"""The kinds that are searched."""
MAX_VALUES: Final = 20_000
"""Objects, lists and texts that are searched in one document."""
MAX_TEXT: Final = 64 * 1024
"""Characters of a text that are searched; an expression of CEL has fewer."""
MAX_KEYS: Final = 5
"""Keys that are named in a finding."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_REQUESTS: Final = "requests."
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
        key_names = ", ".join(map(printable, sorted_keys[:MAX_KEYS]))
        more = f" and {len(sorted_keys) - MAX_KEYS} more" if len(sorted_keys) > MAX_KEYS else ""
        yield warning(
            Code.CLAIMS_NOT_SEEN,
            keys[sorted_keys[0]],
            f"names {key_names}{more}: translated pods have claims instead, which it does not see",
            _FIXES.get(str(document.get("kind")), _POLICY_FIX),
        )


def find_named_keys(
    document: Mapping[str, Any], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> dict[str, FieldPath]:
    """Return the device keys that an object names, with their places; none where it sees claims.

    Args:
        document: An object of any kind.
        vocabularies: Extended by the resource names in profiles.
    """
    kind, spec = document.get("kind"), document.get("spec")
    if kind not in KINDS or not isinstance(spec, dict):
        return {}
    if kind == "ResourceQuota" and _counts_claims(spec):
        return {}
    keys: dict[str, FieldPath] = {}
    for path, text in _texts(FieldPath.of("spec"), spec):
        for name in _NAME.findall(text.removeprefix(_REQUESTS)[:MAX_TEXT]):
            if any(vocabulary.handles(name) for vocabulary in vocabularies.values()):
                keys.setdefault(name, path)
    return keys


_POLICY_FIX: Final = "write the policy for resourceclaims and resourceclaimtemplates, too"
_FIXES: Final = {
    "ResourceQuota": f"count DEVICECLASS{_CLASS_SUFFIX}, too",
    "LimitRange": "limit claims by a ResourceQuota on their DeviceClass",
}


def _counts_claims(spec: Mapping[str, Any]) -> bool:
    """Return whether a quota counts the devices of a DeviceClass, so that its author knows of claims."""
    hard = spec.get("hard")
    return isinstance(hard, dict) and any(str(name).endswith(_CLASS_SUFFIX) for name in hard)


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
