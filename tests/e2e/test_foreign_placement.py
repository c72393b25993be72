"""The stand-in for other schedulers: each bound of kube-scheduler's filters and of HAMi's extender."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest

from e2e.foreign_placement import Place, choose, is_foreign, occupy
from kube.api.core import Node, Pod
from kube.api.meta import convert

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
PERCENT: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"
TAINT: Final = {"key": "team", "value": "a", "effect": "NoSchedule"}


def node(
    name: str,
    cards: int = 1,
    *,
    taints: Sequence[Mapping[str, str]] = (),
    registered: str = "",
    room: Mapping[str, str] = {},
) -> Place:
    """A node of HAMi with cards of 40,960 MiB; without cards one with two GPUs of a device plugin."""
    register = [
        {"id": f"{name}-{number}", "count": 3, "devmem": 40960, "devcore": 100, "type": "A100"}
        for number in range(cards)
    ]
    offered = {GPU: str(10 * cards or 2)}
    metadata: dict[str, Any] = {"name": name, "labels": {"name": name}}
    if cards or registered:
        metadata["annotations"] = {
            "hami.io/node-nvidia-register": registered or json.dumps(register)
        }
    document = {
        "metadata": metadata,
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9", **offered, **room}},
    }
    return Place(convert(document, Node), is_switched=False)


def pod(
    name: str = "p",
    limits: Mapping[str, str] | None = None,
    *,
    on: str = "",
    notes: Mapping[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of HAMi's scheduler, with 8,000 MiB of one card unless it says otherwise."""
    amounts = {GPU: "1", MEMORY: "8000"} if limits is None else limits
    container = {"name": "c", "resources": {"limits": dict(amounts)}}
    document = {
        "metadata": {"name": name, "uid": name, "annotations": dict(notes or {})},
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [container],
            **({"nodeName": on} if on else {}),
            **spec,
        },
    }
    return convert(document, Pod)


def chosen(pending: Pod, places: Sequence[Place], running: Sequence[Pod] = ()) -> str:
    """The node that a pod gets beside others; empty if it waits."""
    occupy({place.node.metadata.name: place for place in places}, running, {})
    choice = choose(pending, places)
    return choice[0].node.metadata.name if choice is not None else ""


class Case(NamedTuple):
    """A pod that waits, or the node that it gets."""

    name: str
    want: str
    pending: Pod
    places: Sequence[Place]
    running: Sequence[Pod] = ()


def share(memory: int, cores: int | None = None) -> dict[str, str]:
    own = {GPU: "1", MEMORY: str(memory)}
    return own if cores is None else {**own, CORES: str(cores)}


