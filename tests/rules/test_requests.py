"""Requests of a claim as a flat list, within bounds."""

from itertools import repeat

from kube.api.resource import (
    MAX_SELECTORS,
    CelSelector,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from rules.model.requests import exceeds_compile_cost, list_selectors, truncate_claim

SELECTOR = DeviceSelector(cel=CelSelector(expression="true"))


def test_selectors_cost_their_characters_and_some_more() -> None:
    assert exceeds_compile_cost([SELECTOR] * 3, 100)
    assert not exceeds_compile_cost([SELECTOR] * 2, 100)
    assert not exceeds_compile_cost([DeviceSelector()] * 1000, 100)


def test_no_more_selectors_are_read_than_the_limit_needs() -> None:
    assert exceeds_compile_cost(repeat(SELECTOR), 10_000)


def test_a_truncated_claim_has_one_selector_more_than_the_api_server_takes() -> None:
    exact = ExactDeviceRequest(device_class_name="gpu", selectors=(SELECTOR,) * 40_000)
    alternative = DeviceSubRequest(
        name="first", device_class_name="gpu", selectors=(SELECTOR,) * 40_000
    )
    claim = DeviceClaim(
        requests=(
            DeviceRequest(name="exact", exactly=exact),
            DeviceRequest(name="either", first_available=(alternative,)),
        )
    )

    assert len(list(list_selectors([truncate_claim(claim)]))) == 2 * (MAX_SELECTORS + 1)
