"""Events about claims, and their pods, that share a device with contradicting configurations.

An event names claims of its own namespace only.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from allocator.features.co_tenant_config import Contradiction, find_contradictions
from allocator.model.usage import Usage
from allocator.pods.claims import Name, consuming_pods
from kube.api.events import Event, ObjectReference
from kube.api.resource import ResourceClaim

REASON: Final = "ConflictingSharingConfig"
ACTION: Final = "Observe"
MAX_EVENTS: Final = 100
"""Events about one state of the cluster."""
MAX_NAMED: Final = 5
"""Claims of the same namespace in one note."""


def contradiction_events(
    usage: Usage, claims: Mapping[Name, ResourceClaim], drivers: Collection[str]
) -> Iterator[Event]:
    """Yield an event about each claim with a device that another claim configures differently.

    The pods that a claim is reserved for get the same event.

    Args:
        usage: Usage by allocated claims.
        claims: All claims.
        drivers: Drivers that reject contradicting sharing configurations.
    """
    for contradiction in find_contradictions(usage, drivers):
        names = dict.fromkeys(
            (consumer.namespace, consumer.claim) for consumer in contradiction.consumers
        )
        for name in names:
            claim = claims.get(name)
            if claim is None:
                continue
            note = _note(contradiction, name, names)
            own = ObjectReference.of("resource.k8s.io/v1", "ResourceClaim", claim.metadata)
            for regarding in (own, *consuming_pods(claim)):
                yield Event(regarding=regarding, reason=REASON, action=ACTION, note=note)


def _note(contradiction: Contradiction, own: Name, names: Collection[Name]) -> str:
    device = contradiction.device
    others = [name for namespace, name in names if namespace == own[0] and name != own[1]]
    parts = [f"claim {name}" for name in others[:MAX_NAMED]]
    if any(namespace != own[0] for namespace, _ in names):
        parts.append("a claim in another namespace")
    return (
        f"Device {device.device} of pool {device.pool} is shared with "
        f"{', '.join(parts) or 'another request'} under contradicting "
        f"{contradiction.kind or 'configuration'}s. Driver {device.driver} rejects a pod whose "
        "configuration differs from the first that it prepared."
    )
