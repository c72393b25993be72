"""Evidence that a DaemonSet is the device plugin that it looks like: such that no tenant can write it. Pure.

Whoever may write DaemonSets in a namespace may give one the name, the images, the labels and the volumes of a device plugin.
Pod Security looks at pods and not at templates: a pod with a directory of its node exists only where an administrator
allows that.

Source: kubernetes/pod-security-admission policy/check_hostPathVolumes.go (`baseline` forbids hostPath volumes);
kubernetes/api core/v1 well-known label `pod-security.kubernetes.io/enforce`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from answers.model.redaction import PLUGIN_DIRECTORIES
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map

_SYSTEM: Final = "kube-system"
OF_ADMINISTRATORS: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""The label of namespaces whose pods may do anything on their nodes, so that only administrators write there."""
NO_EVIDENCE: Final = "none of its pods mounts the kubelet's device-plugins directory, and nothing says that only administrators write in its namespace"
EVIDENCE_FIX: Final = (
    "if it is one, see that its pods run, or, if only administrators write there, label its namespace "
    f"{'='.join(*OF_ADMINISTRATORS.items())}; then plan again from a new snapshot"
)


class PluginEvidence:
    """The namespaces of administrators, and the DaemonSets with pods that mount the kubelet's directory of device plugins."""

    def __init__(self, objects: Iterable[SourceObject]) -> None:
        """Read the evidence of a cluster.

        Args:
            objects: The cluster's objects.
        """
        self._namespaces = {_SYSTEM}
        self._mounting: set[tuple[str, str]] = set()
        for source in objects:
            if (source.api_version, source.kind) == ("v1", "Namespace"):
                labels = text_map(source.document, "metadata", "labels")
                if labels.items() >= OF_ADMINISTRATORS.items():
                    self._namespaces.add(source.name)
            elif source.kind == "Pod" and _mounts_plugins(source.document):
                place = source.namespace or "default"
                self._mounting.add((place, daemon_set_of(source.document)))

    def supports(self, daemon_set: SourceObject) -> bool:
        """Return True if a DaemonSet that looks like a device plugin is one."""
        namespace = daemon_set.namespace or "default"
        return namespace in self._namespaces or (namespace, daemon_set.name) in self._mounting


def daemon_set_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the DaemonSet that has created a pod; empty for other pods."""
    owners = map(mapping_at, list_at(pod, "metadata", "ownerReferences"))
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == DAEMON_SET), "")


def _mounts_plugins(pod: Mapping[str, Any]) -> bool:
    """Return True if a pod has the kubelet's directory of device plugins, or the one above it."""
    paths = (
        str(mapping_at(volume, "hostPath").get("path", "")).rstrip("/")
        for volume in list_at(pod, "spec", "volumes")
    )
    return any(path.endswith(PLUGIN_DIRECTORIES) for path in paths)
