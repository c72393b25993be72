"""Gangs in `simulate` and `why`, placed as one or pod by pod, as their scheduler does."""

import json
from pathlib import Path
from typing import Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import GROUP_SCHEDULER_ANNOTATION, SCHEDULER_NAME
from testing.builders import gpus
from testing.command import drawbridge
from testing.documents import (
    NVIDIA,
    Document,
    api_object,
    device_class,
    owned,
    ownership,
    resource_slice,
)

GANG: Final = {
    "gang.scheduling.koordinator.sh/name": "ring",
    "gang.scheduling.koordinator.sh/min-available": "2",
}
ALONE: Final = (
    "default-scheduler does not know Koordinator gang default/ring, and places the pods one by one"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A node with one CPU, and one GPU."""
    gpu = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    is_gpu = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"
    objects = [
        device_class(is_gpu, name=NVIDIA),
        api_object("Node", "a", status={"allocatable": {"cpu": "1", "pods": "10"}}),
        resource_slice(gpu, node="a", driver=NVIDIA),
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return file


def ring(scheduler: str) -> list[Document]:
    """Two pods with a CPU each."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    return [api_object("Pod", f"ring-{n}", annotations=GANG, spec=spec) for n in range(2)]


def placed(cluster: Path, pods: list[Document]) -> tuple[int, str]:
    """Return the number of pods with a node, and the notes."""
    call = ("simulate", "-f", "-", "--snapshot", cluster, "-o", "json")
    result = drawbridge(*call, stdin=dump_yaml(pods))
    document = json.loads(result.stdout)
    return sum(pod["node"] is not None for pod in document["pods"]), " ".join(result.stderr.split())


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_kube_scheduler_places_the_pods_of_a_gang_one_by_one(cluster: Path, scheduler: str) -> None:
    """They were simulated as a group, and none of them got a place."""
    count, notes = placed(cluster, ring(scheduler))

    assert count == 1
    assert ALONE in notes


def test_a_scheduler_that_reads_the_gang_places_all_of_it_or_nothing(cluster: Path) -> None:
    count, notes = placed(cluster, ring("koord-scheduler"))

    assert count == 0
    assert "one by one" not in notes


def test_a_launcher_without_devices_follows_its_gang_to_the_bridge(cluster: Path) -> None:
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([ownership(owned(name=NVIDIA))]))
    launcher, worker = (
        api_object("Pod", name, annotations=GANG, spec={"containers": [container]})
        for name, container in (("launcher", {"name": "main"}), ("worker", gpus(1)))
    )

    count, notes = placed(cluster, [launcher, worker])

    assert count == 2
    assert "one by one" not in notes


def test_why_of_a_new_pod_asks_for_the_gang_that_follows_it_to_the_bridge(cluster: Path) -> None:
    """It got a place; `simulate` has none for two pods with a CPU each."""
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([ownership(owned(name=NVIDIA))]))
    launcher = ring("")[0]
    resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}}
    container = {"name": "main", "resources": resources}
    worker = api_object("Pod", "worker", annotations=GANG, spec={"containers": [container]})
    manifests = [launcher, worker]

    call = ("why", "pod", "worker", "-f", "-", "--snapshot", cluster)
    result = drawbridge(*call, stdin=dump_yaml(manifests))

    assert placed(cluster, manifests)[0] == 0
    assert "Koordinator gang" in result.stdout


@pytest.mark.parametrize(("scheduler", "is_whole"), [("", False), ("koord-scheduler", True)])
def test_why_asks_for_the_gang_only_where_the_scheduler_does(
    cluster: Path, scheduler: str, *, is_whole: bool
) -> None:
    """A pod that kube-scheduler places was said to wait for pods that it does not need."""
    pod = api_object(
        "Pod",
        "ring-0",
        "team",
        annotations=GANG,
        spec={"schedulerName": scheduler, "containers": [{"name": "main"}]},
    )
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([pod]))

    result = drawbridge("why", "pod", "ring-0", "-n", "team", "--snapshot", cluster)

    assert ("Koordinator gang" in result.stdout) == is_whole


def trained(cluster: Path, annotations: dict[str, str], **launcher: object) -> list[Document]:
    """A PodGroup, a launcher without devices, and a worker with a device of the bridge."""
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([ownership(owned(name=NVIDIA))]))
    member = {"schedulingGroup": {"podGroupName": "training"}}
    group = api_object(
        "PodGroup",
        "training",
        annotations=annotations,
        spec={"schedulingPolicy": {"gang": {"minCount": 2}}},
    )
    return [
        {**group, "apiVersion": "scheduling.k8s.io/v1beta1"},
        api_object(
            "Pod", "launcher", spec={"containers": [{"name": "main"}], **member, **launcher}
        ),
        api_object("Pod", "worker", spec={"containers": [gpus(1)], **member}),
    ]


