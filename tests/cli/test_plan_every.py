"""`drawbridge assess` and `plan`: devices that a driver gives only all together, such as the TPUs of a node."""

import json
from pathlib import Path
from typing import Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace, node
from testing.migration import workload
from testing.plan import Objects, held_objects, planned, waves

TPU: Final = "google.com/tpu"
CARDS: Final = "acme.example/cards"
PROFILE: Final = """\
driver: cards.acme.example
claims: pod
devices:
  device:
    class: cards.acme.example
    sharing: never
    resources:
      acme.example/cards: {every: true, countAttribute: acme.example/count, where: {type: card}}
      acme.example/keys: {every: true, countAttribute: acme.example/count, where: {type: key}}
"""


def cluster(chips: str, *counts: int) -> Objects:
    """Nodes with so many TPUs each, and a pod with some on the first one."""
    nodes = [node(f"tpu-{number}", {TPU: str(count)}) for number, count in enumerate(counts)]
    return [*nodes, namespace("team"), *workload("train", {TPU: chips}, ["tpu-0"])]


def unserved(tmp_path: Path, objects: Objects) -> bool:
    file = tmp_path / "assessed.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return "would find no node that serves them" in json.dumps(answer["blockers"])


@pytest.mark.parametrize("counts", [(4, 4), (8, 4, 8)], ids=["alike", "of two sizes"])
def test_pods_with_all_tpus_of_a_node_move(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """They were held for devices that no driver would publish, and a free node was switched for nobody."""
    objects = cluster(str(counts[0]), *counts)

    assert not unserved(tmp_path, objects)
    plan = planned(tmp_path, objects)

    assert {} == held_objects(plan)
    assert ["team"] == [name for _, names in waves(plan) for name in names]
    switched = sorted(name for names, _ in waves(plan) for name in names)
    assert [f"tpu-{number}" for number in range(len(counts))] == switched


def test_pods_with_another_number_than_any_node_has_stay(tmp_path: Path) -> None:
    objects = cluster("8", 8, 4)
    objects[0]["status"]["allocatable"][TPU] = "4"

    assert unserved(tmp_path, objects)
    plan = planned(tmp_path, objects)

    assert {"Deployment/team/train", "Node//tpu-0", "Namespace//team"} <= held_objects(plan).keys()


def test_the_number_of_a_profile_counts_the_devices_of_its_name_alone(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "cards.acme.example.yaml").write_text(PROFILE)
    allocatable = {CARDS: "2", "acme.example/keys": "1"}
    objects = [
        *(node(f"acme-{number}", allocatable) for number in range(2)),
        *(namespace("team"), *workload("train", {CARDS: "2"}, ["acme-0"])),
    ]

    plan = planned(tmp_path, objects, "--profiles", profiles)

    assert {} == held_objects(plan)
    assert ["team"] == [name for _, names in waves(plan) for name in names]
