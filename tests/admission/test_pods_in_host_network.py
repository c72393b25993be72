"""Pods in the host's network: NICs stay with the device plugin, everything else is translated."""

from typing import NamedTuple

import pytest

from admission.pods import Decision
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    admit,
    admit_update,
    container,
    finding_texts,
    koordinator_container,
    pod,
)
from testing.documents import Document

LIMITS = "spec.containers[0].resources.limits"
LEFT = "warning hostNetworkNic " + LIMITS


class Case(NamedTuple):
    name: str
    pod: Document
    want: Decision
    left: tuple[str, ...] = ()
    expected_warnings: tuple[str, ...] = ()


CASES = (
    Case(
        "a share of an RDMA pool",
        pod(container("main", {"rdma/ib": 1}), hostNetwork=True),
        Decision.UNTOUCHED,
        ("rdma/ib",),
        (f"{LEFT}[rdma/ib]",),
    ),
    Case(
        "GPUs beside EFA interfaces",
        pod(
            container("main", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}),
            hostNetwork=True,
        ),
        Decision.TRANSLATED,
        ("vpc.amazonaws.com/efa",),
        (f"{LEFT}[vpc.amazonaws.com/efa]",),
    ),
    Case(
        "virtual functions, which the driver would not attach",
        pod(container("main", {"mellanox.com/mlnx_rdma": 1}), hostNetwork=True),
        Decision.UNTOUCHED,
        ("mellanox.com/mlnx_rdma",),
        (f"{LEFT}[mellanox.com/mlnx_rdma]",),
    ),
    Case(
        "NICs of Koordinator, which are the whole pod's",
        pod(koordinator_container(gpu=100, rdma=100), hostNetwork=True),
        Decision.REFUSED,
        (),
        (f"error hostNetworkNic {LIMITS}[koordinator.sh/rdma]",),
    ),
    Case(
        "an interface to a network of GKE, with its address",
        pod(
            container(
                "main",
                {
                    "networking.gke.io.networks/rdma-0": 1,
                    "networking.gke.io.networks/rdma-0.IP": 1,
                },
            ),
            hostNetwork=True,
        ),
        Decision.UNTOUCHED,
        ("networking.gke.io.networks/rdma-0", "networking.gke.io.networks/rdma-0.IP"),
        (f"{LEFT}[networking.gke.io.networks/rdma-0]",),
    ),
    Case(
        "none of a NIC",
        pod(container("main", {"nvidia.com/gpu": 1, "rdma/ib": 0}), hostNetwork=True),
        Decision.TRANSLATED,
        ("rdma/ib",),
    ),
    Case(
        "only GPUs",
        pod(container("main", {"nvidia.com/gpu": 1}), hostNetwork=True),
        Decision.TRANSLATED,
    ),
    Case(
        "a pod that is not to be translated",
        pod(
            container("main", {"rdma/ib": 1}),
            hostNetwork=True,
            labels={"drawbridge.internal/translate": "false"},
        ),
        Decision.UNTOUCHED,
        ("rdma/ib",),
    ),
    Case(
        "a network of its own",
        pod(container("main", {"vpc.amazonaws.com/efa": 1}), hostNetwork=False),
        Decision.TRANSLATED,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answer(case: Case) -> None:
    after, answer = admit(case.pod)

    assert case.want == answer.decision
    assert list(case.expected_warnings) == [
        text for text in finding_texts(answer.findings) if "hostNetworkNic" in text
    ]
    if answer.allowed:
        assert set(case.left) == set(after["spec"]["containers"][0]["resources"].get("limits", {}))


def test_no_claim_has_a_nic() -> None:
    limits = {"nvidia.com/gpu": 8, "rdma/ib": 1}

    after, answer = admit(pod(container("main", limits), hostNetwork=True))

    assert ["gpu.nvidia.com"] == [name for claim in answer.claims for name in claim.class_names()]
    assert "rdma/ib" not in after["metadata"]["annotations"][REQUEST_ANNOTATION]


def test_a_second_round_and_an_update_leave_the_keys_as_well() -> None:
    limits = {"nvidia.com/gpu": 8, "rdma/ib": 1}
    legacy = pod(container("main", limits), hostNetwork=True)
    translated, _ = admit(legacy)

    again, answer = admit(translated)
    updated, update = admit_update(legacy | {"metadata": translated["metadata"]}, translated)

    assert Decision.ACCEPTED == answer.decision
    assert translated == again
    assert update.allowed
    assert {"rdma/ib": 1} == {
        name: int(amount)
        for name, amount in updated["spec"]["containers"][0]["resources"]["limits"].items()
    }
