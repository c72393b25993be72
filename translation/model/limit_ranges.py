"""LimitRanges, as far as they concern keys that a translation removes.

Kubernetes sets the defaults of a LimitRange before mutating webhooks, and again before the second call
of one. It checks minima, maxima and ratios after all of them, and then rejects pods without the key.

Source: k8s.io/kubernetes plugin/pkg/admission/limitranger, minConstraint, maxConstraint and
limitRequestRatioConstraint; k8s.io/apiserver, admission plugins run again when a webhook wrote.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kube.api.core import LimitRange
from kube.quantity import Quantity

POD_TYPES = frozenset({"Container", "Pod"})
"""The types of limits that pods must satisfy."""


class LimitRangeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a LimitRange that translations and preflight checks read.

    Attributes:
        bounded: The resource names that have a minimum, maximum or ratio.
        defaults: Resource name to the default limits and requests of containers.
    """

    bounded: frozenset[str] = frozenset()
    defaults: Mapping[str, frozenset[Quantity]] = {}


Amounts = Mapping[str, Quantity] | None


def limit_range_summary(limit_range: LimitRange) -> LimitRangeSummary | None:
    """Return the part of a LimitRange that translations read; None if it has none."""
    items = [item for item in limit_range.spec.limits or () if item.type in POD_TYPES]
    bounded_names: set[str] = set()
    defaults: dict[str, set[Quantity]] = {}
    for item in items:
        for bounds in (item.min, item.max, item.max_limit_request_ratio):
            bounded_names |= (bounds or {}).keys()
        for amounts in (item.default, item.default_request):
            for name, amount in (amounts or {}).items():
                defaults.setdefault(name, set()).add(amount)
    if not bounded_names and not defaults:
        return None
    return LimitRangeSummary(
        bounded=frozenset(bounded_names),
        defaults={name: frozenset(amounts) for name, amounts in defaults.items()},
    )


def default_amounts(
    limit_ranges: Iterable[LimitRangeSummary],
) -> Mapping[str, frozenset[Quantity]]:
    """Return resource name to the amounts that containers may get by default."""
    merged_amounts: dict[str, frozenset[Quantity]] = {}
    for limit_range in limit_ranges:
        for name, amounts in limit_range.defaults.items():
            merged_amounts[name] = merged_amounts.get(name, frozenset()) | amounts
    return merged_amounts
