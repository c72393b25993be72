"""The components of others in a cluster, such as Kueue and Karpenter, with their releases. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from answers.manifests.pod_checks import QUEUE_NAME
from kube.manifests.source import SourceObject
from migration.cluster.evidence import KUEUE_IMAGE, deployed_release
from translation.cluster.component_statements import Component

_KARPENTER_LABEL: Final = "karpenter.sh/"
_KUEUE_GROUP: Final = "kueue.x-k8s.io/"
_DEPLOYMENTS: Final = {
    "karpenter": Component.KARPENTER,
    "kueue-controller-manager": Component.KUEUE,
}


def present_components(objects: Sequence[SourceObject]) -> dict[Component, int | None]:
    """Return the components seen by labels, kinds and Deployments, to their minor release; None for all but Kueue."""
    present = {Component.KUBERNETES}
    for source in objects:
        metadata = source.document.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        names = labels if isinstance(labels, Mapping) else {}
        if source.kind == "Deployment" and source.name in _DEPLOYMENTS:
            present.add(_DEPLOYMENTS[source.name])
        if QUEUE_NAME in names or source.api_version.startswith(_KUEUE_GROUP):
            present.add(Component.KUEUE)
        if source.kind == "Node" and any(
            isinstance(name, str) and name.startswith(_KARPENTER_LABEL) for name in names
        ):
            present.add(Component.KARPENTER)
    release = deployed_release(objects, KUEUE_IMAGE)
    return {name: release if name is Component.KUEUE else None for name in present}
