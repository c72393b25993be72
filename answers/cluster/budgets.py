"""Pods that no DeviceQuota of their namespace lets through, one after another, and groups of pods. Pure.

The cluster is charged as by the controllers: claims with what they are allocated, and pods that a gate let
through with the most that they may get. A pod that is asked about is charged with the least that it can have:
what is above a budget then is above it whatever devices it gets. The bridge decides about its groups as one, with
what is left as a budget, and they are charged with their devices; the pods of other groups wait together for a gate,
and so do those of the bridge with keys of device plugins, for these keys.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.search_budget import ANSWER_STEPS, SearchBudget
from allocator.declarations.model import DeclaredGroup
from allocator.groups.budget import GroupBudget
from allocator.groups.model import GroupPlan
from allocator.model.feature_gates import Features
from allocator.model.plan import Budget, Choice, Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, claim_name, pod_name
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.quotas import HeldBack, NodesWithinQuota, Quotas
from allocator.strategies.strategy import Strategy
from answers.cluster.quota_usage import usage_beside, with_consumers
from answers.model.cluster_state import ClusterState
from answers.model.findings import describe_rejection
from clusterstate.fits_in_keys import findings_in_keys
from findings.field_path import FieldPath
from findings.finding import Code, Finding, has_errors, warning
from kube.api.core import NAMESPACE_NAME, Pod
from kube.api.extended_resources import extended_resources, requests_extended_resources
from kube.api.ownership import owned_drivers
from quotas.device_quotas.affordable_nodes import AffordableNodes, TenantBudget
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.group_budget import QuotaBudget
from quotas.device_quotas.ledger import DeviceQuotaLedger, Entry, Excess, Stage
from quotas.device_quotas.tenants import Account
from quotas.gates.counted_objects import is_gated
from quotas.gates.usage import QuotaUsage
from rules.context.context import Context
from rules.context.rule import Subject
from rules.feasibility.idle_cluster import IdleCluster
from rules.quotas.excesses import (
    UNTIL_ROOM,
    find_claim_excesses,
    find_pod_excesses,
    uncharged_entries,
)
from translation.cluster.snapshot import TranslationSnapshot


class Budgets:
    """The DeviceQuotas of a cluster with their use."""

    def __init__(
        self,
        state: ClusterState,
        *,
        pods: Collection[Name],
        claims: Collection[Name] = (),
        are_stored: bool = False,
    ) -> None:
        """Charge the cluster; without DeviceQuotas nothing is ever above a budget.

        Args:
            pods: The pods that are asked about.
            claims: Claims that are asked about.
            are_stored: The pods are in the cluster, so that those without the gate have got through.
        """
        self._are_stored = are_stored
        self._context: Context | None = None
        self._usage: QuotaUsage | None = None
        self._owned = owned_drivers(state.ownerships)
        self._bridge_scheduler = state.bridge_scheduler
        if not state.quotas:
            return
        self._usage = usage_beside(state, Features(), pods=pods, claims=claims)
        self._context = Context(
            templates={
                name: template.spec.spec.devices for name, template in state.templates.items()
            },
            claims={name: claim.spec.devices for name, claim in state.claims.items()},
            allocated_claims=state.allocated_claims,
            namespaces=state.namespaces,
            # Pods with keys that classes map are charged where no device plugin offers these.
            extended_resources=extended_resources(state.classes.values()),
            idle_cluster=IdleCluster(
                slices=state.slices,
                nodes=state.nodes,
                classes=state.classes,
                rules=AllocatorOptions(features=Features()),
            ),
            quota_book=self._usage.book,
        )

    def find_excesses(self, pod: Pod) -> tuple[Finding, ...]:
        """Return the reasons that enforced quotas do not let a pod through now, or ever; empty if they do."""
        if self._context is None:
            return ()
        find = find_claim_excesses if self._is_let_through(pod) else find_pod_excesses
        return tuple(find(self._subject(pod), FieldPath(), self._context))

    def explain(self, pod: Pod) -> tuple[str, ...]:
        """Return the quotas with too little left for a pod of the bridge, and their users, in sentences.

        A pod of another scheduler without the gate is let through, so no quota holds it back.
        """
        ledger = self.ledger
        if ledger is None or pod.spec.scheduler_name != self._bridge_scheduler:
            return ()
        least = self._claim_charges(pod) if self._is_let_through(pod) else self._charges(pod)
        charges = {
            account: amount
            for account, amount in _sum(least).items()
            if account.limit.driver in self._owned
        }
        sentences = [with_consumers(excess, ledger) for excess in ledger.excesses(charges)]
        breaches = [
            finding.detail
            for finding in self.find_excesses(pod)
            if finding.code is Code.EXCEEDS_PER_REQUEST_QUOTA
        ]
        return (*breaches, *sentences)

    def is_of_bridge(self, pod: Pod) -> bool:
        """Return True if the bridge places a pod, and charges its devices."""
        return bool(self._owned) and pod.spec.scheduler_name == self._bridge_scheduler

    def charge(self, pod: Pod) -> tuple[Hashable, ...]:
        """Count a pod for those that come after it, and return the keys of the charges."""
        return self._put(pod, self._charges(pod))

    def charge_keys(self, pod: Pod) -> tuple[Hashable, ...]:
        """Count the keys of a pod alone, without its claims, and return the keys of the charges."""
        return self._put(pod, self._key_charges(pod))

    def _put(
        self, pod: Pod, charges_by_key: Mapping[Hashable, Mapping[Account, int]]
    ) -> tuple[Hashable, ...]:
        if self.ledger is not None:
            for key, charges in charges_by_key.items():
                self.ledger.put(key, Entry(pod.metadata.namespace, Stage.PROMISED, charges))
        return tuple(charges_by_key)

    def charge_devices(self, claim: Name, choices: Sequence[Choice]) -> None:
        """Count a claim with the devices that a plan gives it."""
        if self._usage is not None:
            book = self._usage.book
            accounts = book.accounts(claim[0])
            charges = book.charges_of_plan([account.limit for account in accounts], (choices,))
            amounts = [charge.total for charge in charges]
            entry = Entry(claim[0], Stage.PROMISED, dict(zip(accounts, amounts, strict=True)))
            book.ledger.put(claim, entry)

    def release(self, keys: Iterable[Hashable]) -> None:
        """Take back charges."""
        if self.ledger is not None:
            for key in keys:
                self.ledger.remove(key)

    def left(self, namespace: str) -> QuotaBudget | None:
        """Return the amounts of owned drivers that a namespace has left; None if nothing limits it."""
        accounts = self._enforced_by_bridge(namespace)
        if self._usage is None or not accounts:
            return None
        book = self._usage.book
        left = tuple([max(0, book.ledger.left(account)) for account in accounts])
        return QuotaBudget(accounts, left, book)

    def nodes_within(
        self,
        namespace: str,
        pending: PendingClaims,
        strategy: Strategy,
        cluster: Cluster,
        budget: Budget,
    ) -> "PodNodes | None":
        """Return the nodes with devices within the rest of a namespace's quotas; None if it may have any.

        Args:
            budget: The budget of each search.
        """
        accounts = self._enforced_by_bridge(namespace)
        if self._usage is None or not accounts:
            return None
        tenant = TenantBudget(accounts, self._usage.book)
        if tenant.is_ample(pending):
            return None
        return PodNodes(
            *(pending, strategy, cluster, tenant),
            drivers=self._owned,
            answer_budget=SearchBudget(cluster.costs, ANSWER_STEPS),
            node_budget=budget,
        )

    def exceeded_by(self, namespace: str, choices: Iterable[Sequence[Choice]]) -> tuple[str, ...]:
        """Return the limits of owned drivers that devices of claims exceed, in phrases.

        Args:
            choices: The devices of each claim.
        """
        if self._usage is None:
            return ()
        accounts = self._enforced_by_bridge(namespace)
        excesses = self._usage.book.excesses_of_plan(accounts, choices)
        return tuple(dict.fromkeys(excess.message for excess in excesses))

    def _enforced_by_bridge(self, namespace: str) -> tuple[Account, ...]:
        if self._usage is None:
            return ()
        self._know(namespace)
        accounts = self._usage.book.accounts(namespace, self._owned)
        return tuple(account for account in accounts if account.limit.is_enforced)

    @property
    def ledger(self) -> DeviceQuotaLedger | None:
        """Return the charges of the cluster and of all pods that were charged; None without DeviceQuotas."""
        return None if self._usage is None else self._usage.book.ledger

    def least_charges(self, pod: Pod) -> Counter[Account]:
        """Return the least that a pod is charged with, in nano-units."""
        return _sum(self._charges(pod))

    def released_charges(self, name: Name) -> Counter[Account]:
        """Return the amounts that a pod of the cluster gives back with its end, in nano-units.

        A claim that it names stays, and those that were made for it end with it.
        """
        if self._usage is None or name not in self._usage.pods:
            return Counter()
        named_claims = {
            (name[0], entry.resource_claim_name)
            for entry in self._usage.pods[name].spec.resource_claims or ()
        }
        ledger = self._usage.book.ledger
        entries = (
            ledger.get(key)
            for key in self._usage.claims_of(name).entries
            if key not in named_claims
        )
        return sum(
            (
                Counter(entry.charges)
                for entry in entries
                if entry is not None and entry.stage is not Stage.WAITING
            ),
            Counter(),
        )

    def _charges(self, pod: Pod) -> Mapping[Hashable, Mapping[Account, int]]:
        """Return the least that each claim of a pod, and its keys, are charged with, in nano-units."""
        return {**self._claim_charges(pod), **self._key_charges(pod)}

    def _claim_charges(self, pod: Pod) -> Mapping[Hashable, Mapping[Account, int]]:
        context = self._context
        if context is None or context.quota_book is None:
            return {}
        return dict(_claim_charges(self._subject(pod), context, context.quota_book))

    def _key_charges(self, pod: Pod) -> Mapping[Hashable, Mapping[Account, int]]:
        context = self._context
        if context is None or context.quota_book is None:
            return {}
        return dict(_key_charges(self._subject(pod), context, context.quota_book))

    def _is_let_through(self, pod: Pod) -> bool:
        """Return True if nobody decides about the keys of a pod of the bridge any more."""
        return self._are_stored and self.is_of_bridge(pod) and not is_gated(pod)

    def _subject(self, pod: Pod) -> Subject[Pod]:
        self._know(pod.metadata.namespace)
        return Subject(view=pod, namespace=pod.metadata.namespace)

    def _know(self, namespace: str) -> None:
        """Add a namespace that is created for a pod, with the label that every namespace gets."""
        if self._usage is not None and namespace not in self._usage.book.tenants.namespaces:
            self._usage.book.replace_namespace(namespace, {NAMESPACE_NAME: namespace})


class PodNodes(AffordableNodes):
    """The nodes of a pod of the bridge within the rest of its namespace's quotas."""

    def held_back(self) -> HeldBack | None:
        """Return the reason that no node was among them so far; None if none was too expensive."""
        if self.is_cut_off:
            reason = "the search for devices within the DeviceQuotas was cut off"
            return HeldBack(reason=reason, waits=True, findings=())
        if self.excesses is None:
            return None
        path = FieldPath().child("spec", "resourceClaims")
        findings = tuple(
            warning(_code_of(excess), path, excess.message, UNTIL_ROOM) for excess in self.excesses
        )
        return HeldBack(reason=describe_rejection(findings), waits=True, findings=findings)


