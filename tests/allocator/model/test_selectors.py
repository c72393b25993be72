"""The cache of selectors, written by anybody."""

from collections.abc import Iterator

import pytest

from allocator.model import selectors
from allocator.model.devices import DeviceId, Pool, PoolId, PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import (
    VERDICT_BYTES,
    SelectorChain,
    clear_selector_caches,
    release_verdicts,
    selector_chain,
)
from kube.cel.scope import BudgetSpent, evaluating, metered
from kube.collections.tenant_cache import TenantCache
from testing.allocation.builders import DRIVER, device, slice_of


def chain(number: int) -> SelectorChain:
    text = f'device.attributes["{DRIVER}"].?serial.orValue("x") != "number {number}"'
    return selector_chain((Expression(text=text, origin=""),))


@pytest.fixture
def gpus() -> list[PublishedDevice]:
    """Devices that differ in the values that the selectors read."""
    slice_ = slice_of(
        *(device(f"gpu-{number}", attributes={"serial": str(number)}) for number in range(20))
    )
    return [
        PublishedDevice(id=DeviceId(DRIVER, "pool", gpu.name), device=gpu, slice=slice_)
        for gpu in slice_.spec.devices or ()
    ]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[TenantCache[tuple[str, ...], object]]:
    """Room for the verdicts of four selectors, and of eight while questions are unfinished."""
    size = selectors._Evaluator(("true",)).size + 2_000 + 20 * VERDICT_BYTES
    small = TenantCache[tuple[str, ...], object](max_bytes=4 * size, max_pinned_bytes=8 * size)
    monkeypatch.setattr(selectors, "_evaluators", small)
    yield small
    clear_selector_caches()


def steps(
    number: int, gpus: list[PublishedDevice], tenant: str, question: str | None = None
) -> int:
    """Return the steps of the verdicts on all devices now."""
    with evaluating(tenant=tenant, question=question), metered() as meter:
        assert chain(number).verdicts(gpus).count(True) == 20
    return meter.steps


def test_a_verdict_is_evaluated_once(gpus: list[PublishedDevice]) -> None:
    clear_selector_caches()

    assert [steps(0, gpus, "") > 0 for _ in range(3)] == [True, False, False]


def test_verdicts_are_those_of_all_chains_with_the_same_texts(gpus: list[PublishedDevice]) -> None:
    clear_selector_caches()
    steps(0, gpus, "team-a")

    assert steps(0, gpus, "team-b") == 0


def test_what_a_tenant_has_evaluated_evicts_nothing_of_another(
    gpus: list[PublishedDevice], cache: TenantCache[tuple[str, ...], object]
) -> None:
    steps(0, gpus, "quiet")
    for number in range(1, 30):
        steps(number, gpus, "loud")

    assert len(cache) < 8
    assert steps(0, gpus, "quiet") == 0
    assert steps(1, gpus, "loud") > 0


@pytest.mark.usefixtures("cache")
def test_the_verdicts_of_an_unfinished_question_are_kept(gpus: list[PublishedDevice]) -> None:
    """Else a pod with more selectors than the cache has room for would never get an answer."""
    for number in range(6):
        steps(number, gpus, "team-a", question="pod")
    for number in range(10, 40):
        steps(number, gpus, "team-a")
    again = [steps(number, gpus, "team-a", question="pod") for number in range(6)]
    release_verdicts("pod")
    for number in range(10, 40):
        steps(number, gpus, "team-a")

    assert again == [0] * 6
    assert steps(0, gpus, "team-a") > 0


def test_evaluations_are_charged_one_by_one_and_what_was_evaluated_is_kept(
    gpus: list[PublishedDevice],
) -> None:
    clear_selector_caches()
    attempts = 0
    with evaluating(tenant="team-a"):
        chain(0)  # It is compiled.
        while True:
            attempts += 1
            try:
                with metered(10):
                    chain(0).verdicts(gpus)
            except BudgetSpent:
                continue
            break

    assert 3 < attempts <= 20


def test_a_selection_of_a_pool_that_is_gone_is_not_that_of_a_new_one(
    gpus: list[PublishedDevice],
) -> None:
    """Pools are told apart by their identity; a new one may have the same again."""
    evaluator = selectors._evaluator((f'device.attributes["{DRIVER}"].serial == "1"',))
    for first in range(50):
        pool = Pool(id=PoolId(DRIVER, "pool"), devices=tuple(gpus[first % 2 : first % 2 + 2]))
        selected, _ = evaluator.selection(pool)
        assert selected == (0b10 if first % 2 == 0 else 0b01)
