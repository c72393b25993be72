"""SR-IOV device plugin and operator: <prefix>/<resourceName>, that many virtual functions.

Any prefix is possible, and most vendors use theirs for other devices, too. So by themselves only
names are read that cannot mean anything else: those of vendors that make nothing but NICs, of the
operator's default prefix, and those that the plugin's own examples begin with. Every other name is
one of virtual functions where the profile says so, under `resources`.

Multus attaches what its annotations name, and they stay. network-resources-injector adds the keys
of those networks to the first container, perhaps after us; the claim is the pod's in any case.

Not translated: PCIDEVICE_*, which the plugin sets and a driver does not.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, README.md and pkg/resources; the operator's
chart, for its prefix; NVIDIA's network operator, for hostdev; k8snetworkplumbingwg/
network-resources-injector, pkg/webhook.
"""

from typing import Final

from webhook.amounts import whole
from webhook.findings import Code, Finding, printable, warning
from webhook.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)

HOST_DEVICES: Final = "nvidia.com/hostdev"
"""Of NVIDIA's network operator: NICs as they are. Its other names are a cluster's own."""
PREFIXES: Final = (
    "broadcom.com/",
    "intel.com/intel_sriov_",
    "mellanox.com/",
    "openshift.io/",
)
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK: Final = "v1.multus-cni.io/default-network"
VARIABLE_PREFIX: Final = "PCIDEVICE_"


def translate(pod: LegacyPod) -> Translation:
    """Return the virtual functions that each container asks for."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    for container in pod.containers:
        for key in sorted(container.limits):
            count = whole(container, key)
            if isinstance(count, Finding):
                findings.append(count)
            elif count:
                intents.append(_intent(container, key, count))
                findings.append(_unset(container, key))
    return Translation(intents=tuple(intents), findings=tuple(findings))


def variable(key: str) -> str:
    """Return the variable in which the device plugin lists PCI addresses.

    >>> variable("intel.com/intel_sriov_netdevice")
    'PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE'
    """
    return VARIABLE_PREFIX + key.upper().replace(".", "_").replace("/", "_")


def _intent(container: LegacyContainer, key: str, count: int) -> Intent:
    return Intent(
        container=container.name,
        kind=DeviceKind.NIC,
        count=count,
        exclusive=True,
        filter=DeviceFilter(resource=key),
        paths={"count": container.limit_path(key)},
    )


def _unset(container: LegacyContainer, key: str) -> Finding:
    return warning(
        Code.VARIABLE_LOST,
        container.limit_path(key),
        f"{printable(variable(key))}, in which the device plugin lists PCI addresses, is not set",
        "read the addresses from what the driver sets",
    )


VOCABULARY: Final = Vocabulary(
    name="sriov",
    keys=(HOST_DEVICES,),
    key_prefixes=PREFIXES,
    takes_names=True,
    triggers=(NETWORKS, DEFAULT_NETWORK),
    translate=translate,
)
