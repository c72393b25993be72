"""The DaemonSets that wait for the label of a DRA driver's nodes: the driver's own, and others. Pure.

A DRA driver registers with the kubelet by a socket in its directory `plugins_registry`, so its DaemonSet
mounts that, or a directory above it. Monitoring and other agents may select the same nodes, and koordlet, which mounts
the directory of the kubelet, too.

Source: k8s.io/dynamic-resource-allocation/kubeletplugin, KubeletRegistryDir.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from answers.model.redaction import KUBELET_DIRECTORIES
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.plan.drivers.vendors import is_koordlet

_NAMED: Final = ("dra-driver", "dra-plugin", "kubelet-plugin")


class WaitingDaemonSets(NamedTuple):
    """The DaemonSets that require a label, as `namespace/name`.

    Attributes:
        drivers: The DaemonSets that register with the kubelet.
        named: The DaemonSets that do not register, by their volumes, but have a driver's
            name.
        others: The rest.
    """

    drivers: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def find_waiting(
    objects: Iterable[SourceObject], label: str, release_namespace: str = ""
) -> WaitingDaemonSets:
    """Return the DaemonSets that require a label of their nodes, by selector or by affinity.

    Args:
        label: The label as `key=value`.
        release_namespace: The namespace of the driver, where a person confirmed its release; empty for
            any.
    """
    drivers, lookalikes, others = [], [], []
    for source in sorted(objects, key=lambda source: (source.namespace or "", source.name)):
        if source.kind != DAEMON_SET or not _waits_for(source.document, label):
            continue
        namespace = source.namespace or "default"
        name = f"{namespace}/{source.name}"
        if release_namespace and namespace != release_namespace:
            others.append(name)
        elif registers_driver(source.document) and not is_koordlet(source):
            drivers.append(name)
        elif any(part in source.name for part in _NAMED):
            lookalikes.append(name)
        else:
            others.append(name)
    return WaitingDaemonSets(tuple(drivers), tuple(lookalikes), tuple(others))


def registers_driver(daemon_set: Mapping[str, Any]) -> bool:
    """Return True if pods mount the kubelet's directory for the registration of drivers."""
    paths = (
        str(mapping_at(volume, "hostPath").get("path", "")).rstrip("/")
        for volume in list_at(daemon_set, "spec", "template", "spec", "volumes")
    )
    return any(path.endswith(KUBELET_DIRECTORIES) for path in paths)


def _waits_for(daemon_set: Mapping[str, Any], label: str) -> bool:
    key, _, value = label.partition("=")
    pod = mapping_at(daemon_set, "spec", "template", "spec")
    if text_map(pod, "nodeSelector").get(key) == value:
        return True
    required = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return any(
        mapping_at(entry).get("key") == key and _takes(mapping_at(entry), value)
        for term in list_at(pod, "affinity", *required, "nodeSelectorTerms")
        for entry in list_at(term, "matchExpressions")
    )


def _takes(requirement: Mapping[str, Any], value: str) -> bool:
    operator = requirement.get("operator")
    return operator == "Exists" or (operator == "In" and value in list_at(requirement, "values"))
