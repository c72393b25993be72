"""Drivers that publish less, or otherwise: requests that cannot be expressed are refused, never dropped."""

from typing import Any, NamedTuple

import pytest

from kube.api.meta import convert
from kube.api.resource import Device
from kube.cel.compile import compile_in_place
from kube.cel.device import device_view as seen_by_selectors
from kube.cel.library import Environment
from testing.builders import (
    EXAMPLE,
    HAMI,
    device,
    devices_of,
    exactly,
    finding_codes,
    gpus,
    pod,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.profiles.profile import parse_profile

POOR = parse_profile("driver: poor\ndevices: {gpu: {class: poor}, mig: {class: slices}}", "poor")
UNITS = parse_profile(
    """
    driver: units
    devices:
      gpu:
        class: units
        sharing: always
        memory: vram
        cores: {capacity: engines, whole: 8}
    """,
    "units",
)


def on(driver: str) -> TranslationOptions:
    return TranslationOptions(profiles={"hami": driver, "nvidia": driver})


def snapshot(**fields: Any) -> TranslationSnapshot:
    return translation_snapshot(profiles={**profiles(), "poor": POOR, "units": UNITS}, **fields)


class Refusal(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]


def listing(name: str) -> dict[str, str]:
    return {f"nvidia.com/{name}": "A100"}


REFUSALS = (
    Refusal("memory", pod(gpus(1, mem=1)), ("warning wholeDevice", "error cannotExpress")),
    Refusal("cores", pod(gpus(1, cores=30)), ("warning wholeDevice", "error cannotExpress")),
    Refusal("a percentage", pod(gpus(1, pct=50)), ("warning wholeDevice", "error cannotExpress")),
    Refusal("a MIG profile", pod(gpus(mig_1g_5gb=1)), ("error cannotExpress",)),
    Refusal("replicas", pod(gpus(shared=1)), ("error cannotExpress",)),
    Refusal("models", pod(gpus(1), annotations=listing("use-gputype")), ("error cannotExpress",)),
    Refusal(
        "models to avoid",
        pod(gpus(1), annotations=listing("nouse-gputype")),
        ("error cannotExpress",),
    ),
    Refusal("UUIDs", pod(gpus(1), annotations=listing("use-gpuuuid")), ("error cannotExpress",)),
    Refusal(
        "UUIDs to avoid",
        pod(gpus(1), annotations=listing("nouse-gpuuuid")),
        ("error cannotExpress",),
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_what_a_poor_driver_cannot_say(case: Refusal) -> None:
    assert case.want == tuple(
        finding_codes(translation_outcome(case.pod, snapshot(), on("poor")).findings)
    )


def test_what_it_can_say() -> None:
    (claim,) = translation_of(pod(gpus(2)), snapshot(), on("poor")).claims

    assert {"requests": [exactly("poor", 2)]} == devices_of(claim)


CORES = {"0": "0", "1": "1", "12": "1", "13": "1", "25": "2", "99": "7", "100": "8"}


@pytest.mark.parametrize(("percent", "want"), CORES.items())
def test_percentages_of_other_units_round_down_but_not_to_no_cap(percent: str, want: str) -> None:
    (claim,) = translation_of(pod(gpus(1, mem=1, cores=percent)), snapshot(), on("units")).claims

    assert {"requests": [exactly("units", engines=want, vram="1Mi")]} == devices_of(claim)


def test_whole_gpus_of_the_example_driver_are_no_partitions() -> None:
    (claim,) = translation_of(pod(gpus(1)), snapshot(), on(EXAMPLE)).claims

    (selector,) = devices_of(claim)["requests"][0]["exactly"]["selectors"]
    whole = compile_in_place(selector["cel"]["expression"], Environment.NEW)
    matches = [
        whole.matches(seen_by_selectors(EXAMPLE, convert(device(attributes=attributes), Device)))
        for attributes in ({"uuid": "a"}, {"partition": "half"})
    ]
    assert matches == [True, False]


def test_a_device_of_another_driver_is_no_error_for_a_selector() -> None:
    document = pod(gpus(1, mem=1), annotations=listing("use-gputype"))
    (claim,) = translation_of(document).claims

    (selector,) = devices_of(claim)["requests"][0]["exactly"]["selectors"]
    model = compile_in_place(selector["cel"]["expression"], Environment.NEW)
    card = convert(device(attributes={"productName": "A100"}), Device)
    assert [
        model.matches(seen_by_selectors(driver, card)) for driver in (HAMI, "other.example.com")
    ] == [True, False]
