"""Workloads left without a pod, or with half of their pods, by the drains of a wave until new ones are ready. Pure.

A drain evicts all pods of its node at once, but for those that a PodDisruptionBudget makes wait, and the next drain does
not wait until new pods are ready. Source: k8s.io/kubectl v0.37.1, pkg/drain.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from kube.api.workloads import DAEMON_SET
from migration.cluster.evidence import Disruptions, mapping_at
from migration.cluster.owners import controller, kind_of
from migration.cluster.workload_budgets import WorkloadBudgets, budgets_of
from migration.cluster.workloads import Workload
from migration.plan.model.plan import RESTARTED_KINDS, RUN_OUT, Wave
from migration.plan.search.device_map import Course, WaveDetails

_COURSES: Final = frozenset({Course.MOVES, Course.BOUND, Course.ASKS})
_KINDS: Final = RESTARTED_KINDS - {DAEMON_SET}
_LEFT_OUT: Final = RUN_OUT | {DAEMON_SET, "Pod"}
"""Kinds with pods that a drain leaves, that run to their end, or that nothing creates again."""
_MOVED: Final = " (moved there by an earlier wave, as simulated)"
_NAMES: Final = 8
"""The most workloads that a note names."""


def with_emptied(
    wave: Wave,
    details: WaveDetails,
    budgets: Mapping[tuple[str, str], Disruptions],
    groups: Mapping[str, Workload],
) -> Wave:
    """Return a wave with its workloads that have all their pods on its nodes, or at least half, and no budget that holds some.

    A workload of another project, such as a Notebook, counts with all of its pods with devices, whatever it creates them by.
    They are there today, and no earlier wave takes them elsewhere, so this is no matter of where kube-scheduler puts them.
    An only pod is named as well where the plan places it after an earlier wave; several are spread by kube-scheduler. Of
    those with other pods at least half are there today, whatever comes there with an earlier wave. A budget that lets one of
    several pods go lets the least go that any does.

    Args:
        wave: The wave.
        details: The pods that leave its nodes, with their course.
        budgets: Namespace and name of the cluster's pods with a PodDisruptionBudget to this.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    leaving: Counter[str] = Counter()
    courses: dict[str, frozenset[Course]] = {}
    for entry in details.leaving:
        if entry.course in _COURSES and kind_of(entry.workload) not in _LEFT_OUT:
            leaving[entry.workload] += entry.pods
            courses[entry.workload] = courses.get(entry.workload, frozenset()) | {entry.course}
    nodes = {node.name for node in wave.nodes}
    emptied: dict[str, int] = {}
    halved: dict[str, int] = {}
    moved: set[str] = set()
    totals: dict[str, int] = {}
    allowing: dict[str, WorkloadBudgets] = {}
    ending = {item.pod for item in wave.work if item.waits and not item.never_ends}
    for reference, pods in sorted(leaving.items()):
        running = _running_pods(groups, reference)
        if not running or not _runs_on(groups[reference], ending):
            continue
        allowing[reference] = own = budgets_of(groups[reference], running, budgets)
        is_there = nodes.issuperset(running.values())
        totals[reference] = total = max(len(running), details.placed.get(reference, 0))
        half = min(pods, sum(map(nodes.__contains__, running.values())))
        if pods >= total and (is_there or len(running) == 1):
            if own.make_wait(pods):
                continue
            emptied[reference] = pods
            if not is_there:
                moved.add(reference)
        elif 2 * half >= total and not own.make_wait(half) and (half > 1 or not own.select):
            halved[reference] = half
    return msgspec.structs.replace(
        wave,
        emptied_workloads=tuple(emptied),
        halved_workloads=halved,
        notes=(
            *wave.notes,
            *_notes(emptied, courses, moved, allowing),
            *_memory_notes(emptied, courses),
            *_halved_notes(halved, totals, allowing),
            *_restart_notes(wave, emptied),
        ),
    )


def _running_pods(groups: Mapping[str, Workload], reference: str) -> dict[tuple[str, str], str]:
    """Return namespace and name of a workload's pods with the node of each today."""
    pods = groups[reference].pods if reference in groups else ()
    namespace = reference.split("/")[1]
    return {
        (namespace, pod.name): str(node)
        for pod in pods
        if (node := mapping_at(pod.document, "spec").get("nodeName"))
    }


def _runs_on(group: Workload, ending: Collection[str]) -> bool:
    """Return True if a drain evicts the pods of a workload, and its controller creates them again.

    Of one of another project its pods say so: those of its Jobs and DaemonSets do not, nor do those that are waited for.

    Args:
        group: The workload.
        ending: The pods that are waited for until they end, as `Pod/namespace/name`.
    """
    if group.key.kind in _KINDS:
        return True
    makers = {owner[0] for pod in group.pods if (owner := controller(pod)) is not None}
    names = {f"Pod/{group.key.namespace}/{pod.name}" for pod in group.pods}
    return makers.isdisjoint(_LEFT_OUT) and names.isdisjoint(ending)


