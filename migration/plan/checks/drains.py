"""Checks of the drain of a node: the pods and budgets that would stop it, and the work that it would end. Pure."""

from collections.abc import Collection, Iterator
from typing import Final

from findings.text import join_names
from migration.cluster.evidence import mapping_at
from migration.cluster.reservations import is_left_in_drains
from migration.plan.checks.checks import (
    Check,
    ClusterView,
    WaveAnswer,
    failed_check,
    note_check,
    ok_check,
    waiting_check,
)
from migration.plan.facts.work import describe_work
from migration.plan.model.plan import PlannedNode, PlannedWork

PODS: Final = "pods"
BUDGETS: Final = "poddisruptionbudgets"


def check_drain(node: PlannedNode, view: ClusterView) -> Iterator[Check]:
    """Yield the checks that would stop a drain.

    Servers of JupyterHub's users do not, those that came since the plan was made, too: `switch.sh` asks about them, and
    deletes them.
    """
    yield from _check_budgets(node.name, view)
    yield from _work_notes(node.name, view)
    yield from _left_checks(node, view)
    servers = {work.pod for work in view.work.get(node.name, ()) if work.hub_server}
    yield from _bare_checks(node.name, view, expected=servers)


def check_bare_pods(node: PlannedNode, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for pods that a drain would stop at, or leave, without those that `switch.sh` has asked about.

    It asks about those of now, and where a person has them evicted it deletes them.
    """
    asked_about = {work.pod for work in view.work.get(node.name, ()) if work.waits}
    yield from _left_checks(node, view)
    yield from _bare_checks(node.name, view, expected=asked_about)


def _left_checks(node: PlannedNode, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for pods of a node that have the label of those that its drain leaves, and are none of them."""
    names = [
        f"{source.namespace or 'default'}/{source.name}"
        for source in view.objects
        if node.drain_selector
        and mapping_at(source.document, "spec").get("nodeName") == node.name
        and is_left_in_drains(source)
    ]
    if names:
        text = (
            f"the drain evicts pods with {node.drain_selector} only, so it would leave {join_names(sorted(names))}, which KAI "
            "has not created: take that label off, or delete them"
        )
        yield failed_check(f"Node//{node.name}", text)


def _bare_checks(node: str, view: ClusterView, expected: Collection[str]) -> Iterator[Check]:
    """Yield a failed check for pods without a controller on a node, but for expected ones, as `Pod/namespace/name`."""
    bare = [
        f"{pod.namespace}/{pod.name}"
        for pod in view.evidence.bare_pods(node)
        if f"Pod/{pod.namespace}/{pod.name}" not in expected
    ]
    if bare:
        text = f"nothing creates {join_names(bare)} again, and kubectl drain stops at such pods"
        yield failed_check(f"Node//{node}", text)


def _check_budgets(node: str, view: ClusterView) -> Iterator[Check]:
    """Yield the PodDisruptionBudgets that would hold a drain."""
    reference = f"Node//{node}"
    for budget, pods in view.evidence.blocking_budgets(node):
        yield failed_check(reference, budget.never_text.format(f"of pod {pods[0].name}"))
    for budget, pods in view.evidence.exhausted_budgets(node):
        yield waiting_check(reference, budget.now_text.format(f"of pod {pods[0].name}"))


def check_work(node: str, view: ClusterView) -> WaveAnswer:
    """Check that no pod of a node would lose its work if the node was drained now."""
    reference = f"Node//{node}"
    if view.find("Node", node) is None:
        return WaveAnswer(wave=None, checks=(failed_check(reference, "there is no such node"),))
    if PODS in view.unreadable:
        unread = failed_check(reference, "its pods could not be read")
        return WaveAnswer(wave=None, checks=(unread,))
    checks = [
        failed_check(work.pod, f"{_refusal(work)}: {describe_work(work)}")
        if work.never_ends
        else waiting_check(work.pod, f"it would lose its work: {describe_work(work)}")
        for work in view.work.get(node, ())
        if work.waits
    ]
    nothing = ok_check(reference, "no pod would lose its work")
    return WaveAnswer(wave=None, checks=tuple(checks) or (nothing,))


def _refusal(work: PlannedWork) -> str:
    return "it asks not to be evicted" if work.annotations else "it would lose its work"


def check_budgets(node: str, view: ClusterView) -> WaveAnswer:
    """Check that no PodDisruptionBudget holds the drain of a node."""
    reference = f"Node//{node}"
    checks = list(_check_budgets(node, view))
    if view.find("Node", node) is None:
        checks = [failed_check(reference, "there is no such node")]
    elif unread := sorted({PODS, BUDGETS} & set(view.unreadable)):
        checks = [failed_check(reference, f"{join_names(unread)} could not be read")]
    nothing = ok_check(reference, "no PodDisruptionBudget holds its drain")
    return WaveAnswer(wave=None, checks=tuple(checks) or (nothing,))


def _work_notes(node: str, view: ClusterView) -> Iterator[Check]:
    """Yield the pods with work that switch.sh waits for, and those that lose something."""
    for work in view.work.get(node, ()):
        verb = "switch.sh waits for it" if work.waits else "it is evicted"
        verb = "switch.sh asks about it" if work.never_ends else verb
        yield note_check(work.pod, f"{verb}: {describe_work(work)}")
