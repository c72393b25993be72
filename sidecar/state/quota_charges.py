"""The book of DeviceQuotas that the sidecar decides by, and the charges to it.

Claims that another scheduler may allocate are charged in the worst case. Their selectors are those of users, so a
decision evaluates a few of them only; as long as one is not evaluated, nothing is left of the limits of its namespace.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of
from allocator.pods.extended_resource_claim import extended_resource_claim, mapped_resources
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import extended_resources, requests_extended_resources
from kube.api.resource import (
    AllocationResult,
    DeviceClaim,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from quotas.device_quotas.book import QuotaBook, leaving_outstanding
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.ledger import Entry, Stage
from quotas.device_quotas.tenants import Labels
from quotas.gates.counted_objects import is_gated, is_of_bridge, legacy_pod
from quotas.gates.usage import KeysOfPod, LegacyKeysOfPod, claim_entries
from sidecar.plan.occupancy import counted_claim

MAX_CHEAP: Final = 32
"""Changes of claims that are applied in a few milliseconds."""
STEPS: Final = 6000
"""Steps of the evaluation of promised claims before a decision: about 20 ms."""


class QuotaObjects(NamedTuple):
    """Objects that decide about quotas by name; None for deleted ones.

    Attributes:
        claims: The claims with the devices promised to them.
        pods: Those that have devices by keys, or may get claims from another scheduler.
    """

    quotas: dict[str, DeviceQuota | None]
    namespaces: dict[str, Labels | None]
    classes: dict[str, DeviceClass | None]
    slices: dict[str, ResourceSlice | None]
    claims: dict[Name, ResourceClaim | None]
    pods: dict[Name, Pod | None]


class QuotaChanges(NamedTuple):
    """The changes that wait for the next decision.

    Attributes:
        objects: The objects that changed.
        begins_anew: They are all objects that there are.
        is_needed: There are DeviceQuotas.
    """

    objects: QuotaObjects
    begins_anew: bool = False
    is_needed: bool = False

    @property
    def is_cheap(self) -> bool:
        """Return True if they are applied within a few milliseconds."""
        count = len(self.objects.claims) + len(self.objects.pods)
        return not (self.begins_anew or self.has_inventory) and count <= MAX_CHEAP

    @property
    def has_inventory(self) -> bool:
        """Return True if more has changed than claims and pods."""
        *others, _claims, _pods = self.objects
        return any(others)


def promised_names(pod: Pod | None) -> frozenset[Name]:
    """Return the claims that another scheduler may allocate for a pod of `counted_pod`."""
    if pod is None or pod.spec.node_name or is_of_bridge(pod) or is_gated(pod):
        return frozenset()
    return frozenset(entry.claim for entry in claim_entries(pod) if entry.claim is not None)


class PromisedClaims:
    """Claims of pods that another scheduler may place, since no gate of quotas holds them back.

    While the fence stands nobody allocates them, but it may open, or the bridge may give up the driver. So they
    count as long as their pods are there.
    """

    def __init__(self) -> None:
        """Begin without pods."""
        self._of_pod: dict[Name, frozenset[Name]] = {}
        self._pods: Counter[Name] = Counter()

    def replace_pod(self, name: Name, pod: Pod | None) -> None:
        """Take a pod that was added, changed or, with None, deleted."""
        for claim in self._of_pod.pop(name, ()):
            self._pods[claim] -= 1
            if not self._pods[claim]:
                del self._pods[claim]
        names = promised_names(pod)
        if names:
            self._of_pod[name] = names
            self._pods.update(names)

    def __contains__(self, claim: Name) -> bool:
        """Return True if a pod may get this claim."""
        return self._pods[claim] > 0


class QuotaCharges:
    """The book, as of the latest decision.

    Attributes:
        book: The book; None without quotas.
    """

    def __init__(self, features: Features) -> None:
        """Begin without quotas."""
        self.book: QuotaBook | None = None
        self._features = features
        self._classes: dict[str, DeviceClass] = {}
        self._legacy_pods: dict[Name, Pod] = {}
        self._promised = PromisedClaims()
        self._attempts = 0

    def apply(self, changes: QuotaChanges) -> None:
        """Apply changes to the book; may be called on another thread."""
        if not changes.is_needed:
            self.book = None
            return
        if changes.begins_anew or self.book is None:
            self.book = QuotaBook(self._features)
            self._classes, self._legacy_pods = {}, {}
            self._promised = PromisedClaims()
        objects = changes.objects
        for pod_name, pod in objects.pods.items():
            self._promised.replace_pod(pod_name, pod)
        if changes.has_inventory:
            self._put_inventory(self.book, objects)
        self._put_claims(self.book, objects.claims)
        if objects.classes or objects.pods:
            self._charge_pods(objects.classes, objects.pods)
        self._charge_outstanding(self.book)

    def _put_inventory(self, book: QuotaBook, objects: QuotaObjects) -> None:
        """Take all that claims are charged by; they are charged again after it."""
        for name, device_class in objects.classes.items():
            with leaving_outstanding():
                book.replace_class(name, device_class)
        if objects.slices:
            with leaving_outstanding():
                book.replace_slices(objects.slices)
        for name, labels in objects.namespaces.items():
            with leaving_outstanding():
                book.replace_namespace(name, labels)
        for name, quota in objects.quotas.items():
            with leaving_outstanding():
                book.replace_quota(name, quota)

    def charge(self, claims: Mapping[Name, ResourceClaim | None]) -> None:
        """Charge claims that have devices, are promised some, or may get them elsewhere; release others."""
        if self.book is not None:
            self._put_claims(self.book, claims)
            self._charge_outstanding(self.book)

    def _put_claims(self, book: QuotaBook, claims: Mapping[Name, ResourceClaim | None]) -> None:
        for name, claim in claims.items():
            if claim is not None and (allocation := allocation_of(claim)) is not None:
                # Most claims come twice: with promised devices, and again when they are written or asked about.
                before = book.claim(name)
                if before is None or not _is_charged(before, claim, allocation):
                    book.put_claim(name, counted_claim(claim))
            elif claim is not None and name in self._promised:
                _promise(book, name, claim)
            else:
                book.remove_claim(name)

    def _charge_outstanding(self, book: QuotaBook) -> None:
        """Charge outstanding claims, the promised ones by turns and within a budget."""
        promised: list[Hashable] = []
        for key in tuple(book.outstanding):
            claim = book.claim(key)
            if claim is not None and claim.stage is Stage.PROMISED and claim.legacy_pod is None:
                promised.append(key)
            else:
                book.charge(key)
        if not promised:
            return
        self._attempts += 1
        first = self._attempts % len(promised)
        meter = Meter(STEPS)
        for key in (*promised[first:], *promised[:first]):
            try:
                with evaluating(meter=meter):
                    book.charge(key)
            except AnswerInterrupted:
                _withhold(book, key)

    def _charge_pods(
        self, classes: Mapping[str, DeviceClass | None], pods: Mapping[Name, Pod | None]
    ) -> None:
        """Charge pods that have devices by keys; by their claims if a class maps the key now."""
        for name, pod in pods.items():
            self._legacy_pods.pop(name, None)
            if pod is not None and requests_extended_resources(pod.spec):
                self._legacy_pods[name] = pod
        changed: Iterable[Name] = pods
        if classes:
            for name_, device_class in classes.items():
                self._classes.pop(name_, None)
                if device_class is not None:
                    self._classes[name_] = device_class
            changed = {*self._legacy_pods, *pods}
        resources = extended_resources(self._classes.values())
        for name in changed:
            pod = self._legacy_pods.get(name)
            if self.book is not None:
                self._charge_pod(self.book, name, pod, resources)

    def _charge_pod(
        self, book: QuotaBook, name: Name, pod: Pod | None, resources: Mapping[str, str]
    ) -> None:
        """Charge a pod for its keys: those that a class maps, while another scheduler may make a claim for them."""
        legacy_key, claim_key = LegacyKeysOfPod("/".join(name)), KeysOfPod("/".join(name))
        if pod is None:
            book.remove_claim(legacy_key)
            book.remove_claim(claim_key)
            return
        is_let_through = not is_gated(pod)
        mapped = mapped_resources(pod, resources)
        book.put_claim(legacy_key, legacy_pod(pod, mapped, is_let_through=is_let_through))
        if mapped and is_let_through and not is_of_bridge(pod) and not pod.spec.node_name:
            _promise(book, claim_key, extended_resource_claim(pod, mapped, resources))
        else:
            book.remove_claim(claim_key)


def _is_charged(before: CountedClaim, claim: ResourceClaim, allocation: AllocationResult) -> bool:
    """Return True if a claim was charged for the very same devices; False if that is unknown."""
    return (
        before.allocation is not None
        and before.allocation.devices.results is allocation.devices.results
        and before.devices is claim.spec.devices
    )


def _promise(book: QuotaBook, key: Hashable, claim: ResourceClaim) -> None:
    """Charge a claim that another scheduler may allocate, as soon as its selectors are evaluated."""
    devices = DeviceClaim(requests=claim.spec.devices.requests)
    promised = CountedClaim(claim.metadata.namespace, devices, is_let_through=True)
    with leaving_outstanding():
        book.put_claim(key, promised)


def _withhold(book: QuotaBook, key: Hashable) -> None:
    """Charge a claim of unknown amounts with all that is allowed."""
    claim = book.claim(key)
    if claim is not None:
        accounts = book.accounts(claim.namespace)
        charges = {account: max(account.limit.available_max, 0) for account in accounts}
        book.ledger.put(key, Entry(claim.namespace, Stage.PROMISED, charges))


def nothing() -> QuotaObjects:
    """Return no objects."""
    return QuotaObjects({}, {}, {}, {}, {}, {})
