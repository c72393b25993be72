"""Fields that pods and pod templates do not have, such as `limit` beside `limits`.

kubectl requests strict validation and is rejected; other clients have the field dropped in silence. An API
server has dropped them before a webhook sees the object, so only `drawbridge check` asks, about manifests.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from rules.model.naming import closest_name, suggest_name
from rules.model.recorded_pods import FIELDS, POD, POD_TEMPLATE, VERSION

MAX_FINDINGS: Final = 32
"""The largest number of findings of one pod."""
MAX_KEYS: Final = 3
"""Device keys in a message."""


def find_unknown_pod_fields(
    raw: object, path: FieldPath, *, is_template: bool
) -> Iterator[Finding]:
    """Yield a warning for each field of a pod that Kubernetes 1.37 does not know.

    Args:
        raw: The parsed pod, or pod template.
        path: The path that leads to it.
    """
    kind = POD_TEMPLATE if is_template else POD
    for number, (place, field, value, known_fields) in enumerate(_unknown(kind, raw, path)):
        if number == MAX_FINDINGS:
            return
        keys = _device_keys(value)
        effect = f", so {keys} is not requested" if keys else ""
        yield warning(
            Code.UNKNOWN_FIELD,
            place.child(field),
            f"Kubernetes {VERSION[0]}.{VERSION[1]} has no field {quote_text(field)} here, and drops it{effect}",
            suggest_name(field, known_fields),
        ).renamed_to(closest_name(field, known_fields))


def _unknown(
    kind: str, value: object, path: FieldPath
) -> Iterator[tuple[FieldPath, str, object, Mapping[str, str]]]:
    """Yield path, name and value of every unknown field, with the known fields."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from _unknown(kind, element, path.child(index))
        return
    if not isinstance(value, dict):
        return
    fields = _fields(kind)
    for name, child in value.items():
        known_kind = fields.get(name)
        if known_kind is None:
            yield path, str(name), child, fields
        elif known_kind:
            yield from _unknown(known_kind, child, path.child(name))


@cache
def _fields(kind: str) -> Mapping[str, str]:
    """Return the fields of a type, each with its type; empty for one without fields."""
    words = (word.partition("=") for word in FIELDS[kind].split())
    fields = {name: field_kind for name, _, field_kind in words}
    return {"apiVersion": "", "kind": "", **fields} if kind == POD_TEMPLATE else fields


def _device_keys(value: object) -> str:
    """Return the extended resources among the keys of a mapping, as text; empty for none."""
    keys = sorted(key for key in value if "/" in str(key)) if isinstance(value, dict) else []
    more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    return ", ".join(quote_text(str(key)) for key in keys[:MAX_KEYS]) + more
