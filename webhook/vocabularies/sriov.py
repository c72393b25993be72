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
from webhook.keys import Fate, Place, Table, annotation, limit, names, prefixes, variable

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

_FUNCTIONS: Final = (
    "N devices of class `sriovnetwork.k8snetworkplumbingwg.io` whose `resourceName` is what "
    "follows the slash, or whose `k8s.cni.cncf.io/resourceName` is the whole name"
)
TABLE: Final[Table] = (
    *(limit(f"{prefix}*", "devices", Fate.COUNT, _FUNCTIONS) for prefix in PREFIXES),
    limit(HOST_DEVICES, "devices", Fate.COUNT, _FUNCTIONS),
    variable(
        f"{VARIABLE_PREFIX}*",
        Fate.DROPPED,
        "the device plugin set it to the addresses of the devices; a driver does not",
    ),
    *(
        annotation(
            name,
            Fate.KEPT,
            "for Multus. A pod with it is shown to the webhook even without device keys, so that "
            "keys which network-resources-injector adds later are seen",
        )
        for name in (NETWORKS, DEFAULT_NETWORK)
    ),
)


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


def addresses_in(key: str) -> str:
    """Return the variable in which the device plugin lists PCI addresses.

    >>> addresses_in("intel.com/intel_sriov_netdevice")
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
        f"{printable(addresses_in(key))}, in which the device plugin lists PCI addresses, is not set",
        "read the addresses from what the driver sets",
    )


VOCABULARY: Final = Vocabulary(
    name="sriov",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    takes_names=True,
    triggers=(NETWORKS, DEFAULT_NETWORK),
    translate=translate,
)
