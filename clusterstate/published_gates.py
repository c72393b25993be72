"""The feature gates that the controllers found out, in the ConfigMap of the high-water mark.

The API server drops fields of gates that are off, and tells nobody. The leading controller finds out
by dry runs, and writes the result where every replica of the webhook reads it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from allocator.model.feature_gates import GATES
from kube.api.meta import ApiStruct, decode, encode

FEATURE_GATES: Final = "featureGates"
"""The key in the ConfigMap: JSON, upstream name of a gate to whether it is on."""
CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


def project_gates(raw: bytes) -> Mapping[str, bool]:
    """Project the ConfigMap to the gates in it; a text that cannot be read tells none."""
    text = (decode(raw, _ConfigMap).data or {}).get(FEATURE_GATES) or "{}"
    try:
        gates = decode(text, dict[str, bool])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {name: is_on for name, is_on in gates.items() if name in GATES}


def gates_patch(gates: Mapping[str, bool]) -> Mapping[str, Any]:
    """Return the merge patch that writes gates."""
    return {"data": {FEATURE_GATES: encode(dict(sorted(gates.items()))).decode()}}
