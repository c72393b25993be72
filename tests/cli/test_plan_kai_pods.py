"""Shares of KAI in a plan beside other pods of KAI in their namespace: those without live pods, and those that end."""

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, plugin_node, workload
from testing.plan import held_objects, planned

SETTINGS: Final = """\
translation:
  adoptSchedulers: {kai-scheduler: default-scheduler}
  profiles: {kai: gpu.nvidia.com}
"""
KAI: Final = "kai-scheduler"
OPTED_OUT: Final = {"drawbridge.internal/translate": "false"}


def share(name: str = "web", *, place: str = "gpu-0", space: str = "team") -> list[Any]:
    """A Deployment with a share of a GPU, and its pod as KAI's webhook leaves it."""
    reference = {"key": "NVIDIA_VISIBLE_DEVICES", "name": f"{name}-abc-shared-gpu-0"}
    variable = {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "valueFrom": {"configMapKeyRef": reference},
    }
    owner, pod = workload(name, {"cpu": "1"}, [place], namespace=space, schedulerName=KAI)
    owner["spec"]["template"]["metadata"]["annotations"] = {"gpu-memory": "8000"}
    pod["metadata"]["annotations"] = {
        "gpu-memory": "8000",
        "runai/shared-gpu-configmap": f"{name}-abc-shared-gpu",
    }
    pod["spec"] = copy.deepcopy(pod["spec"])
    pod["spec"]["containers"][0]["env"] = [variable]
    return [owner, pod]


def cluster(*more: Any) -> list[Any]:
    """Nodes with a device plugin, a share on one of them, and further objects."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(4)]
    return [*nodes, namespace("team"), *share(), *more]


def options(tmp_path: Path) -> tuple[object, ...]:
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    return "--settings", file


def assessed(tmp_path: Path, objects: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the blockers and the notes of `assess` on KAI's webhook."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    command = ("assess", "--snapshot", file, *options(tmp_path), "-o", "json")
    answer = json.loads(drawbridge(*command).stdout)
    return {
        name: [entry for entry in answer[name] if entry["code"] == "kaiWebhook"]
        for name in ("blockers", "notes")
    }


def custom(version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return api_object(kind, "other", "team", api_version=version, spec=spec)


def template(*, gpus: int = 0, labels: dict[str, str] | None = None) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    container = {"name": "pytorch", "image": "a", "resources": {"limits": limits}}
    spec = {"schedulerName": KAI, "containers": [container]}
    return {"metadata": {"labels": labels or {}}, "spec": spec}


def suspended(**pod: Any) -> dict[str, Any]:
    return custom(
        *("kubeflow.org/v1", "PyTorchJob"),
        runPolicy={"suspend": True},
        pytorchReplicaSpecs={"Master": {"replicas": 1, "template": template(**pod)}},
    )


def mixed() -> dict[str, Any]:
    """A RayCluster with a head without devices."""
    groups = [{"groupName": "a", "replicas": 1, "template": template(gpus=1)}]
    head = {"template": template()}
    return custom("ray.io/v1", "RayCluster", headGroupSpec=head, workerGroupSpecs=groups)


def owned() -> dict[str, Any]:
    """A CronJob of an object of a kind that is not read."""
    reference = {"apiVersion": "acme.example/v1", "kind": "Report", "name": "other"}
    cron = api_object(
        *("CronJob", "nightly", "team"),
        api_version="batch/v1",
        spec={"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template()}}},
    )
    cron["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return cron


STEP: Final = {"name": "a", "container": {"image": "a", "name": "main"}}
CUSTOM: Final = {
    "opted out": suspended(gpus=1, labels=OPTED_OUT),
    "suspended, without devices": suspended(),
    "stopped notebook": custom("kubeflow.org/v1", "Notebook", template=template()),
    "cron workflow": custom(
        *("argoproj.io/v1alpha1", "CronWorkflow"),
        workflowSpec={"schedulerName": KAI, "templates": [STEP]},
    ),
    "cron workflow of a template": custom(
        *("argoproj.io/v1alpha1", "CronWorkflow"),
        workflowSpec={"schedulerName": KAI, "workflowTemplateRef": {"name": "a"}},
    ),
    "workflow template": custom(
        *("argoproj.io/v1alpha1", "WorkflowTemplate"), schedulerName=KAI, templates=[STEP]
    ),
    "head without devices": mixed(),
    "cron job of another owner": owned(),
}


@pytest.mark.parametrize("other", CUSTOM.values(), ids=CUSTOM)
def test_shares_stay_beside_next_pods_of_kai_by_the_templates_of_other_projects(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """They had no live pod, so KAI was to leave their namespace, and would have started none of their next pods."""
    plan = planned(tmp_path, cluster(other), *options(tmp_path))
    texts = assessed(tmp_path, cluster(other))

    assert "/team/other would go on with" in held_objects(plan)["Deployment/team/web"]
    assert [] == [name for wave in plan["waves"] for name in wave["kaiNamespaces"]]
    assert [["Deployment/team/web"]] == [entry["objects"] for entry in texts["blockers"]]
    assert [] == texts["notes"]


ENDED: Final = {"conditions": [{"type": "Succeeded", "status": "True"}]}
LEAVING: Final = {
    "with devices": suspended(gpus=1),
    "ended": {**suspended(), "status": ENDED},
    "workflow template with devices": custom(
        *("argoproj.io/v1alpha1", "WorkflowTemplate"),
        schedulerName=KAI,
        templates=[{"name": "a", "container": {"image": "a", "resources": {"limits": {GPU: "1"}}}}],
    ),
}


@pytest.mark.parametrize("other", LEAVING.values(), ids=LEAVING)
def test_shares_move_beside_templates_of_other_projects_that_leave_kai_or_run_no_more(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    plan = planned(tmp_path, cluster(other), *options(tmp_path))

    assert [["team"]] == [wave["kaiNamespaces"] for wave in plan["waves"] if wave["kaiNamespaces"]]
    assert [] == assessed(tmp_path, cluster(other))["blockers"]


def ending(kind: str, name: str) -> list[Any]:
    """A pod that runs without devices, by itself or of a Job."""
    owner, pod = workload(name, {"cpu": "1"}, ["gpu-1"], schedulerName=KAI)
    if kind == "Pod":
        del pod["metadata"]["ownerReferences"]
        return [pod]
    job = {**owner, "apiVersion": "batch/v1", "kind": "Job"}
    job["spec"] = {"backoffLimit": 0, "template": owner["spec"]["template"]}
    pod["metadata"]["ownerReferences"][0].update(apiVersion="batch/v1", kind="Job")
    return [job, pod]


def test_shares_beside_pods_that_end_wait_for_these(tmp_path: Path) -> None:
    """The fix was to move them, or to give them claims or another scheduler: nobody can change a pod that runs."""
    objects = cluster(*ending("Job", "etl"), *ending("Pod", "shell"))

    plan = planned(tmp_path, objects, *options(tmp_path))
    (blocker,) = assessed(tmp_path, objects)["blockers"]

    assert "pods that run would run on" in held_objects(plan)["Deployment/team/web"]
    fixes = {entry["fix"] for entry in plan["held"] if entry["object"] == "Deployment/team/web"}
    expected = "wait for the end of Job/team/etl, Pod/team/shell-0, or delete them; then plan again"
    assert fixes == {blocker["fix"]}
    assert blocker["fix"].startswith(expected)


def without_pods(space: str) -> dict[str, Any]:
    owner: dict[str, Any] = share("later", space=space)[0]
    owner["spec"]["replicas"] = 0
    return owner


def test_shares_without_live_pods_leave_kai_where_another_namespace_shows_its_webhook(
    tmp_path: Path,
) -> None:
    """Their namespace was to have the label of KAI's Config, so the first of their pods would be rejected."""
    objects = cluster(namespace("later"), without_pods("later"))

    plan = planned(tmp_path, objects, *options(tmp_path))
    (note,) = assessed(tmp_path, objects)["notes"]

    named = {name for wave in plan["waves"] for name in wave["kaiNamespaces"]}
    assert {"later", "team"} == named
    assert ["Deployment/later/later", "Deployment/team/web"] == note["objects"]