def _code_of(excess: Excess | CapBreach) -> Code:
    is_cap = isinstance(excess, CapBreach)
    return Code.EXCEEDS_PER_REQUEST_QUOTA if is_cap else Code.DEVICE_QUOTA_FULL


class SimulatedQuotas:
    """The DeviceQuotas of a cluster, charged with pods that are placed in turn (`allocator.simulation.quotas`)."""

    def __init__(self, budgets: Budgets, snapshot: TranslationSnapshot) -> None:
        """Begin with the use of the cluster.

        Args:
            snapshot: Its profiles are those in force.
        """
        self._budgets = budgets
        self._snapshot = snapshot
        # By name of the pod; of claims that are charged for their devices together, since these are placed.
        self._charged: dict[Name, tuple[Hashable, ...]] = {}
        self._by_devices: list[Hashable] = []

    def begin(self) -> None:
        """Take back the charges of an earlier simulation."""
        for name in tuple(self._charged):
            self._take_back(name)
        self._budgets.release(self._by_devices)
        self._by_devices.clear()

    def hold_back(self, pod: Pod) -> HeldBack | None:
        """Return the reason a pod is not tried; charge it if there is none."""
        name = _name_of(pod)
        if name in self._charged:
            return None
        reason = self._reason(pod)
        if reason is None:
            self._charged[name] = self._budgets.charge(pod)
        elif reason.waits and self._budgets.is_of_bridge(pod):
            # The gates let it through for its keys alone, and its claims wait for the bridge.
            self._hold_back_keys(pod)
        return reason

    def _reason(self, pod: Pod) -> HeldBack | None:
        excesses = findings_in_keys(self._budgets.find_excesses(pod), pod, self._snapshot)
        if not excesses:
            return None
        return HeldBack(
            reason=describe_rejection(excesses), waits=not has_errors(excesses), findings=excesses
        )

    def release(self, pod: Pod) -> None:
        """Take back the charge of a pod that gets no place, if the bridge would give it one: it promises no claims."""
        if self._budgets.is_of_bridge(pod) and _name_of(pod) in self._charged:
            self._charge_keys(pod)

    def nodes_within(
        self, pod: Pod, pending: PendingClaims, strategy: Strategy, cluster: Cluster, budget: Budget
    ) -> NodesWithinQuota | None:
        """Return the nodes for a pod of the bridge; None for others, charged for the least that they can have."""
        if not self._budgets.is_of_bridge(pod):
            return None
        self._charge_keys(pod)
        namespace = pod.metadata.namespace
        return self._budgets.nodes_within(namespace, pending, strategy, cluster, budget)

    def charge_devices(self, pod: Pod, pending: PendingClaims, plan: Plan) -> None:
        """Charge a pod of the bridge for its devices."""
        if self._budgets.is_of_bridge(pod):
            self._charge_keys(pod)
            self._charge_plan(pending, plan)

    def hold_back_members(self, group: DeclaredGroup) -> Mapping[Name, HeldBack]:
        """Return the pods of a group that are not tried with it; charge the others if they are enough."""
        if group.fault is not None:
            return {}
        hold_back = self._hold_back_keys if self._is_joint(group) else self.hold_back
        reasons = {_name_of(pod): hold_back(pod) for pod in group.waiting}
        held_back = {name: reason for name, reason in reasons.items() if reason is not None}
        if len(group.placed) + len(reasons) - len(held_back) < group.min_count:
            for name in reasons.keys() - held_back.keys():
                self._take_back(name)
        return held_back

    def _hold_back_keys(self, pod: Pod) -> HeldBack | None:
        """Return the reason that the keys of a pod of the bridge are not let through; charge them if there is none."""
        if _name_of(pod) in self._charged or not requests_extended_resources(pod.spec):
            return None
        reason = self._reason(replace(pod, spec=replace(pod.spec, resource_claims=None)))
        if reason is None:
            self._charge_keys(pod)
        return reason

    def budget(self, group: DeclaredGroup) -> GroupBudget | None:
        """Return the budget of a group that is charged for its devices; None if nothing limits these."""
        return self._budgets.left(group.name.namespace) if self._is_joint(group) else None

    def excess(self, group: DeclaredGroup, plan: GroupPlan) -> str:
        """Return the limits that the devices of a plan exceed, in a sentence; empty without any."""
        if not self._is_joint(group):
            return ""
        choices = [choices for share in plan.shares for choices in share.plan.choices]
        return "; ".join(self._budgets.exceeded_by(group.name.namespace, choices))

    def charge(self, group: DeclaredGroup, plan: GroupPlan) -> None:
        """Charge a group that has a budget for the devices of its plan."""
        if not self._is_joint(group):
            return
        for share in plan.shares:
            self._charge_plan(share.pending, share.plan)

    def _charge_plan(self, pending: PendingClaims, plan: Plan) -> None:
        for claim, choices in zip(pending.claims, plan.choices, strict=True):
            self._budgets.charge_devices(claim_name(claim), choices)
            self._by_devices.append(claim_name(claim))

    def _charge_keys(self, pod: Pod) -> None:
        """Take back the charge for the claims of a pod."""
        name = _name_of(pod)
        self._take_back(name)
        self._charged[name] = self._budgets.charge_keys(pod)

    def _is_joint(self, group: DeclaredGroup) -> bool:
        return bool(group.waiting) and self._budgets.is_of_bridge(group.waiting[0])

    def _take_back(self, name: Name) -> None:
        self._budgets.release(self._charged.pop(name, ()))


