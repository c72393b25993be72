"""Values that properties are checked on."""

from hypothesis import strategies as st

_DIGITS = st.text("0123456789", max_size=24)
_SHORT_DIGITS = st.text("0123456789", max_size=4)
_SUFFIXES = st.sampled_from(("", "n", "u", "m", "k", *"MGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
_EXPONENTS = st.builds(
    "{}{}".format, st.sampled_from("eE"), st.integers(-30, 30).map(lambda power: f"{power:+d}")
) | st.builds("e{}".format, st.integers(-30, 30))


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Texts in the grammar of quantities, the odd ones that upstream takes included."""
    sign = draw(st.sampled_from(("", "", "", "-", "+")))
    whole = draw(_SHORT_DIGITS | _DIGITS)
    fraction = draw(st.just("") | st.builds(".{}".format, _SHORT_DIGITS | _DIGITS))
    suffix = draw(_SUFFIXES | _EXPONENTS)
    # Digits may be missing on both sides where upstream has no need of them.
    if not (whole or fraction.strip(".")) and suffix not in {"m", "k", "Ki", "e3"}:
        whole = "0"
    return f"{sign}{whole}{fraction}{suffix}"


def broken_quantity_texts() -> st.SearchStrategy[str]:
    """Texts made of the letters of quantities, mostly not quantities."""
    return st.text("0123456789.+-eEinumkKMGTP _", max_size=12)
