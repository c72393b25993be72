"""Alibaba Cloud's shares: the containers of a pod on one card, and the unit of the memory."""

from typing import Any, Final, NamedTuple

import pytest

from testing.builders import (
    HAMI,
    admit,
    container,
    devices_of,
    driver_slice,
    finding_codes,
    hami_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices, InitContainers, MemoryUnit

MEMORY: Final = "aliyun.com/gpu-mem"
CORES: Final = "aliyun.com/gpu-core.percentage"
LARGEST: Final = Choices(init_containers=InitContainers.LARGEST)
NOT_SET: Final = "warning envVarNotProvided"


def share(name: str, memory: object, cores: object = None, **fields: Any) -> Document:
    amounts = {MEMORY: memory, **({} if cores is None else {CORES: cores})}
    return container(name, amounts, **fields)


def sidecar(memory: object) -> Document:
    return share("sidecar", memory, restartPolicy="Always")


class Case(NamedTuple):
    name: str
    init: tuple[Document, ...]
    apps: tuple[Document, ...]
    want: dict[str, str]
    told: tuple[str, ...] = ()
    choices: Choices = LARGEST


CASES: Final = (
    Case("app containers are added", (), (share("a", 3), share("b", 4)), {"memory": "7Gi", "cores": "0"}),
    Case("a smaller init container runs before", (share("init", 4),), (share("a", 8),),
         {"memory": "8Gi", "cores": "0"}),
    Case("a larger init container counts alone", (share("init", 8),), (share("a", 4),),
         {"memory": "8Gi", "cores": "0"}, ("warning initRaisesLimit",)),
    Case("an init container as large as all apps", (share("init", 8),), (share("a", 4), share("b", 4)),
         {"memory": "8Gi", "cores": "0"}),
    Case("of init containers the largest", (share("i", 2), share("j", 5)), (share("a", 4),),
         {"memory": "5Gi", "cores": "0"}, ("warning initRaisesLimit",)),
    Case("a sidecar runs beside the apps", (sidecar(2),), (share("a", 4),), {"memory": "6Gi", "cores": "0"}),
    Case("a sidecar runs beside init containers after it", (sidecar(2), share("init", 6)),
         (share("a", 4),), {"memory": "8Gi", "cores": "0"}, ("warning initRaisesLimit",)),
    Case("not beside those before it", (share("init", 6), sidecar(2)), (share("a", 4),),
         {"memory": "6Gi", "cores": "0"}),
    Case("cores are counted alike", (share("init", 2, 60),), (share("a", 2, 20), share("b", 2, 20)),
         {"memory": "4Gi", "cores": "60"}),
    Case("an init container alone", (share("init", 4),), (container("a"),), {"memory": "4Gi", "cores": "0"},
         ("warning heldForPodLifetime",)),
    Case("the setting separates them", (share("init", 4),), (share("a", 8),),
         {"memory": "12Gi", "cores": "0"}, ("warning heldForPodLifetime",), Choices()),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_pod_reserves(case: Case) -> None:
    document = pod(*case.apps, init=case.init)
    options = TranslationOptions(choices=case.choices)

    outcome = translation_of(document, options=options)

    (claim,) = outcome.claims
    (request,) = devices_of(claim)["requests"]
    assert case.want == request["exactly"]["capacity"]["requests"]
    assert sorted((*case.told, NOT_SET)) == sorted(finding_codes(outcome.findings))
    with_keys = {entry["name"] for entry in (*case.init, *case.apps) if entry.get("resources")}
    assert with_keys == {use.container for use in claim.uses}
    after, _ = admit(document, options=options)
    assert after == admit(after, options=options)[0]


@pytest.mark.parametrize(
    ("want", "unit", "amount", "told"),
    [
        ("8Gi", MemoryUnit.DETECTED, 8, ()),
        ("512Mi", MemoryUnit.DETECTED, 512, ("warning wrongUnit",)),
        ("512Mi", MemoryUnit.MIB, 512, ()),
        ("8Mi", MemoryUnit.MIB, 8, ("warning wrongUnit",)),
        ("512Gi", MemoryUnit.GIB, 512, ("warning wrongUnit",)),
        ("100Gi", MemoryUnit.DETECTED, 100, ("warning wrongUnit",)),
    ],
)
def test_the_unit(want: str, unit: MemoryUnit, amount: int, told: tuple[str, ...]) -> None:
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu(memory="80Gi")))
    options = TranslationOptions(choices=Choices(aliyun_memory_unit=unit))

    outcome = translation_of(pod(share("a", amount)), snapshot, options)

    (claim,) = outcome.claims
    (request,) = devices_of(claim)["requests"]
    assert want == request["exactly"]["capacity"]["requests"]["memory"]
    assert sorted((*told, NOT_SET)) == sorted(finding_codes(outcome.findings))


def test_a_sum_that_no_card_has_does_not_make_the_unit_doubtful() -> None:
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu(memory="80Gi")))

    sum_of_two = translation_of(pod(share("a", 40), share("b", 48)), snapshot)
    too_much = translation_of(pod(share("a", 8), share("b", 100)), snapshot)

    assert "warning wrongUnit" not in finding_codes(sum_of_two.findings)
    assert "warning wrongUnit" in finding_codes(too_much.findings)


@pytest.mark.parametrize("limits", [("500m",), (8, "500m"), (0, "1500m")])
def test_an_amount_with_a_fraction_is_refused(limits: tuple[object, ...]) -> None:
    """A finding, and no exception, beside any other container."""
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu(memory="80Gi")))
    containers = (share(f"container-{number}", limit) for number, limit in enumerate(limits))

    outcome = translation_outcome(pod(*containers), snapshot)

    assert "error notAnInteger" in finding_codes(outcome.findings)
