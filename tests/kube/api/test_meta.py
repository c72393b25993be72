"""Views of documents: what a wrong value says, and where."""

import msgspec
import pytest

from kube.api.core import ResourceRequirements
from kube.api.meta import view


@pytest.mark.parametrize(
    ("want", "amount"),
    [
        ("Expected `str`, got true - at `$.limits[...]`", True),
        ("Expected `str`, got null - at `$.limits[...]`", None),
        ("Expected `str`, got [1] - at `$.limits[...]`", [1]),
        ("'abc' is not a quantity such as 500m, 3Gi or 1e3 - at `$.limits[...]`", "abc"),
    ],
)
def test_view_of_what_is_no_quantity(want: str, amount: object) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        view({"limits": {"cpu": amount}}, ResourceRequirements)

    assert want == str(raised.value)
