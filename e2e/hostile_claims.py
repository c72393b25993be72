"""Claims with selectors as costly as the API server lets an editor write."""

from collections.abc import Sequence
from typing import Final

from e2e.access import Object
from testing.documents import api_object

LENGTH: Final = 9_700
"""The length of an expression, in bytes; the API server takes 10 KiB."""
PATTERNS: Final = 75


def long_selector(attribute: str, number: int) -> str:
    """Return a selector that is true of each device, and as long as selectors may be.

    Args:
        attribute: CEL of a text of the device.
        number: Makes it differ from the others.
    """
    text = f"{number}-".ljust(LENGTH, "x")
    return f'{attribute} != "{text}"'


def slow_selector(attribute: str, number: int) -> str:
    """Return a selector that is true of each device, after it took some milliseconds for it.

    Args:
        attribute: The attribute, as in `long_selector`.
        number: Likewise.
    """
    patterns = (
        f'{attribute}.matches("[^{number}]x{pattern}[a-z]+$")' for pattern in range(PATTERNS)
    )
    return " || ".join((*patterns, "true"))


def template(name: str, device_class: str, requests: Sequence[Sequence[str]]) -> Object:
    """Return a ResourceClaimTemplate with a request for each list of selectors."""
    return api_object(
        "ResourceClaimTemplate",
        name,
        spec={
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": f"request-{number}",
                            "exactly": {
                                "deviceClassName": device_class,
                                "selectors": [
                                    {"cel": {"expression": selector}} for selector in selectors
                                ],
                            },
                        }
                        for number, selectors in enumerate(requests)
                    ]
                }
            }
        },
    )
