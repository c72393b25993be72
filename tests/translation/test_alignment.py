"""Devices of two drivers in one claim: groups by published hardware, and impossible ones."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from kube.api.resource import ResourceSlice
from testing.builders import (
    HAMI,
    NVIDIA,
    alternative,
    derived_claims,
    device,
    device_at_root,
    devices_of,
    distinct,
    driver_slice,
    exactly,
    finding_codes,
    hami_gpu,
    koordinator_annotations,
    koordinator_container,
    nvidia_gpu,
    pod,
    profiles,
    translation_of,
    translation_outcome,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import parse_profile
from translation.record.record import decode_record

NICS = "nic.example"
PROFILES = {
    **profiles(),
    NICS: parse_profile(
        f"driver: {NICS}\ndevices: {{nic: {{class: nic, resources: {{koordinator.sh/rdma: {{}}}}}}}}",
        NICS,
    ),
}
TOGETHER = {"deviceTypes": ["gpu", "rdma"]}
SAME_PCIE = TOGETHER | {"requiredScope": "SamePCIe"}
ROOT = "resource.kubernetes.io/pcieRoot"


def on(gpus: str) -> TranslationOptions:
    # Whoever else's profile holds NICs lends it.
    return TranslationOptions(profiles={"koordinator": gpus, "nvidia": NICS})


def world(*slices: ResourceSlice) -> TranslationSnapshot:
    summaries = [facts for slice_ in slices if (facts := summary(slice_, PROFILES)) is not None]
    return TranslationSnapshot(profiles=PROFILES, facts=facts_by_driver(summaries))


def node(name: str, *roots: int, driver: str = HAMI, gpu: Document | None = None) -> ResourceSlice:
    """A node with so many GPUs under each of its PCIe roots."""
    gpus = [
        device_at_root(f"pci0000:{n}", gpu) for n, count in enumerate(roots) for _ in range(count)
    ]
    return driver_slice(driver, *gpus, pool=name)


def asking(joint: Mapping[str, Any], **amounts: object) -> Document:
    return pod(koordinator_container(**amounts), annotations=koordinator_annotations(joint=joint))


def devices(document: Document, snapshot: TranslationSnapshot, gpus: str = HAMI) -> Document:
    (claim,) = translation_of(document, snapshot, on(gpus)).claims
    return devices_of(claim)


def together(*requests: str) -> Document:
    return {"requests": list(requests), "matchAttribute": ROOT}


def gpu(name: str, count: int) -> Document:
    return exactly(HAMI, count, name=name, cores="100")


def nic(name: str, count: int = 1) -> Document:
    return exactly("nic", count, name=name)


class Case(NamedTuple):
    name: str
    slices: Sequence[ResourceSlice]
    amounts: Mapping[str, int]
    requests: Sequence[Document]
    together: Sequence[tuple[str, ...]]
    codes: tuple[str, ...] = ()


SHARE = ("warning wholeDevice",)

REQUIRED = (
    Case(
        "two GPUs under each root: a NIC for each two",
        [node("a", 2, 2, 2, 2)],
        {"nvidia": 4, "rdma": 100},
        [gpu("gpu-0", 2), nic("nic-0"), gpu("gpu-1", 2), nic("nic-1")],
        [("gpu-0", "nic-0"), ("gpu-1", "nic-1")],
    ),
    Case(
        "one GPU under each root: a NIC for each",
        [node("a", 1, 1)],
        {"nvidia": 2, "rdma": 100},
        [gpu("gpu-0", 1), nic("nic-0"), gpu("gpu-1", 1), nic("nic-1")],
        [("gpu-0", "nic-0"), ("gpu-1", "nic-1")],
    ),
    Case(
        "four GPUs under each root: one NIC",
        [node("a", 4, 4)],
        {"nvidia": 4, "rdma": 100},
        [gpu("gpu", 4), nic("nic")],
        [("gpu", "nic")],
    ),
    Case(
        "the last group has the rest",
        [node("a", 2, 2)],
        {"nvidia": 3, "rdma": 100},
        [gpu("gpu-0", 2), nic("nic-0"), gpu("gpu-1", 1), nic("nic-1")],
        [("gpu-0", "nic-0"), ("gpu-1", "nic-1")],
    ),
    Case(
        "more NICs than groups are dealt out",
        [node("a", 2, 2)],
        {"nvidia": 4, "rdma": 300},
        [gpu("gpu-0", 2), nic("nic-0", 2), gpu("gpu-1", 2), nic("nic-1")],
        [("gpu-0", "nic-0"), ("gpu-1", "nic-1")],
    ),
    Case(
        "one GPU is one group whatever the hardware",
        [node("a", 1), node("b", 2)],
        {"nvidia": 1, "rdma": 100},
        [gpu("gpu", 1), nic("nic")],
        [("gpu", "nic")],
    ),
    Case(
        "on mixed hardware the size of most nodes",
        [node("a", 2, 2), node("b", 1, 1), node("c", 2, 2)],
        {"nvidia": 2, "rdma": 100},
        [gpu("gpu", 2), nic("nic")],
        [("gpu", "nic")],
        ("warning mixedHardware",),
    ),
    Case(
        "a broken GPU changes nothing",
        [node("a", 2, 2, 1)],
        {"nvidia": 2, "rdma": 100},
        [gpu("gpu", 2), nic("nic")],
        [("gpu", "nic")],
    ),
    Case(
        "without an inventory one group",
        [],
        {"nvidia": 4, "rdma": 100},
        [gpu("gpu", 4), nic("nic")],
        [("gpu", "nic")],
        ("warning notPublishedByDriver",),
    ),
    Case(
        "part of a NIC is a whole one where nobody shares it",
        [node("a", 2, 2)],
        {"nvidia": 2, "rdma": 1},
        [gpu("gpu", 2), nic("nic")],
        [("gpu", "nic")],
        SHARE,
    ),
)


def other_cards(requests: Sequence[Document]) -> list[Document]:
    """HAMi's GPUs can be shared, so several of them must be said to be different."""
    several = [request for request in requests if request["name"].startswith("gpu")]
    if sum(request["exactly"]["count"] for request in several) == 1:
        return []
    return [distinct(HAMI, *(request["name"] for request in several))]


