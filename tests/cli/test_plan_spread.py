"""`drawbridge plan` for schedulers that spread the pods of waves, in place of packing them as the search does."""

import random
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import namespace, node, resource_slice
from testing.migration import GPU, daemon_set, hami_node, workload
from testing.plan import failed_before, held_objects, planned, waves

CARD: Final = 40960
"""The memory of a card in MiB; a node has two."""
DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
NAMES: Final = {10000: "small", 20000: "middle", 30000: "large"}
"""The Deployments by the MiB of each of their pods."""


STEADY: Final = (
    (
        "10:5.1 20:2.0 10:0.1 10:2.0 10:3.0 20:5.1 10:7.0 20:4.0 20:4.0 30:1.1 20:0.1 "
        "20:3.0 10:6.0 20:7.0 20:6.1 20:1.0 30:3.1 10:7.0 10:3.0 30:5.0 10:6.0 10:2.1"
    ),
    (
        "30:2.0 20:5.1 30:7.1 10:5.0 30:1.0 10:6.1 20:0.1 10:2.0 20:4.1 30:6.0 "
        "20:2.1 10:3.0 30:5.0 20:4.0 10:6.0 30:3.1 20:0.1 10:6.1 10:0.0"
    ),
)
"""Clusters with waves that fit both where schedulers pack pods and where they spread them."""
TIGHT: Final = (
    "10:1.0 10:5.1 10:4.1 20:3.0 30:0.0 30:6.0 10:6.1 30:4.0 30:5.1 20:5.0 "
    "20:5.0 20:0.1 10:2.1 20:3.0 20:4.1 30:2.0 30:1.1 10:1.1 10:1.0"
)
"""A cluster without such waves."""


class Share(NamedTuple):
    """A pod with a share of a card, by the MiB of it, and by its number among the pods of that size."""

    memory: int
    number: int


class Card(NamedTuple):
    node: str
    number: int


Places = Mapping[Share, Card]


def places(text: str) -> Places:
    """Return the pods of a text in their order, each as `30:4.1`: 30000 MiB on the second card of hami-4."""
    placed: dict[Share, Card] = {}
    for word in text.split():
        memory, node_number, card = map(int, word.replace(":", ".").split("."))
        number = sum(1 for entry in placed if entry.memory == 1000 * memory)
        placed[Share(1000 * memory, number)] = Card(f"hami-{node_number}", card)
    return placed


def cluster(
    placed: Places, switched: Collection[str] = (), number: int = 8
) -> list[dict[str, Any]]:
    """Return nodes of two cards, eight unless another number is given, and the Deployments of pods with device keys."""
    objects = [DRIVER, namespace("team")]
    for name in (f"hami-{index}" for index in range(number)):
        if name in switched:
            labels = {"drawbridge.internal/dra-driver": HAMI, "gpu": "off"}
            cards = [
                {**hami_gpu("40Gi", uuid=f"GPU-{name}-{index}"), "name": f"gpu-{index}"}
                for index in range(2)
            ]
            objects += [
                node(name, {}, labels, {}),
                resource_slice(*cards, driver=HAMI, node=name, name=f"slice-{name}"),
            ]
        else:
            objects.append(hami_node(name))
    for memory in sorted({share.memory for share in placed}):
        cards_of = [card for share, card in sorted(placed.items()) if share.memory == memory]
        limits = {GPU: "1", "nvidia.com/gpumem": str(memory)}
        owner, *pods = workload(NAMES[memory], limits, [card.node for card in cards_of])
        for pod, card in zip(pods, cards_of, strict=True):
            text = f"GPU-{card.node}-{card.number},NVIDIA,{memory},0:;"
            pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": text}
        objects += [owner, *pods]
    return objects


def moved(placed: Places, switched: Collection[str], seed: int) -> Places:
    """Return the pods once others than these nodes have those of these.

    Args:
        placed: The pods before.
        switched: The nodes that are drained.
        seed: The seed of the order and of the cards; 0 for the emptiest card of all, and small pods first.
    """
    chance = random.Random(seed)
    after = {share: card for share, card in placed.items() if card.node not in switched}
    free = {
        Card(name, number): CARD
        for name in (f"hami-{number}" for number in range(8))
        if name not in switched
        for number in range(2)
    }
    for share, card in after.items():
        free[card] -= share.memory
    moving = sorted(placed.keys() - after.keys())
    if seed:
        chance.shuffle(moving)
    for share in moving:
        fitting = [card for card in free if free[card] >= share.memory]
        after[share] = (
            chance.choice(fitting) if seed else max(fitting, key=lambda card: (free[card], card))
        )
        free[after[share]] -= share.memory
    return after


