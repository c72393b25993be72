"""The state of a cluster without some of its pods, and the devices that become free. Pure.

Source: k8s.io/kubernetes v1.37.1, pkg/controller/resourceclaim: a claim without a consumer is
deallocated, and one that was made for a pod is deleted with it.
"""

from collections.abc import Iterable

import msgspec

from allocator.pods.claims import Name, allocation_of
from answers.model.cluster_state import ClusterState
from kube.api.resource import ResourceClaim


class RemovedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is left out of a simulation.

    Attributes:
        object: `Pod/namespace/name`.
        claims: `namespace/name` of the claims that nothing uses without it.
        devices: `driver/pool/device` of the devices and shares that these have.
    """

    object: str
    claims: tuple[str, ...]
    devices: tuple[str, ...]


def remove_pods(
    state: ClusterState, names: Iterable[Name]
) -> tuple[ClusterState, tuple[RemovedPod, ...]]:
    """Return the state without the named pods, and the claims each one frees; the pods must exist."""
    removed_pods: list[RemovedPod] = []
    for namespace, name in names:
        freed_claims = [
            claim
            for claim in state.claims.values()
            if claim.metadata.namespace == namespace and _consumers(claim) == {name}
        ]
        removed_pods.append(
            RemovedPod(
                object=f"Pod/{namespace}/{name}",
                claims=tuple(f"{namespace}/{claim.metadata.name}" for claim in freed_claims),
                devices=tuple(device for claim in freed_claims for device in _devices(claim)),
            )
        )
        state = _without(state, (namespace, name), freed_claims)
    return state, tuple(removed_pods)


def _without(
    state: ClusterState, name: Name, freed_claims: Iterable[ResourceClaim]
) -> ClusterState:
    claims = dict(state.claims)
    for key, claim in state.claims.items():
        if key[0] == name[0] and name[1] in _consumers(claim):
            claims[key] = _without_consumer(claim, name[1])
    for claim in freed_claims:
        key = (claim.metadata.namespace, claim.metadata.name)
        if _is_owned(claim, name[1]):
            del claims[key]
        else:
            claims[key] = msgspec.structs.replace(claim, status=None)
    pods = {key: pod for key, pod in state.pods.items() if key != name}
    return msgspec.structs.replace(state, pods=pods, claims=claims)


def _consumers(claim: ResourceClaim) -> set[str]:
    references = (claim.status.reserved_for or ()) if claim.status is not None else ()
    return {
        reference.name if reference.resource == "pods" else f"{reference.resource}/{reference.name}"
        for reference in references
    }


def _without_consumer(claim: ResourceClaim, pod: str) -> ResourceClaim:
    assert claim.status is not None  # It has a consumer.
    references = tuple(
        reference
        for reference in claim.status.reserved_for or ()
        if (reference.resource, reference.name) != ("pods", pod)
    )
    status = msgspec.structs.replace(claim.status, reserved_for=references)
    return msgspec.structs.replace(claim, status=status)


def _is_owned(claim: ResourceClaim, pod: str) -> bool:
    owners = claim.metadata.owner_references or ()
    return any((owner.kind, owner.name) == ("Pod", pod) for owner in owners)


def _devices(claim: ResourceClaim) -> list[str]:
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    return [f"{result.driver}/{result.pool}/{result.device}" for result in results]
