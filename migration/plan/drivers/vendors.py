"""The labels that take nodes of each vendor's system to DRA, and the preparations. Pure.

A DRA driver must not share a node with the device plugin of the same devices, so the plugin leaves a
node when the driver comes, and both follow labels.

Sources: NVIDIA/gpu-operator docs 26.7 (ClusterPolicy and GPUCluster exclude each other), v26.7.0
controllers/state_manager.go (`gpu.deploy.operands=false` takes the GPU driver, the container toolkit and GPU
feature discovery from a node, too; pull request 2575, which kept the driver, is in no release), issues 2288 (the
label of one operand may be set back) and 2550 (the validator waits); Project-HAMi/HAMi charts/hami
(`gpu=on` chooses nodes); kubernetes-sigs/dra-driver-nvidia-gpu deployments/helm (a node selector chooses
nodes).
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from findings.text import join_names, printable
from kube.manifests.source import SourceObject
from kube.names import GROUP
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.cluster.node_devices import SHARING, Source, read_replicas
from migration.legacy.plugin_vendors import HAMI_LABEL, NVIDIA, container_images
from migration.plan.model.plan import Wave

HAMI_DRIVER: Final = "hami-core-gpu.project-hami.io"
KOORDLET: Final = "koordlet"
COMPANIONS: Final = {NVIDIA: ("compute-domain.nvidia.com",)}
"""DRA driver to those that run in the same pods, and leave a node with it. Source: kubernetes-sigs/dra-driver-nvidia-gpu
deployments/helm."""
CHART_CLASSES: Final = {f"mig.gpu.{GROUP}": f"gpu.{GROUP}", "mig.nvidia.com": NVIDIA}
"""DeviceClass that comes with a driver to the driver, where its name is another one. Source: as above; manifests/driver."""
_UNMAP_PATCH: Final = '[{"op": "remove", "path": "/spec/extendedResourceName"}]'
NVIDIA_LABEL: Final = "nvidia.com/dra-kubelet-plugin"
DRIVER_LABEL: Final = f"{GROUP}/dra-driver"
_OWN_LABELS: Final = {NVIDIA: (NVIDIA_LABEL, "true"), f"gpu.{GROUP}": (f"{GROUP}/driver", "true")}
DRIVER_KEYS: Final = frozenset({DRIVER_LABEL, *(key for key, _ in _OWN_LABELS.values())})
"""The keys of the labels that choose the nodes of DRA drivers."""
OPERATOR_PREFIX: Final = "nvidia.com/gpu.deploy."
DEVICE_PLUGIN: Final = f"{OPERATOR_PREFIX}device-plugin"
"""The label of one operand. That of all operands would take the GPU driver from the node."""
OPERANDS: Final = f"{OPERATOR_PREFIX}operands"
"""The label of all operands: with `false` the Operator runs none on the node, and deletes their labels."""
GPU_PRESENT: Final = {"nvidia.com/gpu.present": "true"}
"""A label of nodes with NVIDIA's GPUs, set by GPU feature discovery and the GPU Operator."""

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?(?:-[0-9A-Za-z.-]{1,20})?")
SEPARATE_DRIVERS: Final = (
    "if no pod uses the devices of one of them on this node, keep their device plugin away from it; else install these drivers "
    "and switch the node by hand; then plan again from a new snapshot"
)
LEAVE_POOL: Final = "take the node out of the pool of tensor-fusion once no pod of it uses the GPUs; then plan again from a new snapshot"
_TENSOR_FUSION: Final = "tensor-fusion.ai/"
"""The prefix of the labels and taints of tensor-fusion. Source: NexusGPU/tensor-fusion pkg/constants, with the label of
the pod that shares a node's GPUs."""
_IN_POOL: Final = "tensor-fusion shares its GPUs ({}), and would go on beside a DRA driver: no script takes it from a node"
UNKNOWN_VERSION: Final = "unknown"
_MAX_TEXT: Final = 63
COLOCATION_LABEL: Final = f"{GROUP}/registers-devices"
"""The label of the pods of a koordlet that registers no devices, `false`: no snapshot has the feature gates that say so."""


