"""The charges of DeviceQuotas on a whole cluster, and the reason the gate of a pod is kept. Pure.

The controllers charge by the same functions, from the objects that they follow.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of, is_pod_group, pod_group_name
from answers.model.cluster_state import ClusterState
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.api.ownership import owned_drivers
from kube.api.resource import ResourceClaim
from kube.names import QUOTA_GATE
from kube.quantity import Quantity
from quotas.device_quotas.ledger import DeviceQuotaLedger, Excess, Stage
from quotas.device_quotas.tenants import Account
from quotas.gates.admission_order import Undecided, Waiting, obstacle_of
from quotas.gates.counted_objects import counted_claim, counted_pod, is_gated
from quotas.gates.groups import group_of_object, known_pod_group
from quotas.gates.usage import QuotaUsage
from quotas.gates.waiting_note import OWNED, waiting_note

MAX_CONSUMERS: Final = 3
"""Namespaces in one sentence."""
_TOO_LITTLE: Final = "too little is left of a DeviceQuota"
_NEVER: Final = (
    "it needs more than a DeviceQuota ever allows, so it gets through only if the quota is raised"
)
_HAS_ROOM: Final = "the DeviceQuotas have room for it, and the controllers remove the gate"


class GateReason(NamedTuple):
    """The reason a pod is behind the gate.

    Attributes:
        text: The reason in a sentence.
        quotas: Limits of which too little is left, with who uses them, in sentences.
        is_final: It is kept whatever others release.
    """

    text: str
    quotas: tuple[str, ...] = ()
    is_final: bool = False


def build_usage(state: ClusterState, features: Features) -> QuotaUsage:
    """Return the charges of all claims and pods of a cluster."""
    usage = QuotaUsage(features, lambda: 0.0)
    for name, device_class in state.classes.items():
        usage.replace_class(name, device_class)
    usage.replace_slices(
        {slice_.metadata.name or str(number): slice_ for number, slice_ in enumerate(state.slices)}
    )
    for name, labels in state.namespaces.items():
        usage.replace_namespace(name, labels)
    for quota in state.quotas:
        usage.replace_quota(quota.metadata.name, quota)
    for pod_group in state.pod_groups:
        group = group_of_object(pod_group)
        if group is not None:
            usage.groups.replace_pod_group(group, known_pod_group(pod_group, group.system))
    priorities = state.priorities
    for key, pod in state.pods.items():
        pod_with_uid = _with_uid(priorities.of_pod(pod))
        usage.replace_pod(key, counted_pod(pod_with_uid, state.bridge_scheduler))
    owned = owned_drivers(state.ownerships)
    users, members = _users_by_name(state), _members_by_group(state)
    for key, claim in state.claims.items():
        usage.replace_claim(key, counted_claim(claim))
        pods = (*users.get(key, ()), *_owners(claim, key[0], state, members))
        counted = usage.book.claim(key)
        # Without a pod that is known, nobody says that it waits, and files have claims without the status of
        # pods; where the bridge owns drivers it may be a claim of its pods, to which nothing is promised.
        counted_pods = [
            usage.pods[place]
            for pod in pods
            if (place := (pod.metadata.namespace, pod.metadata.name)) in usage.pods
        ]
        is_let_through = any(map(usage.is_let_through, counted_pods)) or not (pods or owned)
        if counted is not None:
            usage.book.put_claim(key, counted._replace(is_let_through=is_let_through))
    for entry in tuple(usage.book.outstanding):
        usage.book.charge(entry)
    return usage


def usage_beside(
    state: ClusterState,
    features: Features,
    *,
    pods: Collection[Name],
    claims: Collection[Name] = (),
) -> QuotaUsage:
    """Return the charges of a cluster without objects that are asked about.

    A claim that is allocated has its devices whatever the answer, so it is charged.

    Args:
        pods: The pods; claims that only they use do not count either.
        claims: The claims.
    """
    users, members = _users_by_name(state), _members_by_group(state)

    def is_charged(key: Name, claim: ResourceClaim) -> bool:
        if allocation_of(claim) is not None:
            return True
        names = {
            (pod.metadata.namespace, pod.metadata.name)
            for pod in (*users.get(key, ()), *_owners(claim, key[0], state, members))
        }
        return key not in claims and not (names and names <= {*pods})

    others = msgspec.structs.replace(
        state,
        pods={key: pod for key, pod in state.pods.items() if key not in pods},
        claims={key: claim for key, claim in state.claims.items() if is_charged(key, claim)},
    )
    return build_usage(others, features)


def promised_amounts(pod: Pod, state: ClusterState) -> tuple[str, ...]:
    """Return the amounts that a pod holds without devices, as it is let through, in sentences.

    One of the bridge holds some by keys of device plugins only.
    """
    if is_gated(pod) or not state.quotas:
        return ()
    key = (pod.metadata.namespace, pod.metadata.name)
    usage = build_usage(state, Features())
    if key not in usage.pods:
        return ()
    amounts: dict[Account, int] = {}
    for name in usage.claims_to_decide(key).entries:
        entry = usage.book.ledger.get(name)
        if entry is not None and entry.stage is Stage.PROMISED:
            for account, amount in entry.charges.items():
                amounts[account] = amounts.get(account, 0) + amount
    return tuple(
        f"DeviceQuota {account.limit.quota}, limit {account.limit.name}: {account.limit.in_words(amount)} promised "
        "to it until it is placed; delete it to free that"
        for account, amount in amounts.items()
        if amount
    )


def gate_reason(pod: Pod, state: ClusterState) -> GateReason | None:
    """Return the reason a scheduling gate of a pod is kept; None without gates, or with that of quotas and no quota."""
    if not is_gated(pod) or not state.quotas:
        return _foreign_gate(pod)
    usage = build_usage(state, Features())
    key = (pod.metadata.namespace, pod.metadata.name)
    if key not in usage.pods:
        return None
    # A snapshot has no clock: a group is complete with its declared minimum only.
    withheld = {driver: OWNED.format(driver=driver) for driver in owned_drivers(state.ownerships)}
    match obstacle_of(usage, key, withheld, 0.0):
        case Waiting() as waiting:
            ledger = usage.book.ledger
            sentences = tuple(
                with_consumers(excess, ledger) if isinstance(excess, Excess) else excess.message
                for excess in waiting.excesses
            )
            if not sentences:
                return GateReason(waiting_note(waiting, ledger))
            is_final = not all(
                isinstance(excess, Excess) and not excess.is_final for excess in waiting.excesses
            )
            return GateReason(_NEVER if is_final else _TOO_LITTLE, sentences, is_final)
        case Undecided() as undecided:
            return GateReason(undecided.value)
        case None:
            return GateReason(_HAS_ROOM)


def _foreign_gate(pod: Pod) -> GateReason | None:
    """Return the gates of a pod that other controllers than those of DeviceQuotas remove."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or () if gate.name != QUOTA_GATE]
    if not gates:
        return None
    more = f" and {len(gates) - 1} more" if len(gates) > 1 else ""
    whose = "whose controllers remove them" if more else "which its controller removes"
    return GateReason(f"{printable(gates[0])}{more}, {whose}")


