"""`drawbridge plan`: the devices in use around each wave, by pods with a place of their own."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace, node
from testing.html_pages import Outline
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned

CARDS: Final = "hami.io/vgpu-devices-allocated"
KOORDINATOR_CARDS: Final = "scheduling.koordinator.sh/device-allocated"
QUARTER: Final = {"koordinator.sh/gpu-core": "25", "koordinator.sh/gpu-memory": "8Gi"}


def in_use(tmp_path: Path, wave: int) -> dict[str, list[str]]:
    """Return node to the devices in use before, during and after a wave, as the page says it."""
    page = (tmp_path / "plan" / "plan.html").read_text()
    section = page[page.index(f'id="wave-{wave}"') :].partition("</section>")[0]
    return {
        name: [
            " ".join(" ".join(Outline(cell).texts).split())
            for cell in re.findall(r"<td>(.*?)</td>", rest)
        ]
        for name, rest in re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', section)
    }


def wave_of(plan: Mapping[str, Any], node: str) -> int:
    (number,) = [
        wave["wave"] for wave in plan["waves"] if node in [entry["name"] for entry in wave["nodes"]]
    ]
    return int(number)


def test_a_pod_with_a_volume_of_its_node_comes_back_there(tmp_path: Path) -> None:
    """The page counted it on another node, and one too few on its own."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        namespace("team"),
        *workload("db", {GPU: "1"}, ["gpu-0"], kind="StatefulSet", volumes=volumes),
        *workload("web", {GPU: "2"}, ["gpu-0"]),
        api_object("PersistentVolume", "disk", spec={"local": {"path": "/disk"}}),
        api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"}),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    uses = in_use(tmp_path, wave_of(plan, "gpu-0"))
    assert ["device plugin 3 of 4 in use", "drained", "DRA driver 1 of 4 in use"] == uses["gpu-0"]
    # Another node takes the other pod alone.
    assert ["DRA driver 2 of 4 in use"] * 2 == uses["gpu-1"][1:]


def test_pods_of_one_shape_with_volumes_of_several_nodes_come_back_to_theirs(
    tmp_path: Path,
) -> None:
    """While both nodes are drained the pods are on no other."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = [
        *(plugin_node(f"gpu-{number}", 1) for number in range(3)),
        namespace("team"),
        *workload("db", {GPU: "1"}, ["gpu-0", "gpu-1"], kind="StatefulSet", volumes=volumes),
        api_object("PersistentVolume", "disk", spec={"local": {"path": "/disk"}}),
        api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"}),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 3, "--spare-nodes", 0)

    assert [] == plan["held"]
    (wave,) = plan["waves"]
    after = {name: texts[-1] for name, texts in in_use(tmp_path, wave["wave"]).items()}
    assert {
        "gpu-0": "DRA driver 1 of 1 in use",
        "gpu-1": "DRA driver 1 of 1 in use",
        "gpu-2": "DRA driver 0 of 1 in use",
    } == after


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        (["GPU-hami-0-0", "GPU-hami-0-1"], 2),
        (["GPU-hami-0-1", "GPU-hami-0-1"], 1),
        ([], 1),
        (["GPU-hami-0-0", "GPU-of-another-node"], 1),
        (["GPU-hami-0-0,NVIDIA,1,0:GPU-hami-0-1", "GPU-hami-0-1"], 2),
        (["GPU-hami-0-1" + "," * 5000, "' || true || '"], 1),
    ],
    ids=["two cards", "one card", "unknown", "a card elsewhere", "too many cards", "hostile"],
)
def test_shares_are_on_the_cards_that_hami_has_given(
    tmp_path: Path, cards: Sequence[str], expected: int
) -> None:
    """A card without a pod was counted as used: shares of others had been put there."""
    owner, *pods = workload("web", SHARE, ["hami-0", "hami-0"])
    for pod, card in zip(pods, cards, strict=False):
        pod["metadata"]["annotations"] = {CARDS: f"{card},NVIDIA,8000,0:;"}
    objects = [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), owner, *pods]

    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)

    assert plan["waves"]
    (before, *_) = in_use(tmp_path, 1)["hami-0"]
    assert f"device plugin {expected} of 2 in use" == before


def koordinator_node(name: str) -> list[dict[str, Any]]:
    """Return a node with two GPUs of Koordinator, and its Device, with the second GPU first."""
    gpus = [
        {
            "type": "gpu",
            "id": f"GPU-{name}-{minor}",
            "minor": minor,
            "resources": {"koordinator.sh/gpu-memory": "40Gi"},
        }
        for minor in (1, 0)
    ]
    return [node(name, {}, {}, {}), api_object("Device", name, spec={"devices": gpus})]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"gpu": [{"minor": 0}]}, {"gpu": [{"minor": 1}]}], 2),
        ([{"gpu": [{"minor": 1}]}, {"gpu": [{"minor": 1}]}], 1),
        ([{"gpu": [{"minor": 0, "id": "GPU-koord-0-0"}]}, {"gpu": [{"minor": 1, "id": ""}]}], 2),
        (
            [
                {"gpu": [{"minor": 0, "resources": {"a": 1}}], "rdma": [{"minor": 7}]},
                {"gpu": [{"minor": 1}]},
            ],
            2,
        ),
        ([{"gpu": [{"minor": 0, "id": "GPU-of-another"}]}, {"gpu": [{"minor": 1}]}], 1),
        ([{"gpu": [{"minor": 7}]}, {"gpu": [{"minor": 1}]}], 1),
        ([{"gpu": [{"minor": 0}, {"minor": 1}]}, {"gpu": [{"minor": 1}]}], 1),
        ([{"gpu": [{"minor": 10**30}]}, {"gpu": [{"minor": "0"}]}], 1),
        ([{"gpu": {"minor": 0}}, [{"minor": 0}]], 1),
        (["' || true || '", "[" * 5000], 1),
        (['{"gpu": [' + "[" * 9000, '{"gpu": ' + " " * 20000 + "[]}"], 1),
        ([], 1),
    ],
    ids=[
        *("two cards", "one card", "by UUID", "other fields", "another UUID", "no such card"),
        *("too many cards", "no number", "other shapes", "no JSON", "deep and long", "unknown"),
    ],
)
def test_shares_are_on_the_cards_that_koordinator_has_given(
    tmp_path: Path, given: Sequence[object], expected: int
) -> None:
    """Shares were put on one card that have one each, and the annotation is any tenant's."""
    owner, *pods = workload("web", QUARTER, ["koord-0", "koord-0"])
    for pod, cards in zip(pods, given, strict=False):
        text = cards if isinstance(cards, str) else json.dumps(cards)
        pod["metadata"]["annotations"] = {KOORDINATOR_CARDS: text}
    objects = [*koordinator_node("koord-0"), *koordinator_node("koord-1"), namespace("team"), owner]

    plan = planned(tmp_path, [*objects, *pods], "--wave-nodes", 1, "--spare-nodes", 0)

    assert plan["waves"]
    (before, *_) = in_use(tmp_path, 1)["koord-0"]
    assert f"device plugin {expected} of 2 in use" == before