def test_pods_of_a_job_with_a_group_of_its_own_are_not_denied(cluster: Path) -> None:
    """Its controller owns the PodGroup, too; pods of files have no owners."""
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([ownership(owned(name=NVIDIA))]))
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a"}]}}
    job = api_object(
        "Job",
        "train",
        api_version="batch/v1",
        spec={
            "parallelism": 2,
            "completions": 2,
            "template": template,
            "scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        },
    )

    assert placed(cluster, [job])[0] == 2


def test_a_gang_of_the_bridge_needs_the_number_that_its_pods_say(cluster: Path) -> None:
    """None of it was placed."""
    cluster.write_text(cluster.read_text() + "---\n" + dump_yaml([ownership(owned(name=NVIDIA))]))
    of_volcano = {
        "scheduling.k8s.io/group-name": "ring",
        "scheduling.volcano.sh/group-min-member": "1",
    }
    group = api_object("PodGroup", "ring", spec={"minMember": 3})
    worker = api_object("Pod", "worker", annotations=of_volcano, spec={"containers": [gpus(1)]})
    manifests = [{**group, "apiVersion": "scheduling.volcano.sh/v1beta1"}, worker]

    count, notes = placed(cluster, manifests)

    assert count == 1
    assert "needs 1 pods, and minMember of its own PodGroup is 3; the bridge takes" in notes
    check = drawbridge("check", "-f", "-", "--snapshot", cluster, stdin=dump_yaml(manifests))
    assert "0 errors" in check.stdout, check.stdout
    assert "groupMinimumDiffers" in check.stdout


OF_BRIDGE: Final = {GROUP_SCHEDULER_ANNOTATION: SCHEDULER_NAME}


@pytest.mark.parametrize(
    ("code", "annotations", "driver", "has_devices"),
    [
        ("groupSchedulerUnknown", {}, NVIDIA, False),
        ("mixedDriverOwnership", OF_BRIDGE, "other.example.com", True),
    ],
)
def test_a_group_that_needs_denied_pods_is_not_placed(
    cluster: Path, code: str, annotations: dict[str, str], driver: str, *, has_devices: bool
) -> None:
    """The webhook denies each of its pods, and `simulate` placed them."""
    group, launcher, worker = trained(cluster, annotations)
    text = cluster.read_text()
    cluster.write_text(
        text.replace(dump_yaml([ownership(owned(name=NVIDIA))]), "")
        + dump_yaml([ownership(owned(name=driver))])
    )
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 1
    pod = worker if has_devices else launcher
    manifests = [group, pod]
    call = ("-f", "-", "--snapshot", cluster)

    simulated = json.loads(
        drawbridge("simulate", *call, "-o", "json", stdin=dump_yaml(manifests)).stdout
    )
    checked = json.loads(
        drawbridge("check", *call, "-o", "json", stdin=dump_yaml(manifests)).stdout
    )
    name = pod["metadata"]["name"]
    why = drawbridge("why", "pod", name, *call, stdin=dump_yaml(manifests)).stdout

    assert [entry.get("code") for entry in simulated["groups"]] == [code]
    assert f'"{name}" is denied' in simulated["groups"][0]["reason"]
    assert (f"Pod/default/{name}", code) in {
        (entry["object"], entry["code"]) for entry in checked["findings"]
    }
    assert f"rejected: {checked['findings'][0]['path']}: the p" in " ".join(why.split())


@pytest.mark.parametrize(
    ("codes", "annotations", "launcher"),
    [
        # The class that is not named may be the default one.
        ((), OF_BRIDGE, {"priorityClassName": "high"}),
        ((), OF_BRIDGE, {}),
        ((), {}, {"schedulerName": SCHEDULER_NAME}),
        (("groupSchedulerUnknown", "groupSchedulerDiffers"), {}, {}),
        (("groupSchedulerDiffers",), OF_BRIDGE, {"schedulerName": "other"}),
        (("groupSchedulerDiffers",), {GROUP_SCHEDULER_ANNOTATION: "default-scheduler"}, {}),
        (("groupPriorityDiffers",), OF_BRIDGE, {"priority": 5}),
        (("groupPriorityDiffers",), OF_BRIDGE, {"preemptionPolicy": "Never"}),
    ],
)
def test_all_commands_know_that_pods_of_a_group_may_not_differ(
    cluster: Path, codes: tuple[str, ...], annotations: dict[str, str], launcher: dict[str, object]
) -> None:
    """`simulate` placed such groups."""
    pods = trained(cluster, annotations, **launcher)
    pods[2]["spec"] |= {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    pods[1]["spec"].setdefault("priority", None if "priorityClassName" in launcher else 0)
    if "priorityClassName" in launcher:
        del pods[2]["spec"]["priority"]
    call = ("-f", "-", "--snapshot", cluster)

    simulated = json.loads(
        drawbridge("simulate", *call, "-o", "json", stdin=dump_yaml(pods)).stdout
    )
    checked = json.loads(drawbridge("check", *call, "-o", "json", stdin=dump_yaml(pods)).stdout)
    why = drawbridge("why", "pod", "launcher", *call, stdin=dump_yaml(pods)).stdout

    assert tuple(filter(None, (group.get("code") for group in simulated["groups"]))) == codes[-1:]
    of_group = [entry for entry in checked["findings"] if entry["code"].startswith("group")]
    assert tuple(dict.fromkeys(entry["code"] for entry in of_group)) == codes
    assert len({entry["object"] for entry in of_group}) == len(of_group)
    said = {"kube-scheduler fails a group", "all pods of a group need one scheduler"}
    assert any(words in " ".join(why.split()) for words in said) is bool(codes)
