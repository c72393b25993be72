"""Pods with device keys in spite of their opt-in, since nobody has restarted them. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from findings.text import count_text, join_names
from kube.api.workloads import DAEMON_SET
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unmoved import early_text, remove_label
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import has_claims, is_leaving
from migration.plan.facts.rollouts import replaces_pods
from migration.plan.model.plan import RESTARTED_KINDS, Held, Wave
from migration.plan.stage.stage import PodKey, Stage

_KINDS: Final = RESTARTED_KINDS - {DAEMON_SET}
"""Kinds that a restart moves; a wave restarts no DaemonSet on nodes of later waves."""

_WITH_DEVICES: Final = (
    "when nodes with a DRA driver have devices for them; then plan again from a new snapshot"
)
_RESTART: Final = f"restart its pods (kubectl rollout restart) {_WITH_DEVICES}"
_DELETE: Final = f"delete its pods one after another {_WITH_DEVICES}"
_SOLVE: Final = "solve what holds nodes first; then plan again from a new snapshot"


def unrestarted_pods(
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Sequence[str]],
    groups: Mapping[str, Workload],
    stage: Stage,
) -> frozenset[PodKey]:
    """Return the pods without claims, on nodes without a DRA driver, of workloads that are opted in.

    Pods on their way out need no other place.

    Args:
        workloads: The cluster's workloads.
        nodes_of: Workload to the nodes of its pods, in the order of their numbers.
        groups: Workload, as `Kind/namespace/name`, to its pods in the same order.
        stage: The cluster as it is.
    """
    return frozenset(
        PodKey(reference, number)
        for workload in workloads
        if workload.result is not None
        and workload.outcome is not Outcome.NATIVE
        and stage.has_moved(workload)
        for reference in [workload.key.reference]
        for number, (pod, node) in enumerate(
            zip(groups[reference].pods, nodes_of[reference], strict=True)
        )
        if node and node not in stage.switched and not has_claims(pod) and not is_leaving(pod)
    )


def opted_in_already(
    workloads: Iterable[AssessedWorkload], stage: Stage
) -> Iterator[AssessedWorkload]:
    """Yield the workloads with next pods that get claims by a label of today.

    Args:
        workloads: The cluster's workloads.
        stage: The cluster as it is.
    """
    for workload in workloads:
        is_translated = workload.result is not None and workload.outcome is not Outcome.NATIVE
        if (is_translated or workload.gets_claims) and stage.has_moved(workload):
            yield workload


class EarlyOptIns(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads that are opted in before a node with a DRA driver has devices for their claims.

    Attributes:
        pod_counts: Workload that a restart moves, as `Kind/namespace/name`, to the number of its pods with device keys.
        static_workloads: Those of them whose pods no rollout replaces.
        daemon_counts: DaemonSet to the number of its pods with device keys.
        unserved: The workloads that no such node serves yet, to the nodes that their pods may use.
        starting: Those of them with pods to come, as a CronJob, and with devices under their keys today.
        namespaces: The namespaces whose label is of use to nobody yet.
    """

    pod_counts: Mapping[str, int]
    static_workloads: tuple[str, ...]
    daemon_counts: Mapping[str, int]
    unserved: Mapping[str, frozenset[str]]
    starting: tuple[str, ...]
    namespaces: tuple[str, ...]

    def texts(self, planned: Collection[str]) -> Iterator[str]:
        """Yield the notes on them.

        Args:
            planned: The nodes of all waves.
        """
        if self.pod_counts:
            yield _kept_keys_text(self.pod_counts, self.static_workloads)
        served = [name for name in self.starting if not self.unserved[name].isdisjoint(planned)]
        for names, end in (
            (served, "they wait until a wave brings some"),
            (sorted({*self.starting} - {*served}), "no wave brings any, so they wait"),
        ):
            if names:
                yield (
                    f"the next pods of {join_names(names)} get claims, since these are opted in already, and no node with "
                    f"a DRA driver has devices for them yet: {end}"
                )
        if self.namespaces:
            rather = (
                "; rather that than a restart by hand, since a wave restarts what it opts in"
                if self.pod_counts
                else ""
            )
            yield f"{early_text(self.namespaces)}: {remove_label(self.namespaces)}{rather}"

    def held_workloads(self, left_out: Collection[str]) -> Iterator[Held]:
        """Yield them as objects without a wave, for a plan that has none.

        Args:
            left_out: Objects with another reason.
        """
        counts = {**self.pod_counts, **self.daemon_counts}
        for reference in sorted({*counts, *self.starting}.difference(left_out)):
            reason = "it is opted in already: "
            if count := counts.get(reference, 0):
                verb = "has" if count == 1 else "have"
                reason += f"{count_text(count, 'pod')} of it {verb} device keys still, and "
            if reference in self.daemon_counts:
                reason += "one that ends gets no devices before its node is switched"
                fix = _SOLVE
            elif reference in self.unserved:
                reason += (
                    "its next pods get claims, and no wave switches a node with devices for these"
                )
                fix = _SOLVE
            else:
                reason += "its next pods get claims"
                fix = _DELETE if reference in self.static_workloads else _RESTART
            namespace = reference.split("/")[1]
            if namespace in self.namespaces:
                fix = remove_label([namespace])
            yield Held(object=reference, reason=reason, fix=fix)


