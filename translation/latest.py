"""Keep the latest result of a function whose arguments seldom change."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Result = TypeVar("_Result")


def keep_latest(
    function: Callable[[_First, _Second], _Result],
) -> Callable[[_First, _Second], _Result]:
    """Decorate a function of two immutable values to run again only for other ones.

    The values are compared by identity: equality would read every profile for every pod.
    """
    latest: tuple[_First, _Second, _Result] | None = None

    @wraps(function)
    def latest_result(first: _First, second: _Second) -> _Result:
        nonlocal latest
        # Read once, since another thread may replace it meanwhile.
        latest_key = latest
        if latest_key is None or latest_key[0] is not first or latest_key[1] is not second:
            latest_key = latest = (first, second, function(first, second))
        return latest_key[2]

    return latest_result
