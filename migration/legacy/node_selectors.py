"""Workloads with a node selector or required node affinity for a label of nodes, device plugins apart. Pure."""

from collections.abc import Iterable
from typing import Final

from answers.model.views import decode_view
from kube.api.core import Pod, PodSpec
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.evidence import controller_kind, mapping_at
from migration.legacy.plugin_vendors import is_plugin
from rules.model.formats import is_dns_subdomain
from translation.model.required_labels import required_labels

_PLUGIN: Final = "device-plugin"
"""Part of the name of a device plugin's DaemonSet, such as HAMi's."""


def selecting_workloads(objects: Iterable[SourceObject], label: str) -> tuple[str, ...]:
    """Return the workloads that select nodes by a label, as `Kind/namespace/name`; no device plugins."""
    return tuple(
        sorted(
            f"{source.kind}/{source.namespace or 'default'}/{source.name}"
            for source in objects
            if is_dns_subdomain(source.name)
            and (spec := selecting_spec(source)) is not None
            and any(entry.key == label for entry in required_labels(spec))
        )
    )


def selecting_spec(source: SourceObject) -> PodSpec | None:
    """Return the spec of a workload's pods if it selects nodes; None for others, device plugins and owned objects."""
    path = pod_path(source.api_version, source.kind)
    if not path or controller_kind(source.document) or source.kind == "PodTemplate":
        return None
    if source.kind == DAEMON_SET and (is_plugin(source) or _PLUGIN in source.name):
        return None
    template = resolve_path(source.document, path)[1]
    # Most workloads select no nodes, and are not decoded for each wave.
    if not mapping_at(template, "spec", "nodeSelector") and not mapping_at(
        template, "spec", "affinity", "nodeAffinity"
    ):
        return None
    pod = decode_view(template, Pod)
    return pod.spec if isinstance(pod, Pod) else None
