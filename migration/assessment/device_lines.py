"""Lines of ResourceQuotas for devices that are less than namespaces need once they have moved. Pure.

The lines are those of a plan, judged as after the mappings of its preparation. Both change what pods count on: pods
with claims count on the lines of DeviceClasses, and pods that become native on those of their keys, too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.assumed import without_mappings
from migration.assessment.capacity import absent_classes
from migration.assessment.chart_names import foreign_mappings
from migration.assessment.claim_counts import ClaimShortage, find_claim_shortages, surge_of
from migration.assessment.device_needs import (
    NamespaceObjects,
    PodsToCome,
    TodaysLines,
    accounts_by_namespace,
    charge_of_next_pod,
    countings_of,
    devices_in_use,
    objects_by_namespace,
    opted_in_workloads,
    running_pods,
)
from migration.assessment.line_workloads import LineTotal, LineWorkload, largest_of, total_of
from migration.assessment.outcomes import (
    AssessedWorkload,
    Outcome,
    claiming_namespaces,
)
from migration.cluster.node_devices import Source
from migration.conversion.quota_conversion import ConvertedQuota, convert_quotas, knows_use
from migration.conversion.replaced_lines import (
    convert_plan_quotas,
    planned_objects,
    without_replaced_lines,
)
from quotas.resource_quotas.usage import Account, Counting, PodCharge, sum_on
from translation.cluster.snapshot import QuotaPolicy, TranslationOptions
from translation.profiles.profile import Profile

_NOT_STARTED: Final = (
    "{} starts no pods today, since {}; no line for its claims has room for them, either"
)
_STARTS_NO_MORE: Final = (
    "{} starts no more pods today, since {}; no line for its claims has room for them, either"
)


class DeviceLines(NamedTuple):
    """The result for the lines for devices.

    Attributes:
        shortages: The lines that are too low for workloads that are still to move.
        early: Those that are too low for workloads that are opted in already, because of the plan.
        not_started: The workloads that quotas let start no pod today either, each with the reason.
    """

    shortages: tuple[ClaimShortage, ...] = ()
    early: tuple[ClaimShortage, ...] = ()
    not_started: Mapping[str, str] = {}


class LinesQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster for a comparison of lines.

    Attributes:
        objects: The cluster's objects as they are.
        planned: The same, with the quotas of the plan.
        namespace: The namespace for objects that name none.
        mappings: Resource name to the DeviceClass that a plan has map it.
        taken_back: The DeviceClasses that lose the resource name which they map today.
        version: The API server's version; empty if it is not known.
        converts_early: The plan has quotas count claims also where pods were opted in before it.
        rejects_uncounted: The webhook rejects pods with claims that no line counts.
    """

    objects: Sequence[SourceObject]
    planned: Sequence[SourceObject]
    namespace: str
    mappings: Mapping[str, str]
    taken_back: Collection[str] = ()
    version: str = ""
    converts_early: bool = True
    rejects_uncounted: bool = True


def with_quota_lines(
    cluster: AssessedCluster,
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
    *,
    quotas: Sequence[ConvertedQuota],
) -> AssessedCluster:
    """Return a cluster with its quotas to convert, and with the lines that are too low for its workloads.

    Classes map the names that they do after a preparation of all nodes.

    Args:
        cluster: The cluster.
        objects: Its objects as they are.
        profiles: Driver to profile.
        options: The options of the translation.
        namespace: The namespace for objects that name none.
        quotas: The quotas as converted without foreign mappings of names.
    """
    mappings, taken_back = cluster.name_changes
    prepared_objects = without_mappings(objects, taken_back)
    absent = absent_classes(cluster.workloads, cluster.state, profiles.values())
    if absent or len(taken_back) < len(foreign_mappings(objects)):
        remaining = without_replaced_lines(prepared_objects, cluster.replaced_lines, namespace)
        quotas = convert_quotas(remaining, profiles, options, namespace, absent=absent)
    cluster = _with_conversions(cluster, quotas)
    if not cluster.state.resource_quotas:
        return cluster
    counts = tuple(find_claim_shortages(cluster.workloads, cluster.state))
    planned, rejects_uncounted = objects, options.quota is QuotaPolicy.DENY
    if cluster.converts_quotas:
        use = None
        if knows_use(objects, ()):
            use = devices_in_use(
                *(cluster, objects, namespace, mappings), rejects_uncounted=rejects_uncounted
            )
        planned_quotas = convert_plan_quotas(
            *(prepared_objects, profiles, options, namespace, use),
            later_mappings={name: key for key, name in mappings.items()},
            replaced_lines=cluster.replaced_lines,
            namespaces=claiming_namespaces(cluster.workloads),
            absent=absent,
        )
        planned = planned_objects(objects, planned_quotas, cluster.replaced_lines, namespace)
    lines = find_device_lines(
        cluster,
        LinesQuestion(
            objects=objects,
            planned=planned,
            namespace=namespace,
            mappings=mappings,
            taken_back={mapping.device_class for mapping in taken_back},
            version=cluster.version,
            converts_early=rejects_uncounted,
            rejects_uncounted=rejects_uncounted,
        ),
    )
    return msgspec.structs.replace(
        cluster,
        claim_shortages=(*counts, *lines.shortages),
        early_shortages=lines.early,
        not_started=lines.not_started,
    )


