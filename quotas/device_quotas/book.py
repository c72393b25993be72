"""The usage of all DeviceQuotas, kept up to date with quotas, namespaces, devices and claims.

Whoever decides reads it: the sidecar, the controllers that remove gates, the command line. Everything in it
follows from objects of the API, so that a restarted process has the same book.

Selectors of claims are their authors' expressions. A charge that the scope in force interrupts stays
outstanding, and nothing else is lost.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import PoolId, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.plan import Choice
from kube.api.core import PodSpec
from kube.api.device_quota import DeviceQuota
from kube.api.resource import DeviceClaim, DeviceClass, ResourceSlice
from kube.cel.scope import AnswerInterrupted, Meter, current_scope, evaluating
from quotas.device_quotas.bounds import UNLIMITED, amount_bound
from quotas.device_quotas.caps import CapBreach, cap_breaches
from quotas.device_quotas.charges import Charge, ClaimCharges, Estimate, devices_of_plan
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.ledger import NOTHING, DeviceQuotaLedger, Entry, Excess
from quotas.device_quotas.legacy_pods import largest_legacy_request, legacy_charge
from quotas.device_quotas.limits import Limit, counts_device
from quotas.device_quotas.published import PublishedDevices
from quotas.device_quotas.tenants import Account, Labels, Tenants


class QuotaBook:
    """Quotas, their tenants, and the charges to them.

    Attributes:
        tenants: The quotas and the namespaces that they select.
        ledger: The charges of all claims.
    """

    def __init__(self, features: Features) -> None:
        """Begin empty."""
        self.tenants = Tenants()
        self.ledger = DeviceQuotaLedger()
        self._classes: dict[str, DeviceClass] = {}
        self._published = PublishedDevices()
        self._charges = ClaimCharges(self._published, self._classes, features)
        self._claims: dict[Hashable, CountedClaim] = {}
        self._of_namespace: dict[str, set[Hashable]] = defaultdict(set)
        self._of_pool: dict[PoolId, set[Hashable]] = defaultdict(set)
        self._open: set[Hashable] = set()
        self._outstanding: dict[Hashable, None] = {}

    # --- objects ----------------------------------------------------------------------------------

    def replace_quota(self, name: str, quota: DeviceQuota | None) -> None:
        """Take a quota that was added, changed or, with None, deleted."""
        self._charge_again(
            key
            for namespace in sorted(self.tenants.replace_quota(name, quota))
            for key in self._of_namespace.get(namespace, ())
        )

    def replace_namespace(self, name: str, labels: Labels | None) -> None:
        """Take a namespace: if other quotas select it now, its usage moves to them."""
        if self.tenants.replace_namespace(name, labels):
            self._charge_again(self._of_namespace.get(name, ()))

    def replace_class(self, name: str, device_class: DeviceClass | None) -> None:
        """Take a DeviceClass that was added, changed or, with None, deleted."""
        self._classes.pop(name, None)
        if device_class is not None:
            self._classes[name] = device_class
        self._charges.forget()
        self._charge_again(self._open)

    def replace_slices(self, slices: Mapping[str, ResourceSlice | None]) -> None:
        """Take slices that were added, changed or, with None, deleted, by name."""
        pools = [
            pool
            for name, slice_ in slices.items()
            for pool in self._published.replace_slice(name, slice_)
        ]
        self._charges.forget()
        self.tenants.renew_filters()
        self._charge_again(
            self._open.union(
                *(self._of_pool.get(pool, set()) for pool in set(pools)),
                self._claims_of_other_largest(),
            )
        )

    def put_claim(self, key: Hashable, claim: CountedClaim) -> None:
        """Charge a claim, in place of any earlier charge for the same key."""
        before = self._claims.get(key)
        if before == claim:
            return
        if before is not None and before._replace(is_let_through=claim.is_let_through) == claim:
            # The same charges at another stage.
            self._claims[key] = claim
            entry = self.ledger.get(key)
            if entry is not None:
                self.ledger.put(key, entry._replace(stage=claim.stage))
            return
        if before is not None:
            self.remove_claim(key)
        self._claims[key] = claim
        self._of_namespace[claim.namespace].add(key)
        for pool in claim.pools:
            self._of_pool[pool].add(key)
        if claim.allocation is None and claim.legacy_pod is None:
            self._open.add(key)
        self._outstanding[key] = None
        self.charge(key)

    def remove_claim(self, key: Hashable) -> None:
        """Release the charges of a claim that is gone."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        self._of_namespace[claim.namespace].discard(key)
        for pool in claim.pools:
            self._of_pool[pool].discard(key)
        self._open.discard(key)
        self._outstanding.pop(key, None)
        self.ledger.remove(key)

    # --- answers ----------------------------------------------------------------------------------

    def accounts(
        self, namespace: str, drivers: frozenset[str] | None = None
    ) -> tuple[Account, ...]:
        """Return the accounts of a namespace, of some drivers only if they are given."""
        return tuple(
            account
            for account in self.tenants.accounts(namespace)
            if drivers is None or account.limit.driver in drivers
        )

    def estimates(
        self, devices: DeviceClaim, accounts: Iterable[Account]
    ) -> Mapping[Account, Estimate]:
        """Return the charges of a claim that is not allocated.

        Raises:
            AnswerInterrupted: The budget does not last to evaluate the claim's selectors.
        """
        return {account: self._charges.estimate(devices, account.limit) for account in accounts}

    def excesses_of_plan(
        self,
        accounts: Sequence[Account],
        choices: Iterable[Sequence[Choice]],
        *,
        besides: Iterable[Hashable] = (),
        also: Mapping[Account, int] = NOTHING,
    ) -> tuple[Excess | CapBreach, ...]:
        """Return the limits that the devices of a plan for a pod's claims would exceed.

        Args:
            choices: The devices of each claim.
            besides: Claims that do not count: the pod's own, and those of victims.
            also: Amounts that count as committed, too.
        """
        charges = self.charges_of_plan([account.limit for account in accounts], choices)
        return self.excesses_of_charges(accounts, charges, besides=besides, also=also)

    def charges_of_plan(
        self, limits: Sequence[Limit], choices: Iterable[Sequence[Choice]]
    ) -> tuple[Charge, ...]:
        """Return the charge of each limit for the devices of a plan for a pod's claims.

        It depends on limits and devices alone, and not on what is in use.
        """
        totals = [Charge()] * len(limits)
        for of_claim in choices:
            devices = devices_of_plan(of_claim)
            for place, limit in enumerate(limits):
                charge, before = self._charges.charge_of(devices, limit), totals[place]
                totals[place] = Charge(
                    total=before.total + charge.total,
                    request=max(before.request, charge.request),
                    device=max(before.device, charge.device),
                )
        return tuple(totals)

    def excesses_of_charges(
        self,
        accounts: Sequence[Account],
        charges: Sequence[Charge],
        *,
        besides: Iterable[Hashable] = (),
        also: Mapping[Account, int] = NOTHING,
    ) -> tuple[Excess | CapBreach, ...]:
        """Return the limits that charges to some accounts would exceed.

        Args:
            charges: One for each account.
            besides: The same charges as in `excesses_of_plan`.
            also: The same charges as in `excesses_of_plan`.
        """
        breaches: list[CapBreach] = []
        totals: dict[Account, int] = {}
        for account, charge in zip(accounts, charges, strict=True):
            totals[account] = charge.total
            if account.limit.is_enforced:
                breaches += cap_breaches(account.limit, charge.request, charge.device)
        return (*breaches, *self.ledger.excesses(totals, besides=besides, also=also))

    def largest_amount(self, limit: Limit) -> int:
        """Return the most that one device, or a share of it, is charged with, in nano-units."""
        return self._published.largest_amount(limit)

    def counts_published(self, limit: Limit) -> bool:
        """Return True if a limit charges something for a published device, or none is published.

        Raises:
            AnswerInterrupted: The budget does not last to evaluate the limit's selectors.
        """
        devices = self._published.devices
        return not devices or any(counts_device(limit, device) for device in devices)

    def bounds(
        self,
        accounts: Iterable[Account],
        devices: Collection[PublishedDevice],
        *,
        besides: Sequence[Hashable] = (),
        also: Mapping[Account, int] = NOTHING,
    ) -> tuple[AmountBound, ...]:
        """Return the bounds that keep a search from plans with an excess.

        Args:
            devices: The devices of the node.
            besides: The same charges as in `excesses_of_plan`.
            also: The same charges as in `excesses_of_plan`.

        Raises:
            AnswerInterrupted: The budget does not last to evaluate the limits' selectors.
        """
        return tuple(
            amount_bound(
                account.limit, self.ledger.left(account, besides=besides, also=also), devices
            )
            for account in accounts
            if account.limit.is_enforced
        )

    def caps(
        self, accounts: Iterable[Account], devices: Collection[PublishedDevice]
    ) -> tuple[AmountBound, ...]:
        """Return the bounds of single requests and devices alone, independent of the use.

        Args:
            devices: The devices of the node.

        Raises:
            AnswerInterrupted: As `bounds` does.
        """
        return tuple(
            amount_bound(limit, UNLIMITED, devices)
            for limit in dict.fromkeys(account.limit for account in accounts)
            if limit.is_enforced and (limit.per_request, limit.per_device) != (None, None)
        )

    def excesses_of_claims(
        self,
        namespace: str,
        claims: Iterable[DeviceClaim],
        *,
        drivers: frozenset[str] | None = None,
        besides: Iterable[Hashable] = (),
    ) -> tuple[Excess | CapBreach, ...]:
        """Return the limits that claims would exceed in the worst case, theirs before a scheduler chose.

        Args:
            drivers: The drivers whose limits are asked for; None for all.
            besides: Claims that do not count.
        """
        accounts = self.accounts(namespace, drivers)
        charges: dict[Account, int] = dict.fromkeys(accounts, 0)
        breaches: list[CapBreach] = []
        for devices in claims:
            for account, estimate in self.estimates(devices, accounts).items():
                charges[account] += estimate.total.most
                if account.limit.is_enforced:
                    request, device = estimate.request.most, estimate.device.most
                    breaches += cap_breaches(account.limit, request, device)
        return (*breaches, *self.ledger.excesses(charges, besides=besides))

    def impossible(self, namespace: str, devices: DeviceClaim) -> tuple[Excess | CapBreach, ...]:
        """Return the limits that a claim exceeds with any device, even if nothing else is in use."""
        accounts = self.accounts(namespace)
        impossible: list[Excess | CapBreach] = []
        for account, estimate in self.estimates(devices, accounts).items():
            if not account.limit.is_enforced:
                continue
            impossible += cap_breaches(account.limit, estimate.request.least, estimate.device.least)
            excess = Excess(account, estimate.total.least, 0)
            if estimate.total.least > 0 and excess.is_final:
                impossible.append(excess)
        return tuple(impossible)

    def least_charges(self, namespace: str, claims: Iterable[DeviceClaim]) -> Mapping[Account, int]:
        """Return the least charges of claims together, with any devices, in nano-units."""
        accounts = self.accounts(namespace)
        charges: dict[Account, int] = dict.fromkeys(accounts, 0)
        for devices in claims:
            for account, estimate in self.estimates(devices, accounts).items():
                charges[account] += estimate.total.least
        return charges

    def legacy_charges(
        self, namespace: str, pod: PodSpec, mapped: Collection[str]
    ) -> Mapping[Account, int]:
        """Return the charges of a pod for keys that it has instead of claims, in nano-units.

        Args:
            mapped: The same keys as in `legacy_charge`.
        """
        return {
            account: amount
            for account in self.accounts(namespace)
            if (amount := legacy_charge(pod, account.limit, mapped))
        }

    def legacy_breaches(
        self, namespace: str, pod: PodSpec, mapped: Collection[str]
    ) -> tuple[CapBreach, ...]:
        """Return the caps that a pod exceeds by keys that it has instead of claims.

        Args:
            mapped: The same keys as in `legacy_charge`.
        """
        return tuple(
            breach
            for account in self.accounts(namespace)
            if account.limit.is_enforced
            for breach in cap_breaches(
                account.limit, *largest_legacy_request(pod, account.limit, mapped)
            )
        )

    # --- charges ----------------------------------------------------------------------------------

    @property
    def outstanding(self) -> Collection[Hashable]:
        """Return the claims with unknown charges, since their evaluation was interrupted."""
        return self._outstanding

    def claim(self, key: Hashable) -> CountedClaim | None:
        """Return a claim as it was put; None if there is none."""
        return self._claims.get(key)

    def charge(self, key: Hashable) -> None:
        """Charge a claim that is outstanding.

        Raises:
            AnswerInterrupted: It stays outstanding.
        """
        claim = self._claims[key]
        current_scope().meter.charge(1)
        if claim.is_estimated:
            with evaluating(tenant=claim.namespace):
                self._charge(key, claim)
        else:
            # No expression of the claim's author is evaluated.
            self._charge(key, claim)
        self._outstanding.pop(key, None)

    def _charge_again(self, keys: Iterable[Hashable]) -> None:
        """Charge claims.

        Raises:
            AnswerInterrupted: Some of them are outstanding.
        """
        keys = tuple(keys)
        self._outstanding |= dict.fromkeys(keys)
        for key in keys:
            self.charge(key)

    def _claims_of_other_largest(self) -> Iterable[Hashable]:
        """Return the claims of devices that are away, if the largest device published is another one now."""
        # A restart of a driver on all nodes renews the slices of each; only the first of a model changes a charge.
        limits = dict.fromkeys(account.limit for account in self.ledger.incomplete_accounts)
        try:
            is_other = self._charges.renew_largest(limits)
        except AnswerInterrupted:
            is_other = True
        return self.ledger.incomplete_keys if is_other else ()

    def _charge(self, key: Hashable, claim: CountedClaim) -> None:
        self.ledger.put(key, self.entry(claim))

    def entry(self, claim: CountedClaim) -> Entry:
        """Return the charges of a claim, in the book or not."""
        charges: dict[Account, int] = {}
        is_complete = True
        devices_held = (
            ()
            if claim.allocation is None
            else self._charges.devices_of_claim(claim.devices, claim.allocation)
        )
        for account in self.tenants.accounts(claim.namespace):
            is_known = True
            if claim.legacy_pod is not None:
                spec, _, mapped = claim.legacy_pod
                amount = legacy_charge(spec, account.limit, mapped)
            elif claim.allocation is not None:
                amount, is_known = self._charges.total_of(devices_held, account.limit)
            else:
                amount = self._charges.estimate(claim.devices, account.limit).total.most
            if amount or not is_known:
                charges[account] = amount
            is_complete &= is_known
        return Entry(claim.namespace, claim.stage, charges, is_complete)


@contextmanager
def leaving_outstanding() -> Iterator[None]:
    """Leave charges of a block outstanding instead of evaluating them."""
    with evaluating(meter=Meter(0)):
        try:
            yield
        except AnswerInterrupted:
            return