def tensor_fusion_nodes(objects: Iterable[SourceObject]) -> dict[str, str]:
    """Return the nodes with GPUs that tensor-fusion shares, each with the reason to hold it.

    Args:
        objects: The cluster's objects.
    """
    signs: dict[str, str] = {}
    for source in objects:
        labels = text_map(source.document, "metadata", "labels")
        if (source.api_version, source.kind) == ("v1", "Node"):
            taints = (mapping_at(taint) for taint in list_at(source.document, "spec", "taints"))
            keys = [key for key, value in sorted(labels.items()) if value != "false"]
            keys += [str(taint.get("key", "")) for taint in taints]
            own = [key for key in keys if key.startswith(_TENSOR_FUSION)]
            signs.update({source.name: own[0]} if own else {})
        elif source.kind == "Pod" and labels.get(f"{_TENSOR_FUSION}component") == "hypervisor":
            node = mapping_at(source.document, "spec").get("nodeName")
            name = f"Pod/{source.namespace or 'default'}/{source.name}"
            signs.setdefault(node if isinstance(node, str) else "", name)
    return {name: _IN_POOL.format(printable(sign)) for name, sign in signs.items()}


def unmap_command(name: str) -> str:
    """Return the command that takes the resource name from a DeviceClass."""
    patch = f"--patch={_UNMAP_PATCH}"
    return shlex.join(("kubectl", "patch", "deviceclass", printable(name), "--type=json", patch))


def driver_label(driver: str) -> tuple[str, str]:
    """Return the node label, with its value, that has to choose the nodes of a driver's DaemonSet.

    Each driver has a value of its own, since two drivers may publish the same GPUs. Drawbridge's own has
    the label of manifests/driver.

    >>> driver_label("gpu.nvidia.com")
    ('nvidia.com/dra-kubelet-plugin', 'true')
    >>> driver_label("gpu.example.com")
    ('drawbridge.internal/dra-driver', 'gpu.example.com')
    """
    return _OWN_LABELS.get(driver, (DRIVER_LABEL, driver[:_MAX_TEXT]))


def contested_label(drivers: Collection[str]) -> str:
    """Explain that one node label would have to choose several drivers of a node; empty if each has its own key.

    A label has one value, so only one of these drivers would come, and the node would stay drained.
    """
    drivers_of: dict[str, list[str]] = {}
    for driver in sorted(drivers):
        drivers_of.setdefault(driver_label(driver)[0], []).append(driver)
    for key, names in drivers_of.items():
        if len(names) > 1:
            return (
                f"the DRA drivers {join_names(names)} would take its devices over, and all of them are chosen by the node label "
                f"{key}, which has one value: only one of them would come"
            )
    return ""


def is_operator_version(text: str) -> bool:
    """Return True if a text is a version of the GPU Operator, such as `v26.3.1`."""
    return _VERSION.fullmatch(text) is not None


def propose_gpu_operators(objects: Iterable[SourceObject]) -> dict[str, str]:
    """Return Deployment, as `Kind/namespace/name`, to the version of the GPU Operator that it shows.

    Whoever may write a Deployment in a namespace can write such a one, so a person confirms it. The
    version is `unknown` where it shows none.
    """
    versions = {}
    for source in objects:
        labels = text_map(source.document, "metadata", "labels")
        is_named = source.name == "gpu-operator" or labels.get("app.kubernetes.io/name") == (
            "gpu-operator"
        )
        if source.kind == "Deployment" and is_named:
            texts = [labels.get("app.kubernetes.io/version", ""), *_image_tags(source)]
            version = next(filter(is_operator_version, texts), UNKNOWN_VERSION)
            versions[f"Deployment/{source.namespace or 'default'}/{source.name}"] = version
    return dict(sorted(versions.items()))


