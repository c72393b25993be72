"""GPUs and NICs that belong together: the recipes, on hardware with 1, 2 and 4 GPUs per root."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.plan import Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.resource import Device, DeviceRequest, ResourceClaim
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    device,
    device_class,
    distinct,
    first_of,
    match,
    node_with,
    pool_of,
    request,
)

GPU, NIC = "gpu.example.com", "nic.example.com"
ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
PORT = f"{NIC}/pfPciAddress"
CLASSES = classes(
    device_class("gpu", f'device.driver == "{GPU}"'),
    device_class("nic", f'device.driver == "{NIC}"'),
)


def host(per_root: int, nics: Sequence[int | None], *, gpus: int = 8) -> NodeDevices:
    """Eight GPUs, so many per root, and a NIC on each of the named roots; None: on no known root."""
    cards = [device(f"gpu-{number}", attributes=_on(number // per_root)) for number in range(gpus)]
    ports = [device(f"nic-{number}", attributes=_on(root)) for number, root in enumerate(nics)]
    return node_with(pool_of(*cards, driver=GPU), pool_of(*ports, driver=NIC))


def _on(root: int | None) -> Mapping[str, str | int]:
    return {} if root is None else {ROOT: f"pci0000:{root:02x}", NUMA: root // 2}


def nic(name: str = "nic", count: int = 1) -> DeviceRequest:
    return request(name, count=count, device_class_name="nic")


def pairs(count: int) -> ResourceClaim:
    """So many GPUs, each with a NIC of its own under the same root."""
    requests = [
        device_request
        for number in range(count)
        for device_request in (request(f"gpu-{number}"), nic(f"nic-{number}"))
    ]
    constraints = [match(ROOT, f"gpu-{number}", f"nic-{number}") for number in range(count)]
    return claim(*requests, constraints=constraints)


def together(gpus: int, nics: int = 1, attribute: str = ROOT) -> ResourceClaim:
    """GPUs and NICs that all have one attribute in common."""
    return claim(
        request("gpu", count=gpus), nic(count=nics), constraints=[match(attribute, "gpu", "nic")]
    )


def rather() -> ResourceClaim:
    """A GPU that shares the NIC's NUMA node if there is one, else any."""
    return claim(
        nic(),
        first_of("gpu", alternative("aligned"), alternative("any")),
        constraints=[match(NUMA, "gpu/aligned", "nic")],
    )


def placed(node: NodeDevices, wanted_claim: ResourceClaim) -> list[str] | None:
    rules = AllocatorOptions(features=Features())
    outcome = allocate(
        node, resolve_requests([wanted_claim], CLASSES, rules.features), Usage(), rules
    )
    if not isinstance(outcome, Plan):
        return None
    return [choice.device.id.device for claim_ in outcome.choices for choice in claim_]


class Case(NamedTuple):
    name: str
    node: NodeDevices
    claim: ResourceClaim
    want: list[str] | None


CASES = (
    Case("1 per root: a GPU beside the only NIC", host(1, [5]), together(1), ["gpu-5", "nic-0"]),
    Case("1 per root: two GPUs share no root", host(1, range(8)), together(2), None),
    Case("1 per root: two pairs on two roots", host(1, [2, 6]), pairs(2),
         ["gpu-2", "nic-0", "gpu-6", "nic-1"]),
    Case("2 per root: two GPUs and their NIC", host(2, [3]), together(2),
         ["gpu-6", "gpu-7", "nic-0"]),
    Case("2 per root: three GPUs share no root", host(2, range(4)), together(3), None),
    Case("2 per root: four pairs want four NICs", host(2, [0, 0, 1, 1]), pairs(4),
         ["gpu-0", "nic-0", "gpu-1", "nic-1", "gpu-2", "nic-2", "gpu-3", "nic-3"]),
    Case("2 per root: a third NIC on one root helps no third GPU", host(2, [0, 0, 0]), pairs(3),
         None),
    Case("4 per root: four GPUs and a NIC", host(4, [1]), together(4),
         ["gpu-4", "gpu-5", "gpu-6", "gpu-7", "nic-0"]),
    Case("4 per root: five GPUs share no root", host(4, [0, 1]), together(5), None),
    Case("4 per root: two NICs on the second", host(4, [0, 1, 1]), together(2, nics=2),
         ["gpu-4", "gpu-5", "nic-1", "nic-2"]),
    Case("two roots of one NUMA node", host(2, [1]), together(4, attribute=NUMA),
         ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "nic-0"]),
    Case("a NIC without a root matches nothing", host(2, [None]), together(1), None),
    Case("softly: aligned where it can be", host(2, [3]), rather(), ["nic-0", "gpu-4"]),
    Case("softly: any where none is aligned", host(2, [3], gpus=4), rather(), ["nic-0", "gpu-0"]),
    Case("softly: but a NIC without the attribute fails all the same", host(2, [None]), rather(),
         None),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recipes(case: Case) -> None:
    assert case.want == placed(case.node, case.claim)


def functions(*ports: str) -> NodeDevices:
    """Virtual functions, each on one of the ports."""

    def function(number: int, port: str) -> Device:
        attributes: dict[str, Any] = {"pfPciAddress": port}
        return device(f"vf-{number}", attributes=attributes)

    return node_with(
        pool_of(*(function(number, port) for number, port in enumerate(ports)), driver=NIC)
    )


def test_functions_of_different_ports() -> None:
    apart = claim(nic(count=2), constraints=[distinct(PORT, "nic")])

    assert ["vf-0", "vf-2"] == placed(
        functions("0000:3b:00.0", "0000:3b:00.0", "0000:5e:00.0"), apart
    )
    assert placed(functions("0000:3b:00.0", "0000:3b:00.0"), apart) is None