def _with_conversions(
    cluster: AssessedCluster, quotas: Iterable[ConvertedQuota]
) -> AssessedCluster:
    """Return a cluster with its quotas to convert, and the lines without a counterpart."""
    own = tuple(quotas)
    namespaces = claiming_namespaces(cluster.workloads)
    return msgspec.structs.replace(
        cluster,
        quotas_to_convert=tuple(
            quota.object
            for quota in own
            if cluster.converts_quotas and quota.added and quota.object.split("/")[1] in namespaces
        ),
        quotas_left={quota.object: quota.not_convertible for quota in own if quota.not_convertible},
    )


# --- the comparison -------------------------------------------------------------------------------


class _Comparison:
    """The comparison of the lines of one namespace."""

    def __init__(
        self,
        todays_lines: TodaysLines,
        accounts: Sequence[Account],
        counting: Counting,
        objects: NamespaceObjects,
        *,
        rejects_uncounted: bool = True,
    ) -> None:
        """Begin with the objects of a namespace.

        Args:
            todays_lines: Its lines of today.
            accounts: Its quotas of the plan.
            counting: The counting of the plan.
            objects: Its pods and claims.
            rejects_uncounted: The webhook rejects pods with claims that no line counts.
        """
        self._rejects_uncounted = rejects_uncounted
        self._today, self._after = todays_lines, accounts
        self._later = counting
        self._objects = objects

    def lines(
        self,
        workloads: Iterable[AssessedWorkload],
        nodes: Collection[str],
        opted_in: Collection[str],
    ) -> DeviceLines:
        """Return the lines that are too low for the workloads of the namespace.

        Args:
            workloads: The workloads.
            nodes: The nodes that are still to be switched.
            opted_in: Those whose next pods get claims by a label of today, as `Kind/namespace/name`.
        """
        members: list[LineWorkload] = []
        starts: list[tuple[PodCharge, int]] = []
        reasons: list[tuple[LineWorkload, str]] = []
        for workload in workloads:
            is_opted_in = workload.key.reference in opted_in
            member, coming = self.member(workload, nodes, is_opted_in=is_opted_in)
            members.append(member)
            if member.starting:
                starts.append((coming.charge, member.starting))
            if coming.reason:
                reasons.append((member, coming.reason))
        members = self._with_todays_surges(members, starts)
        totals = self.totals(members)
        not_started = {
            reference: (_STARTS_NO_MORE if member.running else _NOT_STARTED).format(
                reference, reason
            )
            for member, reason in reasons
            if not self.has_room(member, totals)
            for reference in [member.workload.key.reference]
        }
        shortages = tuple(self.shortages(members, totals, starts))
        return DeviceLines(
            shortages=tuple(entry for entry in shortages if not entry.is_early),
            early=tuple(entry for entry in shortages if entry.is_early),
            not_started=not_started,
        )

    def member(
        self, workload: AssessedWorkload, nodes: Collection[str], *, is_opted_in: bool
    ) -> tuple[LineWorkload, PodsToCome]:
        """Return a workload with its pods, and those that it starts today.

        Args:
            workload: The workload.
            nodes: The nodes that are still to be switched.
            is_opted_in: Its next pods get claims by a label of today.
        """
        pods = self._objects.pods
        names = [name for name in workload.members if name in pods]
        running = running_pods(workload, pods)
        charge = charge_of_next_pod(workload, self._later)
        is_rejected = is_opted_in and self._rejects_uncounted and self._is_uncounted(charge)
        coming = self._today.pods_to_come(
            workload, running, is_opted_in=is_opted_in, is_rejected=is_rejected
        )
        member = LineWorkload(
            workload=workload,
            today=coming.charge,
            charge=charge,
            now=self._objects.charges(names, self._today.counting),
            later=self._objects.charges(names, self._later),
            running=running,
            starting=0 if coming.reason else coming.number,
            surge=surge_of(workload),
            is_opted_in=is_opted_in,
            is_evicted=any(pods[name].spec.node_name in nodes for name in names),
        )
        return member, coming

    def _is_uncounted(self, charge: PodCharge) -> bool:
        """Return True if a pod counts on a line that the plan adds, and that no quota has today."""
        counted = self._today.names
        return any(
            line not in counted and charge.on(account.quota, line) > ZERO
            for account in self._after
            for line in account.hard
        )

    def _with_todays_surges(
        self, members: Iterable[LineWorkload], todays_starts: Sequence[tuple[PodCharge, int]]
    ) -> list[LineWorkload]:
        """Return members without the surges that quotas have no room for today, beside the pods to come."""
        beside: dict[tuple[str, str], Quantity] = {}
        if todays_starts and not self._today.excess(todays_starts):
            beside = {
                (account.reference, line): total_of(
                    charge.on(account.quota, line) * pods for charge, pods in todays_starts
                )
                for account in self._today.accounts
                for line in account.hard
            }
        return [
            member._replace(surge=0)
            if member.surge and self._today.excess([(member.today, member.surge)], beside)
            else member
            for member in members
        ]

    def totals(self, members: Iterable[LineWorkload]) -> Mapping[tuple[str, str], LineTotal]:
        """Return quota and line of the plan to the amounts that count on it without pods to come."""
        own = tuple(members)
        moving = frozenset(name for member in own for name in member.workload.members)
        names = (self._objects.pods.keys() | self._objects.claims_of.keys()) - moving
        others = [*self._objects.charges(names, self._later), self._objects.unowned(self._later)]
        return {
            (account.reference, line): LineTotal(
                used=sum_on(others, account, line),
                running=total_of(member.running_on(account, line) for member in own),
            )
            for account in self._after
            for line in account.hard
        }

    def shortages(
        self,
        members: Sequence[LineWorkload],
        totals: Mapping[tuple[str, str], LineTotal],
        todays_starts: Sequence[tuple[PodCharge, int]],
    ) -> Iterator[ClaimShortage]:
        """Yield the lines that are too low for the workloads that the plan has count on them.

        One that is opted in, and has pods on nodes that are still to be switched, needs them twice: for the preparation and
        for the waves of these nodes.

        Args:
            members: The namespace's workloads.
            totals: The amounts on the lines without pods to come.
            todays_starts: The amounts of the pods to come if they start today, each with their number.
        """
        # Those that never run at once today do not have to later.
        join: Callable[[Iterable[Quantity]], Quantity] = total_of
        if self._today.excess(todays_starts):
            join = largest_of
        todays_lines = {
            (account.reference, line) for account in self._today.accounts for line in account.hard
        }
        for account in self._after:
            for line, hard in account.hard.items():
                total = totals[account.reference, line]
                starting = join(member.on(account, line, member.starting) for member in members)
                needed = total.running + starting
                # Rollouts come one after the other.
                surge = largest_of(member.on(account, line, member.surge) for member in members)
                if total.used + needed + surge <= hard:
                    continue
                is_added = (account.reference, line) not in todays_lines
                for is_early in (False, True):
                    affected = [
                        member
                        for member in members
                        if member.is_affected(account, line, is_added=is_added, is_early=is_early)
                    ]
                    if affected:
                        yield ClaimShortage(
                            quota=account.reference,
                            line=line,
                            needed=needed.round_up(),
                            surge=surge.round_up(),
                            used=total.used,
                            hard=hard,
                            rollouts=tuple(
                                member.workload.key.reference
                                for member in affected
                                if member.on(account, line, member.surge)
                                > hard - total.used - needed
                            ),
                            workloads=tuple(member.workload.key.reference for member in affected),
                            rejects_pods=any(line in member.charge.own for member in affected),
                            is_added=is_added,
                            is_native=all(
                                member.workload.outcome is Outcome.NATIVE for member in affected
                            ),
                            is_early=is_early,
                        )

    def has_room(self, member: LineWorkload, totals: Mapping[tuple[str, str], LineTotal]) -> bool:
        """Return True if the lines of the plan have room for one more pod of a workload."""
        return all(
            total.used + total.running + amount <= hard
            for account in self._after
            for line, hard in account.hard.items()
            for total in [totals[account.reference, line]]
            if (amount := member.on(account, line, 1)) > ZERO
        )


