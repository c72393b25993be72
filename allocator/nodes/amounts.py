"""Amounts of resources in the units that kube-scheduler counts.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/types.go, Resource;
pkg/scheduler/util/utils.go, IsScalarResourceName.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.quantity import Format, Quantity, format_amount

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_SCALAR_PREFIXES: Final = ("hugepages-", "attachable-volumes-")
_NATIVE_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."
MAX_INT64: Final = 2**63 - 1


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of the resources of a pod or a node.

    Attributes:
        cpu_milli: CPU in thousandths of a core.
        memory: Memory in bytes.
        ephemeral_storage: Ephemeral storage in bytes.
        scalars: Extended resource or size of huge pages to its amount.
    """

    cpu_milli: int = 0
    memory: int = 0
    ephemeral_storage: int = 0
    scalars: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if no resource is named; a scalar of 0 counts as named, as upstream."""
        return not (self.cpu_milli or self.memory or self.ephemeral_storage or self.scalars)

    def __add__(self, other: "ResourceAmounts") -> "ResourceAmounts":
        return _combine(self, other, 1)

    def __sub__(self, other: "ResourceAmounts") -> "ResourceAmounts":
        return _combine(self, other, -1)


def read_amounts(quantities: Mapping[str, Quantity]) -> ResourceAmounts:
    """Return the amounts of quantities; names that kube-scheduler does not count are left out.

    >>> read_amounts({"cpu": Quantity("1500m"), "memory": Quantity("1Gi"), "pods": Quantity(110)})
    ResourceAmounts(cpu_milli=1500, memory=1073741824, ephemeral_storage=0, scalars={})
    """
    return ResourceAmounts(
        cpu_milli=milli_value(quantities[CPU]) if CPU in quantities else 0,
        memory=whole_value(quantities[MEMORY]) if MEMORY in quantities else 0,
        ephemeral_storage=(
            whole_value(quantities[EPHEMERAL_STORAGE]) if EPHEMERAL_STORAGE in quantities else 0
        ),
        scalars={
            name: whole_value(quantity) for name, quantity in quantities.items() if is_scalar(name)
        },
    )


def milli_value(quantity: Quantity) -> int:
    """Return a quantity in thousandths, rounded away from zero; 0 if that is beyond 64 bits.

    Source: Quantity.MilliValue, by which kube-scheduler places a pod that requests `1e30` as one that requests
    nothing. Of amounts that are no 18 digits with an exponent it keeps 64 bits, which is not modelled.

    >>> milli_value(Quantity("0.5")), milli_value(Quantity("1u")), milli_value(Quantity("1e30"))
    (500, 1, 0)
    """
    return _within_int64(Quantity.from_nanos(quantity.nanos * 1000).round_up())


def whole_value(quantity: Quantity) -> int:
    """Return a quantity in whole units, rounded away from zero; 0 if that is beyond 64 bits.

    Source: Quantity.Value.

    >>> whole_value(Quantity("1500m")), whole_value(Quantity("1e19"))
    (2, 0)
    """
    return _within_int64(quantity.round_up())


def _within_int64(amount: int) -> int:
    return amount if -MAX_INT64 - 1 <= amount <= MAX_INT64 else 0


def format_resource(name: str, amount: int) -> str:
    """Format an amount of a resource for people.

    Args:
        name: The resource.
        amount: Thousandths of a core for CPU, else whole units.

    >>> format_resource("cpu", 2500), format_resource("memory", 3 << 30), format_resource("a.io/b", 2)
    ('2500m', '3Gi', '2')
    """
    if name == CPU:
        return str(Quantity.from_nanos(amount * 10**6))
    if name in {MEMORY, EPHEMERAL_STORAGE} or name.startswith(_SCALAR_PREFIXES):
        return format_amount(Quantity.from_int(amount, Format.BINARY))
    return str(amount)


def amount_of(amounts: ResourceAmounts, name: str) -> int:
    """Return the amount of a resource by its name; milli-units for CPU, 0 of one without an amount."""
    fields = {
        CPU: amounts.cpu_milli,
        MEMORY: amounts.memory,
        EPHEMERAL_STORAGE: amounts.ephemeral_storage,
    }
    return fields.get(name, amounts.scalars.get(name, 0))


def is_scalar(name: str) -> bool:
    """Return True if a resource is counted in whole units by its name.

    >>> [is_scalar(name) for name in ("nvidia.com/gpu", "hugepages-2Mi", "cpu", "requests.a.io/b")]
    [True, True, False, False]
    """
    if name.startswith(_SCALAR_PREFIXES) or _NATIVE_DOMAIN in name:
        return True
    return "/" in name and not name.startswith(_QUOTA_PREFIX)


def _combine(first: ResourceAmounts, second: ResourceAmounts, sign: int) -> ResourceAmounts:
    scalars = first.scalars
    if second.scalars:
        scalars = dict(scalars)
        for name, amount in second.scalars.items():
            scalars[name] = scalars.get(name, 0) + sign * amount
    return ResourceAmounts(
        cpu_milli=first.cpu_milli + sign * second.cpu_milli,
        memory=first.memory + sign * second.memory,
        ephemeral_storage=first.ephemeral_storage + sign * second.ephemeral_storage,
        scalars=scalars,
    )