def test_shares_without_live_pods_have_no_note_where_nothing_shows_the_webhook(
    tmp_path: Path,
) -> None:
    objects = [*cluster()[:-2], without_pods("team")]

    assert {"blockers": [], "notes": []} == assessed(tmp_path, objects)


def test_a_pod_of_another_scheduler_name_is_not_kais(tmp_path: Path) -> None:
    """A pod of `runai-scheduler` held the shares, while KAI's pod grouper serves one name."""
    other = workload("other", {"cpu": "1"}, ["gpu-1"], schedulerName="runai-scheduler")

    plan = planned(tmp_path, cluster(*other), *options(tmp_path))

    assert [["team"]] == [wave["kaiNamespaces"] for wave in plan["waves"] if wave["kaiNamespaces"]]


def unserved(objects: list[Any]) -> list[Any]:
    """A workload that no node would serve with claims."""
    for entry in (objects[0]["spec"]["template"], *objects[1:]):
        selector = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100"}}
        entry["spec"] = {**copy.deepcopy(entry["spec"]), **selector}
    return objects


def test_shares_that_no_node_serves_have_no_text_on_kais_webhook(tmp_path: Path) -> None:
    """Each of two kept KAI for the other, in a circle."""
    objects = [*cluster()[:-2], *unserved(share("a")), *unserved(share("b", place="gpu-1"))]

    plan = planned(tmp_path, objects, *options(tmp_path))

    assert [] == [name for wave in plan["waves"] for name in wave["kaiNamespaces"]]
    assert {"blockers": [], "notes": []} == assessed(tmp_path, objects)


def test_pods_of_kai_that_move_with_a_whole_namespace_alone_are_a_blocker_where_it_never_does(
    tmp_path: Path,
) -> None:
    """`assess` had a note to have KAI leave, and `plan` held the shares."""
    _, pod = workload("bare", {GPU: "1"}, ["gpu-1"], schedulerName=KAI)
    del pod["metadata"]["ownerReferences"]
    limits = {GPU: "1", "nvidia.com/gpumem": "8000"}
    objects = cluster(pod, *unserved(workload("stuck", limits, ["gpu-2"])))

    plan = planned(tmp_path, objects, *options(tmp_path))
    texts = assessed(tmp_path, objects)

    assert "Pod/team/bare-0 would go on" in held_objects(plan)["Deployment/team/web"]
    assert [["Deployment/team/web"]] == [entry["objects"] for entry in texts["blockers"]]
    assert [] == texts["notes"]


def test_shares_that_no_wave_takes_together_with_the_other_pods_of_kai_say_so(
    tmp_path: Path,
) -> None:
    """The nodes and the namespace had rows without a word of KAI, and the shares had none."""
    limits = {GPU: "1", "nvidia.com/gpumem": "8000"}
    stuck = unserved(workload("stuck", limits, ["gpu-3"]))
    big = workload("big", {GPU: "4"}, ["gpu-1", "gpu-2"], schedulerName=KAI)
    objects = [*cluster(*big, *stuck), plugin_node("gpu-4")]

    plan = planned(tmp_path, objects, *options(tmp_path), "--wave-nodes", "1")

    reason = held_objects(plan)["Deployment/team/web"]
    assert "leave KAI in one wave with Deployment/team/big" in reason