def failed_later(
    tmp_path: Path, plan: Mapping[str, Any], placed: Places, seed: int
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each wave up to the first that opts something in, with the failed checks before it.

    Args:
        tmp_path: The folder of the plan.
        plan: The plan.
        placed: The pods before its first wave.
        seed: The seed of the scheduler, as of `moved`.
    """
    switched: list[str] = []
    for wave in plan["waves"]:
        if wave["wave"] > 1:
            yield wave["wave"], failed_before(tmp_path, cluster(placed, switched), wave["wave"])
        if wave["namespaces"] or wave["partialNamespaces"]:
            return
        switched += [entry["name"] for entry in wave["nodes"]]
        placed = moved(placed, switched, seed)


def packed_notes(plan: Mapping[str, Any]) -> list[tuple[int, str]]:
    return [
        (wave["wave"], note)
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("it fits only where schedulers pack")
    ]


@pytest.mark.parametrize("pods", STEADY, ids=["first", "second"])
def test_waves_of_shares_fit_though_schedulers_place_the_pods_of_earlier_ones_otherwise(
    tmp_path: Path, pods: str
) -> None:
    """Shares were spread over the cards after the first waves, so that checks before the second or third one failed."""
    placed = places(pods)
    plan = planned(tmp_path, cluster(placed), "--wave-nodes", 2)

    assert {} == held_objects(plan)
    assert [] == packed_notes(plan)
    for seed in range(4):
        later = list(failed_later(tmp_path, plan, placed, seed))
        assert later
        assert [] == [failed for _, failed in later if failed]


def test_a_wave_that_fits_only_with_packed_pods_says_so_with_what_would_be_enough(
    tmp_path: Path,
) -> None:
    placed = places(TIGHT)
    plan = planned(tmp_path, cluster(placed), "--wave-nodes", 2)

    assert ["hami-6"] == waves(plan)[1][0]
    assert [
        (
            2,
            (
                "it fits only where schedulers pack the pods of this wave and of those before it as this plan does, which leaves "
                "over 39600Mi of memory on 10 devices, 10960Mi at most on one; where they spread them over all devices, while "
                "draining hami-6, 1 pod has no devices: 1 of Deployment/team/large; to have it fit in both cases, first scale "
                "down 1 pod of Deployment/team/large (30000Mi of memory each), or add 1 node like hami-6"
            ),
        )
    ] == packed_notes(plan)
    assert {"Wave//2": "while draining hami-6, 1 pod has no devices"} == {
        name: message.partition(":")[0]
        for name, message in dict(failed_later(tmp_path, plan, placed, 0))[2].items()
    }

    fewer = {share: card for share, card in placed.items() if share != Share(30000, 5)}
    less = planned(tmp_path, cluster(fewer), "--wave-nodes", 2)
    assert [] == packed_notes(less)
    assert [] == [failed for _, failed in failed_later(tmp_path, less, fewer, 0) if failed]


def test_a_note_on_pods_to_scale_down_says_that_a_repository_takes_that_back(
    tmp_path: Path,
) -> None:
    objects = cluster(places(TIGHT))
    for entry in objects:
        if (entry["kind"], entry["metadata"]["name"]) == ("Deployment", "large"):
            entry["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "a:b"}

    ((_, note),) = packed_notes(planned(tmp_path, objects, "--wave-nodes", 2))

    assert note.endswith(
        "or add 1 node like hami-6; Argo CD manages Deployment/team/large, and takes back what kubectl changes: change "
        "replicas in its repository"
    )


def test_what_is_held_for_want_of_devices_names_no_number_of_pods(tmp_path: Path) -> None:
    """Other pods could be without devices once those of the fix were gone."""
    placed = places("30:2.1 30:1.1 30:2.0 30:1.0 20:0.0")
    fewer = {share: card for share, card in placed.items() if share.memory != 20000}

    for pods in (placed, fewer):
        plan = planned(tmp_path, cluster(pods, number=3), "--wave-nodes", 1)
        assert {f"Node//hami-{number}" for number in range(3)} <= held_objects(plan).keys()
        assert [] == [entry for entry in plan["held"] if "is enough" in entry["fix"]]


def test_the_help_says_that_free_memory_of_shared_devices_is_no_margin() -> None:
    text = " ".join(drawbridge("plan", "--help").stdout.split())

    assert "one with a share in use is in use, however much of its memory is free" in text
