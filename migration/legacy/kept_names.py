"""The nodes with a name that `translation.keep` leaves in pods, running ones or later ones, and that a switch takes away. Pure.

The leaving device plugin offers the name as well, or another system hands out shares of the same GPUs under it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from findings.text import join_names
from kube.api.core import Node
from kube.quantity import ZERO
from migration.cluster.evidence import mapping_at
from migration.cluster.node_devices import NodeDevices, Source
from migration.cluster.workloads import Workload
from migration.legacy.other_plugins import names_of_other_plugins
from migration.legacy.plugin_vendors import NVIDIA, resource_driver, resource_vendor
from migration.legacy.remaining import pods_or_template, requested_names
from translation.cluster.snapshot import TranslationOptions
from translation.reading.arbiter import is_nic
from translation.vocabularies.nvidia import DISCOVERY_PREFIX, SHARED
from translation.vocabularies.rdma import POOL_PREFIX

_PREFIXES_OF_SHARES: Final = {"aliyun.com/": "aliyun", "koordinator.sh/": "koordinator"}
"""The prefixes of names under which another system hands out shares of NVIDIA's GPUs, to their vocabulary."""
_NIC_WORDS: Final = ("rdma", "sriov", "nic", "roce", "hca", "infiniband")
_LEAVES: Final = (
    "running pods there have {}, which translation.keep leaves in pods, and a switch takes away the legacy system that serves "
    "it: their next ones would wait"
)
_SHARED_GPUS: Final = (
    "running pods there have {}, which translation.keep leaves in pods, and the system behind that would hand out shares of "
    "the GPUs that a DRA driver gives others"
)
_LATER_LEAVE: Final = (
    "pods that {} later will have {}, which translation.keep leaves in pods, and a switch takes away the legacy system that "
    "serves it, on no node that stays: they would wait"
)
_LATER_SHARED: Final = (
    "pods that {} later will have {}, which translation.keep leaves in pods, and the system behind that would hand out shares "
    "of the GPUs that a DRA driver gives others"
)
_DELETE_FIRST: Final = (
    "delete {}, or have the template request something else; then plan again from a new snapshot"
)
_OFFER_NONE: Final = "keep the system that offers {} from this node, or {}"
_MOVE_FIRST: Final = "move these pods to nodes that stay; then plan again from a new snapshot"


class NamesInUse(NamedTuple):
    """The kept names in use on a node, as the reason to leave it as it is, and the ways on."""

    reason: str
    fix: str


def find_names_in_use(
    devices: Sequence[NodeDevices],
    nodes: Sequence[Node],
    workloads: Sequence[Workload],
    options: TranslationOptions,
) -> dict[str, NamesInUse]:
    """Return the nodes with pods of a kept name of devices that their switch takes away, or that such pods may get later.

    Args:
        devices: The devices of the nodes that could be switched.
        nodes: The nodes of the cluster.
        workloads: Its workloads with their pods.
        options: The settings with the names that stay.
    """
    running = _running_names(workloads, options)
    used = frozenset[str]().union(*running.values())
    later = _later_names(workloads, options, used)
    if not running and not later:
        return {}
    offered = {
        node.metadata.name: {
            name for name, amount in (node.status.allocatable or {}).items() if amount > ZERO
        }
        for node in nodes
    }
    of_others = names_of_other_plugins(nodes, workloads, options.renamed_keys)
    not_offered = used.difference(*offered.values())
    switched = {entry.node for entry in devices}
    gone = {
        name
        for name in later
        if _is_share(name) or {node for node, own in offered.items() if name in own} <= switched
    }
    in_use: dict[str, NamesInUse] = {}
    for entry in devices:
        leaving = offered.get(entry.node, set()) - of_others
        if entry.source is not Source.DEVICE_PLUGIN:
            # HAMi's scheduler and Koordinator's count amounts that no kubelet offers.
            leaving |= not_offered
        drivers = _drivers(entry)
        names = [
            name
            for name in sorted(running.get(entry.node, ()))
            if _driver_of(name) in drivers and (_is_share(name) or name in leaving)
        ]
        if names:
            reason = _SHARED_GPUS if any(map(_is_share, names)) else _LEAVES
            in_use[entry.node] = NamesInUse(reason.format(join_names(names)), _fix(names))
            continue
        name = min((name for name in gone & leaving if _driver_of(name) in drivers), default=None)
        if name is not None:
            in_use[entry.node] = _used_later(name, later[name])
    return in_use


