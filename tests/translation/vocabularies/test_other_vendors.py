"""NPUs of Ascend and DCUs of Hygon, as HAMi requests them, also beside GPUs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from findings.finding import Severity
from testing.builders import (
    admit,
    container,
    devices_of,
    driver_slice,
    finding_texts,
    pod,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.pipeline.translate import Refused, Untouched
from translation.profiles.profile import parse_profile

LIMITS = "spec.containers[0].resources.limits"
CHIP = "huawei.com/Ascend310P"
NPUS = "hami-vnpu-core.project-hami.io"
HCUS = "dra.hygon.com"
HYGON_WITH_CORES = """
driver: dra.hygon.com
claims: container
devices:
  hcu: {class: dra.hygon.com, sharing: always, unique: uuid, memory: memory,
        cores: {capacity: cores, whole: 120}}
"""


def limited(amounts: Mapping[str, object], **annotations: str) -> Document:
    return pod(container("main", amounts), annotations=annotations)


def request_of(document: Document, snapshot: TranslationSnapshot | None = None) -> Any:
    (claim,) = translation_of(document, snapshot).claims
    (request,) = devices_of(claim)["requests"]
    return request["exactly"]


class Case(NamedTuple):
    name: str
    limits: Mapping[str, object]
    device_class: str
    devices: int
    capacity: Mapping[str, str] | None


CASES = (
    Case("whole NPUs", {CHIP: 2}, NPUS, 2, None),
    Case(
        "memory of a template, with its cores",
        {CHIP: 1, f"{CHIP}-memory": 2000},
        NPUS,
        1,
        {"memory": "3Gi", "cores": "12"},
    ),
    Case("whole DCUs", {"hygon.com/dcunum": 2}, HCUS, 2, None),
    Case(
        "memory of a DCU",
        {"hygon.com/hcunum": 1, "hygon.com/hcumem": 4000, "hygon.com/hcucores": 100},
        HCUS,
        1,
        {"memory": "4000Mi"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_request_becomes(case: Case) -> None:
    exactly = request_of(limited(case.limits))

    assert (case.device_class, case.devices) == (exactly["deviceClassName"], exactly["count"])
    assert case.capacity == (exactly.get("capacity") or {}).get("requests")


@pytest.mark.parametrize(
    ("key", "annotation"),
    [("hygon.com/dcunum", "hygon.com/use-dcutype"), (CHIP, "hami.io/use-nputype")],
)
def test_types_are_lowered_as_the_selector_lowers_names(key: str, annotation: str) -> None:
    exactly = request_of(limited({key: 1}, **{annotation: "TYP-\u00c4"}))

    (selector,) = exactly["selectors"]
    assert '.lowerAscii().contains("typ-\\u00c4")' in selector["cel"]["expression"]


CARDS = (
    (
        "hygon.com/dcunum",
        "hygon.com/use-dcutype",
        "DCU-K100_AI",
        '.lowerAscii().contains("k100_ai")',
    ),
    ("hygon.com/hcunum", "hygon.com/use-dcutype", "hcu-K100", '.lowerAscii().contains("k100")'),
    ("hygon.com/dcunum", "hygon.com/nouse-dcutype", "DCU-Z100", 'contains("z100")'),
    (
        "hygon.com/dcunum",
        "hygon.com/use-gpuuuid",
        "DCU-TPXS30000210060N",
        'in ["TPXS30000210060N"]',
    ),
    ("hygon.com/dcunum", "hygon.com/nouse-gpuuuid", "DCU-TPXS300, TPXS-1", '["TPXS300", "TPXS-1"]'),
    (
        "volcano.sh/vgpu-number",
        "nvidia.com/use-gputype",
        "NVIDIA-Tesla V100",
        'contains("tesla v100")',
    ),
    (
        "volcano.sh/vgpu-number",
        "nvidia.com/nouse-gputype",
        "NVIDIA-NVIDIA L4",
        'contains("nvidia l4")',
    ),
)
"""Names of cards as the device plugin of HAMi or Volcano shows them, and as their driver publishes them."""


@pytest.mark.parametrize(("key", "annotation", "listed", "selector"), CARDS)
def test_names_of_cards_are_those_of_the_driver(
    key: str, annotation: str, listed: str, selector: str
) -> None:
    exactly = request_of(limited({key: 1}, **{annotation: listed}))

    expressions = [entry["cel"]["expression"] for entry in exactly["selectors"]]
    assert any(selector in expression for expression in expressions), expressions


@pytest.mark.parametrize(
    ("key", "annotation", "every"),
    [
        ("hygon.com/dcunum", "hygon.com/use-dcutype", "DCU"),
        ("volcano.sh/vgpu-number", "nvidia.com/use-gputype", "NVIDIA"),
    ],
)
def test_a_type_of_every_card_is_no_constraint(key: str, annotation: str, every: str) -> None:
    excluding = annotation.replace("/use", "/nouse")
    assert request_of(limited({key: 1}, **{annotation: every})) == request_of(limited({key: 1}))

    refused = translation_outcome(limited({key: 1}, **{excluding: every}))

    assert isinstance(refused, Refused)
    assert f"error emptyDeviceList metadata.annotations[{excluding}]" in finding_texts(
        refused.findings
    )


@pytest.mark.parametrize("list_", ["use", "no-use"])
def test_hami_s_identifiers_of_npus_are_refused(list_: str) -> None:
    annotation = f"hami.io/{list_}-Ascend310P-uuid"

    refused = translation_outcome(limited({CHIP: 1}, **{annotation: "B20D6C40"}))

    assert isinstance(refused, Refused)
    assert f"error cannotExpress metadata.annotations[{annotation}]" in finding_texts(
        refused.findings
    )


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        ({"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000, "hygon.com/dcucores": 120}, {}),
        (
            {CHIP: 1, f"{CHIP}-memory": 4000, f"{CHIP}-core": 120},
            {"huawei.com/vnpu-mode": "hami-core"},
        ),
    ],
)
def test_more_than_all_cores_is_all_of_them(
    limits: dict[str, object], annotations: dict[str, str]
) -> None:
    (key,) = [key for key in limits if "core" in key]

    clamped = translation_of(limited(limits, **annotations))

    assert f"warning clamped {LIMITS}[{key}]" in finding_texts(clamped.findings)
    whole = request_of(limited({**limits, key: 100}, **annotations))
    assert request_of(limited(limits, **annotations)) == whole


def test_a_percentage_of_compute_units_needs_a_profile_that_counts_them() -> None:
    share = limited({"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000, "hygon.com/dcucores": 50})
    counted = TranslationSnapshot(
        profiles={**profiles(), HCUS: parse_profile(HYGON_WITH_CORES, "hygon")}
    )

    refused = translation_outcome(share)

    assert isinstance(refused, Refused)
    assert [f"error cannotExpress {LIMITS}[hygon.com/dcucores]"] == finding_texts(refused.findings)
    assert "60" == request_of(share, counted)["capacity"]["requests"]["cores"]


def dcu(name: str, *, units: int) -> Document:
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "hcu"}, "uuid": {"string": name}},
        "capacity": {"memory": {"value": "64Gi"}, "cores": {"value": str(units)}},
    }


def test_a_percentage_is_a_part_of_the_compute_units_that_are_published() -> None:
    share = limited({"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000, "hygon.com/dcucores": 60})
    published = translation_snapshot(
        driver_slice(HCUS, dcu("a", units=120), dcu("b", units=60), dcu("c", units=120))
    )

    translated = translation_of(share, published)

    (request,) = translated.claims[0].spec["spec"]["devices"]["requests"]
    assert [
        ("units-60", {"cores": "36", "memory": "4000Mi"}),
        ("units-120", {"cores": "72", "memory": "4000Mi"}),
    ] == [(way["name"], way["capacity"]["requests"]) for way in request["firstAvailable"]]
    expressions = [way["selectors"][0]["cel"]["expression"] for way in request["firstAvailable"]]
    assert 'compareTo(quantity("60")) == 0' in expressions[0]


def test_several_devices_have_one_number_of_compute_units() -> None:
    share = limited({"hygon.com/dcunum": 2, "hygon.com/dcumem": 4000, "hygon.com/dcucores": 60})
    mixed = translation_snapshot(driver_slice(HCUS, dcu("a", units=120), dcu("b", units=60)))
    equal = translation_snapshot(driver_slice(HCUS, dcu("a", units=120), dcu("b", units=120)))

    path = f"{LIMITS}[hygon.com/dcucores]"
    assert f"warning equalComputeUnits {path}" in finding_texts(
        translation_outcome(share, mixed).findings
    )
    assert [] == finding_texts(translation_outcome(share, equal).findings)


def test_more_numbers_of_compute_units_than_alternatives_are_rejected() -> None:
    share = limited({"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000, "hygon.com/dcucores": 60})
    devices = [dcu(f"d{units}", units=units) for units in range(60, 69)]

    refused = translation_outcome(share, translation_snapshot(driver_slice(HCUS, *devices)))

    assert isinstance(refused, Refused)
    assert [f"error cannotExpress {LIMITS}[hygon.com/dcucores]"] == finding_texts(refused.findings)


def test_alternatives_are_per_memory_size_or_per_number_of_compute_units() -> None:
    share = limited({"hygon.com/dcunum": 1, "hygon.com/dcucores": 60})
    device = dcu("a", units=120)
    device["capacity"]["memory"]["requestPolicy"] = {
        "default": "1Gi",
        "validRange": {"min": "1Gi", "step": "1Gi"},
    }

    refused = translation_outcome(share, translation_snapshot(driver_slice(HCUS, device)))

    assert isinstance(refused, Refused)
    assert [f"error cannotExpress {LIMITS}[hygon.com/dcucores]"] == finding_texts(refused.findings)


def test_only_a_part_of_the_cores_depends_on_what_is_published() -> None:
    published = translation_snapshot(driver_slice(HCUS, dcu("a", units=120)))

    whole = limited({"hygon.com/dcunum": 1, "hygon.com/dcucores": 100})

    assert translation_of(whole).annotation == translation_of(whole, published).annotation


REJECTED = (
    (
        {CHIP: "500m", f"{CHIP}-memory": "2Gi"},
        [f"notAnInteger {LIMITS}[{CHIP}]", f"wrongUnit {LIMITS}[{CHIP}-memory]"],
    ),
    ({CHIP: 1, f"{CHIP}-core": 101}, [f"invalidCombination {LIMITS}[{CHIP}-core]"]),
    ({"hygon.com/dcunum": -1}, [f"negative {LIMITS}[hygon.com/dcunum]"]),
)


@pytest.mark.parametrize(("limits", "want"), REJECTED, ids=lambda value: str(value)[:40])
def test_faulty_amounts_are_rejected_with_the_field(
    limits: Mapping[str, object], want: list[str]
) -> None:
    outcome = translation_outcome(limited(limits))

    assert isinstance(outcome, Refused)
    errors = [finding for finding in outcome.findings if finding.severity is Severity.ERROR]
    assert want == [text.removeprefix("error ") for text in finding_texts(errors)]


def test_devices_of_three_vendors_in_one_container() -> None:
    amounts = {"nvidia.com/gpumem": 3000, f"{CHIP}": 1, "hygon.com/dcunum": 1}

    after, answer = admit(limited(amounts))

    assert {"hami-core-gpu.project-hami.io", NPUS, HCUS} == {
        name for claim in answer.claims for name in claim.class_names()
    }
    (main,) = after["spec"]["containers"]
    assert "limits" not in main["resources"]
    assert ["gpu", "npu", "hcu"] == [use["request"] for use in main["resources"]["claims"]]
    assert after == admit(after)[0]


def test_a_pod_is_left_to_the_plugin_where_the_class_does_not_exist() -> None:
    snapshot = TranslationSnapshot(profiles=profiles(), classes=frozenset({HCUS}))

    outcome = translation_outcome(limited({CHIP: 1, "hygon.com/dcunum": 1}), snapshot)

    assert isinstance(outcome, Untouched)
    assert [f"info untranslatedDeviceKey {LIMITS}[{CHIP}]"] == finding_texts(outcome.findings)


@pytest.mark.parametrize(
    "limits",
    [
        {f"{CHIP}-memory": 5},
        {"hygon.com/dcumem": 5},
        {"hygon.com/dcunum": 0, "hygon.com/dcumem": 5},
    ],
)
def test_amounts_without_a_device_are_reported(limits: Mapping[str, object]) -> None:
    outcome = translation_outcome(limited(limits))

    assert any(
        text.startswith("warning noDeviceRequested") for text in finding_texts(outcome.findings)
    )


@pytest.mark.parametrize(("suffix", "what"), [("memory", "all memory"), ("core", "all cores")])
def test_an_amount_beside_a_container_with_the_chip_is_told_where_it_belongs(
    suffix: str, what: str
) -> None:
    key = f"{CHIP}-{suffix}"
    server, metrics = container("server", {CHIP: 1}), container("metrics", {key: 40})

    (finding,) = [
        entry
        for entry in translation_outcome(pod(server, metrics)).findings
        if entry.code == "noDeviceRequested"
    ]

    assert f'container "server", which has that key, gets {what} of the NPU' in finding.detail
    assert finding.fix == f'write {key} in container "server"'
