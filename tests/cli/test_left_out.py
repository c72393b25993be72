"""Objects of snapshot files that no API server would store, in the commands about a migration."""

from pathlib import Path

import pytest
import yaml

from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import plugin_node, workload


def snapshot_with_numbers(folder: Path, nodes: int) -> Path:
    """A file of a converter that has written label values such as `08` without quotes."""
    file = folder / "cluster.yaml"
    broken = []
    for number in range(nodes):
        node = plugin_node(f"node-{number}")
        node["metadata"].setdefault("labels", {})["nvidia.com/cuda.driver.rev"] = 8
        broken.append(node)
    objects = [*broken, namespace("team"), *workload("web", {"nvidia.com/gpu": "1"}, ["node-0"])]
    file.write_text(yaml.safe_dump_all(objects))
    return file


@pytest.mark.parametrize("command", [["assess"], ["plan", "--page", "plan.html"]])
def test_an_object_that_is_left_out_is_named_with_its_cure(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = snapshot_with_numbers(tmp_path, nodes=1)

    answer = drawbridge(*command, "--snapshot", str(file))

    place = "Node/node-0: metadata.labels[nvidia.com/cuda.driver.rev]"
    assert [line for line in answer.stderr.splitlines() if place in line and "in quotes" in line]
    assert "note: objects with wrong values are left out: 1" in answer.stderr.splitlines()


def test_many_wrong_values_are_few_lines(tmp_path: Path) -> None:
    file = snapshot_with_numbers(tmp_path, nodes=24)

    answer = drawbridge("assess", "--snapshot", str(file))

    assert answer.stderr.count("put it in quotes") == 10
    assert "note: objects with wrong values are left out: 24" in answer.stderr.splitlines()
