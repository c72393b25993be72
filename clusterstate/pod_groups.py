"""The PodGroups of the cluster, as the routing of pods reads them."""

from typing import Final

import msgspec

from admission.group_routing import Groups
from allocator.declarations.pod_group import PodGroup, PodGroupSpec
from kube.api.meta import ObjectMeta, OwnerReference, decode
from kube.api.urls import POD_GROUPS
from kube.names import GROUP_SCHEDULER_ANNOTATION
from kube.runtime.informers import InformerFactory, unsynced_resources


class PodGroupCache:
    """Follows PodGroups, if the API server has them."""

    def __init__(self, informers: InformerFactory, *, adopts: bool) -> None:
        """Subscribe.

        Args:
            adopts: Whether gangs of other schedulers become PodGroups.
        """
        self._adopts = adopts
        self._stored: Final = informers.subscribe(POD_GROUPS, project_pod_group)

    def groups(self) -> Groups | None:
        """Return the known PodGroups; None before their first list."""
        is_served = self._stored.is_available
        if is_served and unsynced_resources([self._stored]):
            return None
        return Groups(
            by_name=self._stored.store if is_served else {},
            is_served=is_served,
            adopts=self._adopts,
        )


def project_pod_group(raw: bytes) -> PodGroup:
    """Project a PodGroup to the fields that decide about its pods."""
    group = decode(raw, PodGroup)
    metadata, spec = group.metadata, group.spec
    scheduler = (metadata.annotations or {}).get(GROUP_SCHEDULER_ANNOTATION)
    return PodGroup(
        metadata=ObjectMeta(
            name=metadata.name,
            annotations={GROUP_SCHEDULER_ANNOTATION: scheduler} if scheduler else None,
            owner_references=tuple(
                OwnerReference(uid=owner.uid) for owner in metadata.owner_references or ()
            )
            or None,
        ),
        spec=PodGroupSpec(
            scheduling_policy=msgspec.structs.replace(spec.scheduling_policy, basic=None)
            if spec.scheduling_policy is not None
            else None,
            resource_claims=spec.resource_claims,
            priority=spec.priority,
        ),
    )
