"""Fixes that name the request beside a limit."""

from typing import Any

import pytest

from findings.equal_requests import name_requests
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.quantity import Quantity

KEY = "nvidia.com/gpumem"
LIMITS = FieldPath.of("spec", "containers", 0, "resources", "limits")
WRONG_UNIT = error(Code.WRONG_UNIT, LIMITS.key(KEY), "bytes", "write 8192")
CLAMPED = warning(Code.CLAMPED, LIMITS.key(KEY), "too many", "write 100")


def document(limit: object, request: object) -> dict[str, Any]:
    resources = {"limits": {KEY: limit}, "requests": {KEY: request}}
    return {"spec": {"containers": [{"resources": resources}]}}


SAME = document("8Gi", "8192Mi")


@pytest.mark.parametrize(
    ("name", "finding", "manifest", "is_named"),
    [
        ("an equal amount, written in another way", WRONG_UNIT, SAME, True),
        ("another amount has a finding of its own", WRONG_UNIT, document("8Gi", "4Gi"), False),
        ("no quantity", WRONG_UNIT, document("8Gi", ["8Gi"]), False),
        ("an object without the place", WRONG_UNIT, {"spec": None}, False),
        (
            "a setting is no amount",
            warning(Code.WRONG_UNIT, LIMITS.key(KEY), "b", "set c"),
            SAME,
            False,
        ),
        ("a warning with an amount", CLAMPED.corrected_by(Quantity(100)), SAME, True),
        (
            "an annotation as the fix",
            error(Code.CANNOT_EXPRESS, LIMITS.key(KEY), "a", "add b"),
            SAME,
            False,
        ),
        (
            "a request",
            error(Code.WRONG_UNIT, FieldPath.of("requests").key(KEY), "a", "b"),
            SAME,
            False,
        ),
    ],
)
def test_the_equal_request_is_named_once(
    name: str, finding: Finding, manifest: dict[str, Any], is_named: bool
) -> None:
    (once,) = name_requests((finding,), manifest)

    assert is_named == once.fix.endswith("; write the same in requests"), name
    assert (once,) == tuple(name_requests((once,), manifest))
