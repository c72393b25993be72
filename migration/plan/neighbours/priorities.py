"""A note on pods with devices of different priorities, and on Drawbridge's scheduler bridge for these. Pure."""

from collections.abc import Iterable
from typing import Final

from answers.model.kubernetes_version import parse_version
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at
from migration.cluster.priorities import KEEP_FREE, find_rivals
from migration.plan.model.plan import Plan, is_name
from migration.upgrade.kubernetes import BRIDGE_VERSION

_BRIDGE: Final = (
    ", or let pods use Drawbridge's scheduler bridge, which evicts for devices (docs/bridge.md)"
)
_MAPPED: Final = "; it refuses pods that keep a name that a DeviceClass maps: with translation.native: translate they get claims"


def priority_note(plan: Plan, objects: Iterable[SourceObject], pods: Iterable[SourceObject]) -> str:
    """Return the note on pods that request devices of the plan's nodes, if some may evict others today; empty without such pods.

    Args:
        plan: The plan.
        objects: The cluster's objects, which may lack pods.
        pods: All pods.
    """
    keys = {key for wave in plan.waves for node in wave.nodes for key in node.resources}
    rivals = find_rivals(keys, objects, (pod for pod in pods if is_name(pod.name)))
    if rivals is None:
        return ""
    return f"{rivals.statement}: {KEEP_FREE}{_bridge(rivals.key, plan, objects)}"


def _bridge(key: str, plan: Plan, objects: Iterable[SourceObject]) -> str:
    """Return the words on the bridge; it has one version of Kubernetes, and takes no pods with mapped names."""
    if parse_version(plan.kubernetes_version) != BRIDGE_VERSION:
        return ""
    is_mapped = key in plan.mapped_classes or any(
        mapping_at(source.document, "spec").get("extendedResourceName") == key
        for source in objects
        if source.kind == "DeviceClass"
    )
    return f"{_BRIDGE}{_MAPPED if is_mapped else ''}"
