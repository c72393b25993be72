"""Tolerations that pods get for their keys from the API server, and lose with the keys."""

from typing import Any, Final, NamedTuple

import pytest

from kube.api.core import Node, Pod
from kube.api.meta import convert
from testing.builders import (
    HAMI,
    admit,
    driver_slice,
    finding_texts,
    gpus,
    hami_gpu,
    pod,
    pod_view,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.node_taints import NodeTaints, shows_added_tolerations, summarize_taints
from translation.cluster.snapshot import TolerationPolicy, TranslationOptions

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
ADDED: Final = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
ADDED_MEMORY: Final = {**ADDED, "key": MEMORY}
UNKNOWN: Final = NodeTaints()
WARNING: Final = ("warning tolerationMissing spec.tolerations",)
INFO: Final = ("info tolerationMissing spec.tolerations",)


def node(name: str, *taints: Document) -> Node:
    return convert({"metadata": {"name": name}, "spec": {"taints": list(taints)}}, Node)


def taint(key: str = GPU, value: str = "present", effect: str = "NoSchedule") -> Document:
    return {"key": key, "value": value, "effect": effect}


def taints_of(*nodes: Node, is_proved: bool = False) -> NodeTaints:
    slices = [driver_slice(HAMI, hami_gpu(), pool="gpu-a")]
    return summarize_taints(nodes, slices, are_tolerations_added=is_proved)


TAINTED: Final = taints_of(node("gpu-a", taint()))


class Case(NamedTuple):
    name: str
    taints: NodeTaints | None
    want: tuple[str, ...] = ()
    tolerations: tuple[Document, ...] = ()
    policy: TolerationPolicy = TolerationPolicy.DETECTED
    added: tuple[Document, ...] = ()


CASES: Final = (
    Case("the node with the devices has the taint", TAINTED, WARNING),
    Case("nothing is known of nodes", UNKNOWN, INFO),
    Case("pods of the API server have what it adds", None),
    Case("the nodes have no taint", taints_of(node("gpu-a"))),
    Case("a node without the devices has it", taints_of(node("gpu-a"), node("old", taint()))),
    Case("no node is known to have the devices", taints_of(node("gpu-b", taint())), WARNING),
    Case("a taint of something else", taints_of(node("gpu-a", taint("team")))),
    Case("a taint that the plugin does not tolerate", taints_of(node("gpu-a", taint(effect="NoExecute")))),
    Case("its value is tolerated", TAINTED, (), ({"key": GPU, "value": "present"},)),
    Case("another value is tolerated", TAINTED, WARNING, ({"key": GPU, "value": "x"},)),
    Case("another effect is tolerated", TAINTED, WARNING, ({**ADDED, "effect": "NoExecute"},)),
    Case("everything is tolerated", TAINTED, (), ({"operator": "Exists"},)),
    Case("one key is tolerated, and nothing is known", UNKNOWN, (), (ADDED,)),
    Case("live pods show the plugin", taints_of(node("gpu-a", taint()), is_proved=True),
         added=(ADDED, ADDED_MEMORY)),
    Case("they do, and the manifest has one", taints_of(is_proved=True), (), (ADDED,),
         added=(ADDED_MEMORY,)),
    Case("the setting wants none", taints_of(node("gpu-a", taint()), is_proved=True), WARNING,
         policy=TolerationPolicy.NEVER),
    Case("the setting wants them always", None, policy=TolerationPolicy.ALWAYS,
         added=(ADDED, ADDED_MEMORY)),
    Case("everything is tolerated already", None, (), ({"operator": "Exists"},),
         policy=TolerationPolicy.ALWAYS),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tolerations(case: Case) -> None:
    tolerations: dict[str, Any] = (
        {"tolerations": list(case.tolerations)} if case.tolerations else {}
    )
    snapshot = translation_snapshot(node_taints=case.taints)

    after, answer = admit(
        pod(gpus(1, mem=3000), **tolerations), snapshot, TranslationOptions(tolerations=case.policy)
    )

    assert case.want == tuple(finding_texts(answer.findings))
    assert [*case.tolerations, *case.added] == list(after["spec"].get("tolerations", ()))


def test_a_pod_that_was_translated_elsewhere_gets_them_too() -> None:
    translated, _ = admit(pod(gpus(1, mem=3000)))

    after, _ = admit(translated, options=TranslationOptions(tolerations=TolerationPolicy.ALWAYS))

    assert [ADDED, ADDED_MEMORY] == after["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("want", "live", "template"),
    [
        (True, pod(gpus(1), tolerations=[ADDED]), pod(gpus(1))),
        (False, pod(gpus(1), tolerations=[ADDED]), pod(gpus(1), tolerations=[ADDED])),
        (False, pod(gpus(1)), pod(gpus(1))),
        (False, pod(gpus(1), tolerations=[{**ADDED, "key": "example.com/other"}]), pod(gpus(1))),
        (False, pod(gpus(1), tolerations=[{"key": GPU, "value": "present"}]), pod(gpus(1))),
    ],
)
def test_the_proof_of_the_plugin(want: bool, live: Document, template: Document) -> None:
    views: tuple[Pod, Pod] = (pod_view(live), pod_view(template))

    assert want is shows_added_tolerations(*views)


def test_the_proof_is_also_of_pods_whose_keys_were_removed() -> None:
    live, template = pod_view(pod(tolerations=[ADDED])), pod_view(pod(gpus(1)))

    assert shows_added_tolerations(live, template, {GPU})
