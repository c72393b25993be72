"""The usage of DeviceQuotas, from quotas, namespaces, classes, slices, claims and pods.

A claim that is not allocated is promised once a pod that names it has no gate of ours, and waits before; for a
pod of the bridge, which decides itself, it waits until it has its devices. When the pod is gone, the scheduler
may yet write an allocation that was under way: so a promised claim stays promised until it is allocated,
deleted, or, if nobody deletes it with the pod, has had the time for that. Nobody deletes the claim of a PodGroup
with its pods: the group may get new ones, and they wait for a decision.

The scheduler makes claims for keys that a DeviceClass maps only when it places the pod, so until then the pod is
charged for what that claim would ask for. Keys that no class maps are charged where a limit says what they are of
it (`legacyKeys`): the pod has these devices from when it has a node until it ends. The bridge decides about claims
alone: the keys of its pods are decided about and charged as those of other pods, and no claim is made for them.

Nothing is evaluated here: changed charges stay outstanding in the book until somebody evaluates them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from allocator.model.feature_gates import Features
from allocator.pods.extended_resource_claim import extended_resource_claim, mapped_resources
from findings.text import printable
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import extended_resources, requests_extended_resources
from kube.api.resource import DeviceClass, ResourceSlice
from quotas.device_quotas.book import QuotaBook, leaving_outstanding
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.ledger import Stage
from quotas.device_quotas.tenants import Account, Labels
from quotas.gates.counted_objects import (
    MAX_CLAIMS,
    QuotaClaim,
    is_gated,
    is_of_bridge,
    legacy_pod,
)
from quotas.gates.groups import PodGroupIndex

ALONE_S: Final = 600.0
"""The time after which the remover of another gate, alone with ours, is taken to wait for ours."""
ABANDONED_S: Final = 30.0
"""The time for which a promised claim without a pod stays promised, unless it is deleted with its pod."""

PAIR: Final = 2
"""Gates of a pod that has one beside ours."""

Key = tuple[str, str]
"""Namespace and name."""


class KeysOfPod(NamedTuple):
    """The key of a pod's charge for its extended resources, until there is a claim for them."""

    pod_uid: str


class LegacyKeysOfPod(msgspec.Struct, frozen=True):
    """The key of a pod's charge for keys of device plugins and other schedulers."""

    # No tuple, since that of `KeysOfPod` would be equal.

    pod_uid: str


