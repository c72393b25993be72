"""Attributes that drivers no longer publish, and their replacements."""

import re
from typing import Final

from kube.cel.quoting import quote

RETIRED: Final[dict[tuple[str, str], str]] = {
    ("gpu.nvidia.com", "index"): "uuid",
    ("gpu.nvidia.com", "minor"): "uuid",
    ("gpu.nvidia.com", "parentIndex"): "parentUUID",
    ("gpu.nvidia.com", "pcieBusID"): 'device.attributes["resource.kubernetes.io"].pciBusID',
}
"""Attributes that drivers no longer publish, to their replacements."""


def no_retired() -> str:
    """Return CEL that is true if the selector `s` reads no retired attribute."""
    by_domain: dict[str, list[str]] = {}
    for domain, identifier in sorted(RETIRED):
        by_domain.setdefault(domain, []).append(identifier)
    tests = (
        "s.cel.expression.matches("
        + quote(rf"""\[\s*["']{re.escape(domain)}["']\s*\](\.\??|\[\??["'])({"|".join(names)})\b""")
        + ")"
        for domain, names in by_domain.items()
    )
    return f"!has(s.cel) || !({' || '.join(tests)})"