def switch_labels(
    labels: Mapping[str, str], source: Source, drivers: Iterable[str], operator: str
) -> dict[str, str]:
    """Return the labels that take a node's devices from its legacy system to DRA drivers.

    Args:
        labels: The labels of the node.
        source: The legacy system.
        drivers: The drivers that will publish its devices.
        operator: Version of NVIDIA's GPU Operator; empty without one.
    """
    names = sorted(drivers)
    switched = dict(driver_label(driver) for driver in names)
    if source is Source.HAMI:
        switched[HAMI_LABEL] = "off"
    if _has_operator(labels, source, names, operator):
        switched[DEVICE_PLUGIN] = "false"
    return switched


def node_notes(
    labels: Mapping[str, str], source: Source, drivers: Iterable[str], operator: str
) -> Iterator[str]:
    """Yield notes for a person before a node is switched; arguments as in `switch_labels`."""
    if _has_operator(labels, source, drivers, operator):
        yield (
            f"GPU Operator {operator or 'of an unknown version'}: it may set {DEVICE_PLUGIN} back to true "
            "when a node rejoins (gpu-operator issue 2288), and its validator waits for GPUs that the "
            "plugin no longer offers (issue 2550), which blocks no pod; look at both after the switch"
        )
    replicas = read_replicas(labels)
    if source is Source.DEVICE_PLUGIN and NVIDIA in drivers and replicas > 1:
        yield (
            f"the device plugin offers each GPU {replicas} times ({SHARING} is {labels.get(SHARING) or 'not set'}): "
            "pods that had a part of one there get a whole one, and fewer run"
        )


def hami_notes(wave: Wave, earlier: Iterable[Wave], hami_nodes: Collection[str]) -> Iterator[str]:
    """Yield a note on the rest of HAMi after a wave with nodes of it.

    Args:
        wave: The wave.
        earlier: The waves before it.
        hami_nodes: The nodes of HAMi today.
    """
    if not any(node.source == Source.HAMI for node in wave.nodes):
        return
    switched = {node.name for entry in (*earlier, wave) for node in entry.nodes}
    text = "HAMi's device plugin runs where gpu=on; "
    if switched.issuperset(hami_nodes):
        yield (
            f"{text}no node has it after this wave, so its scheduler has no device to hand out: keep HAMi until no rollback "
            "will follow"
        )
    else:
        yield f"{text}its scheduler goes on for the other nodes"


def _has_operator(
    labels: Mapping[str, str], source: Source, drivers: Iterable[str], operator: str
) -> bool:
    """Return True if the GPU Operator decides on the device plugin of a node."""
    if labels.get(OPERANDS) == "false":
        return False
    if any(label.startswith(OPERATOR_PREFIX) for label in labels):
        return True
    return bool(operator) and source is Source.DEVICE_PLUGIN and NVIDIA in drivers


def _image_tags(source: SourceObject) -> Iterator[str]:
    for container in list_at(source.document, "spec", "template", "spec", "containers"):
        image = mapping_at(container).get("image")
        if isinstance(image, str):
            yield image.partition("@")[0].rpartition(":")[2]


def is_koordlet(source: SourceObject) -> bool:
    """Return True if a DaemonSet is Koordinator's agent, by its name or an image."""
    return any(KOORDLET in text for text in (source.name, *container_images(source)))


def registers_devices(source: SourceObject) -> bool:
    """Return True unless a DaemonSet of koordlet says by a label of its pods that it registers no devices."""
    labels = text_map(source.document, "spec", "template", "metadata", "labels")
    return labels.get(COLOCATION_LABEL) != "false"


def is_managed(source: SourceObject) -> bool:
    """Return True if a cloud's own manager puts a DaemonSet back as it was: GKE's, or that of AKS."""
    labels = text_map(source.document, "metadata", "labels")
    is_of_gke = labels.get("addonmanager.kubernetes.io/mode") == "Reconcile"
    return is_of_gke or labels.get("kubernetes.azure.com/managedby") == "aks"
