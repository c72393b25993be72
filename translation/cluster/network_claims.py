"""The networks of Multus that claims name, and the pools of NICs that stay with their device plugin beside them.

Claims name networks of virtual functions, and those with a bandwidth. The networks and their definitions
are read here, and written into the record as an annotation, since claims derive from the record alone;
an edit of a definition changes no pod that is translated already.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import printable
from kube.api.network_attachments import NETWORKS
from kube.quantity import Quantity
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.model.intents import DeviceKind, LegacyPod, annotation_path
from translation.profiles.profile import Profile, Sharing
from translation.vocabularies import multus, rdma
from translation.vocabularies.multus import ATTACHMENTS, Attachment, encode_attachments
from translation.vocabularies.sriov import (
    RESOURCES,
    ResourceNetwork,
    encode_resource_networks,
    read_networks,
)

MAX_NETWORKS: Final = 32
_RATES: Final = ("ingressRate", "egressRate")
_LIMITS: Final = (*_RATES, "ingressBurst", "egressBurst")
_VIRTUAL_FUNCTIONS: Final = frozenset({"sriov", "ib-sriov"})
"""Plugins whose device is requested by a resource name."""


class RequestedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network with a bandwidth.

    Attributes:
        limits: Name of a rate or burst to bits per second, or bits.
    """

    name: str
    namespace: str
    interface: str
    limits: Mapping[str, int]

    @property
    def bandwidth(self) -> int:
        """The larger rate, in bits per second."""
        return max(self.limits.get(rate, 0) for rate in _RATES)


