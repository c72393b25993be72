"""Pods with groups: those that their scheduler reads, and others."""

from typing import NamedTuple

import pytest

from allocator.declarations.schedulers import without_ignored_groups
from kube.api.core import Pod
from kube.api.meta import convert

BRIDGE = "drawbridge-scheduler"
KOORDINATOR = {"gang.scheduling.koordinator.sh/name": "ring"}
VOLCANO = {"scheduling.k8s.io/group-name": "ring"}
WRONG = {**KOORDINATOR, "gang.scheduling.koordinator.sh/min-available": "many"}


def pod(scheduler: str, annotations: dict[str, str], group: str = "") -> Pod:
    spec: dict[str, object] = {"schedulerName": scheduler}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": "ring-0", "namespace": "team", "annotations": annotations}
    return convert({"metadata": metadata, "spec": spec}, Pod)


class Case(NamedTuple):
    title: str
    pod: Pod
    if_new: bool
    if_it_exists: bool


CASES = (
    Case("a pod without a group", pod("", {}), True, True),
    Case("a PodGroup of kube-scheduler", pod("default-scheduler", {}, "ring"), True, True),
    Case("a PodGroup of the bridge", pod(BRIDGE, {}, "ring"), True, True),
    Case("a PodGroup of Volcano", pod("volcano", {}, "ring"), False, False),
    Case("a gang of kube-scheduler", pod("", KOORDINATOR), False, False),
    Case("a gang of Koordinator", pod("koord-scheduler", KOORDINATOR), True, True),
    Case("a gang of Volcano beside a stray one", pod("volcano", {**WRONG, **VOLCANO}), True, True),
    Case("a gang of an unknown scheduler", pod("second", VOLCANO), True, True),
    Case("a gang of the bridge is adopted when it is new", pod(BRIDGE, VOLCANO), True, False),
    Case("a wrong gang of kube-scheduler", pod("", WRONG), False, False),
    Case("a wrong gang of Koordinator", pod("koord-scheduler", WRONG), True, True),
    Case("a wrong gang of the bridge", pod(BRIDGE, WRONG), True, False),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_pod_counts_where_its_scheduler_reads_the_group(case: Case) -> None:
    def counts(*, are_adopted: bool) -> bool:
        return bool(without_ignored_groups([case.pod], BRIDGE, are_adopted=are_adopted))

    assert counts(are_adopted=True) == case.if_new
    assert counts(are_adopted=False) == case.if_it_exists


def test_a_new_pod_of_kube_scheduler_follows_its_gang_to_the_bridge() -> None:
    launcher, worker, other = pod("", KOORDINATOR), pod(BRIDGE, KOORDINATOR), pod(BRIDGE, VOLCANO)

    def readers(*pods: Pod) -> tuple[Pod, ...]:
        return without_ignored_groups(pods, BRIDGE, are_adopted=True)

    assert readers(launcher, worker) == (launcher, worker)
    assert readers(launcher, other) == (other,)
