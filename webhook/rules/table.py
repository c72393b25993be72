"""All rules, in the order in which they are asked and told.

The docs (docs/findings.md) and the policies inside the API server (manifests/policies) are made of
this table. A rule about the inventory as a whole is one more module with `RULES`, and one line here.
"""

from typing import Any, Final

from webhook.rules import (
    claim,
    compatibility,
    config,
    device_class,
    fields,
    fits,
    pod,
    published,
    resource_slice,
    selectors,
)
from webhook.rules.rule import Rule

RULES: Final[tuple[Rule[Any], ...]] = (
    *fields.RULES,
    *claim.RULES,
    *selectors.RULES,
    *config.RULES,
    *device_class.RULES,
    *resource_slice.RULES,
    *compatibility.RULES,
    *pod.RULES,
    *published.RULES,
    *fits.RULES,
)
