"""The demand of claims, in devices and in capacities, on clusters with devices of two sizes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.replay.demand import DEVICE, DemandMeter
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import DeviceRequest
from testing.allocation.builders import (
    DRIVER,
    alternative,
    amount,
    claim,
    classes,
    device,
    first_of,
    node,
    request,
    slice_of,
)

LARGE = f'device.attributes["{DRIVER}"].model == "large"'
GI = 2**30 * 10**9
MILLI = 10**9


def meter() -> DemandMeter:
    """Return a meter for three devices of 80Gi that can be shared, one of 16Gi, and one network card for one pod."""
    large = [
        device(
            f"gpu-{number}",
            shared=True,
            attributes={"model": "large"},
            capacity={"milli": amount("1k"), "memory": amount("80Gi")},
        )
        for number in range(3)
    ]
    small = device(
        "gpu-0",
        shared=True,
        attributes={"model": "small"},
        capacity={"milli": amount("1k"), "memory": amount("16Gi")},
    )
    card = device("nic-0", attributes={"model": "nic"}, capacity={"bandwidth": amount("100")})
    return DemandMeter(
        Cluster(
            slices=(
                slice_of(*large, pool="a", node="a"),
                slice_of(small, pool="b", node="b"),
                slice_of(card, pool="c", node="b"),
            ),
            nodes=(node("a"), node("b")),
            claims=(),
            classes=classes(),
            options=AllocatorOptions(),
        )
    )


class Case(NamedTuple):
    name: str
    devices: float
    requests: Sequence[DeviceRequest]
    nanos: Mapping[str, int] = {}


CASES = (
    Case(
        "what only the large devices can serve counts against these, and not against the mean",
        0.5,
        [request("r", capacity={"milli": 250, "memory": "40Gi"})],
        {"milli": 250 * MILLI, "memory": 40 * GI},
    ),
    Case(
        "the fullest capacity counts, as the mean over devices that differ",
        (3 * 0.25 + 0.5) / 4,
        [request("r", capacity={"milli": 250, "memory": "8Gi"})],
        {"milli": 250 * MILLI, "memory": 8 * GI},
    ),
    Case(
        "a selector leaves the other devices out",
        0.25,
        [request("r", LARGE, capacity={"milli": 250, "memory": "8Gi"})],
        {"milli": 250 * MILLI, "memory": 8 * GI},
    ),
    Case(
        "each of several devices counts, and each request",
        4.0,
        [
            request("r", LARGE, count=2),
            request("s", LARGE, count=2, capacity={"milli": 1000, "memory": "8Gi"}),
        ],
        {"milli": 4000 * MILLI, "memory": 176 * GI},
    ),
    Case(
        "a device that cannot be shared counts as a whole one",
        1.0,
        [request("r", capacity={"bandwidth": 10})],
        {"bandwidth": 100 * MILLI},
    ),
    Case(
        "all devices of a node are as many as the mean node has",
        3.0,
        [request("r", LARGE, count=None)],
        {"milli": 3000 * MILLI, "memory": 240 * GI},
    ),
    Case(
        "of alternatives the first counts that a device can serve",
        0.5,
        [
            first_of(
                "r",
                alternative("x", capacity={"memory": "100Gi"}),
                alternative("y", LARGE, capacity={"milli": 100, "memory": "40Gi"}),
            )
        ],
        {"milli": 100 * MILLI, "memory": 40 * GI},
    ),
    Case(
        "what no device can serve counts as whole ones",
        2.0,
        [request("r", count=2, capacity={"milli": 2000})],
    ),
    Case(
        "so does a claim that is invalid",
        3.0,
        [request("r", count=3, device_class_name="nosuch")],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_devices_that_a_claim_requests(case: Case) -> None:
    got = meter().requested([claim(*case.requests)])

    assert got.millionths == case.devices * DEVICE
    assert dict(got.nanos) == {(DRIVER, name): value for name, value in case.nanos.items()}


def test_the_demand_of_pods() -> None:
    half = [claim(request("r", capacity={"milli": 500, "memory": "40Gi"}))]

    got = meter().demand([half, half, half, []])

    assert (got.total_devices, got.requested_devices, got.percent) == (5, 1.5, 30)
    assert {entry.name: (entry.requested, entry.total) for entry in got.capacities} == {
        "milli": (1500, 4000),
        "memory": (120 * 2**30, 256 * 2**30),
    }