def _notes(
    emptied: Mapping[str, int],
    courses: Mapping[str, frozenset[Course]],
    moved: Collection[str],
    allowing: Mapping[str, WorkloadBudgets],
) -> Iterator[str]:
    """Yield notes on workloads.

    Args:
        emptied: The workloads that lose all their pods at once to the number of these.
        courses: Workload to the courses of its pods.
        moved: Those of them whose pods are not all on the wave's nodes today.
        allowing: Workload to its PodDisruptionBudgets, which let all of these pods go at once.
    """

    def name_of(reference: str) -> str:
        asks = " (asked about first)" if Course.ASKS in courses[reference] else ""
        return f"{reference}{_MOVED if reference in moved else ''}{asks}"

    bound = [reference for reference in emptied if Course.BOUND in courses[reference]]
    several = {
        reference: f"{pods} of {name_of(reference)}"
        for reference, pods in emptied.items()
        if pods > 1 and reference not in bound
    }
    for reason, fix, names in _by_reason(several, allowing):
        yield (
            f"its drains evict all pods of a workload at once, {names}, and {reason}: none runs until new ones are ready; "
            f"where some have to run, {fix}"
        )
    single = [
        name_of(reference)
        for reference, pods in emptied.items()
        if pods == 1 and reference not in bound
    ]
    if single:
        alone = ", or it is a Notebook's" if any(map(_is_notebook, single)) else ""
        yield (
            f"its drains evict the only pod of {_names(single)}: none runs until a new one is ready; where one has to "
            f"run, have a second one on another node first, unless its volume allows one node only (ReadWriteOnce){alone}"
        )
    if bound:
        yield (
            f"its drains evict all pods of {_names(bound)}, with volumes of their node: none runs until that is back"
        )


def _by_reason(
    texts: Mapping[str, str], allowing: Mapping[str, WorkloadBudgets]
) -> Iterator[tuple[str, str, str]]:
    """Yield the texts about workloads by reason and fix.

    Args:
        texts: Workload to the text about it.
        allowing: Workload to its PodDisruptionBudgets, which let all of these pods go at once.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for reference, text in texts.items():
        own = allowing[reference]
        names.setdefault((own.reason, own.fix), []).append(text)
    for (reason, fix), entries in names.items():
        yield reason, fix, _names(entries)


def _memory_notes(
    emptied: Iterable[str], courses: Mapping[str, frozenset[Course]]
) -> Iterator[str]:
    """Yield a note on the notebooks that lose their pods, but for those that a script asks about.

    Other workloads of other projects mostly serve, such as a Rollout or an InferenceService, and nobody works in their pods.
    """
    names = [name for name in emptied if _is_notebook(name) and Course.ASKS not in courses[name]]
    if names:
        yield (
            f"pods of {_names(names)} end with these drains, and come again without what they had in memory, as the kernel "
            "of a notebook: tell their users first"
        )


def _is_notebook(name: str) -> bool:
    return name.startswith("Notebook/")


def _halved_notes(
    halved: Mapping[str, int], totals: Mapping[str, int], allowing: Mapping[str, WorkloadBudgets]
) -> Iterator[str]:
    """Yield notes on the workloads that lose at least half of their pods.

    Args:
        halved: These workloads to the number of pods that they lose.
        totals: Workload to the number of all its pods.
        allowing: Workload to its PodDisruptionBudgets, which let all of these pods go at once.
    """
    single = [reference for reference, pods in halved.items() if pods == 1]
    if single:
        yield (
            f"its drains evict one of two pods of {_names(single)}: the other one has all the load until a new one is ready; "
            "where one is too few, and pods are there for more than to be evicted, add a replica first, since a PodDisruptionBudget that "
            "lets one go changes nothing"
        )
    texts = {
        reference: f"{pods} of {totals[reference]} of {reference}"
        for reference, pods in halved.items()
        if pods > 1
    }
    for reason, fix, names in _by_reason(texts, allowing):
        yield (
            f"its drains evict at least half of the pods of a workload at once, {names}, and {reason}: the other pods have "
            f"all the load until new ones are ready; where they are too few, {fix}"
        )


def _restart_notes(wave: Wave, emptied: Collection[str]) -> Iterator[str]:
    """Yield a note on the only pods of StatefulSets that a restart ends, beside those of the drains."""
    single = [
        workload.object
        for workload in wave.workloads
        if workload.is_restarted
        and workload.pods == 1
        and workload.object.startswith("StatefulSet/")
        and workload.object not in emptied
    ]
    if single:
        yield (
            f"its restarts end the only pod of {_names(single)}, and a StatefulSet creates the new one after that: none "
            "runs until it is ready"
        )


def _names(names: Sequence[str]) -> str:
    return join_names(names, _NAMES)
