"""Our quantities against Go's: read, printed, compared, added, rounded up.

Deliberate differences: `MAX_TEXT`, `MAX_EXPONENT`, and amounts beyond the largest suffix (upstream
drops a suffix that does not exist and writes another amount).
"""

import pytest
from hypothesis import assume, example, given

from kube.errors import QuantityError
from kube.quantity import Format, Quantity
from testing.generators import broken_quantity_texts, quantity_texts
from testing.oracle.go import Oracle

pytestmark = pytest.mark.oracle


def _read(text: str) -> Quantity | None:
    try:
        return Quantity(text)
    except QuantityError:
        return None


def _is_beyond_the_suffixes(q: Quantity) -> bool:
    """Return True if upstream would need a suffix that does not exist: 1000E, 1024Ei and so on."""
    whole = abs(q.nanos) // 10**9
    limit = {Format.DECIMAL: 10**21, Format.BINARY: min(2**70, 10**21), Format.EXPONENT: None}
    bound = limit[q.format]
    return bound is not None and whole >= bound


@given(a=quantity_texts(), b=quantity_texts())
@example(a="-", b=".")
@example(a="Ki", b="e5")
@example(a="1.500", b="+5")
@example(a="0.1n", b="-0.1n")
@example(a="9Ei", b="-9Ei")
@example(a="999999999999999999Ki", b="0.0001Ki")
@example(a="1.5Gi", b="0.3k")
@example(a="1e16", b="1e+16")
@example(a="1023Ki", b="1n")
def test_arithmetic(oracle: Oracle, a: str, b: str) -> None:
    ours_a, ours_b = Quantity(a), Quantity(b)
    total, rest = ours_a + ours_b, ours_a - ours_b
    assume(not any(map(_is_beyond_the_suffixes, (ours_a, ours_b, total, rest))))

    (theirs,) = oracle.ask([{"quantity": {"a": a, "b": b}}])

    ours = {
        "a": _described(ours_a),
        "b": _described(ours_b),
        "compare": (ours_a > ours_b) - (ours_a < ours_b),
        "sum": str(total),
        "difference": str(rest),
    }
    assert theirs == ours


def _described(q: Quantity) -> dict[str, str]:
    return {"canonical": str(q), "format": str(q.format), "roundedUp": str(q.round_up())}


@given(text=broken_quantity_texts())
@example(text="")
@example(text="1e")
@example(text="1K")
@example(text="\u0661")
def test_what_is_a_quantity(oracle: Oracle, text: str) -> None:
    (theirs,) = oracle.ask([{"quantity": {"a": text, "b": "0"}}])
    ours = _read(text)
    # Our bound on exponents is our own.
    assume(ours is not None or "error" in theirs["a"] or not _has_a_huge_exponent(text))

    assert ("error" in theirs["a"]) == (ours is None)


def _has_a_huge_exponent(text: str) -> bool:
    return any(len(part.lstrip("+-0")) > 2 for part in text.lower().split("e")[1:])


@given(text=quantity_texts())
def test_canonical_text_is_a_fixpoint(text: str) -> None:
    once = Quantity(text)
    again = Quantity(str(once))

    assert (again, str(again)) == (once, str(once))
