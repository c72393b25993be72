"""The demand of a replay, and the pods drawn from a snapshot by it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document
from testing.html_pages import Outline
from testing.recordings import node
from testing.simulated_cluster import DRIVER, claim, device_class, pinned, slice_of, using

LARGE = f"device.attributes['{DRIVER}'].model == 'large'"


def gpu(name: str, model: str, memory: str) -> Document:
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {"model": {"string": model}},
        "capacity": {"milli": {"value": "1000"}, "memory": {"value": memory}},
    }


def train(name: str, on: str, milli: int, memory: str, *selectors: str) -> Sequence[Document]:
    """Return a pod that runs, and its claim with a share of the first GPU of its node."""
    amounts = {"requests": {"milli": str(milli), "memory": memory}}
    cel = [{"cel": {"expression": selector}} for selector in selectors]
    held = claim(name, capacity=amounts, selectors=cel)
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": "gpu-0"}]
    held["status"] = {"allocation": {"devices": {"results": results}, **pinned(on)}}
    pod = using(name, name, nodeName=on)
    pod["status"] = {"phase": "Running"}
    return pod, held


MIXED = (
    device_class(),
    node("node-a", cpu=64),
    node("node-b", cpu=64),
    slice_of("node-a", *(gpu(f"gpu-{number}", "large", "80Gi") for number in range(5))),
    slice_of("node-b", *(gpu(f"gpu-{number}", "small", "16Gi") for number in range(5))),
    # A mean device has 48Gi, so that this would count as 1.67 devices, and the other as a third.
    *train("whole", "node-a", 1000, "80Gi", LARGE),
    *train("half", "node-b", 500, "16Gi", LARGE),
)


def draw(folder: Path, *options: str) -> Result:
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml(MIXED))
    call = ("--snapshot", snapshot, "--pods", "from-snapshot", "--strategy", "stock")
    result = drawbridge("replay", *call, *options)
    assert result.exit_code == 0, result.output
    return result


def demand(folder: Path, *options: str) -> Document:
    document: Document = json.loads(draw(folder, "-o", "json", *options).stdout)["demand"]
    return document


@pytest.mark.parametrize("percent", [50, 100, 130])
def test_drawn_pods_request_the_share_of_all_devices_on_a_mixed_cluster(
    percent: int, tmp_path: Path
) -> None:
    got = demand(tmp_path, "--demand", f"{percent}%")

    assert got["totalDevices"] == 10
    assert percent / 10 <= got["requestedDevices"] <= percent / 10 + 0.5
    (memory, milli) = got["capacities"]
    assert (milli["driver"], milli["name"], milli["total"]) == (DRIVER, "milli", 10_000)
    assert milli["requested"] == 1000 * got["requestedDevices"]
    assert (memory["name"], memory["total"]) == ("memory", 480 * 2**30)


def test_another_draw_has_other_pods_and_the_same_draw_the_same(tmp_path: Path) -> None:
    """Memory tells the two kinds of pods apart."""
    flags = [("--draw-seed", str(seed)) for seed in range(5)]
    draws = [demand(tmp_path, *flag) for flag in flags]
    amounts = {draw["capacities"][0]["requested"] for draw in draws}

    assert len(amounts) > 1
    assert demand(tmp_path) == draws[0]
    assert demand(tmp_path, "--draw-seed", "3") == draws[3]


def test_text_and_page_tell_the_demand(tmp_path: Path) -> None:
    text = draw(tmp_path, "--demand", "100%").stdout
    page = Outline(draw(tmp_path, "--demand", "100%", "-o", "html").stdout)

    want = f"The pods request 10 of 10 devices, 100.00 %: memory of {DRIVER} "
    (line,) = (line for line in text.splitlines() if line.startswith(want))
    assert f"milli of {DRIVER} 100.00 %" in line
    assert any(line.startswith(want) for line in page.texts)


def test_pods_that_leave_have_no_demand_together(tmp_path: Path) -> None:
    snapshot, pods = tmp_path / "cluster.yaml", tmp_path / "pods.csv"
    snapshot.write_text(dump_yaml(MIXED))
    pods.write_text("name,class,arrival,departure\na,gpu,0,10\nb,gpu,20,\n")
    call = ("--snapshot", snapshot, "--pods", pods, "--strategy", "stock", "-o", "json")

    documents = [
        json.loads(drawbridge("replay", *call, "--order", order).stdout)
        for order in ("file", "arrival")
    ]

    assert [document.get("demand", {}).get("requestedDevices") for document in documents] == [
        2,
        None,
    ]


def test_the_draw_needs_pods_that_are_drawn(tmp_path: Path) -> None:
    snapshot, pods = tmp_path / "cluster.yaml", tmp_path / "pods.csv"
    snapshot.write_text(dump_yaml(MIXED))
    pods.write_text("name\na\n")
    call = ("--snapshot", snapshot, "--pods", pods, "--draw-seed", "1")

    result = drawbridge("replay", *call)

    assert result.exit_code == 2
    assert "--draw-seed needs --pods from-snapshot" in result.stderr
