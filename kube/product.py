"""Names that other people's objects carry because of us, each in one place.

`.internal` is reserved for private use, so nobody else can own the group. Whoever publishes this
can change `GROUP` before a first release; nothing else spells it.
"""

from typing import Final

GROUP: Final = "drawbridge.internal"
NAME: Final = "drawbridge"

REQUEST_ANNOTATION: Final = f"{GROUP}/request"
"""On a translated pod: the original keys, the recipe and the facts that its claims derive from."""

TRANSLATE_LABEL: Final = f"{GROUP}/translate"
"""On a pod or a namespace; "false" opts out of translation."""

ENFORCEMENT_LABEL: Final = f"{GROUP}/enforcement"
"""On a namespace: "deny", "warn" or "off", what to do about wrong objects there."""

MANAGED_LABEL: Final = f"{GROUP}/managed"
"""On a ResourceClaimTemplate that our controller made; only those are ever collected."""

STRATEGY_ANNOTATION: Final = f"{GROUP}/strategy"
"""On a pod or a DeviceClass: which strategy chooses nodes and devices."""

ROTATE_ANNOTATION: Final = f"{GROUP}/rotate"
"""On the Secret of the certificate authority; with any value it asks for a new one, once."""

SCHEDULER_NAME: Final = f"{NAME}-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
