"""The items of several tenants in turns, so that a tenant with many delays or displaces no other's."""

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def interleave(
    items: Iterable[T],
    tenant_of: Callable[[T], str],
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[T]:
    """Yield the first item of each tenant, then the second of each, and so on.

    >>> "".join(interleave("aab1", lambda item: "digit" if item.isdigit() else item))
    'ab1a'

    Args:
        is_over: Called when each tenant has had as many items, before the next ones; True leaves the rest out.
    """
    by_tenant: dict[str, list[T]] = {}
    for item in items:
        by_tenant.setdefault(tenant_of(item), []).append(item)
    for turn in zip_longest(*by_tenant.values()):
        yield from (item for item in turn if item is not None)
        if is_over():
            return
