"""The cluster that the examples are shown against, as nodes to make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from e2e import inventory

Object = dict[str, Any]

EXAMPLES: Final = Path(__file__).parent.parent / "examples"

PLUGIN_NODE: Final = "plugin-0"
PLUGIN_LABEL: Final = {"nvidia.com/gpu.deploy.device-plugin": "true"}
"""The labels that the NVIDIA operator puts on nodes that its device plugin serves."""


def examples_fleet(
    spare_nodes: int = 0,
) -> tuple[list[Object], list[Object], dict[str, list[Object]]]:
    """Return classes, nodes, and the slices of each node by name.

    To the recorded state of the examples come hami-2, whose four GPUs leave room for all examples
    at once, and plugin-0, which a device plugin serves.

    Args:
        spare_nodes: The number of further nodes with four GPUs and without DaemonSets.
    """
    recorded = _recorded("cluster")
    classes, nodes = recorded["DeviceClass"], recorded["Node"]
    slices: dict[str, list[Object]] = {}
    for published in recorded["ResourceSlice"]:
        slices.setdefault(published["spec"]["nodeName"], []).append(published)
    slices["hami-2"] = inventory.hami_gpus("hami-2", gpus=4, model=inventory.A100_80GB)
    spare = [f"spare-{number}" for number in range(spare_nodes)]
    for name in spare:
        slices[name] = inventory.hami_gpus(name, gpus=4, model=inventory.A100_80GB)
    own = [_hami_node("hami-2"), _plugin_node(), *map(inventory.kwok_node, spare)]
    return classes, [*nodes, *own], slices


class ExampleState(NamedTuple):
    """The cluster that the examples of one folder are shown against.

    Attributes:
        objects: DeviceClasses, policies and DeviceQuotas.
        nodes: Simulated ones, with the names, labels, taints and amounts of the recorded ones.
        slices: The slices by node.
        claims: Allocated ones, with their status.
        namespaces: The namespaces of the claims and of the manifests in the folder, with their labels.
    """

    objects: list[Object]
    nodes: list[Object]
    slices: dict[str, list[Object]]
    claims: list[Object]
    namespaces: Mapping[str, Mapping[str, str]]


def example_state(folder: str) -> ExampleState:
    """Return the state in the files cluster.yaml, policy.yaml and held.yaml of a folder.

    Raises:
        LookupError: There is no such folder with a cluster.
    """
    if not (EXAMPLES / folder / "cluster.yaml").is_file():
        names = sorted(path.parent.name for path in EXAMPLES.glob("*/cluster.yaml"))
        raise LookupError(f"no example cluster {folder!r}; there are {', '.join(names)}")
    files = [EXAMPLES / folder / name for name in ("cluster.yaml", "policy.yaml", "held.yaml")]
    recorded = [
        document
        for file in files
        if file.is_file()
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    ]
    by_kind: dict[str, list[Object]] = {}
    for document in recorded:
        by_kind.setdefault(document["kind"], []).append(document)
    slices: dict[str, list[Object]] = {}
    for published in by_kind.get("ResourceSlice", ()):
        slices.setdefault(published["spec"]["nodeName"], []).append(published)
    manifests = [
        document
        for file in (EXAMPLES / folder).glob("*.yaml")
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    ]
    labels_by_namespace = {
        namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
        for namespace in by_kind.get("Namespace", ())
    }
    namespaces = {manifest["metadata"].get("namespace") for manifest in manifests}
    namespaces |= labels_by_namespace.keys()
    return ExampleState(
        objects=[
            *by_kind.get("DeviceClass", ()),
            *by_kind.get("DeviceCompatibilityPolicy", ()),
            *by_kind.get("DeviceQuota", ()),
        ],
        nodes=[_simulated(node) for node in by_kind["Node"]],
        slices=slices,
        claims=by_kind.get("ResourceClaim", []),
        namespaces={
            name: labels_by_namespace.get(name, {})
            for name in sorted(namespaces - {None, "default"})
        },
    )


def _simulated(recorded: Object) -> Object:
    node = inventory.kwok_node(recorded["metadata"]["name"])
    node["metadata"]["labels"].update(recorded["metadata"].get("labels") or {})
    if taints := (recorded.get("spec") or {}).get("taints"):
        node["spec"] = {"taints": taints}
    amounts = (recorded.get("status") or {}).get("allocatable") or {}
    room = node["status"]["allocatable"] | amounts
    return {**node, "status": {"capacity": room, "allocatable": room}}


def sharing_node() -> tuple[Object, list[Object]]:
    """Return the one node of examples/gpu-shared with its slices; its driver hands out shares."""
    recorded = _recorded("gpu-shared")
    (node,) = recorded["Node"]
    return node, recorded["ResourceSlice"]


def nic_nodes() -> tuple[list[Object], list[Object], dict[str, list[Object]]]:
    """Return classes, nodes, and the slices of each node by name, of examples/nics."""
    return _nodes_of("nics")


def accelerator_nodes() -> tuple[list[Object], list[Object], dict[str, list[Object]]]:
    """Return classes, nodes, and the slices of each node by name, of examples/accelerators."""
    return _nodes_of("accelerators")


def nodes_of_koordinator() -> tuple[list[Object], list[Object], dict[str, list[Object]]]:
    """Return classes, nodes and slices by node of examples/koordinator, and of a node besides.

    On apart-0 the NIC is under another PCIe root than the two GPUs.
    """
    classes, recorded, slices = _nodes_of("koordinator")
    (nics,) = inventory.dranet_nics("apart-0", nics=2, per_root=1)
    del nics["spec"]["devices"][0]
    slices["apart-0"] = [*inventory.hami_gpus("apart-0", gpus=2), nics]
    # The fleet has a node of its own that is called hami-0.
    nodes = [node for node in recorded if node["metadata"]["name"] != "hami-0"]
    return classes, [*nodes, inventory.kwok_node("apart-0")], slices


def _nodes_of(folder: str) -> tuple[list[Object], list[Object], dict[str, list[Object]]]:
    recorded = _recorded(folder)
    slices: dict[str, list[Object]] = {}
    for published in recorded["ResourceSlice"]:
        slices.setdefault(published["spec"]["nodeName"], []).append(published)
    return recorded["DeviceClass"], recorded["Node"], slices


def _recorded(folder: str) -> dict[str, list[Object]]:
    """The objects of a recorded state, by kind."""
    by_kind: dict[str, list[Object]] = {}
    for document in yaml.load_all(
        (EXAMPLES / folder / "cluster.yaml").read_text(), Loader=yaml.CSafeLoader
    ):
        by_kind.setdefault(document["kind"], []).append(document)
    return by_kind


def _hami_node(name: str) -> Object:
    node = inventory.kwok_node(name)
    node["metadata"]["labels"]["gpu"] = "on"
    return node


def _plugin_node() -> Object:
    node = inventory.kwok_node(PLUGIN_NODE)
    node["metadata"]["labels"].update(PLUGIN_LABEL)
    # Its kubelet would tell what the device plugin registered.
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts["nvidia.com/gpu"] = "8"
    return node


def translation_profile(driver: str, **resources: Object) -> Object:
    """Return the DeviceTranslationProfile of the example for a driver, with more resources."""
    document: Object = yaml.load(
        (EXAMPLES / "profile/profile.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    document["metadata"]["name"] = document["spec"]["driver"] = driver
    document["spec"]["devices"]["device"]["resources"] |= resources
    return document
