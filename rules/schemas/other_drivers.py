"""Schemas of drivers with parameters that change from release to release: faults are warnings.

A driver of another release may know more fields. All of these decode strictly, when the pod starts.

Source: kubernetes-sigs/dranet 07cded12, pkg/apis/{types,validation}.go; k8snetworkplumbingwg/dra-driver-sriov
ca70b092, pkg/api/virtualfunction/v1alpha1; kubernetes-sigs/cni-dra-driver fe5cf3c1 (kind CNI) and
LionelJouin/cni-dra-driver 921b8201 (kind CNIConfig), apis/v1alpha1/types.go; ROCm/k8s-gpu-dra-driver 0c67c7fa,
api/amd.com/resource/gpu/v1alpha1; Project-HAMi, the DeviceClasses of its Ascend driver (NpuConfig);
Project-HAMi/k8s-dra-driver 3c8771b3, cmd/hami-kubelet-plugin/device_state.go, prepareDevices (NVIDIA's kinds, of
2025-11 in its go.mod).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rules.schemas.parameters import (
    GPU_OF_NVIDIA,
    Anything,
    Fault,
    Fields,
    Flag,
    Kinds,
    Listed,
    Mapped,
    Whole,
    Word,
    find_faults_of_kinds,
    header,
    validate_value,
)

DRANET: Final = "dra.net"
_FLAG: Final = Flag()
_TEXT: Final = Word()
_SIZE: Final = Whole(least=1)
_IPVLAN: Final = Fields(
    fields={
        "mode": _TEXT,
        "flag": _TEXT,
        "addressing": Anything(),
        "copyRoutesFromParent": _FLAG,
        "copyNeighborsFromParent": _FLAG,
    }
)

NETWORK_CONFIG: Final = Fields(
    fields={
        "interface": Fields(
            fields={
                "name": _TEXT,
                "addresses": Listed(value=_TEXT),
                "dhcp": _FLAG,
                "mtu": Whole(least=68),
                "hardwareAddr": _TEXT,
                "gsoMaxSize": _SIZE,
                "groMaxSize": _SIZE,
                "gsoIPv4MaxSize": _SIZE,
                "groIPv4MaxSize": _SIZE,
                "disableEbpfPrograms": _FLAG,
                "forwarding": _FLAG,
                "vrf": Fields(fields={"name": _TEXT, "table": _SIZE}),
                "ipvlan": _IPVLAN,
            }
        ),
        "subInterface": Anything(),
        "routes": Listed(
            value=Fields(
                fields={
                    "destination": _TEXT,
                    "gateway": _TEXT,
                    "source": _TEXT,
                    "scope": Whole(most=255),
                    "table": Whole(),
                },
                required_fields=("destination",),
            )
        ),
        "rules": Listed(
            value=Fields(
                fields={
                    "priority": Whole(most=32767),
                    "source": _TEXT,
                    "destination": _TEXT,
                    "table": Whole(),
                }
            )
        ),
        "neighbors": Listed(value=Fields(fields={"destination": _TEXT, "hardwareAddr": _TEXT})),
        "ethtool": Fields(
            fields={"features": Mapped(value=_FLAG), "privateFlags": Mapped(value=_FLAG)}
        ),
    }
)
"""The configuration of dra.net; it has neither apiVersion nor kind."""

_SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
_CNI: Final = "cni.networking.x-k8s.io/v1alpha1"
_AMD: Final = "gpu.resource.amd.com/v1alpha1"
_CNI_FIELDS: Final = header({"ifName": _TEXT, "config": Anything()}, "ifName", "config")

OTHER_DRIVERS: Final[Mapping[str, Kinds]] = {
    _SRIOV: {
        (f"{_SRIOV}/v1alpha1", "VfConfig"): header(
            {
                "driver": _TEXT,
                "addVhostMount": _FLAG,
                "ifName": _TEXT,
                "netAttachDefName": _TEXT,
                "netAttachDefNamespace": _TEXT,
                "vf": Fields(
                    fields={
                        "vlan": Whole(most=4094),
                        "qos": Whole(most=7),
                        "vlanProto": Word(words=("802.1q", "802.1ad")),
                        "spoofChk": _FLAG,
                        "trust": _FLAG,
                        "minTxRate": Whole(),
                        "maxTxRate": Whole(),
                        "linkState": Word(words=("auto", "enable", "disable")),
                    }
                ),
            }
        )
    },
    "cni.dra.networking.x-k8s.io": {
        (_CNI, "CNI"): _CNI_FIELDS,
        (_CNI, "CNIConfig"): _CNI_FIELDS,
    },
    "gpu.amd.com": {
        (_AMD, "GpuConfig"): header({}),
        (_AMD, "VfioDeviceConfig"): header(
            {"iommu": Fields(fields={"backendPolicy": Word(words=("LegacyOnly", "PreferIommuFD"))})}
        ),
    },
    "hami-core-gpu.project-hami.io": GPU_OF_NVIDIA,
    "ascend.project-hami.io": {
        ("npu.project-hami.io/v1alpha1", "NpuConfig"): header(
            {"vnpuSpec": Fields(fields={"templateName": _TEXT})}
        )
    },
}
"""Driver to its kinds."""


def find_doubts(driver: str, parameters: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield parameters that known releases of a driver would reject; none for unknown drivers."""
    if driver == DRANET:
        yield from validate_value(NETWORK_CONFIG, parameters)
    elif driver in OTHER_DRIVERS:
        yield from find_faults_of_kinds(driver, OTHER_DRIVERS[driver], parameters)