def quotas_of_group(
    group: DeclaredGroup,
    state: ClusterState,
    snapshot: TranslationSnapshot,
    *,
    are_stored: bool,
) -> Quotas | None:
    """Return the DeviceQuotas of a group of the bridge; None for others, since gates hold their pods back.

    Args:
        snapshot: Its profiles are those in force.
        are_stored: The same as of `Budgets`.
    """
    budgets = Budgets(state, pods=set(map(_name_of, group.waiting)), are_stored=are_stored)
    is_of_bridge = budgets.is_of_bridge(group.waiting[0])
    return SimulatedQuotas(budgets, snapshot) if is_of_bridge else None


def _sum(charges_by_key: Mapping[Hashable, Mapping[Account, int]]) -> Counter[Account]:
    return sum(map(Counter, charges_by_key.values()), Counter())


def _claim_charges(
    pod: Subject[Pod], context: Context, book: QuotaBook
) -> Iterator[tuple[Hashable, Mapping[Account, int]]]:
    """Yield the key of the charge for each claim, and the charge; a claim by name has the same key for all pods."""
    name = pod.view.metadata.name
    for number, entry in enumerate(uncharged_entries(pod, FieldPath(), context, book)):
        key = entry.existing or ("claim of a placed pod", pod.namespace, name, number)
        yield key, book.least_charges(pod.namespace, [entry.claim.spec.devices])


def _key_charges(
    pod: Subject[Pod], context: Context, book: QuotaBook
) -> Iterator[tuple[Hashable, Mapping[Account, int]]]:
    """Yield the charge of the keys that a pod has instead of claims."""
    name = pod.view.metadata.name
    mapped = mapped_resources(pod.view, context.extended_resources)
    yield (
        ("keys of a placed pod", pod.namespace, name),
        book.legacy_charges(pod.namespace, pod.view.spec, mapped),
    )


def _name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod_name(pod)