@pytest.mark.parametrize("case", REQUIRED, ids=lambda case: case.name)
def test_required_alignment(case: Case) -> None:
    outcome = translation_of(asking(SAME_PCIE, **case.amounts), world(*case.slices), on(HAMI))

    (claim,) = outcome.claims
    constraints = [*(together(*names) for names in case.together), *other_cards(case.requests)]
    assert {"requests": list(case.requests), "constraints": constraints} == devices_of(claim)
    assert case.codes == tuple(finding_codes(outcome.findings))


def either(name: str, class_name: str, count: int = 1, **capacity: str) -> Document:
    ways = [alternative(way, class_name, count, **capacity) for way in ("aligned", "any")]
    return {"name": name, "firstAvailable": ways}


def test_preferred_alignment_names_only_the_aligned_alternatives() -> None:
    document = asking(TOGETHER, nvidia=4, rdma=200)

    got = devices(document, world(node("a", 2, 2)))

    assert [
        either("gpu-0", HAMI, 2, cores="100"),
        either("nic-0", "nic"),
        either("gpu-1", HAMI, 2, cores="100"),
        either("nic-1", "nic"),
    ] == got["requests"]
    assert [
        together("gpu-0/aligned", "nic-0/aligned"),
        together("gpu-1/aligned", "nic-1/aligned"),
        distinct(HAMI, "gpu-0", "gpu-1"),
    ] == got["constraints"]


def test_preferred_alignment_brings_a_nic_for_each_group_where_as_many_are_free() -> None:
    got = devices(asking(TOGETHER, nvidia=4, rdma=100), world(node("a", 1, 1, 1, 1)))

    more = [alternative(f"devices-{count}", "nic", count) for count in (4, 3, 2)]
    nics = either("nic", "nic")
    assert [
        either("gpu-0", HAMI, 1, cores="100"),
        nics | {"firstAvailable": more + nics["firstAvailable"]},
        gpu("gpu-1", 3),
    ] == got["requests"]
    assert [together("gpu-0/aligned", "nic/aligned"), distinct(HAMI, "gpu-0", "gpu-1")] == (
        got["constraints"]
    )


def test_shares_are_aligned_in_each_of_their_sizes() -> None:
    sizes = (hami_gpu("80Gi"), hami_gpu("40Gi"))
    slices = [node(str(n), 1, 1, gpu=size) for n, size in enumerate(sizes)]

    got = devices(asking(TOGETHER, ratio=50, rdma=100), world(*slices))

    ways = [f"{way}-memory-{size}" for way in ("aligned", "any") for size in ("40gi", "80gi")]
    assert ways == [way["name"] for way in got["requests"][0]["firstAvailable"]]
    want = ("gpu/aligned-memory-40gi", "gpu/aligned-memory-80gi", "nic/aligned")
    assert [together(*want)] == got["constraints"]


