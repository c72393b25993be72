"""Amounts of extended resources, judged as the API server and the device plugins judge them."""

from kube.quantity import Format, Quantity
from webhook.findings import Code, Finding, error
from webhook.intents import LegacyContainer


def whole(container: LegacyContainer, key: str) -> int | Finding | None:
    """Return the amount of an integer resource; None when the container does not name it.

    Returns:
        A number that is never negative, or the error that the API server would give.

    Source:
        k8s.io/kubernetes pkg/apis/core/validation, ValidateResourceQuantityValue: extended
        resources are integers; a translation that strips them must not legalise anything else.
    """
    amount = container.limits.get(key)
    if amount is None:
        return None
    if not amount.is_whole:
        return error(
            Code.NOT_AN_INTEGER,
            container.limit_path(key),
            f"Invalid value: {amount}: must be an integer",
            "write a whole number",
        )
    if amount < Quantity(0):
        return error(
            Code.NEGATIVE,
            container.limit_path(key),
            f"Invalid value: {amount}: must be greater than or equal to 0",
            "write a positive number",
        )
    return int(amount)


def says_bytes(amount: Quantity) -> bool:
    """Whether the amount is written in bytes: a binary suffix of Mi or more.

    >>> says_bytes(Quantity("8Gi")), says_bytes(Quantity("5k")), says_bytes(Quantity("8192"))
    (True, False, False)
    """
    return amount.format is Format.BINARY and str(amount).endswith(("Mi", "Gi", "Ti", "Pi", "Ei"))
