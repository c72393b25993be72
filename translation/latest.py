"""Keep the latest result of a function whose arguments seldom change."""

from collections.abc import Callable
from functools import wraps
from operator import is_not
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def keep_latest(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function of immutable values to run again only for other ones.

    The values are compared by identity: equality would read every profile for every pod. They are given by
    position.
    """
    latest: tuple[tuple[object, ...], _Result] | None = None

    @wraps(function)
    def latest_result(*values: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        nonlocal latest
        # Read once, since another thread may replace it meanwhile.
        latest_key = latest
        if latest_key is None or any(map(is_not, latest_key[0], values)):
            latest_key = latest = (values, function(*values, **named))
        return latest_key[1]

    return latest_result