CASES: Final = (
    Case("a share gets a card of HAMi", "h", pod(), [node("h"), node("plugin", 0)]),
    Case("no share gets a device of a plugin", "", pod(), [node("plugin", 0)]),
    Case("CPU", "", pod(limits={**share(1), "cpu": "9"}), [node("h")]),
    Case("memory", "", pod(limits={**share(1), "memory": "9Gi"}), [node("h")]),
    Case(
        "CPU of another pod",
        "",
        pod(limits={**share(1), "cpu": "5"}),
        [node("h")],
        [pod("other", {"cpu": "4"}, on="h", schedulerName="default-scheduler")],
    ),
    Case("the number of pods", "", pod(), [node("h", room={"pods": "0"})]),
    Case("a taint", "", pod(), [node("h", taints=[TAINT])]),
    Case(
        "a taint that is tolerated",
        "h",
        pod(tolerations=[{"key": "team", "operator": "Exists"}]),
        [node("h", taints=[TAINT])],
    ),
    Case("a node selector", "", pod(nodeSelector={"name": "x"}), [node("h")]),
    Case("gpumem of the card", "", pod(limits=share(41000)), [node("h")]),
    Case(
        "gpumem beside another share", "", pod(limits=share(33000)), [node("h")], [pod("a", on="h")]
    ),
    Case(
        "gpumem on the other card",
        "h",
        pod(limits=share(33000)),
        [node("h", 2)],
        [pod("a", on="h")],
    ),
    Case("gpumem of each card", "", pod(limits={GPU: "2", MEMORY: "41000"}), [node("h", 2)]),
    Case("as many cards as GPUs", "", pod(limits={GPU: "2", MEMORY: "1"}), [node("h")]),
    Case("a percentage", "", pod(limits={PERCENT: "81"}), [node("h")], [pod("a", on="h")]),
    Case(
        "a percentage that fits", "h", pod(limits={PERCENT: "80"}), [node("h")], [pod("a", on="h")]
    ),
    Case(
        "gpucores",
        "",
        pod(limits=share(1, 60)),
        [node("h")],
        [pod("a", share(1, 50), on="h")],
    ),
    Case(
        "gpucores that fit",
        "h",
        pod(limits=share(1, 50)),
        [node("h")],
        [pod("a", share(1, 50), on="h")],
    ),
    Case(
        "all cores want an unused card",
        "",
        pod(limits=share(1, 100)),
        [node("h")],
        [pod("a", on="h")],
    ),
    Case("no share beside all cores", "", pod(), [node("h")], [pod("a", share(1, 100), on="h")]),
    Case("a whole card is alone", "", pod(limits={GPU: "1"}), [node("h")], [pod("a", on="h")]),
    Case("no share beside a whole card", "", pod(), [node("h")], [pod("a", {GPU: "1"}, on="h")]),
    Case(
        "slots of a card",
        "",
        pod(limits=share(1)),
        [node("h")],
        [pod(name, share(1), on="h") for name in "abc"],
    ),
    Case("a model", "", pod(notes={"nvidia.com/use-gputype": "H100"}), [node("h")]),
    Case(
        "a model in small letters", "h", pod(notes={"nvidia.com/use-gputype": "a100"}), [node("h")]
    ),
    Case("a model to avoid", "", pod(notes={"nvidia.com/nouse-gputype": "A100"}), [node("h")]),
    Case("a UUID", "h", pod(notes={"nvidia.com/use-gpuuuid": "h-1"}), [node("h", 2)]),
    Case("only the UUID", "", pod(notes={"nvidia.com/use-gpuuuid": "x"}), [node("h", 2)]),
    Case("the fullest node", "b", pod(), [node("a"), node("b"), node("c")], [pod("x", on="b")]),
    Case(
        "the emptiest node for spread",
        "c",
        pod(notes={"hami.io/node-scheduler-policy": "spread"}),
        [node("b"), node("c")],
        [pod("x", on="b")],
    ),
    Case("an older register", "h", pod(), [node("h", registered="u,10,40960,100,A100,0,true:")]),
    Case("an unhealthy card", "", pod(), [node("h", registered="u,10,40960,100,A100,0,false:")]),
    Case("a broken register", "", pod(), [node("h", registered="[{]")]),
    Case(
        "a MIG device is the plugin's",
        "h",
        pod(limits={"nvidia.com/mig-1g.5gb": "1"}),
        [node("h", room={"nvidia.com/mig-1g.5gb": "1"})],
    ),
    Case(
        "a GPU of another scheduler is none of HAMi's",
        "plugin",
        pod(limits={GPU: "1"}, schedulerName="volcano"),
        [node("h"), node("plugin", 0)],
    ),
    Case(
        "and there as many as are offered",
        "",
        pod(limits={GPU: "1"}, schedulerName="volcano"),
        [node("plugin", 0)],
        [pod("a", {GPU: "2"}, on="plugin", schedulerName="volcano")],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_where_a_pod_goes(case: Case) -> None:
    assert case.want == chosen(case.pending, case.places, case.running)


def test_a_switched_node_takes_no_pod_of_another_scheduler() -> None:
    place = Place(node("h").node, is_switched=True)

    assert choose(pod(), [place]) is None


def test_a_pod_keeps_the_card_that_it_was_given() -> None:
    """Else a large share could be counted on a card that the small ones leave no room on."""
    places = {"h": node("h", 2)}
    small = occupy(places, [pod("a", share(20000), on="h")], {})
    again = {"h": node("h", 2)}
    known = occupy(again, [pod("a", share(20000), on="h"), pod("z", share(30000), on="h")], small)

    assert small["a"] == known["a"]
    assert known["z"][0].uuid != known["a"][0].uuid


@pytest.mark.parametrize(
    ("scheduler", "limits", "expected"),
    [
        ("", share(1), True),
        ("default-scheduler", {PERCENT: "10"}, True),
        ("default-scheduler", {GPU: "1"}, False),
        ("volcano", {GPU: "1"}, True),
    ],
)
def test_pods_with_keys_of_hami_are_hamis_whatever_scheduler_they_name(
    scheduler: str, limits: Mapping[str, str], expected: bool
) -> None:
    """HAMi's webhook would have named its own in the pod; a template has none."""
    assert expected is is_foreign(pod(limits=limits, schedulerName=scheduler))
