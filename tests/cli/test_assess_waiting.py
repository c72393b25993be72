"""`drawbridge assess`: pods that run today are not named in place of those that wait, and a CronJob uses nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.assessment.device_needs import devices_in_use
from process.profiles.profile_files import load_profiles
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, plugin_node, workload
from testing.plan import planned
from translation.cluster.snapshot import TranslationOptions


@pytest.mark.parametrize("running", ["a", "z"])
def test_pods_that_wait_today_are_those_that_find_no_node(tmp_path: Path, running: str) -> None:
    """Pods were placed by name, and one that runs was named in place of one that waits."""
    waiting = "z" if running == "a" else "a"
    objects = [plugin_node("gpu-0", gpus=1), namespace("team")]
    objects += workload(running, {GPU: "1"}, ["gpu-0"])
    objects += workload(waiting, {GPU: "1"}, [""])
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    unplaced = json.loads(result.stdout)["capacity"]["unplaced"]
    assert [f"Deployment/team/{waiting}"] == [entry["object"] for entry in unplaced]


def test_pods_that_run_are_placed_where_they_are(tmp_path: Path) -> None:
    """Placed by name they left no node whole, and the one that runs on a whole node was named as a blocker."""
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    objects += workload("a", {GPU: "1"}, ["gpu-1", "gpu-1"])
    objects += workload("b", {GPU: "3"}, [""])
    objects += workload("z", {GPU: "4"}, ["gpu-0"])
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    assert ["Deployment/team/b"] == [entry["object"] for entry in answer["capacity"]["unplaced"]]
    (blocker,) = (entry for entry in answer["blockers"] if entry["code"] == "notPlaced")
    assert ["Deployment/team/b"] == blocker["objects"]
    assert blocker["message"].endswith("; all of them wait today, too")


@pytest.mark.parametrize("label", ["reserved", "shared"])
def test_a_pod_that_no_node_takes_today_either_blocks_nothing(tmp_path: Path, label: str) -> None:
    """It was a blocker for ever, with a fix about drivers."""
    nodes = [plugin_node("gpu-0", pool="shared")]
    waiting = workload("wait", {GPU: "16"}, [""], nodeSelector={"pool": label})
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*nodes, namespace("team"), *waiting]))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    answer = json.loads(result.stdout)
    rows = {row: [entry["objects"] for entry in answer[row]] for row in ("blockers", "notes")}
    named, others = ("notes", "blockers") if label == "reserved" else ("blockers", "notes")
    assert ([["Deployment/team/wait"]], []) == (rows[named], rows[others])
    assert result.exit_code == (label == "shared")


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        (1, "1 pod that no node would serve waits today"),
        (2, "2 pods that no node would serve wait"),
    ],
)
def test_one_pod_that_no_node_takes_waits(tmp_path: Path, pods: int, text: str) -> None:
    """It was `1 pod that no node would serve wait today`."""
    waiting = workload("wait", {GPU: "1"}, [""] * pods, nodeSelector={"pool": "reserved"})
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0"), namespace("team"), *waiting]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (note,) = (entry for entry in answer["notes"] if entry["code"] == "notPlaced")
    assert note["message"].startswith(text)


def test_one_of_the_pods_without_devices_waits(tmp_path: Path) -> None:
    """It was `1 of them wait today`; another one runs on a node that has lost a device."""
    objects = [plugin_node("gpu-0", gpus=1), namespace("team")]
    objects += workload("run", {GPU: "1"}, ["gpu-0", "gpu-0"]) + workload("wait", {GPU: "1"}, [""])
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (blocker,) = (entry for entry in answer["blockers"] if entry["code"] == "notPlaced")
    assert blocker["message"].endswith("; 1 of them waits today, too")


def nightly() -> dict[str, Any]:
    """A CronJob of two GPUs without a run."""
    container = {"name": "c", "image": "a", "resources": {"limits": {GPU: 2}}}
    job = {"template": {"spec": {"containers": [container]}}}
    return api_object(
        "CronJob", "nightly", "team", spec={"schedule": "0 1 * * *", "jobTemplate": {"spec": job}}
    )


def test_a_cron_job_without_a_run_is_named_with_the_pods_of_its_next_run(tmp_path: Path) -> None:
    """They were among the pods of today."""
    objects = [plugin_node("gpu-0"), namespace("team"), nightly()]
    objects += workload("web", {GPU: "1"}, ["gpu-0"])
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    text = " ".join(drawbridge("assess", "--snapshot", file).stdout.split())

    assert "2 workloads with devices, 2 pods" in text
    assert "CronJob/team/nightly has no run now, and counts with 1 pod of the next run" in text


def test_a_cron_job_without_a_run_uses_no_devices_today() -> None:
    """`quota convert` raised a quota by it."""
    objects = [plugin_node("gpu-0"), namespace("team"), nightly()]
    objects += workload("web", {GPU: "1"}, ["gpu-0"])
    sources = [SourceObject(document=entry, source="a test", line=0) for entry in objects]

    cluster = assess_cluster(
        sources, load_profiles(), TranslationOptions(), namespace="default", version=""
    )

    use = devices_in_use(cluster, sources, "default")["team"]
    assert {"gpu.nvidia.com": 1} == dict(use.all.now)
    assert [(1, {"gpu.nvidia.com": 2})] == [(entry.pods, entry.of_pod) for entry in use.all.starts]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"spec": {"unschedulable": True}},
            "count, too: no pod gets them while the node is cordoned",
        ),
        (
            {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            "do not count: the node is not ready",
        ),
    ],
)
def test_free_devices_of_a_node_that_takes_no_pods_are_told_as_such(
    tmp_path: Path, fields: Mapping[str, Any], text: str
) -> None:
    """The page named cordoned nodes only."""
    closed = plugin_node("gpu-1")
    closed["spec"] = fields.get("spec", {})
    closed["status"]["conditions"] = fields.get("conditions", [])

    planned(tmp_path, [plugin_node("gpu-0"), closed], "--plugin-label", "no-plugin=true")

    page = (tmp_path / "plan" / "README.md").read_text()
    assert f"Those of gpu-1 {text}." in page


def test_a_running_share_of_kai_is_assessed_without_the_config_maps_of_its_webhook(
    tmp_path: Path,
) -> None:
    """It was denied also after its namespace had left that webhook."""
    reference = {"name": "train-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}
    running = api_object(
        "Pod",
        "train",
        "team",
        annotations={
            "gpu-memory": "4000",
            "runai/shared-gpu-configmap": "train-shared-gpu",
        },
        spec={
            "schedulerName": "kai-scheduler",
            "nodeName": "gpu-0",
            "containers": [
                {
                    "name": "c",
                    "image": "a",
                    "env": [
                        {
                            "name": "NVIDIA_VISIBLE_DEVICES",
                            "valueFrom": {"configMapKeyRef": reference},
                        }
                    ],
                }
            ],
        },
    )
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0"), namespace("team"), running]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (entry,) = answer["workloads"]
    assert "refused" != entry["outcome"], entry
    assert ["foreignScheduler"] == [code for code in entry["codes"] if code != "memorySizesUnknown"]
