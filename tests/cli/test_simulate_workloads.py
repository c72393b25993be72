"""`drawbridge simulate`: equal pods of a workload without a place are shown once, with the offers of device plugins."""

import json
from typing import Final

import pytest

from answers.manifests.workload_pods import MAX_PODS, workload_pods
from kube.manifests.source import SourceObject
from testing.builders import gpus, pod
from testing.builders import workload as make_workload
from testing.documents import Document, api_object
from testing.simulated_cluster import STATE, claim, device_class, node, simulate

PLUGIN_NODE: Final = node("a") | {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
PLUGINS: Final = (device_class(), PLUGIN_NODE)
NOTE: Final = "no driver publishes devices; device plugins offer nvidia.com/gpu (8 on 1 node)"


def template(name: str, count: int = 1) -> Document:
    spec = {"spec": claim(name, count)["spec"]}
    return api_object("ResourceClaimTemplate", name, "team", spec=spec)


def deployment(name: str, replicas: int, claim_template: str = "one") -> Document:
    claims = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    spec = {"containers": [{"name": "c", "image": "c"}], "resourceClaims": claims}
    content = {"replicas": replicas, "template": {"spec": spec}}
    return {**api_object("Deployment", name, "team", spec=content), "apiVersion": "apps/v1"}


def titles(text: str) -> list[str]:
    """The first lines of the paragraphs about pods and workloads."""
    return [line for line in text.splitlines() if line.startswith(("Pod ", "Deployment "))]


def test_equal_pods_without_a_place_are_shown_once() -> None:
    text = simulate(template("one"), deployment("web", 30)).stdout

    assert [
        *("Pod team/web-0  node-a", "Pod team/web-1  node-a"),
        *("Pod team/web-2  node-b", "Pod team/web-3  node-b"),
        "Deployment team/web  26 pods not placed",
    ] == titles(text)
    assert "  pods      web-4, web-5, web-6 and 23 more\n" in text
    assert 1 == text.count("[allocated]")
    assert "Closest fit: not computed" not in text
    assert "4 of 30 pods placed, 4 of 30 claims placed" in text


def test_each_workload_is_explained_though_only_some_pods_are() -> None:
    objects = (template("three", 3), deployment("web", 30, "three"), deployment("db", 5, "three"))

    text = simulate(*objects).stdout

    assert [
        "Deployment team/web  30 pods not placed",
        "Deployment team/db  5 pods not placed",
    ] == titles(text)
    assert "not explained" not in text
    assert "Closest fit: not computed beyond the first 3 failures" in text


def test_pods_between_which_another_one_is_placed_are_shown_apart() -> None:
    first, second = (deployment(name, 2, "three") for name in ("db", "web"))

    text = simulate(
        *(template("three", 3), template("one")), *(first, deployment("small", 1), second)
    ).stdout

    assert [
        "Deployment team/db  2 pods not placed",
        "Pod team/small-0  node-a",
        "Deployment team/web  2 pods not placed",
    ] == titles(text)


def test_one_pod_of_a_workload_without_a_place_has_its_own_name() -> None:
    text = simulate(template("three", 3), deployment("web", 1, "three")).stdout

    assert ["Pod team/web-0  not placed"] == titles(text)


def test_what_device_plugins_offer_stands_above_pods_without_a_place() -> None:
    result = simulate(make_workload(pod(gpus(1)), namespace="team"), snapshot=PLUGINS)

    assert result.stdout.startswith(NOTE)
    assert NOTE not in result.stderr


def test_a_document_has_what_device_plugins_offer_where_no_driver_publishes_devices() -> None:
    document = make_workload(pod(gpus(1)), namespace="team")
    options = ("-o", "json")

    answer = json.loads(simulate(document, snapshot=PLUGINS, options=options).stdout)
    published = json.loads(simulate(claim("a"), options=options).stdout)
    beside = json.loads(
        simulate(claim("a"), snapshot=(*STATE, PLUGIN_NODE), options=options).stdout
    )

    assert [
        {"resource": "nvidia.com/gpu", "nodes": 1, "allocatable": "8", "nodesInParts": 0}
    ] == answer["pluginResources"]
    assert "pluginResources" not in published
    assert "pluginResources" not in beside


@pytest.mark.parametrize("replicas", [2**31 - 1, 10**15])
def test_pods_beyond_those_that_are_placed_cost_no_time(replicas: int) -> None:
    result = simulate(template("one"), deployment("web", replicas))

    assert f"of Deployment/team/web at most {MAX_PODS} pods are placed" in result.stderr
    assert f"4 of {MAX_PODS} pods placed" in result.stdout


def test_the_pods_of_several_templates_are_numbered_on() -> None:
    """The ones that exist are those of the first templates."""
    job = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}
    jobs = [
        {"name": "a", "replicas": 2, **job},
        {"name": "b", "replicas": 10**15, **job},
    ]
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": jobs},
    }
    source = SourceObject(document=document, source="test", line=0)

    def names(existing: int) -> list[str]:
        return [pod.name for pod in workload_pods(source, document, "team", existing)]

    assert [
        *(f"train-a-{n}" for n in range(2)),
        *(f"train-b-{n}" for n in range(MAX_PODS - 2)),
    ] == names(0)
    assert ["train-a-1", *(f"train-b-{n}" for n in range(MAX_PODS - 1))] == names(1)
    assert [f"train-b-{n}" for n in range(3, MAX_PODS + 3)] == names(5)


@pytest.mark.parametrize(
    ("minimum", "of_task", "needed"),
    [({}, 2, "3"), ({"minAvailable": 0}, 2, "3"), ({}, "2", "5"), ({"minAvailable": 4}, 2, "4")],
    ids=str,
)
def test_a_volcano_job_needs_what_its_tasks_need(
    minimum: Document, of_task: object, needed: str
) -> None:
    """It needed all of its pods."""
    pod_template = {"spec": {"containers": [{"name": "c", "image": "c"}]}}
    tasks = [
        {"name": "master", "template": pod_template},
        {"name": "worker", "replicas": 4, "minAvailable": of_task, "template": pod_template},
    ]
    spec = {"tasks": tasks, **minimum}
    job = api_object("Job", "mpi", "team", api_version="batch.volcano.sh/v1alpha1", spec=spec)
    source = SourceObject(document=job, source="test", line=0)

    pods = workload_pods(source, job, "team", 0)

    annotations = [entry.document["metadata"]["annotations"] for entry in pods]
    assert {entry["scheduling.volcano.sh/group-min-member"] for entry in annotations} == {needed}