def _with_uid(pod: Pod) -> Pod:
    """Return a pod with a uid, since files may lack it."""
    metadata = pod.metadata
    if metadata.uid:
        return pod
    uid = f"{metadata.namespace}/{metadata.name}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(metadata, uid=uid))


def _users_by_name(state: ClusterState) -> Mapping[Name, Sequence[Pod]]:
    """Return the pods that name a claim, by it."""
    users: dict[Name, list[Pod]] = {}
    for (namespace, _), pod in state.pods.items():
        for entry in pod.spec.resource_claims or ():
            if entry.resource_claim_name:
                users.setdefault((namespace, entry.resource_claim_name), []).append(pod)
    return users


def _members_by_group(state: ClusterState) -> Mapping[Name, Sequence[Pod]]:
    """Return the pods that name a PodGroup of Kubernetes, by it."""
    members: dict[Name, list[Pod]] = {}
    for (namespace, _), pod in state.pods.items():
        if name := pod_group_name(pod):
            members.setdefault((namespace, name), []).append(pod)
    return members


def _owners(
    claim: ResourceClaim,
    namespace: str,
    state: ClusterState,
    members: Mapping[Name, Sequence[Pod]],
) -> Iterator[Pod]:
    """Yield the pods that a claim was made for."""
    for owner in claim.metadata.owner_references or ():
        if is_pod_group(owner):
            yield from members.get((namespace, owner.name), ())
        pod = state.pods.get((namespace, owner.name)) if owner.kind == "Pod" else None
        if pod is not None:
            yield pod


def with_consumers(excess: Excess, ledger: DeviceQuotaLedger) -> str:
    """Return an excess with the amount that is missing, and the namespaces that use most of the limit."""
    limit = excess.account.limit
    missing = "" if excess.is_final else f", {limit.in_words(excess.missing)} missing"
    message = excess.message + missing
    parts = sorted(
        (
            (part.committed, name)
            for name, part in ledger.by_namespace(excess.account)
            if part.committed
        ),
        key=lambda entry: (-entry[0], entry[1]),
    )
    consumers = [
        f"{name} {Quantity.from_nanos(amount, limit.max.format)}" for amount, name in parts
    ]
    return f"{message}; in use: {join_names(consumers, MAX_CONSUMERS)}" if consumers else message