class _Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Source: NetworkSelectionElement."""

    name: str = ""
    namespace: str = ""
    interface: str = ""
    bandwidth: Mapping[str, Any] | None = None


def expand_networks(
    pod: LegacyPod, namespace: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> tuple[LegacyPod, tuple[Finding, ...]]:
    """Return the pod with its networks that become claims, and reasons for other networks and pools."""
    text = pod.annotations.get(NETWORKS, "")
    if not text:
        return pod, ()
    pod, pool_findings = _without_pools(pod, snapshot, options)
    pod = _with_resources(pod, namespace, snapshot)
    if "bandwidth" not in text:  # Nearly every pod of Multus.
        return pod, pool_findings
    attachments: list[Attachment] = []
    findings: list[Finding] = [*pool_findings]
    for network in networks_with_bandwidth(text, namespace):
        attachment = _attachment(network, snapshot, options)
        if isinstance(attachment, Finding):
            findings.append(attachment)
        else:
            attachments.append(attachment)
    if attachments:
        annotations = {**pod.annotations, ATTACHMENTS: encode_attachments(attachments)}
        pod = msgspec.structs.replace(pod, annotations=dict(sorted(annotations.items())))
    return pod, tuple(findings)


def _without_pools(
    pod: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> tuple[LegacyPod, tuple[Finding, ...]]:
    """Return the pod without the keys of pools that stay with their device plugin, and findings on them.

    The device plugin leaves the NICs of a pool on the host, where Multus attaches networks to them. A
    claim would move one of them out. A key that a DeviceClass maps is served by Kubernetes in any case.
    """
    own = vocabularies_in_force(options, snapshot.profiles).get(rdma.VOCABULARY.name)
    if own is None:
        return pod, ()
    pools = {
        key: profile
        for container in pod.containers
        for key in (*container.limits, *container.requests)
        if rdma.is_pool(key)
        and own.handles(key)
        and key not in snapshot.extended_resources
        and (profile := _moving_profile(key, snapshot, options)) is not None
    }
    if not pools:
        return pod, ()
    containers = tuple(
        msgspec.structs.replace(
            container,
            limits=_without(container.limits, pools),
            requests=_without(container.requests, pools),
        )
        for container in pod.containers
    )
    findings = (
        _pool_finding(container.limit_path(key), pools[key])
        for container in pod.containers
        for key in sorted(container.limits.keys() & pools.keys())
        if container.limits[key]
    )
    return msgspec.structs.replace(pod, containers=containers), tuple(findings)


def _moving_profile(
    key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Profile | None:
    """Return the profile of the driver that serves a pool, if it moves NICs out of the host."""
    driver = options.drivers.get(key, options.profiles.get(rdma.VOCABULARY.name, ""))
    profile = snapshot.profiles.get(driver)
    nic = profile.devices.get(DeviceKind.NIC) if profile is not None else None
    return profile if nic is not None and nic.sharing is Sharing.NEVER else None


def _without(amounts: Mapping[str, Quantity], keys: Collection[str]) -> Mapping[str, Quantity]:
    return {key: amount for key, amount in amounts.items() if key not in keys}


def _pool_finding(path: FieldPath, profile: Profile) -> Finding:
    return warning(
        Code.MULTUS_BESIDE_POOL,
        path,
        f"the key stays, and its device plugin must go on running: {profile.driver} would move a NIC of the "
        "pool out of the host, and Multus attaches networks that may be on the same NIC",
        f"for a claim, remove the annotation {NETWORKS}",
    )


def _with_resources(pod: LegacyPod, namespace: str, snapshot: TranslationSnapshot) -> LegacyPod:
    """Return the pod with those of its several networks that have devices it requests by a key."""
    networks = read_networks(pod.annotations[NETWORKS])[:MAX_NETWORKS]
    if len({(network.namespace, network.name) for network in networks}) < 2:
        return pod  # The vocabulary reads the only one itself.
    keys = pod.keys()
    found_networks = []
    for network in networks:
        definition = snapshot.networks.get((network.namespace or namespace, network.name))
        if definition is not None and definition.resource in keys:
            found_networks.append(ResourceNetwork(resource=definition.resource, network=network))
    if not found_networks:
        return pod
    annotations = {**pod.annotations, RESOURCES: encode_resource_networks(found_networks)}
    return msgspec.structs.replace(pod, annotations=dict(sorted(annotations.items())))


def networks_with_bandwidth(text: str, namespace: str) -> Sequence[RequestedNetwork]:
    """Return the networks of an annotation that have a bandwidth; none of faulty text.

    Source: Multus, pkg/k8sclient: networks without a name are net1, net2, ... in their order.

    >>> text = '[{"name": "a"}, {"name": "b", "bandwidth": {"egressRate": 1000}}]'
    >>> [(network.interface, network.bandwidth) for network in networks_with_bandwidth(text, "n")]
    [('net2', 1000)]
    """
    if not text.lstrip().startswith("["):
        return ()
    try:
        selections = msgspec.json.decode(text, type=list[_Selection])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return ()
    networks = (
        RequestedNetwork(
            name=selection.name,
            namespace=selection.namespace or namespace,
            interface=selection.interface or f"net{index}",
            limits=dict(_limits(selection.bandwidth or {})),
        )
        for index, selection in enumerate(selections[:MAX_NETWORKS], start=1)
    )
    return [network for network in networks if network.name and network.bandwidth]


def _limits(bandwidth: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in _LIMITS:
        amount = bandwidth.get(name)
        if isinstance(amount, int) and not isinstance(amount, bool) and 0 < amount < 2**63:
            yield name, amount


def _attachment(
    network: RequestedNetwork, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Attachment | Finding:
    """Return the attachment of a network by a claim, or the reason Multus attaches it as before."""
    profile = snapshot.profiles.get(options.profiles.get(multus.NAME, ""))
    if profile is None or multus.NAME not in options.vocabularies:
        return _not_reserved(
            network,
            "no driver attaches it",
            "to reserve it, let a driver that runs CNI plugins and publishes a bandwidth serve multus, "
            f"in place of Multus: {options.driver_option}",
        )
    facts = snapshot.facts.get(profile.driver, {}).get(DeviceKind.NIC)
    if facts is None or not facts.bandwidth or not facts.shared:
        return _not_reserved(network, f"{profile.driver} publishes no bandwidth that claims share")
    definition = snapshot.networks.get((network.namespace, network.name))
    if definition is None:
        return _not_reserved(
            network,
            f"NetworkAttachmentDefinition {printable(network.namespace)}/{printable(network.name)} is "
            "not known",
        )
    plugins = _plugins(definition.config)
    if not plugins:
        return _not_reserved(network, "its definition has no CNI configuration in JSON")
    if plugins[0].get("type") in _VIRTUAL_FUNCTIONS:
        return _not_reserved(network, "its virtual function is requested by a resource name")
    master = plugins[0].get("master")
    return Attachment(
        name=network.name,
        namespace=network.namespace,
        interface=network.interface,
        master=master if isinstance(master, str) else "",
        bandwidth=network.bandwidth,
        config=_with_limits(network, definition.config, plugins),
    )


def _not_reserved(network: RequestedNetwork, reason: str, fix: str = "") -> Finding:
    return info(
        Code.BANDWIDTH_NOT_RESERVED,
        annotation_path(NETWORKS),
        f"Multus limits network {printable(network.name)} to its bandwidth, and nothing reserves it on "
        f"an interface of the node: {reason}",
        fix,
    )


def _decoded(definition: str) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(definition)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _plugins(definition: str) -> Sequence[Mapping[str, Any]]:
    """Return the plugins of a definition, a list of them or one; none if it is faulty."""
    value = _decoded(definition)
    plugins = value.get("plugins", [value])
    if not isinstance(plugins, list) or not all(
        isinstance(plugin, dict) and isinstance(plugin.get("type"), str) for plugin in plugins
    ):
        return ()
    return plugins


def _with_limits(
    network: RequestedNetwork, definition: str, plugins: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the list of plugins with the rates that Multus would pass to them when it runs them."""
    value = _decoded(definition)
    head = {"cniVersion": value.get("cniVersion", "1.0.0"), "name": value.get("name", network.name)}
    own = [
        {name: field for name, field in plugin.items() if name not in {"cniVersion", "name"}}
        for plugin in plugins
        if plugin["type"] != "bandwidth"
    ]
    return {**head, "plugins": [*own, {"type": "bandwidth", **network.limits}]}
