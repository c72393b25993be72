"""NPUs of Ascend: the claim requests the same as HAMi grants for a key, or it is told."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from testing.builders import (
    admit,
    container,
    devices_of,
    finding_codes,
    finding_texts,
    pod,
    record_of,
    translation_of,
    translation_outcome,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices
from translation.model.npu_chips import CHIPS, NpuChip, NpuTemplate
from translation.pipeline.translate import Refused

SOFT: Final = "hami-core"
LIMITS: Final = "spec.containers[0].resources.limits"
OWN: Final = NpuChip(
    memory_allocatable=1000,
    memory_capacity=1000,
    ai_core=10,
    templates=(NpuTemplate(name="half", memory=500, ai_core=5),),
)


def asking(chip: str, count: object, *, mode: str | None = None, **amounts: object) -> Document:
    key = f"huawei.com/{chip}"
    limits = {key: count, **{f"{key}-{name}": amount for name, amount in amounts.items()}}
    annotations = {} if mode is None else {"huawei.com/vnpu-mode": mode}
    return pod(container("main", limits), annotations=annotations)


def request_of(document: Document, options: TranslationOptions | None = None) -> Any:
    (claim,) = translation_of(document, options=options).claims
    (request,) = devices_of(claim)["requests"]
    return request["exactly"]


class Case(NamedTuple):
    name: str
    pod: Document
    npus: int
    want: Mapping[str, str] | None
    told: tuple[str, ...] = ()


CASES: Final = (
    Case("the share of a template is not the whole NPU", asking("Ascend910B3", 1, memory=16384),
         1, {"memory": "16Gi", "cores": "25"}, ("warning policyDropped",)),
    Case("an amount is rounded up to a template", asking("Ascend310P", 1, memory=2000),
         1, {"memory": "3Gi", "cores": "12"}, ("warning policyDropped", "info amountRoundedUp")),
    Case("no amount is the smallest template", asking("Ascend310P", 1, memory=0),
         1, {"memory": "3Gi", "cores": "12"}, ("warning policyDropped", "info amountRoundedUp")),
    Case("above the largest template it is the whole NPU", asking("Ascend910B3", 1, memory=40000),
         1, None, ("warning wholeDevice",)),
    Case("all memory is the whole NPU", asking("Ascend310P", 1, memory=24576), 1, None),
    Case("several whole NPUs", asking("Ascend910B3", 2, memory=65536), 2, None),
    Case("another mode is a hard split", asking("Ascend910B3", 1, memory=16384, mode="template"),
         1, {"memory": "16Gi", "cores": "25"}, ("warning policyDropped", "warning policyDropped")),
    Case("a soft split has what it says",
         asking("Ascend910B3", 1, memory=2000, core=20, mode=SOFT), 1,
         {"memory": "2000Mi", "cores": "20"}),
    Case("a soft split without cores has as much of them", asking("Ascend910B3", 1, memory=16384, mode=SOFT),
         1, {"memory": "16Gi", "cores": "25"}, ("info amountRoundedUp",)),
    Case("a small one has some", asking("Ascend910B3", 1, memory=64, mode=SOFT), 1,
         {"memory": "64Mi", "cores": "1"}, ("info amountRoundedUp",)),
    Case("several of a soft split", asking("Ascend910B3", 2, memory=16384, core=25, mode=SOFT), 2,
         {"memory": "16Gi", "cores": "25"}),
    Case("cores of all memory", asking("Ascend910B3", 1, core=30, mode=SOFT), 1, {"cores": "30"}),
    Case("a soft split of no memory is of all", asking("Ascend910B3", 1, memory=0, mode=SOFT), 1, None),
    Case("one of a SuperPod is a module", asking("Ascend910C", 1), 2, None,
         ("warning notPublishedByDriver",)),
    Case("a share of one of a SuperPod is two", asking("Ascend910C", 1, memory=16384), 2,
         {"memory": "16Gi", "cores": "25"},
         ("warning policyDropped", "warning notPublishedByDriver")),
    Case("an even number of a SuperPod", asking("Ascend910C", 4), 4, None,
         ("warning notPublishedByDriver",)),
    Case("a chip that nothing describes", asking("Ascend950", 1, memory=2000), 1,
         {"memory": "2000Mi", "cores": "1"}, ("warning policyDropped",)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_hami_grants(case: Case) -> None:
    request = request_of(case.pod)
    findings = translation_of(case.pod).findings

    assert case.npus == request["count"]
    assert case.want == (request.get("capacity") or {}).get("requests")
    # The driver does not publish which chip a name means.
    every = "warning notPublishedByDriver"
    assert sorted((*case.told, every)) == sorted(finding_codes(findings))


REFUSED: Final = (
    (asking("Ascend910B3", 2, memory=16384), f"invalidCombination {LIMITS}[huawei.com/Ascend910B3-memory]"),
    (asking("Ascend910B3", 1, memory=16384, core=20),
     f"invalidCombination {LIMITS}[huawei.com/Ascend910B3-core]"),
    (asking("Ascend910B3", 1, memory=70000), f"outOfRange {LIMITS}[huawei.com/Ascend910B3-memory]"),
    (asking("Ascend310P-2c", 2), f"cannotExpress {LIMITS}[huawei.com/Ascend310P-2c]"),
    (asking("Ascend910-10c.3cpu.16g.ndvpp", 1),
     f"cannotExpress {LIMITS}[huawei.com/Ascend910-10c.3cpu.16g.ndvpp]"),
    (asking("Ascend910C", 3), f"outOfRange {LIMITS}[huawei.com/Ascend910C]"),
    (asking("Ascend910C", 3, mode=SOFT), f"outOfRange {LIMITS}[huawei.com/Ascend910C]"),
)  # fmt: skip


@pytest.mark.parametrize(("document", "want"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_hami_refuses_in_a_mode_is_refused(document: Document, want: str) -> None:
    outcome = translation_outcome(document)

    assert isinstance(outcome, Refused)
    assert f"error {want}" in finding_texts(outcome.findings)


@pytest.mark.parametrize(
    ("chip", "want"),
    [
        ("Ascend310P-2c", "huawei.com/Ascend310P: 1 and huawei.com/Ascend310P-memory: 6144"),
        ("Ascend910-2c", "huawei.com/Ascend910: 1 and huawei.com/Ascend910-memory: in MiB"),
    ],
)
def test_the_fix_of_a_virtual_npu_has_the_memory_of_its_template(chip: str, want: str) -> None:
    (finding,) = translation_outcome(asking(chip, 1)).findings

    assert want in finding.fix


def test_no_virtual_npus_are_none() -> None:
    both = {"huawei.com/Ascend310P-2c": 0, "huawei.com/Ascend310P": 1}

    assert 1 == request_of(pod(container("main", both)))["count"]


def test_the_templates_of_a_cluster_are_recorded_where_they_matter() -> None:
    options = TranslationOptions(
        choices=Choices(ascend_chips={"Ascend310P": OWN, "Ascend910B2": OWN})
    )
    share = asking("Ascend310P", 1, memory=400)

    after, _ = admit(share, options=options)

    assert {"memory": "500Mi", "cores": "50"} == request_of(share, options)["capacity"]["requests"]
    assert ["Ascend310P"] == list(record_of(after)["choices"]["ascendChips"])
    assert after == admit(after, options=options)[0]


def test_shares_of_templates_fill_an_npu_as_in_hami() -> None:
    for chip in CHIPS.values():
        for template in chip.templates:
            number = chip.memory_allocatable // template.memory
            assert number * chip.percent_of_cores(template.ai_core) <= 100