class PodClaims(NamedTuple):
    """The charges of a pod.

    Attributes:
        entries: The keys of its charges in the book.
        missing: Claims of it that do not exist, so that what they ask for is not known, in phrases.
    """

    entries: tuple[Hashable, ...]
    missing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return True if all claims of the pod are known."""
        return not self.missing


class Remembered(NamedTuple):
    """The last charge of a claim that waits, or is let through.

    Attributes:
        charges: The amounts, in nano-units.
        breaches: The caps that its unit exceeded.
    """

    charges: Mapping[Account, int]
    breaches: tuple[CapBreach, ...]


class QuotaUsage:
    """A `QuotaBook` that follows a cluster.

    Attributes:
        book: The charges.
        pods: The pods that are charged, gated, or members of a group, by namespace and name.
        groups: The groups of pods.
    """

    def __init__(
        self, features: Features, clock: Callable[[], float], *, alone_s: float = ALONE_S
    ) -> None:
        """Begin with an empty cluster.

        Args:
            clock: Monotonic seconds.
            alone_s: The time for which a pod with one other gate is left to that gate's remover.
        """
        self._clock = clock
        self._alone_s = alone_s
        self._alone_since: dict[str, float] = {}
        self._abandoned: dict[Key, float] = {}
        self.book = QuotaBook(features)
        self.pods: dict[Key, Pod] = {}
        self.groups: Final = PodGroupIndex()
        self._claims: dict[Key, QuotaClaim] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._resource_classes: Mapping[str, str] = {}
        self._entries: dict[Key, tuple[ClaimEntry, ...]] = {}
        self._users: dict[Key, set[Key]] = defaultdict(set)
        self._named: dict[Key, frozenset[Key]] = {}
        self._keys_of_uid: dict[str, Key] = {}
        self._let_through: set[str] = set()
        self._expects_slices = False
        self._before_slices: set[Key] = set()
        self._remembered: dict[Hashable, Remembered] = {}

    # --- objects ----------------------------------------------------------------------------------

    def replace_quota(self, name: str, quota: DeviceQuota | None) -> None:
        """Take a quota that was added, changed or, with None, deleted."""
        with leaving_outstanding():
            self.book.replace_quota(name, quota)

    def replace_namespace(self, name: str, labels: Labels | None) -> None:
        """Take a namespace with its labels; None for one that was deleted."""
        with leaving_outstanding():
            self.book.replace_namespace(name, labels)

    def replace_class(self, name: str, device_class: DeviceClass | None) -> None:
        """Take a DeviceClass that was added, changed or, with None, deleted."""
        self._classes.pop(name, None)
        self._remembered.clear()  # It may select others now, or none.
        if device_class is not None:
            self._classes[name] = device_class
        with leaving_outstanding():
            self.book.replace_class(name, device_class)
        resource_classes = extended_resources(self._classes.values())
        if resource_classes != self._resource_classes:
            self._resource_classes = resource_classes
            for pod in self.pods.values():
                self._charge_keys(pod)

    def expect_slices(self) -> None:
        """Note that slices have changed and will be taken; pods that come before that wait for it."""
        self._expects_slices = True

    def replace_slices(self, slices: Mapping[str, ResourceSlice | None]) -> None:
        """Take slices that were added, changed or, with None, deleted, by name."""
        self._expects_slices = False
        self._before_slices.clear()
        with leaving_outstanding():
            self.book.replace_slices(slices)

    def replace_claim(self, key: Key, claim: QuotaClaim | None) -> None:
        """Take a claim that was added, changed or, with None, deleted."""
        old = self._claims.pop(key, None)
        if claim is not None:
            self._claims[key] = claim
        if old is None or claim is None or old.devices != claim.devices:
            self._remembered.pop(key, None)
        self._charge_claim(key)
        for version in (old, claim):
            if version is not None and version.is_for_extended_resources:
                self._charge_keys_of(version.pod_uids)

    def replace_pod(self, key: Key, pod: Pod | None) -> None:
        """Take a pod that was added, changed or, with None, deleted or finished."""
        old = self.pods.pop(key, None)
        was_let_through = old is not None and self.is_let_through(old)
        if old is not None and (pod is None or pod.metadata.uid != old.metadata.uid):
            for keys in (KeysOfPod(old.metadata.uid), LegacyKeysOfPod(old.metadata.uid)):
                self.book.remove_claim(keys)
                self._remembered.pop(keys, None)
            self._let_through.discard(old.metadata.uid)
            self._alone_since.pop(old.metadata.uid, None)
            self._keys_of_uid.pop(old.metadata.uid, None)
            self._before_slices.discard(key)
        before = self._named.pop(key, frozenset())
        entries = self._entries.pop(key, ())
        self.groups.replace_pod(key, pod)
        if pod is not None:
            if self._expects_slices and pod.metadata.uid not in self._keys_of_uid:
                self._before_slices.add(key)
            self.pods[key] = pod
            self._note_gates(pod)
            self._keys_of_uid[pod.metadata.uid] = key
            is_same = old is not None and _names_same_claims(old, pod)
            self._entries[key] = entries if is_same else claim_entries(pod)
            self._named[key] = before if is_same else _names_of(self._entries[key])
            self._charge_keys(pod)
            if is_same and was_let_through == self.is_let_through(pod):
                return  # Labels are written often, and a pod may name any number of claims.
        after = self._named.get(key, frozenset())
        for name in before - after:
            self._users[name].discard(key)
            if not self._users[name]:
                del self._users[name]
        for name in after - before:
            self._users[name].add(key)
        for name in before | after:
            self._charge_claim(name)

    def _note_gates(self, pod: Pod) -> None:
        """Note since when a pod has had one gate beside ours."""
        if is_gated(pod) and len(pod.spec.scheduling_gates or ()) == PAIR:
            self._alone_since.setdefault(pod.metadata.uid, self._clock())
        else:
            self._alone_since.pop(pod.metadata.uid, None)

    def let_through(self, key: Key) -> None:
        """Count a pod as let through, with any gates it still has; its deletion ends that."""
        pod = self.pods[key]
        self._let_through.add(pod.metadata.uid)
        self._charge_keys(pod)
        for name in self._named[key]:
            self._charge_claim(name)

    def release_abandoned(self) -> float | None:
        """Release promised claims of pods that have been gone for long; return the time to come back."""
        now_s = self._clock()
        unowned = {
            key: since_s
            for key, since_s in self._abandoned.items()
            if not self._claims[key].pod_uids
        }
        left = [since_s + ABANDONED_S - now_s for since_s in unowned.values()]
        for key, since_s in unowned.items():
            if since_s + ABANDONED_S <= now_s:
                del self._abandoned[key]
                self._put(key, self._counted(key, is_let_through=False))
        return min((left_s for left_s in left if left_s > 0), default=None)

    # --- answers ----------------------------------------------------------------------------------

    def waits(self, pod: Pod) -> bool:
        """Return True if a pod waits for a decision."""
        return is_gated(pod) and pod.metadata.uid not in self._let_through

    def is_last(self, pod: Pod) -> bool:
        """Return True if nothing but our gate holds a pod back, or another one for long."""
        return len(pod.spec.scheduling_gates or ()) <= 1 or self.alone_left_s(pod) == 0

    def alone_left_s(self, pod: Pod) -> float | None:
        """Return the seconds until one other gate of a pod does not count any more; None for never."""
        since_s = self._alone_since.get(pod.metadata.uid)
        return None if since_s is None else max(0.0, since_s + self._alone_s - self._clock())

    def awaits_slices(self, key: Key) -> bool:
        """Return True if a pod came while devices that it may get were not counted yet."""
        return key in self._before_slices

    def is_let_through(self, pod: Pod) -> bool:
        """Return True if a pod's claims may be allocated without a decision.

        The bridge decides about its pods itself, and rejects claims of drivers that it does not own: else
        pods that nobody places would use up the budget of a tenant.
        """
        return not self.waits(pod) and not is_of_bridge(pod)

    def claims_of(self, key: Key) -> PodClaims:
        """Return the charges of a pod."""
        pod, claims = self.pods[key], self._entries[key]
        entries: list[Hashable] = [entry.claim for entry in claims if entry.claim in self._claims]
        for keys in (KeysOfPod(pod.metadata.uid), LegacyKeysOfPod(pod.metadata.uid)):
            if self.book.claim(keys) is not None:
                entries.append(keys)
        missing = tuple(entry.phrase for entry in claims if not self._is_known(entry, pod))
        return PodClaims(tuple(dict.fromkeys(entries)), missing)

    def claims_to_decide(self, key: Key) -> PodClaims:
        """Return the charges of a pod without those that the bridge decides about; none of one that never gets through."""
        if self.has_too_many_claims(key):
            return PodClaims(())
        if not is_of_bridge(self.pods[key]):
            return self.claims_of(key)
        entries = self.claims_of(key).entries
        return PodClaims(tuple(entry for entry in entries if isinstance(entry, LegacyKeysOfPod)))

    def has_no_scheduler(self, key: Key) -> bool:
        """Return True for a pod that the bridge rejects, since a DeviceClass maps a key of it."""
        pod = self.pods[key]
        return is_of_bridge(pod) and bool(mapped_resources(pod, self._resource_classes))

    def has_too_many_claims(self, key: Key) -> bool:
        """Return True for a pod that never gets through, since it names too many claims."""
        return len(self._entries[key]) > MAX_CLAIMS

    def remember(self, entries: Iterable[Hashable], breaches: tuple[CapBreach, ...]) -> None:
        """Note the charges of claims that wait or are let through, in case their devices vanish.

        As while a driver is restarted: without devices they are charged with nothing.

        Args:
            breaches: The caps that they exceed.
        """
        for key in entries:
            entry = self.book.ledger.get(key)
            if entry is not None and any(entry.charges.values()):
                self._remembered[key] = Remembered(entry.charges, breaches)

    def charges_of(self, key: Hashable) -> Mapping[Account, int] | None:
        """Return the charges of a claim, or the remembered ones if its devices have vanished; None if unknown."""
        remembered = self.remembered(key)
        if remembered is not None:
            return remembered.charges
        entry = self.book.ledger.get(key)
        return None if entry is None else entry.charges

    def remembered(self, key: Hashable) -> Remembered | None:
        """Return the last charge of a claim with a charge of nothing now; None for all others."""
        remembered, entry = self._remembered.get(key), self.book.ledger.get(key)
        if remembered is None or entry is None or any(entry.charges.values()):
            return None
        return remembered

    def vanished_promises(self) -> Mapping[Account, int]:
        """Return the amounts that are promised, and not charged, since their devices have vanished."""
        amounts: dict[Account, int] = defaultdict(int)
        for key in self._remembered:
            remembered, claim = self.remembered(key), self.book.claim(key)
            if remembered is None or claim is None or claim.stage is not Stage.PROMISED:
                continue
            for account, amount in remembered.charges.items():
                amounts[account] += amount
        return amounts

    def is_charged(self, key: Key) -> bool:
        """Return True if a pod has devices that a quota limits, or may get them without a decision."""
        for entry in self.claims_of(key).entries:
            charge = self.book.ledger.get(entry)
            if (
                charge is not None
                and charge.stage is not Stage.WAITING
                and any(charge.charges.values())
            ):
                return True
        return False

    def _is_known(self, entry: "ClaimEntry", pod: Pod) -> bool:
        """Return True if the claim of an entry exists, and is the one that the pod will use."""
        claim = self._claims.get(entry.claim) if entry.claim is not None else None
        if claim is None or not entry.is_generated:
            return claim is not None
        # Whoever may write the status of pods could name a smaller claim for a while.
        owners = (*claim.pod_uids, claim.pod_group_uid)
        own_uids = (pod.metadata.uid, self.groups.uid_of_group(pod))
        return any(uid in owners for uid in own_uids if uid)

    # --- charges ----------------------------------------------------------------------------------

    def _charge_claim(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is None:
            self._abandoned.pop(key, None)
            self.book.remove_claim(key)
            return
        is_let_through = any(
            self.is_let_through(self.pods[user]) for user in self._users.get(key, ())
        )
        before = self.book.claim(key)
        if is_let_through or claim.allocation is not None:
            self._abandoned.pop(key, None)
        elif before is not None and before.stage is Stage.PROMISED:
            self._abandoned.setdefault(key, self._clock())
        is_let_through |= key in self._abandoned
        self._put(key, self._counted(key, is_let_through=is_let_through))

    def _counted(self, key: Key, *, is_let_through: bool) -> CountedClaim:
        claim = self._claims[key]
        return CountedClaim(
            namespace=key[0],
            devices=claim.devices,
            allocation=claim.allocation,
            is_let_through=is_let_through,
        )

    def _charge_keys(self, pod: Pod) -> None:
        """Charge a pod for keys that classes map, until it is bound.

        Users may create a claim that looks like the scheduler's, but they cannot bind the pod.
        """
        key = KeysOfPod(pod.metadata.uid)
        resources = mapped_resources(pod, self._resource_classes)
        self._charge_legacy_keys(pod, resources)
        if (
            not resources
            or is_of_bridge(pod)
            or (pod.spec.node_name and self._has_claim_for_keys(pod))
        ):
            self.book.remove_claim(key)
            return
        claim = extended_resource_claim(pod, resources, self._resource_classes)
        self._put(
            key,
            CountedClaim(
                namespace=pod.metadata.namespace,
                devices=claim.spec.devices,
                is_let_through=self.is_let_through(pod),
            ),
        )

    def _charge_legacy_keys(self, pod: Pod, mapped: frozenset[str]) -> None:
        """Charge a pod for keys that give it devices without a claim."""
        if requests_extended_resources(pod.spec):
            counted = legacy_pod(pod, mapped, is_let_through=not self.waits(pod))
            self._put(LegacyKeysOfPod(pod.metadata.uid), counted)

    def _charge_keys_of(self, pod_uids: Iterable[str]) -> None:
        for uid in pod_uids:
            key = self._keys_of_uid.get(uid)
            if key is not None:
                self._charge_keys(self.pods[key])

    def _has_claim_for_keys(self, pod: Pod) -> bool:
        """Return True if the claim for the keys of a bound pod is charged, or a device plugin serves them."""
        status = pod.status.extended_resource_claim_status if pod.status is not None else None
        return status is None or (
            (pod.metadata.namespace, status.resource_claim_name) in self._claims
        )

    def _put(self, key: Hashable, claim: CountedClaim) -> None:
        with leaving_outstanding():
            self.book.put_claim(key, claim)


class ClaimEntry(NamedTuple):
    """An entry of `spec.resourceClaims`.

    Attributes:
        name: The name of the entry.
        claim: Namespace and name of its claim; None while kube-controller-manager has made none.
        is_generated: It is made from a template.
    """

    name: str
    claim: Key | None
    is_generated: bool

    @property
    def phrase(self) -> str:
        """Name the claim in a phrase."""
        if self.is_generated or self.claim is None:
            return f"the claim for its entry {printable(self.name)}"
        return f"claim {printable(self.claim[1])}"


def claim_entries(pod: Pod) -> tuple[ClaimEntry, ...]:
    """Return the claims that a pod names, and those that are made for it."""
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    generated_names = {status.name: status.resource_claim_name for status in statuses}
    namespace = pod.metadata.namespace
    entries: list[ClaimEntry] = []
    for entry in pod.spec.resource_claims or ():
        is_generated = entry.resource_claim_name is None
        name = generated_names.get(entry.name) if is_generated else entry.resource_claim_name
        claim = (namespace, name) if name is not None else None
        entries.append(ClaimEntry(entry.name, claim, is_generated))
    return tuple(entries)


def _names_of(entries: Iterable[ClaimEntry]) -> frozenset[Key]:
    return frozenset(entry.claim for entry in entries if entry.claim is not None)


def _names_same_claims(old: Pod, new: Pod) -> bool:
    """Return True if two versions of a pod have the same entries, with the same claims."""
    statuses = [
        pod.status.resource_claim_statuses if pod.status is not None else None for pod in (old, new)
    ]
    return old.spec.resource_claims == new.spec.resource_claims and statuses[0] == statuses[1]