def find_early_opt_ins(
    workloads: Iterable[AssessedWorkload],
    groups: Mapping[str, Workload],
    stage: Stage,
    unrestarted: Collection[PodKey],
    *,
    usable: Mapping[str, frozenset[str]],
    starting: frozenset[str],
    with_claims: Collection[str],
) -> EarlyOptIns:
    """Return the workloads that are opted in before a node serves their claims.

    Args:
        workloads: The cluster's workloads.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        stage: The cluster as it is.
        unrestarted: The pods that run with device keys though they are opted in.
        usable: Workload to the nodes that its pods may use, without those whose devices no node has.
        starting: The workloads with pods to come, without DaemonSets.
        with_claims: The namespaces with pods that have claims by their label.
    """
    moved = {
        workload.key.reference: groups[workload.key.reference]
        for workload in workloads
        if workload.result is not None
        and workload.outcome is not Outcome.NATIVE
        and stage.has_moved(workload)
    }
    unserved = {
        name: nodes
        for name in moved
        if stage.switched.isdisjoint(nodes := usable.get(name, frozenset[str]()))
    }
    waiting = unserved.keys() & usable.keys() & starting
    counts = Counter(key.workload for key in unrestarted)
    early = {moved[name].key.namespace for name in {*counts, *waiting}}
    served = {group.key.namespace for name, group in moved.items() if name not in unserved}
    pod_counts, daemon_counts = (
        {name: count for name, count in counts.items() if name.partition("/")[0] in kinds}
        for kinds in (_KINDS, {DAEMON_SET})
    )
    return EarlyOptIns(
        pod_counts=pod_counts,
        static_workloads=tuple(
            name for name in sorted(pod_counts) if not replaces_pods(groups[name])
        ),
        daemon_counts=daemon_counts,
        unserved=unserved,
        starting=tuple(sorted(waiting)),
        namespaces=tuple(sorted(early.difference(served, with_claims))),
    )


def with_early_opt_ins(waves: Iterable[Wave], early: EarlyOptIns) -> Iterator[Wave]:
    """Yield the waves, the first with the notes on early opt-ins."""
    waves = tuple(waves)
    planned = {node.name for wave in waves for node in wave.nodes}
    for number, wave in enumerate(waves):
        yield wave if number else replace(wave, notes=(*wave.notes, *early.texts(planned)))


def _kept_keys_text(counts: Mapping[str, int], static_workloads: Sequence[str]) -> str:
    """Return the text about pods with device keys, by the number that each workload has."""
    names = [f"{pods} of {reference}" for reference, pods in sorted(counts.items())]
    total = sum(counts.values())
    verb = "has" if total == 1 else "have"
    deletion = (
        f"; no rollout replaces pods of {join_names(static_workloads)} (OnDelete, a partition, a paused rollout, or a "
        "ReplicaSet of its own): delete these one after another instead"
        if static_workloads
        else ""
    )
    return (
        f"{count_text(total, 'pod')} {verb} device keys still, though opted in already: {join_names(names)}; each "
        "keeps its devices until the drain of its node or a restart, and new pods get claims, also after a rollback.sh: restart these workloads "
        f"(kubectl rollout restart) when nodes with a DRA driver have devices for them{deletion}"
    )
