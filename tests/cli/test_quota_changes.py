"""Lines and limits of `drawbridge quota convert --to device` that allow less or more than the others."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document, api_object, resource_quota
from testing.migration import SHARE, hami_node, plugin_node, workload

GPU: Final = "requests.nvidia.com/gpu"
SAME: Final = "so that neither more nor less is allowed at any time"


def notes(tmp_path: Path, *objects: Document, split: str = "used") -> list[str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge(
        *("quota", "convert", "--snapshot", file, "--to", "device", "--split", split)
    )
    return [str(line).removeprefix("note: ") for line in result.stderr.splitlines()]


def elastic_quota(**spec: Any) -> Document:
    return api_object(
        "ElasticQuota", "gpus", "team", api_version="scheduling.sigs.k8s.io/v1alpha1", spec=spec
    )


def test_a_line_that_is_divided_allows_less_and_one_of_mig_devices_the_same(
    tmp_path: Path,
) -> None:
    objects = (
        hami_node("node-a"),
        plugin_node("node-b"),
        *workload("share", SHARE, ["node-a"]),
        resource_quota({GPU: "8", "requests.nvidia.com/mig-1g.10gb": "4"}),
    )

    lines = notes(tmp_path, *objects)

    (less,) = [line for line in lines if "allows less than before" in line]
    assert less.startswith(
        f"ResourceQuota/team/gpus: {GPU} allows less than before: where the line"
    )
    assert [line for line in lines if SAME in line and GPU in line] == []
    assert [line for line in lines if SAME in line and "mig-1g.10gb" in line] != []


@pytest.mark.parametrize(
    ("has_whole", "words"),
    [
        (True, "each limit has a part: 0 in limit gpu, 1 in limit gpu-2"),
        (False, "class gpu.nvidia.com is nowhere in the cluster and gets none"),
    ],
)
def test_a_class_without_a_part_is_said_to_be_absent_only_where_it_is(
    tmp_path: Path, words: str, *, has_whole: bool
) -> None:
    """A line that pods use up has no part for other classes of the cluster."""
    objects = (
        *(plugin_node("node-b") for _ in range(has_whole)),
        hami_node("node-a"),
        *workload("share", SHARE, ["node-a"]),
        resource_quota({GPU: "1"}),
    )

    (less,) = [line for line in notes(tmp_path, *objects) if "allows less than before" in line]

    assert words in less


@pytest.mark.parametrize(
    ("split", "line", "words"),
    [
        ("used", GPU, "allows less than before: where the line allows 8 of any class"),
        ("whole", GPU, "allows more than before: where the line allows 8 of all classes together"),
        ("used", "limits.nvidia.com/gpu", "Kubernetes counts no extended resource under limits."),
        ("used", "requests.nvidia.com/gpumem", "is charged twice the amount"),
    ],
)
def test_a_line_says_its_difference(tmp_path: Path, split: str, line: str, words: str) -> None:
    objects = (
        hami_node("node-a"),
        plugin_node("node-b"),
        *workload("share", SHARE, ["node-a"]),
        resource_quota({line: "8"}),
    )

    assert [text for text in notes(tmp_path, *objects, split=split) if words in text] != []


def test_an_elastic_quota_counts_the_pods_in_it_alone(tmp_path: Path) -> None:
    lines = notes(tmp_path, elastic_quota(max={"koordinator.sh/gpu-core": "200"}))

    expected = (
        "ElasticQuota/team/gpus: max.koordinator.sh/gpu-core allows less than before: the limits count all pods of the "
        "namespaces, whichever their scheduler is, where the quota counts those of Koordinator's scheduler that are in it"
    )
    assert expected in lines
