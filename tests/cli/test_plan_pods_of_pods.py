"""`assess`, `plan` and `rehearse` with pods of pods, such as the executors of a Spark driver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.source import SourceObject
from migration.cluster.workloads import group_workloads
from migration.plan.model.plan import Plan
from migration.rehearsal.build import build_rehearsal
from process.profiles.profile_files import load_profiles
from testing.documents import api_object, namespace, node
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned, waves
from translation.cluster.snapshot import TranslationOptions


def owned(kind: str, name: str, owner: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """An object with a controller, `Kind/name`."""
    owner_kind, _, owner_name = owner.partition("/")
    reference = {"kind": owner_kind, "name": owner_name, "controller": True}
    return {
        **api_object(kind, name, "team", ownerReferences=[reference] if owner else [], **fields),
        "apiVersion": version,
    }


def pod(name: str, on: str, limits: Mapping[str, str], owner: str = "") -> dict[str, Any]:
    spec = {
        "nodeName": on,
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "a", "resources": {"limits": dict(limits)}}],
    }
    return owned("Pod", name, owner, spec=spec, status={"phase": "Running"})


def spark(
    driver_limits: Mapping[str, str], executor_limits: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A driver on its own node, and two executors."""
    return [
        pod("driver", "cpu-0", driver_limits),
        pod("exec-1", "gpu-1", executor_limits, "Pod/driver"),
        pod("exec-2", "gpu-2", executor_limits, "Pod/driver"),
    ]


def test_executors_use_the_devices_that_they_have(tmp_path: Path) -> None:
    """Only the driver was read, without any: the plan counted on their devices, and did not wait for them."""
    nodes = [node("cpu-0", {}, {}), *(plugin_node(f"gpu-{number}", 2) for number in range(3))]
    others = workload("web", {GPU: "2"}, ["gpu-0"])

    plan = planned(
        tmp_path,
        [*nodes, namespace("team"), *others, *spark({"cpu": "1"}, {GPU: "2"})],
        "--wave-nodes",
        1,
    )

    order = [name for names, _ in waves(plan) for name in names]
    assert "gpu-0" != order[0]
    assert ["Pod/team/exec-1", "Pod/team/exec-2"] == sorted(
        work["pod"] for wave in plan["waves"] for work in wave["work"] if work["waits"]
    )
    assert 0 == plan["waves"][0]["freeBefore"]


def test_executors_go_on_with_device_keys_until_they_end(tmp_path: Path) -> None:
    """Nobody can create one again: their driver did, under another name."""
    nodes = [node("cpu-0", {}, {}), *(hami_node(f"gpu-{number}") for number in range(4))]

    plan = planned(tmp_path, [*nodes, namespace("team"), *spark(SHARE, SHARE)])

    workloads = [entry for wave in plan["waves"] for entry in wave["workloads"]]
    ends = {entry["object"]: entry["ends"] for entry in workloads}
    assert ends["Pod/team/exec-1"]
    assert ends["Pod/team/exec-2"]
    assert "by hand" not in str(plan["waves"])


def test_the_executors_of_a_driver_with_a_device_are_rehearsed() -> None:
    """They were taken for copies of the driver, and the rehearsal ended with an error."""
    nodes = [plugin_node(name) for name in ("cpu-0", "gpu-1", "gpu-2")]
    documents = [*nodes, namespace("team"), *spark({GPU: "1"}, {GPU: "2"})]

    rehearsal = build_rehearsal(
        *(PLAN_OF_NONE, sources(documents), load_profiles(), TranslationOptions(), "default")
    )

    assert {"driver": "1", "exec-1": "2", "exec-2": "2"} == {
        entry["metadata"]["name"]: entry["spec"]["containers"][0]["resources"]["limits"][GPU]
        for entry in rehearsal.workloads
    }


PLAN_OF_NONE = Plan(
    kubernetes_version="",
    wave_nodes=1,
    keep_free=0,
    gpu_operator="",
    drivers={},
    mapped_classes={},
    plugins=(),
    waves=(),
    held=(),
    quotas={},
)


def sources(documents: list[dict[str, Any]]) -> tuple[SourceObject, ...]:
    return tuple(SourceObject(document=document, source="a test", line=1) for document in documents)


LWS = [
    pod("lws-0", "n", {}, "StatefulSet/lws"),
    pod("lws-0-1", "n", {}, "StatefulSet/lws-0"),
    owned("StatefulSet", "lws", "LeaderWorkerSet/lws", "apps/v1"),
    owned("StatefulSet", "lws-0", "Pod/lws-0", "apps/v1"),
]
OF_SPARK = [pod("exec", "n", {}, "Pod/driver")]
BATCH = api_object("Job", "a", "team", api_version="batch/v1", spec={"template": {"spec": {}}})
VOLCANO_JOB = api_object(
    "Job",
    "a",
    "team",
    api_version="batch.volcano.sh/v1alpha1",
    spec={"tasks": [{"replicas": 1, "template": {"spec": {"containers": []}}}]},
)
OF_VOLCANO = owned("Pod", "a-0", "Job/a", status={"phase": "Running"})
OF_VOLCANO["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
OF_BATCH = owned("Pod", "a-x", "Job/a", status={"phase": "Running"})
OF_BATCH["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
TWO_JOBS = {"Job/team/a": ["a-x"], "Job.batch.volcano.sh/team/a": ["a-0"]}
OPERATOR = [pod("driver", "n", {}, "SparkApplication/pi"), *OF_SPARK]


@pytest.mark.parametrize(
    ("documents", "want"),
    [
        (LWS, {"LeaderWorkerSet/team/lws": ["lws-0", "lws-0-1"]}),
        (LWS[1:], {"LeaderWorkerSet/team/lws": [], "StatefulSet/team/lws-0": ["lws-0-1"]}),
        (OF_SPARK, {"Pod/team/exec": ["exec"]}),
        (
            [pod("driver", "n", {}), *OF_SPARK],
            {"Pod/team/driver": ["driver"], "Pod/team/exec": ["exec"]},
        ),
        (OPERATOR, {"SparkApplication/team/pi": ["driver", "exec"]}),
        (
            [pod("a", "n", {}, "Pod/b"), pod("b", "n", {}, "Pod/a")],
            {"Pod/team/a": ["a"], "Pod/team/b": ["b"]},
        ),
        ([BATCH, VOLCANO_JOB, OF_VOLCANO, OF_BATCH], TWO_JOBS),
        ([VOLCANO_JOB, BATCH, OF_VOLCANO, OF_BATCH], TWO_JOBS),
        ([BATCH, OF_VOLCANO, OF_BATCH], TWO_JOBS),
        (
            [VOLCANO_JOB, OF_VOLCANO, OF_BATCH],
            {"Job/team/a": ["a-0"], "Job.batch/team/a": ["a-x"]},
        ),
        ([VOLCANO_JOB, OF_VOLCANO], {"Job/team/a": ["a-0"]}),
    ],
    ids=[
        "the leader of a group is passed",
        "a leader that is gone",
        "a driver that is gone",
        "a driver without an owner",
        "the driver of an operator is passed",
        "pods that own each other",
        "Jobs of two projects with one name",
        "those Jobs in another order",
        "one of those Jobs by its pods alone",
        "Kubernetes' one by its pods alone",
        "a Job of another project alone",
    ],
)
def test_the_workload_of_a_pod(
    documents: list[dict[str, Any]], want: Mapping[str, list[str]]
) -> None:
    groups = group_workloads(sources(documents), "default")

    assert want == {group.key.reference: [own.name for own in group.pods] for group in groups}
