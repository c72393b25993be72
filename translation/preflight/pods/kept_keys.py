"""Pods with claims that keep other keys, since their device plugin goes on.

Kubernetes places such a pod on a node that has both: it counts the key, and allocates the claim there. No
constraint of a claim names a device of a plugin, and the kubelet's Topology Manager asks device plugins
for their NUMA nodes, not DRA drivers.

Source: k8s.io/kubernetes v1.37.1, pkg/kubelet/cm/container_manager_linux.go: the hint providers are the
device manager, the CPU manager and the memory manager.
"""

from collections.abc import Collection, Iterator

from findings.finding import Code, Finding, info
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.quantity import ZERO
from translation.reading.kept_keys import find_kept
from translation.reading.legacy_pod import containers

_MOST_KEYS = 5


def check_kept_keys(pod: Pod, kept_names: Collection[str]) -> Iterator[Finding]:
    """Yield a remark on the keys that a pod with claims keeps; at most one.

    Args:
        pod: A pod with devices of a DRA driver.
        kept_names: The vocabularies and resource names that stay.
    """
    paths = {
        key: path.child("resources", "limits").key(key)
        for path, container in containers(pod)
        for key in find_kept(container.limits, kept_names)
        if container.limits[key] > ZERO
    }
    if paths:
        keys = sorted(paths)
        verb = "stays with its device plugin" if len(keys) == 1 else "stay with their device plugin"
        yield info(
            Code.KEPT_BESIDE_CLAIMS,
            paths[keys[0]],
            f"{printable(join_names(keys, _MOST_KEYS))} {verb}: the pod gets both on one node, and "
            "nothing aligns them by PCIe root or NUMA node",
            "none needed unless the pod depends on that: then take the key out of translation.keep",
        )