def test_a_preference_with_too_many_sizes_is_dropped() -> None:
    slices = [node(str(n), 1, gpu=hami_gpu(f"{n + 8}Gi")) for n in range(5)]

    outcome = translation_of(asking(TOGETHER, ratio=50, rdma=100), world(*slices), on(HAMI))

    (claim,) = outcome.claims
    assert "constraints" not in devices_of(claim)
    assert ["exactly" in request for request in devices_of(claim)["requests"]] == [False, True]
    assert ["warning policyDropped"] == finding_codes(outcome.findings)


def test_another_driver_of_gpus() -> None:
    slices = [node("a", 2, 2, driver=NVIDIA, gpu=nvidia_gpu())]

    got = devices(asking(SAME_PCIE, nvidia=4, rdma=100), world(*slices), NVIDIA)

    assert [together("gpu-0", "nic-0"), together("gpu-1", "nic-1")] == got["constraints"]


def test_one_scope_for_all_gpus_is_one_group() -> None:
    hint = {"gpu": {"requiredTopologyScope": "PCIe"}}
    document = pod(
        koordinator_container(nvidia=4, rdma=100),
        annotations=koordinator_annotations(joint=SAME_PCIE, hint=hint),
    )

    got = devices(document, world(node("a", 2, 2)))

    assert [gpu("gpu", 4), nic("nic")] == got["requests"]
    assert [together("gpu", "nic"), distinct(HAMI), together("gpu")] == got["constraints"]


ROOTLESS_NICS = driver_slice(NICS, device())
REFUSALS: tuple[tuple[str, list[ResourceSlice], dict[str, int], str], ...] = (
    (
        "more than one claim holds on this hardware",
        [node("a", 1, 1)],
        {"nvidia": 17},
        "error unsupportedAsPublished",
    ),
    ("more than one claim can ever hold", [], {"nvidia": 10**12}, "error tooManyDevices"),
    (
        "GPUs that publish no root",
        [driver_slice(HAMI, hami_gpu())],
        {"nvidia": 2},
        "error unsupportedAsPublished",
    ),
    (
        "NICs that publish no root",
        [ROOTLESS_NICS, node("a", 2)],
        {"nvidia": 2},
        "error unsupportedAsPublished",
    ),
)


@pytest.mark.parametrize(
    ("_name", "slices", "amounts", "want"), REFUSALS, ids=lambda row: str(row)[:40]
)
def test_what_cannot_be_aligned_is_refused(
    _name: str, slices: Sequence[ResourceSlice], amounts: dict[str, int], want: str
) -> None:
    outcome = translation_outcome(asking(SAME_PCIE, **amounts, rdma=100), world(*slices), on(HAMI))

    assert [want] == finding_codes(outcome.findings)


def test_sixteen_pairs_fill_a_claim() -> None:
    got = devices(asking(SAME_PCIE, nvidia=16, rdma=100), world(node("a", 1, 1)))

    assert (32, 17) == (len(got["requests"]), len(got["constraints"]))


def test_a_preference_that_nobody_publishes_is_dropped() -> None:
    outcome = translation_of(
        asking(TOGETHER, nvidia=2, rdma=100), world(driver_slice(HAMI, hami_gpu())), on(HAMI)
    )

    (claim,) = outcome.claims
    assert [gpu("gpu", 2), nic("nic")] == devices_of(claim)["requests"]
    assert ["warning notPublishedByDriver"] == finding_codes(outcome.findings)


def test_the_claim_derives_from_the_request_alone() -> None:
    document = asking(SAME_PCIE, nvidia=4, rdma=100)
    snapshot = world(node("a", 2, 2), node("b", 1), node("c", 2))
    outcome = translation_of(document, snapshot, on(HAMI))

    request = decode_record(outcome.annotation)

    assert outcome.claims == derived_claims(document, outcome.annotation, snapshot)
    assert [("koordinator", [2, 1]), ("nvidia", [])] == [
        (used.vocabulary, [n for facts in used.facts.values() for n in facts.per_root or ()])
        for used in request.profiles
    ]


def test_every_container_uses_every_request() -> None:
    document = pod(
        koordinator_container("a", nvidia=1, rdma=100),
        koordinator_container("b"),
        annotations=koordinator_annotations(joint=SAME_PCIE),
    )

    (claim,) = translation_of(document, world(), on(HAMI)).claims

    assert [("a", "gpu"), ("b", "gpu"), ("a", "nic"), ("b", "nic")] == [
        (use.container, use.request) for use in claim.uses
    ]
    assert "gpu-nic" == claim.label
    assert claim.template.startswith("koordinator-gpu-1-nic-1-")


def test_a_driver_without_nics_is_reported() -> None:
    outcome = translation_outcome(
        asking(SAME_PCIE, nvidia=1, rdma=100),
        world(),
        TranslationOptions(profiles={"koordinator": HAMI}),
    )

    assert ["error cannotExpress"] == finding_codes(outcome.findings)
