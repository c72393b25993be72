"""The part of an allocation in the record of a claim: little, and as much as is needed later."""

from itertools import product
from typing import Any

import msgspec
import pytest

from driver.model.record import MAX_PODS, Record
from driver.plan.checkpoint import Checkpoint
from driver.plan.config import settings_for
from driver.plan.prepare import Preparation, prepare_claim
from driver.plan.recorded import recorded_config
from kube.api.meta import encode
from kube.api.resource import DeviceAllocationConfiguration, DeviceToleration, ResourceClaim
from testing.allocation.builders import DRIVER, result
from testing.driver.builders import (
    BOOT,
    allocated_claim,
    configured_configuration,
    node_state,
    share,
    shared_gpu,
)

NODE = node_state(shared_gpu("gpu-0"))
REQUESTS = tuple(f"{number:063}/{number:063}" for number in range(32))
LONG: dict[str, Any] = {"sharing": {"timeSlice": "Long"}}
KINDS: tuple[dict[str, Any], ...] = (
    LONG,
    {"sharing": {"timeSlice": "Short"}},
    {"sharing": {}},
    {"sharing": None},
    {},
)


def record_of(claim: ResourceClaim) -> Record:
    preparation = prepare_claim(claim, claim.metadata.uid, NODE, Checkpoint(boot_id=BOOT))
    assert isinstance(preparation, Preparation), preparation
    return preparation.record


def large_claim(*config: DeviceAllocationConfiguration) -> ResourceClaim:
    """A claim with lists as long as the API server accepts them."""
    toleration = DeviceToleration(key=f"{'k' * 253}/{'k' * 63}", operator="Exists")
    results = (
        msgspec.structs.replace(
            share("gpu-0", "1Gi", request=request), tolerations=(toleration,) * 16
        )
        for request in REQUESTS
    )
    pods = [f"{number:0253}" for number in range(256)]
    return allocated_claim(*results, config=config, pods=pods)


@pytest.mark.parametrize(
    ("config", "most"),
    [
        ([configured_configuration(*REQUESTS, **LONG)] * 64, 16),
        (
            [
                configured_configuration(*REQUESTS[number % 2 :], **KINDS[number % len(KINDS)])
                for number in range(63)
            ]
            + [configured_configuration(**LONG)],
            40,
        ),
    ],
    ids=["one entry many times", "entries for other requests each"],
)
def test_the_largest_claim_has_a_small_record(
    config: list[DeviceAllocationConfiguration], most: int
) -> None:
    claim = large_claim(*config)

    record = record_of(claim)

    assert len(encode(record)) <= most * 1024 < len(encode(claim)) / 8
    assert MAX_PODS == len(record.pods)
    assert record.pods_text().endswith(",...248 more")


def test_a_record_keeps_the_settings_of_every_request() -> None:
    """Of up to three entries for two requests, each for one of them, both, or all."""
    requests, results = ("a", "b/c"), (result("gpu-0", request="a"), result("gpu-0", request="b/c"))
    entries = [
        configured_configuration(*names, **kind)
        for names, kind in product([(), ("a",), ("b",), ("a", "b/c"), ("x",)], KINDS[:3])
    ]
    for config in product(entries, repeat=3):
        kept = recorded_config(config, results, DRIVER)

        for request in requests:
            assert settings_for(request, DRIVER, kept) == settings_for(request, DRIVER, config)
        assert kept == recorded_config(kept, results, DRIVER)


def test_a_claim_stays_prepared_whose_record_an_older_driver_wrote() -> None:
    claim = large_claim(*[configured_configuration(*REQUESTS[:3], "x", **LONG)] * 2)
    assert claim.status is not None
    assert claim.status.allocation is not None
    devices = claim.status.allocation.devices
    older = msgspec.structs.replace(
        record_of(claim), results=devices.results, config=devices.config
    )
    checkpoint = Checkpoint(boot_id=BOOT, claims={claim.metadata.uid: older})

    preparation = prepare_claim(claim, claim.metadata.uid, NODE, checkpoint)

    assert isinstance(preparation, Preparation), preparation
    assert older == preparation.record
