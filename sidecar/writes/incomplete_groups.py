"""Takes back the commits of groups that a process before this one began and did not end.

Called before the first answer, so no pod is being bound by the scheduler beside us. A commit that was
complete stays as it is: the scheduler binds its pods with the devices that they have.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from allocator.pods.claims import Name
from kube.api.core import Pod
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from kube.logs import get_logger
from sidecar.commit.group_steps import MemberClaims, TakeBack, incomplete_commit
from sidecar.commit.writes import consumers
from sidecar.plan.group_claims import (
    entries_by_claim,
    is_group_entry,
    pod_entry,
    recorded_claim_names,
)
from sidecar.state.group_members import has_ended, is_placed
from sidecar.state.state import ClusterState
from sidecar.writes.binder import Binder

BINDING_LAG_S: Final = 1.0
"""The time for Bindings of the scheduler before to arrive: what is incomplete then was not being bound."""
MAX_ROUNDS: Final = 10
"""Attempts, `BINDING_LAG_S` apart; what cannot be taken back by then waits for its pods, as of a single pod."""

log = get_logger()


async def take_back_incomplete(
    state: ClusterState, binder: Binder, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Take back each incomplete commit of a group.

    Args:
        sleep: Waits for so many seconds.
    """
    before = find_incomplete(state)
    for _ in range(MAX_ROUNDS):
        if not before:
            return
        await sleep(BINDING_LAG_S)
        present = find_incomplete(state)
        async with asyncio.TaskGroup() as group:
            for uid, take_back in present.items():
                if before.get(uid) == take_back:
                    group.create_task(_take_back(binder, take_back))
        before = find_incomplete(state)


async def _take_back(binder: Binder, take_back: TakeBack) -> None:
    is_done = await binder.take_back(take_back, frozenset)
    log.info("claim.taken_back", claim="/".join(take_back.name), done=is_done)


def find_incomplete(state: ClusterState) -> Mapping[str, TakeBack]:
    """Return UIDs of the claims that incomplete commits of groups have allocated.

    Only devices that may be given are taken back. A group whose minimum is not known is left as it is.
    """
    take_backs: dict[str, TakeBack] = {}
    for group in state.groups.names:
        min_count = state.groups.min_count(group)
        if min_count is not None:
            members = _members(state, group)
            for take_back in incomplete_commit(min_count, members, _gone(state, members)):
                claim = state.claims.store.get(take_back.name)
                if claim is not None and state.owns(claim):
                    take_backs[take_back.uid] = take_back
    return take_backs


def _gone(state: ClusterState, members: Sequence[MemberClaims]) -> frozenset[str]:
    """Return UIDs of the pods that claims of a group are reserved for and that do not exist."""
    return frozenset(
        user.uid
        for member in members
        for claim, _ in member.claims
        if claim is not None
        for user in consumers(claim)
        if not is_group_entry(user) and user.uid not in state.consumers.pods
    )


def _members(state: ClusterState, group: Name) -> tuple[MemberClaims, ...]:
    return tuple(
        MemberClaims(
            uid=uid,
            is_bound=is_placed(pod),
            claims=_claims(state, pod),
        )
        for uid, pod in sorted(state.groups.members(group).items())
        if not has_ended(pod)
    )


def _claims(
    state: ClusterState, pod: Pod
) -> tuple[tuple[ResourceClaim | None, ResourceClaimConsumerReference], ...]:
    """Return the claims of a pod with its entries, None for each that does not exist or is not made yet."""
    entries = entries_by_claim(pod, state.groups.pod_group(pod))
    present = [(state.claims.store.get(name), entry) for name, entry in entries.items()]
    made_names = recorded_claim_names(pod).keys()
    own_entry = pod_entry(pod.metadata.name, pod.metadata.uid)
    to_be_made = [
        (None, own_entry)
        for claim in pod.spec.resource_claims or ()
        if not claim.resource_claim_name and claim.name not in made_names
    ]
    return (*present, *to_be_made)
