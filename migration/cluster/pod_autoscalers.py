"""The HorizontalPodAutoscalers of a cluster, by the workload that each scales. Pure."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at
from migration.cluster.owners import (
    OwnerKey,
    chain_of_owners,
    controller,
    owner_key,
    owners_by_key,
)

_KIND: Final = "HorizontalPodAutoscaler"
_GROUP: Final = "autoscaling/"
_FROM_ZERO: Final = "ScaledObject/"
"""The beginning of the owners that scale a workload without pods to one, where an autoscaler leaves it alone.

Source: kedacore/keda pkg/scaling/executor/scale_scaledobjects.go (scaleFromZeroOrIdle)."""


class Autoscaler(NamedTuple):
    """A HorizontalPodAutoscaler.

    Attributes:
        reference: `HorizontalPodAutoscaler/namespace/name`.
        most: Its maxReplicas.
        owner: The object, as `Kind/namespace/name`, whose controller sets its bounds again, as an InferenceService of KServe or a
            ScaledObject of KEDA; empty without one.
    """

    reference: str
    most: int
    owner: str = ""

    @property
    def place(self) -> str:
        """Return the place to change its bounds, as ` in` an owner; empty if that is itself."""
        return f" in {self.owner}, which sets it" if self.owner else ""

    @property
    def scales_from_zero(self) -> bool:
        """Return True if its owner, a ScaledObject of KEDA, starts the first pod of a workload without any."""
        return self.owner.startswith(_FROM_ZERO)


def find_autoscalers(
    objects: Iterable[SourceObject], workloads: Collection[str], namespace: str
) -> dict[str, Autoscaler]:
    """Return workload, as `Kind/namespace/name`, to the autoscaler of it, or of an object below it.

    Args:
        objects: The cluster's objects.
        workloads: The workloads.
        namespace: The namespace for objects that name none.
    """
    objects = tuple(objects)
    sources = [
        source
        for source in objects
        if source.kind == _KIND and source.api_version.startswith(_GROUP)
    ]
    by_key = owners_by_key(objects, namespace) if sources else {}
    autoscalers: dict[str, Autoscaler] = {}
    for source in sources:
        spec = mapping_at(source.document, "spec")
        target = mapping_at(spec, "scaleTargetRef")
        kind, name, most = target.get("kind"), target.get("name"), spec.get("maxReplicas")
        if not (isinstance(kind, str) and isinstance(name, str) and isinstance(most, int)):
            continue
        place = source.namespace or namespace
        key = OwnerKey(kind=kind, namespace=place, name=name)
        key = owner_key(str(target.get("apiVersion") or ""), key, by_key)
        chain = chain_of_owners(key, by_key)
        own = next((owner.reference for owner in chain if owner.reference in workloads), "")
        if own:
            owner = controller(source)
            setting = OwnerKey(kind=owner[0], namespace=place, name=owner[1]) if owner else None
            autoscalers[own] = Autoscaler(
                f"{_KIND}/{place}/{source.name}", most, setting.reference if setting else ""
            )
    return autoscalers
