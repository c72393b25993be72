"""SR-IOV device plugin and operator: <prefix>/<resourceName>, a number of virtual functions.

Any prefix is possible, and most vendors use theirs for other devices, too. So by default only
unambiguous names are read: those of vendors that make only NICs, of the operator's default prefix,
and the prefixes of the plugin's own examples. Other names are read where the profile lists them
under `resources`.

Multus attaches the networks in its annotations, which stay. Where all of them are one network, the
claim names it, too, for drivers that attach networks themselves; of several networks those whose
definition names the resource of a key, each for one device (`translation.cluster.network_claims`).
network-resources-injector adds the keys
of those networks to the first container, possibly after us; the claim is the pod's in any case.

Not translated: PCIDEVICE_*, which the plugin sets and a driver does not.

Source: k8snetworkplumbingwg/sriov-network-device-plugin, README.md and pkg/resources; the operator's
chart, for its prefix; NVIDIA's network operator, for hostdev; k8snetworkplumbingwg/
network-resources-injector, pkg/webhook.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.finding import Code, Finding, warning
from findings.text import printable
from kube.api.network_attachments import NETWORKS
from kube.names import GROUP
from translation.model.amounts import requested_amounts
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    NetworkAttachment,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import (
    KeyOutcome,
    Place,
    Table,
    annotation,
    limit,
    names,
    prefixes,
    variable,
)

HOST_DEVICES: Final = "nvidia.com/hostdev"
"""The default name of NVIDIA's network operator for whole NICs."""
PREFIXES: Final = (
    "broadcom.com/",
    "intel.com/intel_sriov_",
    "mellanox.com/",
    "openshift.io/",
)
RESOURCES: Final = f"{GROUP}/network-resources"
"""The networks of a pod whose definitions name a resource of its keys; in a translation record
only. Pods do not have this key."""
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
    annotation(
        NETWORKS,
        KeyOutcome.CONFIG,
        "a VfConfig with `netAttachDefName`, for a driver that attaches networks itself, with an info. "
        "Of several networks each device has one whose NetworkAttachmentDefinition names its resource; "
        "where none is known, a finding says what the class must have",
        case="beside virtual functions",
    ),
    *(
        annotation(
            name,
            KeyOutcome.KEPT,
            "for Multus; see `multus` for a bandwidth. A pod with it is sent to the webhook even without device keys, because "
            "network-resources-injector may add keys later",
            case=case,
        )
        for name, case in ((NETWORKS, "without virtual functions"), (DEFAULT_NETWORK, ""))
    ),
)


def translate(pod: LegacyPod) -> Translation:
    """Translate the virtual functions that each container requests."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    network = read_network(pod.annotations.get(NETWORKS, ""))
    networks = _networks_by_resource(pod.annotations.get(RESOURCES, ""))
    places = {container.name: place for place, container in enumerate(pod.containers)}
    # An init container uses the devices of an app container, whose networks are then its own.
    for container in sorted(pod.containers, key=lambda entry: entry.init and not entry.sidecar):
        for key, count in requested_amounts(container):
            if isinstance(count, Finding):
                findings.append(count)
            else:
                intents += _intents(container, key, count, network, networks.get(key, []))
                findings.append(_check_variable(container, key))
    intents.sort(key=lambda intent: places[intent.container])
    if network is not None and sum(intent.count for intent in intents) > 1:
        # Two interfaces cannot have one name.
        unnamed = msgspec.structs.replace(network, interface="")
        intents = [msgspec.structs.replace(intent, network=unnamed) for intent in intents]
    return Translation(intents=tuple(intents), findings=tuple(findings))


def address_variable(key: str) -> str:
    """Return the name of the variable for the PCI addresses that the device plugin lists.

    >>> address_variable("intel.com/intel_sriov_netdevice")
    'PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE'
    """
    return VARIABLE_PREFIX + key.upper().replace(".", "_").replace("/", "_")


def read_network(text: str) -> NetworkAttachment | None:
    """Return the network of Multus' annotation; None for none, for several, and for faulty ones.

    Source: Multus, pkg/k8sclient, parsePodNetworkAnnotation.

    >>> read_network("team/fast@net1").interface, read_network("a, b")
    ('net1', None)
    """
    networks = _networks_of(text)
    distinct = {(network.namespace, network.name) for network in networks}
    if len(distinct) != 1 or not all(map(_is_valid, networks)):
        return None
    return networks[0]


def read_networks(text: str) -> list[NetworkAttachment]:
    """Return the networks of Multus' annotation, in its order; none of faulty text."""
    networks = _networks_of(text)
    return networks if all(map(_is_valid, networks)) else []


class ResourceNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network, and the resource name of its devices."""

    resource: str
    network: NetworkAttachment


def encode_resource_networks(networks: Sequence[ResourceNetwork]) -> str:
    """Return the text of the annotation in a record."""
    return msgspec.json.encode(networks, order="sorted").decode()


def _networks_by_resource(text: str) -> Mapping[str, list[NetworkAttachment]]:
    """Return resource name to its networks, in their order; devices are taken from the lists."""
    try:
        networks = msgspec.json.decode(text or "[]", type=list[ResourceNetwork])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    by_resource: dict[str, list[NetworkAttachment]] = {}
    for entry in networks:
        if _is_valid(entry.network):
            by_resource.setdefault(entry.resource, []).append(entry.network)
    return by_resource


def _networks_of(text: str) -> list[NetworkAttachment]:
    if text.lstrip().startswith("["):
        try:
            return [
                NetworkAttachment(
                    name=item.name, namespace=item.namespace, interface=item.interface
                )
                for item in msgspec.json.decode(text, type=list[_Network])
            ]
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return []
    networks = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        path, _, interface = item.partition("@")
        namespace, slash, name = path.rpartition("/")
        networks.append(
            NetworkAttachment(name=name, namespace=namespace if slash else "", interface=interface)
        )
    return networks


class _Network(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    interface: str = ""


def _is_valid(network: NetworkAttachment) -> bool:
    optional = (network.namespace, network.interface)
    return bool(_LABEL.fullmatch(network.name)) and all(
        not text or _LABEL.fullmatch(text) for text in optional
    )


_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)


def _intents(
    container: LegacyContainer,
    key: str,
    count: int,
    network: NetworkAttachment | None,
    networks: list[NetworkAttachment],
) -> Iterator[Intent]:
    """Yield an intent for each device with a network of its own, and one for the others.

    Args:
        network: The only network of the pod, if there is only one.
        networks: The resource's networks that devices of earlier containers have not taken.
    """
    own = networks[:count]
    del networks[:count]
    for own_network in own:
        yield _intent(container, key, 1, own_network)
    if count > len(own):
        yield _intent(container, key, count - len(own), network)


def _intent(
    container: LegacyContainer, key: str, count: int, network: NetworkAttachment | None
) -> Intent:
    return Intent(
        container=container.name,
        kind=DeviceKind.NIC,
        count=count,
        exclusive=True,
        filter=DeviceFilter(resource=key),
        network=network,
        paths={"count": container.limit_path(key), "network": annotation_path(NETWORKS)},
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
    annotations=(NETWORKS,),
    recorded_annotations=(RESOURCES,),
    triggers=(NETWORKS, DEFAULT_NETWORK),
    translate=translate,
)
