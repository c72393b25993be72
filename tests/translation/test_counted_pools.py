"""Names with the prefix of RDMA pools that the profile of virtual functions lists: they are numbers of NICs."""

from typing import Final

import pytest

from testing.builders import (
    container,
    devices_of,
    finding_codes,
    pod,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.profile_conflicts import find_conflicts
from translation.cluster.snapshot import (
    DEFAULT_PROFILES,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.profiles.profile import Profile, profile_of
from translation.reading.arbiter import VOCABULARIES, ceded_pools
from translation.record.derive import derive

SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
POOLS: Final = "dra.net"
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
OPTIONS: Final = TranslationOptions()


def profile(driver: str, *names: str) -> Profile:
    resources = {name: {"shortName": "resourceName"} for name in names}
    return profile_of(
        {"driver": driver, "devices": {"nic": {"class": driver, "resources": resources}}}
    )


def cluster(*own: Profile) -> TranslationSnapshot:
    in_force = {**profiles(), **{entry.driver: entry for entry in own}}
    return translation_snapshot(profiles=in_force)


IB: Final = profile(SRIOV, "rdma/ib")
LISTED: Final = cluster(IB)


def requests(document: Document, snapshot: TranslationSnapshot) -> list[tuple[str, int]]:
    """Return DeviceClass and number of each request of the claims of a pod."""
    translated = translation_of(document, snapshot=snapshot)
    return [
        (request["exactly"]["deviceClassName"], request["exactly"].get("count", 1))
        for claim in translated.claims
        for request in devices_of(claim)["requests"]
    ]


@pytest.mark.parametrize(
    ("snapshot", "want"),
    [
        (LISTED, (SRIOV, 8)),
        (cluster(profile(SRIOV, "rdma/i*")), (SRIOV, 8)),
        (cluster(profile(SRIOV, "rdma/roce")), ("dranet", 1)),
        (cluster(profile(POOLS, "rdma/ib")), (POOLS, 1)),
        (cluster(IB, profile(POOLS, "rdma/ib")), (POOLS, 1)),
        (cluster(), ("dranet", 1)),
    ],
    ids=[
        "listed as functions",
        "listed by its beginning",
        "another name is listed",
        "listed as a pool",
        "listed as both, so a pool",
        "listed by nobody",
    ],
)
def test_a_listed_name_counts_nics(snapshot: TranslationSnapshot, want: tuple[str, int]) -> None:
    document = pod(container("main", {"rdma/ib": 8}))

    assert [want] == requests(document, snapshot)
    is_share = "warning clamped" in finding_codes(
        translation_of(document, snapshot=snapshot).findings
    )
    assert is_share == (want[1] == 1)


def test_a_counted_name_stands_beside_a_pool() -> None:
    document = pod(container("main", {"rdma/ib": 8, "rdma/hca": 1}))

    assert [("dranet", 1), (SRIOV, 8)] == requests(document, LISTED)


def test_the_fix_of_shares_names_the_profile() -> None:
    findings = translation_of(pod(container("main", {"rdma/ib": 8}))).findings

    (finding,) = (entry for entry in findings if entry.code == "clamped")
    assert finding.fix is not None
    assert finding.fix.endswith("list rdma/ib under resources in the profile of its driver")


def test_networks_of_multus_leave_no_counted_name_to_the_device_plugin() -> None:
    annotations = {NETWORKS: "ib"}
    counted = pod(container("main", {"rdma/ib": 8}), annotations=annotations)
    pooled = pod(container("main", {"rdma/hca": 1}), annotations=annotations)

    codes = {
        key: finding_codes(translation_outcome(document, LISTED).findings)
        for key, document in {"counted": counted, "pooled": pooled}.items()
    }

    assert "warning multusBesidePool" not in codes["counted"]
    assert "warning multusBesidePool" in codes["pooled"]


def test_a_record_gives_the_same_claims() -> None:
    document = pod(container("main", {"rdma/ib": 8, "rdma/hca": 1}))
    translated = translation_of(document, snapshot=LISTED)

    derivation = derive(translated.record, LISTED.profiles)

    assert [claim.template for claim in translated.claims] == [
        claim.template for claim in derivation.claims
    ]


def test_the_profile_serves_the_name() -> None:
    own = profile(SRIOV, "rdma/ib", "vpc.amazonaws.com/efa")

    conflicts = find_conflicts(own, cluster(own).profiles, OPTIONS)

    assert ["vpc.amazonaws.com/efa"] == [conflict.key for conflict in conflicts]


def test_a_profile_of_another_driver_does_not() -> None:
    own = profile("z.example.com", "rdma/ib")

    (conflict,) = find_conflicts(own, cluster(own).profiles, OPTIONS)

    assert "rdma" == conflict.owner


def test_one_driver_for_both_keeps_its_pools() -> None:
    options = TranslationOptions(profiles={**DEFAULT_PROFILES, "sriov": POOLS})

    vocabularies = vocabularies_in_force(options, profiles())

    assert vocabularies["rdma"].handles("rdma/ib")


def test_a_vocabulary_that_is_not_chosen_takes_no_pool() -> None:
    options = TranslationOptions(vocabularies=frozenset(VOCABULARIES) - {"sriov"})

    vocabularies = vocabularies_in_force(options, LISTED.profiles)

    assert vocabularies["rdma"].handles("rdma/ib")
    assert find_conflicts(IB, LISTED.profiles, options)


def test_only_the_prefix_of_pools_is_ceded() -> None:
    names = ["rdma/ib", "vpc.amazonaws.com/efa", "aliyun/erdma", "a.example/b", "rdma/hca"]

    assert ("rdma/ib",) == ceded_pools(names, {"rdma/hca"})
