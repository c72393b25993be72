"""The part of an annotation that made a constraint of translated claims.

Without the part another translation gives claims with an alternative that is the same, but for the constraints:
a requirement may become a preference.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from findings.field_path import FieldPath
from translation.compiling.claims import Claim
from translation.record.recorded_translation import (
    RecordedTranslation,
    derive_claims,
    derive_record,
    devices_without,
)

_MAX_PARTS: Final = 16


def constraining_part(name: str, translation: RecordedTranslation) -> str:
    """Return the field of an annotation's JSON object to remove for claims without its constraints; else empty."""
    parts = _decoded(translation.record.annotations.get(name, ""))
    if not 1 < len(parts) <= _MAX_PARTS:
        return ""
    before = derive_claims(translation)
    for part in parts:
        others = {field: value for field, value in parts.items() if field != part}
        text = msgspec.json.encode(others).decode()
        annotations = {**translation.record.annotations, name: text}
        after = derive_record(replace(translation.record, annotations=annotations), translation)
        if after is None or len(before) != len(after):
            continue
        if all(_is_without(old, new, name) for old, new in zip(before, after, strict=True)):
            return part
    return ""


def _decoded(text: str) -> dict[str, Any]:
    """Return the fields of a JSON object; none of any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}


def _is_without(old: Claim, new: Claim, annotation: str) -> bool:
    """Return True if a claim has an alternative that is another claim without the constraints of an annotation."""
    place = FieldPath.of("metadata", "annotations").key(annotation)
    devices = devices_without(old, ())
    devices["constraints"] = [
        constraint
        for index, constraint in enumerate(devices.get("constraints") or ())
        if old.source(FieldPath.of("constraints", index)) != place
    ]
    other = (new.label, new.uses, _with_last_alternatives(devices_without(new, ())))
    return (old.label, old.uses, devices) == other


def _with_last_alternatives(devices: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim's devices as they are once each request comes to its last alternative."""
    names: dict[str, str] = {}
    requests = []
    for request in devices.get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        names |= {f"{request['name']}/{alternative['name']}": "" for alternative in alternatives}
        if not alternatives:
            requests.append(request)
            continue
        last = dict(alternatives[-1])
        names[f"{request['name']}/{last.pop('name')}"] = request["name"]
        requests.append({"name": request["name"], "exactly": last})
    constraints = []
    for constraint in devices.get("constraints") or ():
        if "requests" not in constraint:
            constraints.append(constraint)
            continue
        constrained = (names.get(name, name) for name in constraint["requests"])
        constrained_requests = [name for name in constrained if name]
        if constrained_requests:
            constraints.append({**constraint, "requests": constrained_requests})
    return {**devices, "requests": requests, "constraints": constraints}