def test_a_card_has_no_more_shares_than_it_has_memory_for(tmp_path: Path) -> None:
    """Tenants write annotations of pods."""
    half = {GPU: "1", "nvidia.com/gpumem": "30000"}
    owner, *pods = workload("web", half, ["hami-0", "hami-0"])
    for pod in pods:
        pod["metadata"]["annotations"] = {CARDS: "GPU-hami-0-0,NVIDIA,30000,0:;"}
    objects = [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), owner, *pods]

    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)

    assert [] == plan["held"]
    (before, *_) = in_use(tmp_path, 1)["hami-0"]
    assert "device plugin 2 of 2 in use" == before


def product_node(name: str, product: str) -> dict[str, Any]:
    entry = plugin_node(name)
    entry["metadata"]["labels"]["nvidia.com/gpu.product"] = product
    return entry


def test_free_devices_are_told_for_each_product(tmp_path: Path) -> None:
    """A reader saw 116 free devices in all, and not that H100s were short."""
    nodes = [product_node(f"a-{number}", "A100") for number in range(3)]
    nodes += [product_node(f"h-{number}", "H100") for number in range(2)]
    pods = workload("web", {GPU: "1"}, ["h-0"] * 3, nodeSelector={"nvidia.com/gpu.product": "H100"})

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods], "--wave-nodes", 4)

    kinds = [
        {
            entry["kind"]: (entry["forKeys"]["before"], entry["forClaims"]["after"])
            for entry in wave["freeByKind"]
        }
        for wave in plan["waves"]
    ]
    assert {"A100": (12, 0), "H100": (5, 4)} == kinds[0]
    for wave in plan["waves"]:
        for key, total in (("forKeys", "freeForKeys"), ("forClaims", "freeForClaims")):
            for moment in ("before", "after"):
                assert wave[total][moment] == sum(
                    entry[key][moment] for entry in wave["freeByKind"]
                )
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert "| wave | A100 | H100 |" in readme
    assert "| 1 | keys 12 | keys 5, then 1; claims 0, then 4 |" in readme
    page = " ".join(Outline((tmp_path / "plan" / "plan.html").read_text()).texts)
    assert "Free devices by kind of node" in page
    assert "keys 5, then 1; claims 0, then 4" in page


@pytest.mark.parametrize("product", ["A100", ""], ids=["one product", "none known"])
def test_free_devices_of_one_product_stand_in_one_place(tmp_path: Path, product: str) -> None:
    nodes = [product_node(f"a-{number}", product) for number in range(3)]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["a-0"])])

    assert all([] == wave["freeByKind"] for wave in plan["waves"])
    assert "by kind" not in (tmp_path / "plan" / "README.md").read_text()


def test_mig_devices_and_gpus_of_one_product_are_of_two_kinds(tmp_path: Path) -> None:
    sizes = node("mig-0", {"nvidia.com/mig-1g.10gb": "8"}, {"nvidia.com/gpu.product": "A100"})
    nodes = [product_node("a-0", "A100"), product_node("a-1", "A100"), sizes]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["a-0"])])

    kinds = [entry["kind"] for entry in plan["waves"][0]["freeByKind"]]
    assert ["A100", "A100 (nvidia.com/mig-1g.10gb)"] == kinds


def test_one_product_has_one_name_with_hami_and_with_the_device_plugin(tmp_path: Path) -> None:
    """HAMi's register has blanks, and the label has hyphens: the table had two columns of one card."""
    own = hami_node("hami-0")
    register = "hami.io/node-nvidia-register"
    text = own["metadata"]["annotations"][register]
    own["metadata"]["annotations"][register] = text.replace("A100", "NVIDIA A100-SXM4-40GB")
    product = "NVIDIA-A100-SXM4-40GB"
    nodes = [own, product_node("p-0", product), product_node("m-0", "NVIDIA-H100")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["p-0"])])

    kinds = [entry["kind"] for entry in plan["waves"][0]["freeByKind"]]
    assert [product, "NVIDIA-H100"] == kinds