def _used_later(name: str, references: Sequence[str]) -> NamesInUse:
    """Return the reason to leave a node as it is for a name that these workloads start pods with."""
    starts = f"{join_names(references)} {'starts' if len(references) == 1 else 'start'}"
    fix = _DELETE_FIRST.format(join_names(references))
    if _is_share(name):
        return NamesInUse(_LATER_SHARED.format(starts, name), _OFFER_NONE.format(name, fix))
    return NamesInUse(_LATER_LEAVE.format(starts, name), fix)


def _drivers(devices: NodeDevices) -> frozenset[str]:
    """Return the DRA drivers of the vendors of a node's devices."""
    if devices.source is not Source.DEVICE_PLUGIN:
        return frozenset({NVIDIA})
    return frozenset(resource_driver(device.key) for device in devices.legacy)


def _driver_of(name: str) -> str:
    return NVIDIA if _is_share(name) else resource_driver(name)


def _running_names(
    workloads: Iterable[Workload], options: TranslationOptions
) -> Mapping[str, set[str]]:
    """Return node to the kept names of devices that its pods request."""
    running: dict[str, set[str]] = {}
    for source in (pod for workload in workloads for pod in workload.pods):
        names = [name for name in requested_names(source) if _is_kept_device(name, options)]
        if names:
            node = str(mapping_at(source.document, "spec").get("nodeName"))
            running.setdefault(node, set()).update(names)
    return running


def _later_names(
    workloads: Iterable[Workload], options: TranslationOptions, used: Collection[str]
) -> dict[str, list[str]]:
    """Return each kept name of devices that pods may get on further nodes to the workloads that start such pods.

    Where some run with a name, their nodes stay, and serve the next ones, too. Those with shares come to any node that offers
    these all the same.
    """
    later: dict[str, list[str]] = {}
    for workload in workloads:
        if workload.key.kind == "Pod":
            continue
        names = (name for source in pods_or_template(workload) for name in requested_names(source))
        for name in dict.fromkeys(names):
            is_open = name not in used or _is_share(name)
            if is_open and _is_kept_device(name, options):
                later.setdefault(name, []).append(workload.key.reference)
    return later


def _is_kept_device(name: str, options: TranslationOptions) -> bool:
    """Return True if a resource name stays, by itself or with its vocabulary, and is of no NIC as far as is known."""
    prefixes = tuple(start for start, entry in _PREFIXES_OF_SHARES.items() if entry in options.kept)
    if name not in options.kept and not name.startswith(prefixes):
        return False  # As most names.
    if _is_nic(name) or name in options.kept_nics or name in options.kept_replicas:
        return False
    return _is_share(name) or resource_vendor(name) is not None


def _is_share(name: str) -> bool:
    """Return True for the name of another system for shares of NVIDIA's GPUs."""
    return name.startswith(tuple(_PREFIXES_OF_SHARES))


def _is_nic(name: str) -> bool:
    return is_nic(name) or any(word in name for word in _NIC_WORDS)


def _fix(names: Sequence[str]) -> str:
    """Return the ways on for names in use: by their meaning, else by hand."""
    if any(map(_is_share, names)):
        return _MOVE_FIRST
    text = join_names(names)
    of_nics = _renaming({name: POOL_PREFIX + name.partition("/")[2] for name in names})
    stand = "stands" if len(names) == 1 else "stand"
    ways = [f"if {text} {stand} for NICs, set {of_nics} beside translation.keep"]
    if all(name.startswith(DISCOVERY_PREFIX) for name in names):
        of_replicas = _renaming(dict.fromkeys(names, SHARED))
        ways.append(f"if for GPUs or parts of them, {of_replicas}, so that the whole node stays")
    return "; ".join((*ways, f"else {_MOVE_FIRST}"))


def _renaming(meanings: Mapping[str, str]) -> str:
    """Return the setting that gives names a meaning."""
    entries = ", ".join(f"{name}: {meaning}" for name, meaning in meanings.items())
    return f"translation.renamedKeys: {{{entries}}}"
