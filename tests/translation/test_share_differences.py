"""Findings about shares that a driver places or limits otherwise than the legacy system."""

import msgspec
import pytest

from findings.finding import Code
from testing.builders import (
    HAMI,
    amount,
    container,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    koordinator_container,
    pod,
    profiles,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import NativePolicy, TranslationOptions, TranslationSnapshot
from translation.model.intents import DeviceKind
from translation.pipeline.translate import Refused, Translated, Untouched
from translation.profiles.profile import Sharing

PUBLISHED = translation_snapshot(driver_slice(HAMI, hami_gpu()), publishes=frozenset({HAMI}))
NETWORKS = {"k8s.v1.cni.cncf.io/networks": "macvlan"}
POOL = container("main", {"rdma/hca": 1})


def test_a_share_without_cores_is_reported_once() -> None:
    got = translation_outcome(
        pod(gpus(1, mem=1000, name="a"), gpus(1, mem=1000, name="b")), PUBLISHED
    )

    assert ["info uncappedCores"] == finding_codes(got.findings)


def test_a_share_with_cores_is_placed_as_in_hami() -> None:
    got = translation_outcome(pod(gpus(1, mem=1000, cores=10)), PUBLISHED)

    assert [] == finding_codes(got.findings)


def test_limits_that_koordinator_would_not_set_are_reported() -> None:
    share = koordinator_container(gpu=50)

    got = translation_outcome(pod(share), PUBLISHED)
    isolated = pod(share, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})

    assert "info limitsEnforced" in finding_codes(got.findings)
    assert "info limitsEnforced" not in finding_codes(
        translation_outcome(isolated, PUBLISHED).findings
    )


def test_what_each_gpu_gets_of_the_totals_of_a_pod_is_told() -> None:
    share = koordinator_container(shared=2, core=150, memory="30Gi")

    (finding,) = [
        entry
        for entry in translation_outcome(pod(share), PUBLISHED).findings
        if entry.code is Code.LIMITS_ENFORCED
    ]

    assert "15Gi of memory and 75 percent of the cores of each of 2 GPUs" in finding.detail


def koordinator_share(*, memory: str, gpus: int) -> Document:
    return pod(koordinator_container(shared=gpus, core=10 * gpus, memory=memory))


@pytest.mark.parametrize("cluster", [PUBLISHED, translation_snapshot()], ids=["known", "unknown"])
def test_a_total_that_gives_no_whole_mebibytes_is_reported_with_the_amount_granted(
    cluster: TranslationSnapshot,
) -> None:
    got = translation_outcome(koordinator_share(memory="8Gi", gpus=3), cluster)

    (finding,) = [entry for entry in got.findings if entry.code is Code.AMOUNT_ROUNDED_UP]
    assert finding_texts([finding]) == [
        "info amountRoundedUp spec.containers[0].resources.limits[koordinator.sh/gpu-memory]"
    ]
    # A third of 8 GiB is 2730 MiB and two thirds.
    assert "2863311530 for each device becomes 2731Mi" in finding.message


@pytest.mark.parametrize(
    "document",
    [
        koordinator_share(memory="9Gi", gpus=3),
        pod(gpus(1, mem=1000)),
        pod(gpus(2)),
        pod(koordinator_container(gpu=50)),
    ],
    ids=["whole MiB", "HAMi", "whole GPUs", "a percentage"],
)
def test_an_amount_that_is_granted_as_it_is_needs_no_words(document: Document) -> None:
    got = translation_outcome(document, PUBLISHED)

    assert "info amountRoundedUp" not in finding_codes(got.findings)


def test_an_amount_below_the_least_share_becomes_that() -> None:
    coarse = hami_gpu()
    coarse["capacity"]["memory"] = amount("80Gi", "80Gi", min="4Gi", step="2Gi")
    cluster = translation_snapshot(driver_slice(HAMI, coarse), publishes=frozenset({HAMI}))

    messages = [
        finding.message
        for mebibytes in (1, 4096, 5000, 80 * 1024)
        for finding in translation_outcome(pod(gpus(1, mem=mebibytes)), cluster).findings
        if finding.code is Code.AMOUNT_ROUNDED_UP
    ]

    assert [message.partition(":")[0] for message in messages] == [
        "1Mi for each device becomes 4Gi",
        "5000Mi for each device becomes 6Gi",
    ]


def test_a_pool_of_nics_stays_with_its_plugin_beside_networks_of_multus() -> None:
    got = translation_outcome(pod(POOL, annotations=NETWORKS))

    assert isinstance(got, Untouched)
    path = "spec.containers[0].resources.limits[rdma/hca]"
    assert [f"warning multusBesidePool {path}"] == finding_texts(got.findings)


def test_gpus_beside_a_pool_that_stays_become_claims() -> None:
    document = pod(container("main", {"rdma/hca": 1, "nvidia.com/gpu": 1}), annotations=NETWORKS)

    got = translation_outcome(document)

    assert isinstance(got, Translated)
    assert [{"nvidia.com/gpu"}] == [set(recorded.limits) for recorded in got.record.containers]
    assert "warning multusBesidePool" in finding_codes(got.findings)


def test_a_pool_that_stays_is_told_beside_gpus_that_a_class_maps() -> None:
    document = pod(container("main", {"rdma/hca": 1, "nvidia.com/gpu": 1}), annotations=NETWORKS)

    got = translation_outcome(
        document, translation_snapshot(extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"})
    )

    assert isinstance(got, Untouched)
    assert ["passedThrough", "multusBesidePool"] == [finding.code for finding in got.findings]


def test_a_mapped_pool_of_nics_is_rejected_beside_networks_of_multus() -> None:
    mapped = translation_snapshot(extended_resources={"rdma/hca": "nics"})
    options = TranslationOptions(native=NativePolicy.TRANSLATE)

    got = translation_outcome(pod(POOL, annotations=NETWORKS), mapped, options)

    assert isinstance(got, Refused)
    assert "error multusBesidePool" in finding_codes(got.findings)


def test_a_pool_of_shared_nics_becomes_a_claim_beside_networks_of_multus() -> None:
    dranet = profiles()["dra.net"]
    nic = msgspec.structs.replace(dranet.devices[DeviceKind.NIC], sharing=Sharing.ALWAYS)
    shared = msgspec.structs.replace(dranet, devices={DeviceKind.NIC: nic})
    cluster = translation_snapshot(profiles={**profiles(), "dra.net": shared})

    got = translation_outcome(pod(POOL, annotations=NETWORKS), cluster)

    assert isinstance(got, Translated)
    assert "warning multusBesidePool" not in finding_codes(got.findings)


def test_a_pool_of_nics_alone_is_one_of_them_with_a_warning() -> None:
    got = translation_outcome(pod(POOL))

    assert "warning oneOfPool" in finding_codes(got.findings)


def small_share(key: str) -> Document:
    if key == "tensor-fusion.ai/vram-request":
        return pod(
            container("main"),
            annotations={key: "8000"},
            labels={"tensor-fusion.ai/enabled": "true"},
        )
    return pod(container("main", {key: "8000", "koordinator.sh/gpu-core": 50}))


@pytest.mark.parametrize("key", ["tensor-fusion.ai/vram-request", "koordinator.sh/gpu-memory"])
def test_bytes_that_were_meant_as_mebibytes_are_a_warning(key: str) -> None:
    got = translation_outcome(small_share(key), PUBLISHED)

    (finding,) = [entry for entry in got.findings if entry.code is Code.WRONG_UNIT]
    assert ("warning", "write 8000Mi if MiB are meant") == (finding.severity.value, finding.fix)
    assert str(finding.path).endswith(f"[{key}]")
