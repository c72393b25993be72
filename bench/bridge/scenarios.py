"""The requests of pods and the devices in a comparison of schedulers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from e2e import inventory
from testing.documents import api_object

Object = dict[str, Any]

DRIVER: Final = "bench.example.com"
CLASS: Final = "bench"
FREE_SHARE: Final = 0.05
"""The free share of the devices, in a cluster that pods are to fill."""
NOWHERE_EVERY: Final = 5
"""One pod of so many asks for devices that no node has."""
_GPUS: Final = 8
_ROOTS: Final = 4
"""PCIe roots of a node, each with two GPUs."""
_MEMORY_SLICES: Final = 8
_PROFILES: Final = {"1g": (1, range(7)), "2g": (2, range(0, 6, 2)), "3g": (4, range(0, 8, 4))}
"""Profile of a partition to its memory slices and where it may begin."""


class Scenario(NamedTuple):
    """Pods of one kind on nodes of one kind.

    Attributes:
        name: The name of the row.
        slices: Name of a node to its ResourceSlices.
        requests: Names of ResourceClaimTemplates to the `devices` that they ask for.
        pods_per_node: The least number of pods that fit on an empty node.
        is_full: Pods take the last `FREE_SHARE` of the devices.
        has_nowhere: One pod of `NOWHERE_EVERY` asks for devices that no node has.
        amounts: The CPU and memory of pods without claims, where `requests` is empty.
        at_least: The goal for pods per second beside the other side; None for that of the size of the cluster.
    """

    name: str
    slices: Callable[[str], Sequence[Object]]
    requests: dict[str, Object]
    pods_per_node: int
    is_full: bool = False
    has_nowhere: bool = False
    amounts: Mapping[str, str] = {}
    at_least: float | None = None


def device_class() -> Object:
    """Return the class of all devices here."""
    return inventory.device_class(CLASS, f'device.driver == "{DRIVER}"')


def gpus(node: str, count: int = _GPUS) -> list[Object]:
    """Return the ResourceSlices of a node with so many equal devices."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": "A100"},
                "index": {"int": index},
                "uuid": {"string": inventory.gpu_uuid(node, index)},
                "resource.kubernetes.io/pcieRoot": {"string": inventory.pcie_root(index)},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(count)
    ]
    return inventory.resource_slices(DRIVER, node, devices)


def _shared_gpus(node: str) -> list[Object]:
    (published,) = gpus(node)
    for device in published["spec"]["devices"]:
        device["allowMultipleAllocations"] = True
        device["capacity"] = {
            "memory": {
                "value": "80Gi",
                "requestPolicy": {
                    "default": "80Gi",
                    "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"},
                },
            }
        }
    return [published]


def _partitions(node: str) -> list[Object]:
    """Return four GPUs that can be partitioned: counters in one slice, partitions in another."""
    memory = {f"memory-{index}": {"value": "1"} for index in range(_MEMORY_SLICES)}
    counters = [{"name": f"gpu-{gpu}", "counters": memory} for gpu in range(4)]
    devices = [
        {
            "name": f"gpu-{gpu}-{profile}-{start}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [
                {
                    "counterSet": f"gpu-{gpu}",
                    "counters": {
                        f"memory-{index}": {"value": "1"} for index in range(start, start + size)
                    },
                }
            ],
        }
        for gpu in range(4)
        for profile, (size, starts) in _PROFILES.items()
        for start in starts
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 2},
    }
    return [
        api_object("ResourceSlice", f"{node}-{part.lower()}", spec={**spec, part: content})
        for part, content in (("sharedCounters", counters), ("devices", devices))
    ]


def _request(count: int = 1, expression: str = "", **fields: Any) -> Object:
    exactly = {"deviceClassName": CLASS, "count": count, **fields}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": "devices", "exactly": exactly}


def _capacity_at_least(amount: str) -> str:
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{amount}")) >= 0'


_ONE: Final = {"requests": [_request(expression=_capacity_at_least("40Gi"))]}
_PAIR: Final = {
    "requests": [_request(2, _capacity_at_least("40Gi"))],
    "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
}
_FRACTION: Final = {"requests": [_request(capacity={"requests": {"memory": "20Gi"}})]}
NOWHERE: Final = {"requests": [_request(expression=_capacity_at_least("100Gi"))]}
"""More than any device has."""


def _partition(profile: str) -> Object:
    expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
    return {"requests": [_request(expression=expression)]}


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("one device", gpus, {"one": _ONE}, _GPUS),
        Scenario("PCIe pair", gpus, {"pair": _PAIR}, _ROOTS),
        Scenario("fraction", _shared_gpus, {"fraction": _FRACTION}, 4 * _GPUS),
        Scenario(
            "partitions",
            _partitions,
            {profile: _partition(profile) for profile in ("3g", "2g", "1g")},
            8,
        ),
        Scenario("95 to 100 % full", gpus, {"one": _ONE}, _GPUS, is_full=True),
        Scenario("20 % fit nowhere", gpus, {"one": _ONE}, _GPUS, has_nowhere=True),
    )
}


PLAIN: Final = Scenario(
    "pods without claims",
    _shared_gpus,
    {},
    pods_per_node=100,
    amounts={"cpu": "500m", "memory": "1Gi"},
    at_least=0.97,
)
"""Pods that the sidecar is not asked about; it ranks nodes for them by what they cost the usual pods."""


def fill_claims(nodes: Sequence[str]) -> list[Object]:
    """Return allocated claims that leave a share of the devices free, at most one on each node."""
    free = max(1, round(len(nodes) * _GPUS * FREE_SHARE))
    stride = max(1, len(nodes) // free)
    with_one_free = set(list(nodes)[::stride][:free])
    return [_filling(node, _GPUS - (node in with_one_free)) for node in nodes]


def _filling(node: str, count: int) -> Object:
    results = [
        {"request": "devices", "driver": DRIVER, "pool": node, "device": f"gpu-{index}"}
        for index in range(count)
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return api_object(
        "ResourceClaim",
        f"filling-{node}",
        spec={"devices": {"requests": [_request(count)]}},
        status={
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
            }
        },
    )
