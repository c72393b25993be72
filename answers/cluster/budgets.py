"""Pods that no DeviceQuota of their namespace lets through, one after another. Pure.

The cluster is charged as by the controllers: claims with what they are allocated, and pods that a gate let
through with the most that they may get. A pod that is asked about is charged with the least that it can have:
what is above a budget then is above it whatever devices it gets.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.search.attempt import AllocatorOptions
from answers.cluster.quota_usage import usage_beside, with_consumers
from answers.model.cluster_state import ClusterState
from findings.field_path import FieldPath
from findings.finding import Code, Finding
from kube.api.core import NAMESPACE_NAME, Pod
from kube.api.extended_resources import extended_resources
from kube.api.ownership import owned_drivers
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.ledger import DeviceQuotaLedger, Entry, Stage
from quotas.device_quotas.tenants import Account
from quotas.gates.usage import QuotaUsage
from rules.context.context import Context
from rules.context.rule import Subject
from rules.feasibility.idle_cluster import IdleCluster
from rules.quotas.excesses import find_pod_excesses, uncharged_entries


class Budgets:
    """The DeviceQuotas of a cluster with their use."""

    def __init__(
        self, state: ClusterState, *, pods: Collection[Name], claims: Collection[Name] = ()
    ) -> None:
        """Charge the cluster; without DeviceQuotas nothing is ever above a budget.

        Args:
            pods: The pods that are asked about.
            claims: Claims that are asked about.
        """
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
            allocated_claims={
                name
                for name, claim in state.claims.items()
                if claim.status is not None and claim.status.allocation is not None
            },
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
        return tuple(find_pod_excesses(self._subject(pod), FieldPath(), self._context))

    def explain(self, pod: Pod) -> tuple[str, ...]:
        """Return the quotas with too little left for a pod of the bridge, and their users, in sentences.

        A pod of another scheduler without the gate is let through, so no quota holds it back.
        """
        ledger = self.ledger
        if ledger is None or pod.spec.scheduler_name != self._bridge_scheduler:
            return ()
        charges = {
            account: amount
            for account, amount in self.least_charges(pod).items()
            if account.limit.driver in self._owned
        }
        sentences = [with_consumers(excess, ledger) for excess in ledger.excesses(charges)]
        breaches = [
            finding.detail
            for finding in self.find_excesses(pod)
            if finding.code is Code.EXCEEDS_PER_REQUEST_QUOTA
        ]
        return (*breaches, *sentences)

    def charge(self, pod: Pod) -> None:
        """Count a pod for those that come after it."""
        if self.ledger is not None:
            for key, charges in self._charges(pod).items():
                self.ledger.put(key, Entry(pod.metadata.namespace, Stage.PROMISED, charges))

    @property
    def ledger(self) -> DeviceQuotaLedger | None:
        """Return the charges of the cluster and of all pods that were charged; None without DeviceQuotas."""
        return None if self._usage is None else self._usage.book.ledger

    def least_charges(self, pod: Pod) -> Counter[Account]:
        """Return the least that a pod is charged with, in nano-units."""
        return sum(map(Counter, self._charges(pod).values()), Counter())

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
        context = self._context
        if context is None or context.quota_book is None:
            return {}
        return dict(_charges(self._subject(pod), context, context.quota_book))

    def _subject(self, pod: Pod) -> Subject[Pod]:
        namespace = pod.metadata.namespace
        book = self._context.quota_book if self._context is not None else None
        if book is not None and namespace not in book.tenants.namespaces:
            # It is created for the pod, with the label that every namespace gets.
            book.replace_namespace(namespace, {NAMESPACE_NAME: namespace})
        return Subject(view=pod, namespace=namespace)


def _charges(
    pod: Subject[Pod], context: Context, book: QuotaBook
) -> Iterator[tuple[Hashable, Mapping[Account, int]]]:
    """Yield the key of each charge of a pod, and the charge; a claim by name has the same key for all pods."""
    name = pod.view.metadata.name
    for number, entry in enumerate(uncharged_entries(pod, FieldPath(), context, book)):
        key = entry.existing or ("claim of a placed pod", pod.namespace, name, number)
        yield key, book.least_charges(pod.namespace, [entry.claim.spec.devices])
    mapped = mapped_resources(pod.view, context.extended_resources)
    yield (
        ("keys of a placed pod", pod.namespace, name),
        book.legacy_charges(pod.namespace, pod.view.spec, mapped),
    )
