"""The cache of selectors, whoever writes them."""

import pytest

from allocator.model import selectors
from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, clear_selector_caches, selector_chain
from testing.allocation.builders import DRIVER, device, slice_of


def chain(number: int) -> SelectorChain:
    text = f'device.attributes["{DRIVER}"].?serial.orValue("x") != "number {number}"'
    return selector_chain((Expression(text=text, origin=""),))


@pytest.fixture
def gpus() -> list[PublishedDevice]:
    """Devices that differ in what the selectors read."""
    slice_ = slice_of(
        *(device(f"gpu-{number}", attributes={"serial": str(number)}) for number in range(20))
    )
    return [
        PublishedDevice(id=DeviceId(DRIVER, "pool", gpu.name), device=gpu, slice=slice_)
        for gpu in slice_.spec.devices or ()
    ]


def test_verdicts_of_all_selectors_together_are_bounded(
    gpus: list[PublishedDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_selector_caches()
    monkeypatch.setattr(selectors, "MAX_VERDICTS", 50)

    verdicts = [chain(number).verdict(gpu) for number in range(20) for gpu in gpus]

    assert verdicts == [True] * 400
    assert selectors._cached_verdicts.number <= 50
    assert selectors._short_chain.cache_info().currsize <= 3


def test_a_verdict_is_cached(gpus: list[PublishedDevice]) -> None:
    clear_selector_caches()
    selector = chain(0)
    for _ in range(3):
        selector.verdict(gpus[0])

    assert selectors._cached_verdicts.number == 1
