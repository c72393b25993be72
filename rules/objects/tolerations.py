"""Faults of tolerations of device taints in claims."""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.resource import DeviceToleration
from rules.context.context import Context
from rules.context.rule import Claim, cel_for_all_alternatives
from rules.model.formats import A_LABEL_VALUE, is_label_value
from rules.model.requests import list_alternatives

MAX_TOLERATIONS: Final = 16
"""The largest number of tolerations of one request (DeviceTolerationsMaxLength); documented, but
the API server does not check it."""
_OPERATORS: Final = ("", "Equal", "Exists")
_EFFECTS: Final = ("", "NoSchedule", "NoExecute", "None")


def find_invalid_tolerations(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield tolerations with an unknown operator or effect, or a value that is not allowed."""
    for place, toleration in _tolerations(claim, path):
        if toleration.operator not in _OPERATORS:
            yield error(
                Code.INVALID_TOLERATION,
                place.child("operator"),
                f"unknown operator {quote_text(toleration.operator)}",
                "use Equal or Exists",
            )
        if toleration.operator == "Exists" and toleration.value:
            yield error(
                Code.INVALID_TOLERATION,
                place.child("value"),
                "a value is not allowed with operator Exists",
                "remove it, or use operator Equal",
            )
        elif toleration.operator in {"", "Equal"} and not is_label_value(toleration.value):
            yield error(
                Code.INVALID_TOLERATION,
                place.child("value"),
                f"{quote_text(toleration.value)} must be {A_LABEL_VALUE}",
            )
        if toleration.effect not in _EFFECTS:
            yield error(
                Code.INVALID_TOLERATION,
                place.child("effect"),
                f"unknown effect {quote_text(toleration.effect)}",
                "use NoSchedule or NoExecute, or omit it for both",
            )


def find_keyless_tolerations(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield tolerations of operator Equal without a key; they match any key of one value.

    A warning only: examples of drivers have them, meant to tolerate everything.
    """
    for place, toleration in _tolerations(claim, path):
        if not toleration.key and toleration.operator in {"", "Equal"}:
            yield warning(
                Code.KEYLESS_TOLERATION,
                place.child("key"),
                "operator Equal without a key tolerates only taints of value"
                f" {quote_text(toleration.value)}",
                "set the key, or use operator Exists to tolerate everything",
            )


def find_excess_tolerations(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield lists of tolerations above the documented limit."""
    for alternative in list_alternatives(claim.view):
        number = len(alternative.request.tolerations or ())
        if number > MAX_TOLERATIONS:
            yield error(
                Code.TOO_MANY_TOLERATIONS,
                path.join(alternative.path).child("tolerations"),
                f"{number} tolerations, but a request has at most {MAX_TOLERATIONS}",
                "tolerate keys with operator Exists",
            )


def find_noop_tolerations(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield tolerations of effect None; it keeps no pod away."""
    for place, toleration in _tolerations(claim, path):
        if toleration.effect == "None":
            yield warning(
                Code.NOOP_TOLERATION,
                place.child("effect"),
                "taints of effect None keep no pod away, so this toleration has no effect",
                "use NoSchedule or NoExecute, or omit the effect for both",
            )


def _tolerations(claim: Claim, path: FieldPath) -> Iterator[tuple[FieldPath, DeviceToleration]]:
    for alternative in list_alternatives(claim.view):
        for index, toleration in enumerate(alternative.request.tolerations or ()):
            yield path.join(alternative.path).child("tolerations", index), toleration


def cel_for_all_tolerations(holds: str) -> str:
    """Return CEL that requires `holds` of every toleration, as `t`."""
    return cel_for_all_alternatives(f"!has(ask.tolerations) || ask.tolerations.all(t, {holds})")
