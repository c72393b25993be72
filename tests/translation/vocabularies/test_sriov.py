"""SR-IOV names: those that are ours, their requests, and the variable that is lost."""

from typing import NamedTuple

import pytest

from testing.builders import (
    container,
    devices_of,
    finding_codes,
    finding_texts,
    legacy_view,
    pod,
    translation_of,
)
from testing.documents import Document
from translation.model.intents import DeviceKind, Intent, NetworkAttachment
from translation.vocabularies.sriov import VOCABULARY, address_variable, read_network, translate

LIMITS = "spec.containers[0].resources.limits"
NETDEVICE = "intel.com/intel_sriov_netdevice"
RDMA = "mellanox.com/mlnx_sriov_rdma"


def intent_fields(intent: Intent) -> tuple[str, str | None, int]:
    assert intent.kind is DeviceKind.NIC
    assert intent.exclusive
    return intent.container, intent.filter.resource, intent.count


class Case(NamedTuple):
    name: str
    containers: tuple[Document, ...]
    want: tuple[tuple[str, str, int], ...] = ()
    findings: tuple[str, ...] = ()


CASES = (
    Case("other resources are not ours", (container("main", {"cpu": 2, "intel.com/other": 1}),)),
    Case("no function is asked by zero", (container("main", {RDMA: 0}),)),
    Case(
        "two functions, whose addresses no variable lists",
        (container("main", {NETDEVICE: 2}),),
        (("main", NETDEVICE, 2),),
        (f"warning envVarNotProvided {LIMITS}[{NETDEVICE}]",),
    ),
    Case(
        "functions of two kinds are two wishes",
        (container("main", {NETDEVICE: 1, RDMA: 2}),),
        (("main", NETDEVICE, 1), ("main", RDMA, 2)),
        (
            f"warning envVarNotProvided {LIMITS}[{NETDEVICE}]",
            f"warning envVarNotProvided {LIMITS}[{RDMA}]",
        ),
    ),
    Case(
        "each container has functions of its own",
        (container("a", {RDMA: 1}), container("b", {RDMA: 1})),
        (("a", RDMA, 1), ("b", RDMA, 1)),
        (
            f"warning envVarNotProvided {LIMITS}[{RDMA}]",
            f"warning envVarNotProvided spec.containers[1].resources.limits[{RDMA}]",
        ),
    ),
    Case(
        "two faults are both told",
        (container("main", {NETDEVICE: "1.5", RDMA: -1}),),
        findings=(f"error notAnInteger {LIMITS}[{NETDEVICE}]", f"error negative {LIMITS}[{RDMA}]"),
    ),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", None),
        ("fast", NetworkAttachment(name="fast")),
        ("fast, fast", NetworkAttachment(name="fast")),
        ("team/fast@net1", NetworkAttachment(name="fast", namespace="team", interface="net1")),
        ("fast,slow", None),
        ("fast,team/fast", None),
        ('[{"name": "fast", "namespace": "team", "mac": "02:00"}]',
         NetworkAttachment(name="fast", namespace="team")),
        ("[{", None),
        ('[{"name": 3}]', None),
        ('["fast"]', None),
        ("/", None),
        ("FAST", None),
        ('fast"]', None),
    ],
)  # fmt: skip
def test_read_network(text: str, want: NetworkAttachment | None) -> None:
    assert want == read_network(text)


def vf_config(*containers: Document, networks: str) -> list[Document]:
    document = pod(*containers, annotations={"k8s.v1.cni.cncf.io/networks": networks})
    translated = translation_of(document)
    configs = [config for claim in translated.claims for config in devices_of(claim)["config"]]
    codes = finding_codes(translated.findings)
    assert ("info networkByClaim" in codes, "warning classConfigMissing" in codes) == (True, False)
    return [config["opaque"]["parameters"] for config in configs]


def test_one_network_is_the_claims_too() -> None:
    kind = {"apiVersion": "sriovnetwork.k8snetworkplumbingwg.io/v1alpha1", "kind": "VfConfig"}
    fast = {**kind, "netAttachDefName": "fast", "netAttachDefNamespace": "team"}

    single = vf_config(container("main", {NETDEVICE: 1}), networks="team/fast@net1")
    several = vf_config(container("main", {NETDEVICE: 2}), networks="team/fast@net1,team/fast@net2")

    assert ([{**fast, "ifName": "net1"}], [fast]) == (single, several)


def test_several_networks_are_left_to_the_class() -> None:
    document = pod(
        container("main", {NETDEVICE: 2}), annotations={"k8s.v1.cni.cncf.io/networks": "a,b"}
    )

    translated = translation_of(document)

    assert "warning classConfigMissing" in finding_codes(translated.findings)
    assert all("config" not in devices_of(claim) for claim in translated.claims)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_translate(case: Case) -> None:
    got = translate(legacy_view(*case.containers))

    assert case.want == tuple(map(intent_fields, got.intents))
    assert case.findings == tuple(finding_texts(got.findings))


OURS = (
    NETDEVICE,
    "intel.com/intel_sriov_dpdk",
    RDMA,
    "mellanox.com/mlnx_connectx5",
    "broadcom.com/bnxt",
    "openshift.io/sriovnic",
    "nvidia.com/hostdev",
)
OTHERS = (
    "intel.com/gpu",
    "intel.com/gaudi",
    "intel.com/qat",
    "intel.com/intel_fpga",
    "intel.com/x700_pppoe",
    "gpu.intel.com/i915",
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/bf2_sf",
    "amd.com/gpu",
    "mellanox.com",
    "cpu",
)


@pytest.mark.parametrize("key", OURS)
def test_a_name_that_cannot_mean_anything_else_is_ours(key: str) -> None:
    assert VOCABULARY.handles(key)


@pytest.mark.parametrize("key", OTHERS)
def test_a_name_that_may_be_another_vendors_device_is_not(key: str) -> None:
    assert not VOCABULARY.handles(key)


def test_the_variable_is_the_name_in_capitals() -> None:
    assert address_variable("nvidia.com/bf2-sf.1") == "PCIDEVICE_NVIDIA_COM_BF2-SF_1"
