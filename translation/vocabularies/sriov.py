"""SR-IOV device plugin and operator: <prefix>/<resourceName>, a number of virtual functions.

Any prefix is possible, and most vendors use theirs for other devices, too. So by default only
unambiguous names are read: those of vendors that make only NICs, of the operator's default prefix,
and the prefixes of the plugin's own examples. Other names are read where the profile lists them
under `resources`.

Multus attaches the networks in its annotations, which stay. network-resources-injector adds the keys
of those networks to the first container, possibly after us; the claim is the pod's in any case.

Not translated: PCIDEVICE_*, which the plugin sets and a driver does not.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, README.md and pkg/resources; the operator's
chart, for its prefix; NVIDIA's network operator, for hostdev; k8snetworkplumbingwg/
network-resources-injector, pkg/webhook.
"""

from typing import Final

from findings.finding import Code, Finding, warning
from findings.text import printable
from translation.amounts import requested_amounts
from translation.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from translation.keys import KeyOutcome, Place, Table, annotation, limit, names, prefixes, variable

HOST_DEVICES: Final = "nvidia.com/hostdev"
"""The default name of NVIDIA's network operator for whole NICs."""
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
    "N devices of class `sriovnetwork.k8snetworkplumbingwg.io` whose `resourceName` is the name "
    "after the slash, or whose `k8s.cni.cncf.io/resourceName` is the whole name"
)
TABLE: Final[Table] = (
    *(limit(f"{prefix}*", "devices", KeyOutcome.COUNT, _FUNCTIONS) for prefix in PREFIXES),
    limit(HOST_DEVICES, "devices", KeyOutcome.COUNT, _FUNCTIONS),
    variable(
        f"{VARIABLE_PREFIX}*",
        KeyOutcome.DROPPED,
        "the device plugin sets it to the addresses of the devices; a driver does not",
    ),
    *(
        annotation(
            name,
            KeyOutcome.KEPT,
            "for Multus. A pod with it is sent to the webhook even without device keys, because "
            "network-resources-injector may add keys later",
        )
        for name in (NETWORKS, DEFAULT_NETWORK)
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the virtual functions that each container requests."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    for container in pod.containers:
        for key, count in requested_amounts(container):
            if isinstance(count, Finding):
                findings.append(count)
            else:
                intents.append(_intent(container, key, count))
                findings.append(_check_variable(container, key))
    return Translation(intents=tuple(intents), findings=tuple(findings))


def address_variable(key: str) -> str:
    """Return the variable in which the device plugin lists PCI addresses.

    >>> address_variable("intel.com/intel_sriov_netdevice")
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


def _check_variable(container: LegacyContainer, key: str) -> Finding:
    return warning(
        Code.ENV_VAR_NOT_PROVIDED,
        container.limit_path(key),
        f"{printable(address_variable(key))}, the device plugin's list of PCI addresses, is not set",
        "read the addresses from the variables that the driver sets",
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
