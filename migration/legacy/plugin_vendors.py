"""The vendors of device plugins, by the names of these and by the resource names that they offer. Pure."""

from typing import Final, NamedTuple

from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at

HAMI_LABEL: Final = "gpu"
NVIDIA: Final = "gpu.nvidia.com"
TPU_DRIVER: Final = "tpu.google.com"
_FEATURE_TEXTS: Final = ("feature-discovery", "labeller")
"""Parts of the names and images of DaemonSets that only label nodes, and that the plugins' charts start from the same
image. Pods select nodes by these labels: they stay."""


class PluginVendor(NamedTuple):
    """The device plugins of a vendor.

    Attributes:
        driver: The DRA driver of the vendor for these devices.
        resources: The beginnings of the resource names that they offer.
        texts: Parts of the name or an image of their DaemonSet.
        cloud_label: The node label, as `key=value`, that keeps them away on GKE; empty where there is none.
    """

    driver: str
    resources: tuple[str, ...]
    texts: tuple[str, ...]
    cloud_label: str = ""


_VENDORS: Final = (
    PluginVendor(
        "gpu.amd.com",
        ("amd.com/",),
        ("amdgpu-device-plugin", "amd-gpu-device-plugin", "rocm/k8s-device-plugin"),
    ),
    PluginVendor("gpu.intel.com", ("intel.com/gpu", "gpu.intel.com/"), ("intel-gpu-plugin",)),
    PluginVendor("qat.intel.com", ("intel.com/qat", "qat.intel.com/"), ("intel-qat-plugin",)),
    PluginVendor(
        "gaudi.intel.com",
        ("habana.ai/", "intel.com/gaudi"),
        ("habanalabs-device-plugin", "habana-k8s-device-plugin", "docker-k8s-device-plugin"),
    ),
    PluginVendor("neuron.aws.com", ("aws.amazon.com/neuron",), ("neuron-device-plugin",)),
    PluginVendor(
        "npu.rebellions.ai",
        ("rebellions.ai/",),
        ("rbln-device-plugin", "rbln-k8s-device-plugin", "rebellions/k8s-device-plugin"),
    ),
    PluginVendor(
        TPU_DRIVER,
        ("google.com/tpu",),
        ("tpu-device-plugin",),
        "gke-no-default-tpu-device-plugin=true",
    ),
    # NICs, which stay where they are.
    PluginVendor("", ("vpc.amazonaws.com/",), ("efa-k8s-device-plugin",)),
    PluginVendor(
        NVIDIA,
        ("nvidia.com/",),
        ("k8s-device-plugin", "nvidia-device-plugin", "gpu-device-plugin"),
        "gke-no-default-nvidia-gpu-device-plugin=true",
    ),
)
"""The vendors with known device plugins. NVIDIA's come last: others have parts of their names.

Sources: ROCm/k8s-device-plugin k8s-ds-amdgpu-dp.yaml and k8s-ds-amdgpu-labeller.yaml; ROCm/gpu-operator;
intel/intel-device-plugins-for-kubernetes deployments; habana-k8s-device-plugin.yaml of Intel's Gaudi; AWS's
k8s-neuron-device-plugin.yml and efa-k8s-device-plugin.yml; rebellions-sw/rbln-k8s-device-plugin;
kubernetes-sigs/dra-driver-google-tpu (the label of GKE)."""


def plugin_vendor(source: SourceObject) -> PluginVendor | None:
    """Return the vendor of a device plugin's DaemonSet, by its name or an image; None for other DaemonSets."""
    texts = (source.name, *container_images(source))
    if any(part in text for part in _FEATURE_TEXTS for text in texts):
        return None
    return next(
        (
            vendor
            for vendor in _VENDORS
            if any(part in text for part in vendor.texts for text in texts)
        ),
        None,
    )


def resource_vendor(resource: str) -> PluginVendor | None:
    """Return the vendor of a resource name, by the device plugins that offer it; None if it is not known."""
    return next((vendor for vendor in _VENDORS if resource.startswith(vendor.resources)), None)


def resource_driver(resource: str) -> str:
    """Return the DRA driver of the vendor of a resource name; empty if it is not known."""
    vendor = resource_vendor(resource)
    return vendor.driver if vendor is not None else ""


def cloud_driver(label: str) -> str:
    """Return the DRA driver of the vendor with a label of a cloud, as `key=value`; empty for other labels."""
    return next((vendor.driver for vendor in _VENDORS if vendor.cloud_label == label), "")


def is_plugin(source: SourceObject) -> bool:
    """Return True if a DaemonSet is a device plugin of a known vendor."""
    return plugin_vendor(source) is not None


def container_images(source: SourceObject) -> list[str]:
    """Return the images of the containers of a DaemonSet."""
    containers = list_at(source.document, "spec", "template", "spec", "containers")
    return [str(mapping_at(container).get("image", "")) for container in containers]
