"""The checks before the claims of a group are written, and the writes to take back after a failure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.core import Node
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from sidecar.commit import steps, writes
from sidecar.commit.ledger import Hold, Ledger, Step
from sidecar.commit.steps import Candidate, ClaimWrite, ConsumedClaim
from sidecar.commit.writes import Consumer
from sidecar.model.rejections import Code, Rejection, unschedulable


class GroupPod(NamedTuple):
    """A pod of a group that is to be bound.

    Attributes:
        node: The node that was reserved for it; None once it does not exist any more.
    """

    uid: str
    node: Node | None
    claims: tuple[ConsumedClaim, ...]


class TakeBack(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was written for pods that are not bound.

    Attributes:
        uid: The claim's UID.
        pods: The pods to be taken out of it; a PodGroup's entry leaves with the last pod that uses it.
        deallocate: The group had it allocated, so that the devices are free if nobody else uses them.
    """

    name: Name
    uid: str
    pods: tuple[Consumer, ...]
    deallocate: bool


def rejections_of(
    members: Sequence[GroupPod],
    claims: Mapping[Name, ResourceClaim],
    holds: Ledger,
    drivers: frozenset[str],
) -> Mapping[str, Rejection]:
    """Return UIDs of the pods that cannot be bound now, with the reasons; nothing was written yet.

    Args:
        claims: The claims as they are now.
        holds: The promised devices.
        drivers: The drivers whose devices may be given now: the fence may have opened meanwhile.
    """
    rejections: dict[str, Rejection] = {}
    joining: dict[Name, set[str]] = {}
    for member in members:
        rejection = _node_rejection(member)
        for consumed in member.claims:
            claim, hold = claims.get(consumed.name), holds.get(consumed.uid)
            joining_uids = joining.setdefault(consumed.name, set())
            if claim is None or not writes.is_reserved_for(claim, consumed.entry.uid):
                joining_uids.add(consumed.entry.uid)
            rejection = (
                rejection
                or _consumer_rejection(claim, len(joining_uids))
                or _claim_rejection(member, consumed, claim, hold, drivers)
            )
        if rejection is not None:
            rejections[member.uid] = rejection
    return rejections


def _node_rejection(member: GroupPod) -> Rejection | None:
    if member.node is not None:
        return None
    return unschedulable(Code.DEVICES_GONE, "the reserved node does not exist any more")


def _claim_rejection(
    member: GroupPod,
    consumed: ConsumedClaim,
    claim: ResourceClaim | None,
    hold: Hold | None,
    drivers: frozenset[str],
) -> Rejection | None:
    if member.node is None:
        return None
    # That an earlier write is unsettled delays the Binding, and does not forbid it.
    candidate = Candidate(Consumer(member.uid, consumed.entry), member.node)
    step = steps.next_bind_step(
        claim, consumed.uid, hold, candidate, drivers=drivers, is_unsettled=False
    )
    return step if isinstance(step, Rejection) else None


def _consumer_rejection(claim: ResourceClaim | None, joining: int) -> Rejection | None:
    consumer_count = 0 if claim is None else len(writes.consumers(claim))
    if consumer_count + joining <= writes.MAX_CONSUMERS:
        return None
    return unschedulable(
        Code.TOO_MANY_CONSUMERS,
        f"a ResourceClaim can be reserved for {writes.MAX_CONSUMERS} pods at most; a PodGroup whose "
        "spec.resourceClaims share it counts as one",
    )


def take_backs_of(
    members: Sequence[GroupPod],
    claims: Mapping[Name, ResourceClaim],
    pending: Mapping[str, TakeBack],
) -> tuple[TakeBack, ...]:
    """Return the writes to take back if the claims of these pods are written in vain.

    A claim that is allocated already stays so: the group does not give what it did not take. What is left of an
    earlier attempt it took: while these pods use the claim nobody else takes it back, also if they write nothing.
    The pods of that attempt keep their own: they may be bound meanwhile, by a commit beside this one.

    Args:
        claims: The claims before they are written.
        pending: The take-backs that are left of earlier attempts, by UID of the claim.
    """
    pods: dict[tuple[Name, str], list[Consumer]] = {}
    for member in members:
        for name, uid, entry in member.claims:
            pods.setdefault((name, uid), []).append(Consumer(member.uid, entry))
    take_backs = []
    for (name, uid), consumers in pods.items():
        claim, before = claims.get(name), pending.get(uid)
        is_allocated = claim is not None and allocation_of(claim) is not None
        entries = frozenset(pod.entry.uid for pod in before.pods) if before is not None else ()
        joining = tuple(
            pod
            for pod in consumers
            if not is_allocated
            or claim is None
            or pod.entry.uid in entries
            or not writes.is_reserved_for(claim, pod.entry.uid)
        )
        if joining:
            is_ours = not is_allocated or (before is not None and before.deallocate)
            take_backs.append(TakeBack(name=name, uid=uid, pods=joining, deallocate=is_ours))
    return tuple(take_backs)


