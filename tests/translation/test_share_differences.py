"""Findings about shares that a driver places or limits otherwise than the legacy system."""

from testing.builders import (
    HAMI,
    container,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    koordinator_container,
    pod,
    translation_outcome,
    translation_snapshot,
)
from translation.translate import Refused

PUBLISHED = translation_snapshot(driver_slice(HAMI, hami_gpu()), publishes=frozenset({HAMI}))
NETWORKS = {"k8s.v1.cni.cncf.io/networks": "macvlan"}
POOL = container("main", {"rdma/hca": 1})


def test_a_share_without_cores_is_told_once() -> None:
    got = translation_outcome(pod(gpus(1, mem=10, name="a"), gpus(1, mem=10, name="b")), PUBLISHED)

    assert ["info uncappedCores"] == finding_codes(got.findings)


def test_a_share_with_cores_is_placed_as_in_hami() -> None:
    got = translation_outcome(pod(gpus(1, mem=10, cores=10)), PUBLISHED)

    assert [] == finding_codes(got.findings)


def test_limits_that_koordinator_would_not_set_are_told() -> None:
    share = koordinator_container(gpu=50)

    got = translation_outcome(pod(share), PUBLISHED)
    isolated = pod(share, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})

    assert "info limitsEnforced" in finding_codes(got.findings)
    assert "info limitsEnforced" not in finding_codes(
        translation_outcome(isolated, PUBLISHED).findings
    )


def test_a_pool_of_nics_is_rejected_beside_networks_of_multus() -> None:
    got = translation_outcome(pod(POOL, annotations=NETWORKS))

    assert isinstance(got, Refused)
    path = "spec.containers[0].resources.limits[rdma/hca]"
    assert f"error multusBesidePool {path}" in finding_texts(got.findings)


def test_a_pool_of_nics_alone_is_one_of_them_with_a_warning() -> None:
    got = translation_outcome(pod(POOL))

    assert "warning oneOfPool" in finding_codes(got.findings)
