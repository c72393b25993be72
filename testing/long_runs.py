"""Parameters of tests that `make test` takes in part, and `make long` and `make e2e` as a whole."""

from collections.abc import Iterable
from typing import Any

import pytest


def beginning_with(count: int, values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters; all after the first `count` are marked `long`."""
    return [
        pytest.param(value, marks=[pytest.mark.long] * (index >= count))
        for index, value in enumerate(values)
    ]


def every_second(values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters; the second, fourth ... are marked `long`."""
    return [
        pytest.param(value, marks=[pytest.mark.long] * (index % 2))
        for index, value in enumerate(values)
    ]
