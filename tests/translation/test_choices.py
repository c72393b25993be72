"""The operator's choice of the shares that become whole devices."""

from typing import NamedTuple

import pytest

from findings.finding import Code
from testing.builders import (
    admit,
    derived_claims,
    devices_of,
    finding_codes,
    gpus,
    koordinator_annotations,
    koordinator_container,
    pod,
    record_of,
    translation_of,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices, Exclusivity

MUTEX = pod(gpus(1, mem=3000, cores=30), annotations={"hami.io/gpu-scheduler-policy": "mutex"})
ALL_CORES = pod(gpus(1, mem=3000, cores=100))
DEVICE_LEVEL = pod(
    koordinator_container(core=50, memory=2**30),
    annotations=koordinator_annotations(hint={"gpu": {"exclusivePolicy": "DeviceLevel"}}),
)
COUNTED = pod(
    koordinator_container(rdma=2),
    annotations=koordinator_annotations(
        hint={"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}}
    ),
)
WHOLE = {"cores": "100"}
EXCLUSIVE_CODE = "warning wholeDevice"


class Case(NamedTuple):
    name: str
    pod: Document
    exclusivity: Exclusivity
    want: dict[str, str]
    code: str


CASES = (
    Case("mutex by default", MUTEX, Exclusivity.POLICIES, WHOLE, EXCLUSIVE_CODE),
    Case("mutex always", MUTEX, Exclusivity.ALWAYS, WHOLE, EXCLUSIVE_CODE),
    Case(
        "mutex never",
        MUTEX,
        Exclusivity.NEVER,
        {"memory": "3000Mi", "cores": "30"},
        "warning notExclusive",
    ),
    Case(
        "all cores by default",
        ALL_CORES,
        Exclusivity.POLICIES,
        {"memory": "3000Mi", "cores": "100"},
        "warning notExclusive",
    ),
    Case("all cores always", ALL_CORES, Exclusivity.ALWAYS, WHOLE, EXCLUSIVE_CODE),
    Case("DeviceLevel by default", DEVICE_LEVEL, Exclusivity.POLICIES, WHOLE, EXCLUSIVE_CODE),
    Case(
        "DeviceLevel never",
        DEVICE_LEVEL,
        Exclusivity.NEVER,
        {"memory": "1Gi", "cores": "50"},
        "warning policyDropped",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_which_shares_become_whole_devices(case: Case) -> None:
    options = TranslationOptions(choices=Choices(exclusivity=case.exclusivity))

    got = translation_of(case.pod, None, options)

    (claim,) = got.claims
    assert case.want == devices_of(claim)["requests"][0]["exactly"]["capacity"]["requests"]
    assert case.code in finding_codes(got.findings)
    assert got.claims == derived_claims(case.pod, got.annotation, translation_snapshot())


def test_an_exclusive_gpu_names_the_setting_that_shares_it() -> None:
    (finding,) = [
        entry for entry in translation_of(MUTEX).findings if entry.code is Code.WHOLE_DEVICE
    ]

    assert "translation.exclusivity to never" in finding.fix


def test_counted_devices_are_exclusive_whatever_is_chosen_as_in_koordinator() -> None:
    options = TranslationOptions(choices=Choices(exclusivity=Exclusivity.NEVER))

    assert EXCLUSIVE_CODE in finding_codes(translation_of(COUNTED, None, options).findings)


def test_a_choice_that_makes_no_difference_is_not_recorded() -> None:
    translated, _ = admit(pod(gpus(1)))

    assert "choices" not in record_of(translated)