def joined(before: TakeBack | None, after: TakeBack) -> TakeBack:
    """Return the writes to take back of two attempts at one claim; `before` is None without an earlier one."""
    if before is None:
        return after
    pods = {pod.pod_uid: pod for pod in (*before.pods, *after.pods)}
    return replace(
        after, pods=tuple(pods.values()), deallocate=before.deallocate or after.deallocate
    )


def split(take_back: TakeBack, uids: Collection[str]) -> tuple[TakeBack | None, TakeBack | None]:
    """Return the writes to take back of these pods, and of the others; None for nothing."""
    sides: tuple[list[Consumer], ...] = ([], [])
    for pod in take_back.pods:
        sides[pod.pod_uid not in uids].append(pod)
    of_these, of_others = (replace(take_back, pods=tuple(pods)) if pods else None for pods in sides)
    return of_these, of_others


def leaving_entries(
    pods: Iterable[Consumer], used: Collection[str]
) -> tuple[ResourceClaimConsumerReference, ...]:
    """Return the entries that leave a claim together with pods, each once.

    Args:
        used: UIDs of the entries by which other pods use the claim.
    """
    return tuple({pod.entry.uid: pod.entry for pod in pods if pod.entry.uid not in used}.values())


def next_take_back_step(
    take_back: TakeBack,
    claim: ResourceClaim | None,
    hold: Hold | None,
    *,
    used: Collection[str],
    is_unsettled: bool,
) -> ClaimWrite | bool:
    """Return the write that takes a claim back.

    Args:
        claim: The claim as it is now; None if it does not exist.
        hold: The devices that are promised to it.
        used: UIDs of the entries by which other pods use the claim, which are bound or may be.
        is_unsettled: An earlier write, decided on this version of the claim, may be made yet.

    Returns:
        True when nothing is left to do, False while an earlier write has to be settled first.
    """
    if claim is None or claim.metadata.uid != take_back.uid:
        return True
    if is_unsettled or (hold is not None and hold.step is not Step.RESERVED):
        return False
    entries = leaving_entries(take_back.pods, used)
    if not entries:
        return True
    write = steps.next_release_step(claim, take_back.uid, entries, deallocate=take_back.deallocate)
    return True if write is None else write


class MemberClaims(NamedTuple):
    """A pod of a group, as a new leader finds it.

    Attributes:
        is_bound: It is bound, and has not ended.
        claims: Its claims as they are, None for each that does not exist, with its entries in them.
    """

    uid: str
    is_bound: bool
    claims: tuple[tuple[ResourceClaim | None, ResourceClaimConsumerReference], ...]

    @property
    def is_whole(self) -> bool:
        """Return True if it is bound, or could be without any write of an allocation."""
        return self.is_bound or all(
            claim is not None and allocation_of(claim) is not None for claim, _ in self.claims
        )


def incomplete_commit(
    min_count: int, members: Sequence[MemberClaims], gone: Collection[str] = ()
) -> tuple[TakeBack, ...]:
    """Return the writes to take back of a group's commit that a process before us began.

    A commit that was complete stays: its pods are bound with these devices. Of one that was not, each
    claim is taken back that only pods have which are not bound. The entries of pods that do not exist keep nothing;
    kube-controller-manager removes them.

    Args:
        min_count: The number of pods that are bound together.
        gone: UIDs of entries whose pods do not exist.
    """
    if sum(member.is_whole for member in members) >= min_count:
        return ()
    pods_of: dict[tuple[Name, str], list[Consumer]] = {}
    consumer_uids: dict[tuple[Name, str], frozenset[str]] = {}
    bound_uids: dict[tuple[Name, str], set[str]] = {}
    for member in members:
        for claim, entry in member.claims:
            if claim is None or allocation_of(claim) is None:
                continue
            key = (claim_name(claim), claim.metadata.uid)
            consumer_uids[key] = frozenset(user.uid for user in writes.consumers(claim))
            if member.is_bound:
                bound_uids.setdefault(key, set()).add(entry.uid)
            else:
                pods_of.setdefault(key, []).append(Consumer(member.uid, entry))
    return tuple(
        TakeBack(name=name, uid=uid, pods=tuple(pods), deallocate=True)
        for (name, uid), pods in sorted(pods_of.items())
        if consumer_uids[name, uid].difference(gone) <= {pod.entry.uid for pod in pods}
        and consumer_uids[name, uid].isdisjoint(bound_uids.get((name, uid), ()))
    )