def find_device_lines(cluster: AssessedCluster, question: LinesQuestion) -> DeviceLines:
    """Return the lines for devices that are less than a cluster's workloads need after a plan."""
    after = accounts_by_namespace(question.planned, question.namespace)
    if not after:
        return DeviceLines()
    today, later = countings_of(
        cluster.state.classes, question.mappings, question.taken_back, question.version
    )
    nodes = {node.node for node in cluster.nodes if node.legacy and node.source is not Source.DRA}
    objects = objects_by_namespace(cluster.state, after.keys())
    accounts = accounts_by_namespace(question.objects, question.namespace)
    workloads: dict[str, list[AssessedWorkload]] = {}
    for workload in cluster.workloads:
        if workload.result is not None and workload.key.namespace in after:
            workloads.setdefault(workload.key.namespace, []).append(workload)
    opted_in = opted_in_workloads(question.objects, cluster.state.namespaces, question.namespace)
    by_namespace = [
        _Comparison(
            TodaysLines(accounts.get(namespace, ()), objects[namespace], today),
            after[namespace],
            later,
            objects[namespace],
            rejects_uncounted=question.rejects_uncounted,
        ).lines(own, nodes, opted_in)
        for namespace, own in sorted(workloads.items())
    ]
    return DeviceLines(
        shortages=tuple(entry for lines in by_namespace for entry in lines.shortages),
        early=tuple(
            entry
            for lines in by_namespace
            for entry in lines.early
            if question.converts_early or not entry.is_added
        ),
        not_started={
            name: reason for lines in by_namespace for name, reason in lines.not_started.items()
        },
    )
