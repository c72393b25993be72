"""Opaque parameters of drivers for NICs, of HAMi and of AMD: nonsense is warned about, ours is not."""

from typing import Any

import pytest

from process.profiles.profile_files import load_profiles
from rules.schemas.other_drivers import OTHER_DRIVERS, find_doubts
from translation.profiles.profile import NetworkConfig

SRIOV = {"apiVersion": "sriovnetwork.k8snetworkplumbingwg.io/v1alpha1", "kind": "VfConfig"}
CNI = {"apiVersion": "cni.networking.x-k8s.io/v1alpha1", "kind": "CNI"}
AMD = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "GpuConfig"}
HAMI = {"apiVersion": "npu.project-hami.io/v1alpha1", "kind": "NpuConfig"}
GPU = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("dra.net", {"interfaces": {}}, 'interfaces: did you mean "interface"?'),
    ("dra.net", {"interface": {"mtu": "9000"}}, "interface.mtu: "),
    ("dra.net", {"interface": {"addresses": "10.0.0.1/24"}}, "interface.addresses: "),
    ("dra.net", {"routes": [{"gateway": "10.0.0.1"}]}, "routes[0].destination: "),
    ("dra.net", {"ethtool": {"features": {"tso": "on"}}}, "ethtool.features[tso]: "),
    ("sriovnetwork.k8snetworkplumbingwg.io", {**SRIOV, "ifname": "net1"}, 'ifname: did you mean "ifName"?'),
    ("sriovnetwork.k8snetworkplumbingwg.io", {**SRIOV, "vf": {"vlan": 5000}}, "vf.vlan: "),
    ("cni.dra.networking.x-k8s.io", {**CNI, "kind": "CNII"}, 'kind: did you mean "CNI"?'),
    ("cni.dra.networking.x-k8s.io", {**CNI, "ifName": "net1", "config": {}, "plugins": "x"},
     'plugins: known names: "apiVersion", "kind", "ifname", "config"'),
    ("cni.dra.networking.x-k8s.io", {**CNI, "ifName": "net1"}, "config: "),
    ("gpu.amd.com", {**AMD, "sharing": {}}, 'sharing: known names: "apiVersion", "kind"'),
    ("ascend.project-hami.io", {**HAMI, "vnpuSpec": {"template": "a"}},
     'vnpuSpec.template: did you mean "templateName"?'),
    ("hami-core-gpu.project-hami.io", {**GPU, "kind": "GpuConf"}, 'kind: did you mean "GpuConfig"?'),
    ("hami-core-gpu.project-hami.io", {**GPU, "sharing": {"strategy": "MPS", "mps": {}}},
     'sharing.mps: known names: "strategy", "timeslicingconfig", "mpsconfig"'),
]  # fmt: skip
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("dra.net", {"interface": {"name": "net1", "mtu": 9000}, "routes": [{"destination": "0.0.0.0/0"}]}),
    ("sriovnetwork.k8snetworkplumbingwg.io", {**SRIOV, "netAttachDefName": "a", "vf": {"vlan": 7, "trust": True}}),
    ("cni.dra.networking.x-k8s.io", {**CNI, "ifName": "net1", "config": {"plugins": [{"type": "macvlan"}]}}),
    ("gpu.amd.com", AMD),
    ("hami-core-gpu.project-hami.io", {**GPU, "sharing": {"strategy": "TimeSlicing"}}),
    ("nobody.example.com", {"any": "thing"}),
]  # fmt: skip


@pytest.mark.parametrize(("driver", "parameters", "expected"), WRONG)
def test_what_the_driver_rejects_is_reported(
    driver: str, parameters: dict[str, Any], expected: str
) -> None:
    faults = [f"{fault.path}: {fault.fix}".lower() for fault in find_doubts(driver, parameters)]

    assert faults == [expected.lower()]


@pytest.mark.parametrize(("driver", "parameters"), RIGHT)
def test_what_the_driver_accepts_is_no_fault(driver: str, parameters: dict[str, Any]) -> None:
    assert list(find_doubts(driver, parameters)) == []


def test_the_parameters_that_the_translation_writes_have_a_schema() -> None:
    """Of every profile with a network; the fields that it fills are known ones."""
    networks = [
        (profile.driver, device.network)
        for profile in load_profiles().values()
        for device in profile.devices.values()
        if isinstance(device.network, NetworkConfig)
    ]
    assert networks
    for driver, network in networks:
        filled = (network.name, network.namespace, network.interface)
        fields: dict[str, Any] = {field: "text" for field in filled if isinstance(field, str)}
        if isinstance(network.config, str):
            fields[network.config] = {"cniVersion": "1.0.0"}
        assert driver in OTHER_DRIVERS
        assert list(find_doubts(driver, {**network.parameters, **fields})) == []
