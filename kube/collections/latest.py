"""Keep the latest result of a function that is mostly called with equal arguments."""

from collections.abc import Callable
from functools import wraps
from operator import is_not
from typing import TypeVar, TypeVarTuple

_Values = TypeVarTuple("_Values")
_Result = TypeVar("_Result")


def keep_latest(function: Callable[[*_Values], _Result]) -> Callable[[*_Values], _Result]:
    """Decorate a function of immutable values to run again only for other ones.

    The values are compared by identity: equality would read every profile for every pod.
    """
    latest: tuple[tuple[*_Values], _Result] | None = None

    @wraps(function)
    def latest_result(*values: *_Values) -> _Result:
        nonlocal latest
        # Read once, since another thread may replace it meanwhile.
        latest_key = latest
        if latest_key is None or any(map(is_not, latest_key[0], values)):
            latest_key = latest = (values, function(*values))
        return latest_key[1]

    return latest_result
