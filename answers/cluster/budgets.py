"""Pods that no DeviceQuota of their namespace lets through, one after another. Pure.

A pod is charged with the least that it can have, and claims with what they are allocated: what is above a
budget then is above it whatever devices the pods get.
"""

from collections.abc import Mapping

from allocator.model.feature_gates import Features
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.search.attempt import AllocatorOptions
from answers.cluster.quota_usage import charge_legacy_pods, with_consumers
from answers.model.cluster_state import ClusterState
from findings.field_path import FieldPath
from findings.finding import Code, Finding
from kube.api.core import NAMESPACE_NAME, Pod
from kube.api.extended_resources import extended_resources
from quotas.device_quotas.allocated_usage import AllocatedUsage, QuotaObjects
from quotas.device_quotas.ledger import DeviceQuotaLedger, Entry, Stage
from quotas.device_quotas.tenants import Account
from rules.context.claim_entries import entries_of_pod
from rules.context.context import Context
from rules.context.rule import Subject
from rules.feasibility.idle_cluster import IdleCluster
from rules.quotas.excesses import find_pod_excesses


class Budgets:
    """The DeviceQuotas of a cluster with their use."""

    def __init__(self, state: ClusterState) -> None:
        """Charge the allocated claims; without DeviceQuotas nothing is ever above a budget."""
        self._context: Context | None = None
        if not state.quotas:
            return
        usage = AllocatedUsage(Features())
        usage.apply(
            QuotaObjects(
                classes={("", name): entry for name, entry in state.classes.items()},
                slices={
                    ("", slice_.metadata.name or str(number)): slice_
                    for number, slice_ in enumerate(state.slices)
                },
                quotas={("", quota.metadata.name): quota for quota in state.quotas},
                claims=state.claims,
            )
        )
        book = usage.book(state.namespaces)
        charge_legacy_pods(book, state)
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
            quota_book=book,
        )

    def find_excesses(self, pod: Pod) -> tuple[Finding, ...]:
        """Return the reasons that enforced quotas do not let a pod through now, or ever; empty if they do."""
        if self._context is None:
            return ()
        return tuple(find_pod_excesses(self._subject(pod), FieldPath(), self._context))

    def explain(self, pod: Pod) -> tuple[str, ...]:
        """Return the quotas with too little left for a pod, and their users, in sentences.

        A pod behind the gate of quotas is charged with the most that it may get, as by the controllers.
        """
        ledger = self._ledger
        if ledger is None:
            return ()
        sentences = [
            with_consumers(excess, ledger) for excess in ledger.excesses(self._charges(pod))
        ]
        breaches = [
            finding.detail
            for finding in self.find_excesses(pod)
            if finding.code is Code.EXCEEDS_PER_REQUEST_QUOTA
        ]
        return (*breaches, *sentences)

    def charge(self, pod: Pod) -> None:
        """Count a pod for those that come after it."""
        namespace = pod.metadata.namespace
        if self._ledger is not None:
            entry = Entry(namespace, Stage.PROMISED, self._charges(pod))
            self._ledger.put(("placed pod", namespace, pod.metadata.name), entry)

    @property
    def _ledger(self) -> DeviceQuotaLedger | None:
        book = self._context.quota_book if self._context is not None else None
        return None if book is None else book.ledger

    def _charges(self, pod: Pod) -> Mapping[Account, int]:
        """Return the least that a pod is charged with, in nano-units."""
        context = self._context
        if context is None or context.quota_book is None:
            return {}
        entries = entries_of_pod(self._subject(pod), FieldPath(), context)
        claims = [entry.claim.spec.devices for entry in entries]
        charges = context.quota_book.least_charges(pod.metadata.namespace, claims)
        by_keys = context.quota_book.legacy_charges(
            pod.metadata.namespace, pod.spec, mapped_resources(pod, context.extended_resources)
        )
        return {
            account: amount + by_keys.get(account, 0)
            for account, amount in charges.items()
            if amount + by_keys.get(account, 0)
        }

    def _subject(self, pod: Pod) -> Subject[Pod]:
        namespace = pod.metadata.namespace
        book = self._context.quota_book if self._context is not None else None
        if book is not None and namespace not in book.tenants.namespaces:
            # It is created for the pod, with the label that every namespace gets.
            book.replace_namespace(namespace, {NAMESPACE_NAME: namespace})
        return Subject(view=pod, namespace=namespace)
