"""Quotas of namespaces with pods that keep their keys: `assess`, `plan` and `quota convert` add lines to the same ones."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace, node, resource_quota
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
NATIVE: Final = workload("train", {GPU: "1"}, ["gpu-0"])
SHARES: Final = workload("share", SHARE, ["hami-0"])
REFUSED: Final = workload("notebooks", {"nvidia.com/gpu.shared": "1"}, ["ts-0"])
IDLE: Final = workload("web", {"cpu": "1"}, [])


def cluster(*workloads: list[dict[str, Any]], label: str = "") -> list[dict[str, Any]]:
    team = namespace("team", {"drawbridge.internal/translate": label} if label else {})
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"), hami_node("hami-1")]
    replicas = node("ts-0", {"nvidia.com/gpu.shared": "8"})
    return [
        *nodes,
        replicas,
        team,
        resource_quota({KEY: "8"}),
        *(entry for own in workloads for entry in own),
    ]


def quotas(tmp_path: Path, objects: list[dict[str, Any]], *flags: object) -> dict[str, list[str]]:
    """Return each command to the quotas that get lines for claims, as it says."""
    plan = planned(tmp_path, objects, *flags)
    file = tmp_path / "cluster.yaml"
    call = ("--snapshot", file, *flags, "-o", "json")
    assessment = json.loads(drawbridge("assess", *call).stdout)
    converted = json.loads(drawbridge("quota", "convert", *call).stdout)
    return {
        "assess": assessment["quotasToConvert"],
        "plan": [f"ResourceQuota/{name}/gpus" for name in plan["quotas"]],
        "quota convert": [entry["object"] for entry in converted["quotas"] if entry["added"]],
    }


@pytest.mark.parametrize(
    ("workloads", "is_converted"),
    [
        ((NATIVE,), False),
        ((NATIVE, REFUSED), False),
        ((NATIVE, IDLE), False),
        ((SHARES,), True),
        ((NATIVE, SHARES), True),
    ],
    ids=["native", "native and rejected", "native and idle", "shares", "native and shares"],
)
def test_the_same_quotas_get_lines_whoever_is_asked(
    tmp_path: Path, workloads: tuple[list[dict[str, Any]], ...], *, is_converted: bool
) -> None:
    """`assess` said that runbooks apply quotas that the plan had not, and `quota convert` printed those of all others."""
    answers = quotas(tmp_path, cluster(*workloads))

    expected = ["ResourceQuota/team/gpus"] if is_converted else []
    assert all(names == expected for names in answers.values()), answers


def test_pods_that_a_quota_alone_rejects_have_their_lines_in_all_others(tmp_path: Path) -> None:
    """`assess` had none: once the line of memory was gone, the same pods were rejected by that of GPUs."""
    memory = resource_quota({"requests.nvidia.com/gpumem": "40000"}, name="memory")

    answers = quotas(tmp_path, [*cluster(NATIVE, SHARES), memory])

    expected = ["ResourceQuota/team/gpus"]
    assert (expected, expected) == (answers["assess"], answers["quota convert"])
    # The plan holds the namespace.
    assert [] == answers["plan"]


def test_pods_with_claims_of_a_translation_have_their_lines(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")

    answers = quotas(tmp_path, cluster(NATIVE), "--settings", settings)

    assert all(names == ["ResourceQuota/team/gpus"] for names in answers.values()), answers


def test_a_conversion_names_the_quotas_that_stay(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster(NATIVE)))

    result = drawbridge("quota", "convert", "--snapshot", file)

    assert (0, "") == (result.exit_code, result.stdout)
    text = " ".join(result.stderr.split())
    assert "note: ResourceQuota/team/gpus: no line is added, since no pod there gets" in text
    assert "nothing to add" not in text


@pytest.mark.parametrize(
    ("objects", "flags"),
    [
        (cluster(NATIVE, label="true"), ()),
        (cluster(NATIVE), ("--to", "device")),
        ([resource_quota({KEY: "8"})], ()),
    ],
    ids=["opted in today", "as a DeviceQuota", "without pods"],
)
def test_other_conversions_are_as_before(
    tmp_path: Path, objects: list[dict[str, Any]], flags: tuple[str, ...]
) -> None:
    """Pods that are opted in get claims until a class maps their names."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    result = drawbridge("quota", "convert", "--snapshot", file, *flags)

    assert ("DeviceQuota" if flags else NVIDIA) in result.stdout
