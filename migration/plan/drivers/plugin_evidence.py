"""Evidence against a DaemonSet that looks like a device plugin. Pure.

Whoever may write DaemonSets in a namespace may give one the name, the images, the labels and the volumes of a device plugin.
Where Pod Security forbids directories of nodes it cannot work, though: no pod of it is admitted. Pod Security looks at pods
and not at templates, so a pod with such a directory is there only where an administrator allows that.

Source: kubernetes/pod-security-admission policy/check_hostPathVolumes.go (`baseline` forbids hostPath volumes);
kubernetes/api core/v1 well-known label `pod-security.kubernetes.io/enforce`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from answers.model.redaction import PLUGIN_DIRECTORIES
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
FORBIDDING: Final = frozenset({"baseline", "restricted"})
"""The levels of Pod Security that forbid directories of nodes."""
OF_ADMINISTRATORS: Final = {ENFORCE: "privileged"}
"""The label of namespaces whose pods may do anything on their nodes."""
NO_EVIDENCE: Final = "Pod Security of its namespace forbids the kubelet's device-plugins directory, and none of its pods mounts it"
EVIDENCE_FIX: Final = f"if it is one, give its namespace the label {ENFORCE}=privileged, see that its pods run, and plan again from a new snapshot"


class PluginEvidence:
    """Namespaces that are closed to device plugins, and DaemonSets with proven pods."""

    def __init__(self, objects: Iterable[SourceObject]) -> None:
        """Read the evidence of a cluster.

        Args:
            objects: The cluster's objects.
        """
        self._forbidding: set[str] = set()
        self._mounting: set[tuple[str, str]] = set()
        for source in objects:
            if (source.api_version, source.kind) == ("v1", "Namespace"):
                if text_map(source.document, "metadata", "labels").get(ENFORCE) in FORBIDDING:
                    self._forbidding.add(source.name)
            elif source.kind == "Pod" and _mounts_plugins(source.document):
                place = source.namespace or "default"
                self._mounting.add((place, daemon_set_of(source.document)))

    def supports(self, daemon_set: SourceObject) -> bool:
        """Return True if nothing says that a DaemonSet that looks like a device plugin is none."""
        namespace = daemon_set.namespace or "default"
        return namespace not in self._forbidding or (namespace, daemon_set.name) in self._mounting


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
