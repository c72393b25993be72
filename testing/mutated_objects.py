"""Objects of the table of rules with values replaced or taken away."""

import copy
from typing import Any

from hypothesis import strategies as st

from testing.documents import Document
from testing.rule_cases import ALL

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.sampled_from(["", "a/b/c", "10Gi", "-1", "\x1b[2J", 'device.driver == "', "All"])
)


values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return container and key of everything within a document."""
    keys: Any = value if isinstance(value, dict) else range(len(value))
    here = [(value, key) for key in keys]
    below = [
        place
        for container, key in here
        if isinstance(container[key], dict | list)
        for place in places(container[key])
    ]
    return here + below


@st.composite
def mutated_document(draw: st.DrawFn) -> Document:
    """An object of the table with up to three of its values replaced or taken away."""
    document: Document = copy.deepcopy(draw(st.sampled_from(ALL)).document)
    for _ in range(draw(st.integers(0, 3))):
        inside = [place for place in places(document["spec"]) if place[0] is not document]
        if not inside:
            break
        container, key = draw(st.sampled_from(inside))
        if isinstance(container, dict) and draw(st.booleans()):
            del container[key]
        else:
            container[key] = draw(values)
    return document
