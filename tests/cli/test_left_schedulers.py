"""The schedulers that pods leave by a migration, in the words of `drawbridge assess` and `drawbridge plan`."""

import html
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, class_of_driver, namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import call, document, planned, script

LOSS: Final = 'leaves scheduler "kai-scheduler": its queues, fair share and gangs no longer apply [schedulerReplaced]'
NOTE: Final = 'Deployment/team/train leaves scheduler "kai-scheduler" with this wave: its queues, fair share and gangs no longer apply'
ADOPTED: Final = "translation: {adoptSchedulers: {kai-scheduler: kai-scheduler}}\n"


def cluster(scheduler: str = "kai-scheduler") -> list[Any]:
    """A Deployment with whole GPUs, and with another scheduler."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    train = workload("train", {GPU: "1"}, ["gpu-0"], schedulerName=scheduler)
    return [*nodes, namespace("team"), *train]


def shown(page: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", page))


def assessed(tmp_path: Path, objects: list[Any], *options: object) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("assess", "--snapshot", file, *options).stdout


def test_a_wave_says_which_scheduler_its_pods_leave(tmp_path: Path) -> None:
    """Queues, fair share and gangs of a team ended with a wave, and the folder of the plan had no word of it."""
    plan = planned(tmp_path, cluster(), "--page", tmp_path / "page.html")

    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    assert [NOTE] == [note[: len(NOTE)] for note in wave["notes"] if "scheduler" in note]
    assert [[LOSS]] == [entry["claimLosses"] for entry in wave["workloads"]]
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert f"- wave {wave['wave']}: {NOTE}" in readme
    assert f"on: Deployment/team/train: {LOSS}".replace("[", "\\[") in readme
    for name in ("preflight", "switch"):
        assert NOTE in script(tmp_path, name, wave["wave"])
    assert LOSS in shown((tmp_path / "page.html").read_text())


def test_the_scheduler_of_live_pods_counts_where_the_template_has_none(tmp_path: Path) -> None:
    """A webhook of the scheduler, such as Run:ai's, names it in pods alone."""
    objects = cluster()
    del objects[4]["spec"]["template"]["spec"]["schedulerName"]

    plan = planned(tmp_path, objects)

    assert [[LOSS]] == [
        entry["claimLosses"] for wave in plan["waves"] for entry in wave["workloads"]
    ]


def test_a_scheduler_that_keeps_its_pods_is_not_left(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)
    options = ("--settings", settings)

    call(tmp_path, cluster(), *options)

    assert "no longer apply" not in (tmp_path / "plan" / "plan.yaml").read_text()
    assert "no longer apply" not in assessed(tmp_path, cluster(), *options)


@pytest.mark.parametrize("carrier", ["template", "webhook"])
def test_whole_gpus_that_stay_with_another_scheduler_become_claims(
    tmp_path: Path, carrier: str
) -> None:
    """KAI up to 0.16 places none of them on a switched node, and a plan that had them as native counted on these."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)
    objects = [*cluster(), class_of_driver("gpu.nvidia.com", extendedResourceName=GPU)]
    if carrier == "webhook":
        del objects[4]["spec"]["template"]["spec"]["schedulerName"]

    (entry,) = json.loads(assessed(tmp_path, objects, "-o", "json", "--settings", settings))[
        "workloads"
    ]
    plan = planned(tmp_path, objects, "--settings", settings)

    assert "translated" == entry["outcome"]
    opted_in = [wave["namespaces"] for wave in plan["waves"] if wave["namespaces"]]
    assert [["team"]] == opted_in
    assert {"translated"} == {
        entry["outcome"] for wave in plan["waves"] for entry in wave["workloads"]
    }


@pytest.mark.parametrize(
    ("image", "versions"),
    [
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.14.0", ("0.16 and earlier",)),
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17.0", ("0.17 and later",)),
        ("", ("0.16 and earlier", "0.17 and later")),
    ],
    ids=["0.14", "0.17", "not known"],
)
def test_a_wave_says_which_scheduler_has_to_allocate_its_claims(
    tmp_path: Path, image: str, versions: tuple[str, ...]
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)
    spec = {"template": {"spec": {"containers": [{"name": "scheduler", "image": image}]}}}
    scheduler = api_object(
        "Deployment", "kai-scheduler-default", "kai", api_version="apps/v1", spec=spec
    )

    plan = planned(tmp_path, [*cluster(), scheduler], "--settings", settings)

    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    (note,) = (note for note in wave["notes"] if "Deployment/team/train stays with" in note)
    assert 'scheduler "kai-scheduler" by translation.adoptSchedulers: it has to allocate' in note
    resources = [note for note in wave["notes"] if "extended resource that a DeviceClass" in note]
    assert [f"KAI Scheduler ({entry}) " for entry in versions] == [
        note[: len(f"KAI Scheduler ({entry}) ")]
        for note, entry in zip(resources, versions, strict=True)
    ]


@pytest.mark.parametrize(
    ("image", "versions"),
    [
        ("docker.io/volcanosh/vc-scheduler:v1.14.1", ["1.14 and earlier"]),
        ("mirror.example.com/vc-scheduler:v1.15.1@sha256:0", ["1.15 and later", "1.15"]),
        ("", ["1.15 and later", "1.14 and earlier", "1.15"]),
    ],
    ids=["1.14", "1.15", "not known"],
)
def test_a_wave_says_how_volcano_allocates_the_claims_that_it_keeps(
    tmp_path: Path, image: str, versions: list[str]
) -> None:
    """Its facts stood in no note, though its releases until 1.14 allocate no claim by default."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {adoptSchedulers: {volcano: volcano}}\n")
    spec = {"template": {"spec": {"containers": [{"name": "scheduler", "image": image}]}}}
    scheduler = api_object(
        *("Deployment", "volcano-scheduler", "volcano"), api_version="apps/v1", spec=spec
    )

    plan = planned(tmp_path, [*cluster("volcano"), scheduler], "--settings", settings)

    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    facts = [note for note in wave["notes"] if note.startswith("Volcano (")]
    assert versions == [note.removeprefix("Volcano (").partition(")")[0] for note in facts]
    assert all("volcano-sh/volcano" in note for note in facts)


def test_a_stopped_workload_needs_its_scheduler_to_allocate_claims_too(tmp_path: Path) -> None:
    """A plan demanded that jobs are stopped, and then had no word of the scheduler that has to place them as claims."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {adoptSchedulers: {volcano: volcano}}\n")
    container = {"name": "c", "image": "a", "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"containers": [container], "schedulerName": "volcano"}}
    worker = {"groupName": "gpu", "replicas": 1, "template": template}
    later = api_object(
        *("RayCluster", "later", "team"),
        api_version="ray.io/v1",
        spec={"workerGroupSpecs": [worker], "suspend": True},
    )

    plan = planned(tmp_path, [*cluster("default-scheduler"), later], "--settings", settings)

    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    (note,) = (
        note for note in wave["notes"] if "RayCluster/team/later" in note and "stays" in note
    )
    assert 'stays with scheduler "volcano" by translation.adoptSchedulers' in note


def test_the_scheduler_of_shares_is_left_with_these(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    web = workload("web", SHARE, ["hami-0"], schedulerName="hami-scheduler")

    call(tmp_path, [*nodes, namespace("team"), *web])

    assert ["Deployment/team/web"] == [
        entry["object"] for wave in document(tmp_path)["waves"] for entry in wave["workloads"]
    ]
    assert "no longer apply" not in (tmp_path / "plan" / "plan.yaml").read_text()


def test_a_loss_of_claims_stands_beside_that_of_the_scheduler(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    limits = {**SHARE, "nvidia.com/gpucores": "100"}
    web = workload("web", limits, ["hami-0"], schedulerName="volcano")

    plan = planned(tmp_path, [*nodes, namespace("team"), *web])

    (losses,) = (entry["claimLosses"] for wave in plan["waves"] for entry in wave["workloads"])
    assert ["schedulerReplaced]", "notExclusive]"] == [loss.rpartition("[")[2] for loss in losses]


@pytest.mark.parametrize("output", ["text", "html"])
def test_assess_says_which_scheduler_pods_leave(tmp_path: Path, output: str) -> None:
    answer = assessed(tmp_path, cluster("volcano"), "-o", output)

    text = " ".join((shown(answer) if output == "html" else answer).split())
    assert 'Deployment/team/train leaves "volcano" once opted in (schedulerReplaced): ' in text
    assert "its queues, fair share and gangs no longer apply" in text


# --- shares by annotations --------------------------------------------------------------------------


def share_of_kai() -> list[Any]:
    """A Deployment with a share of a GPU of KAI."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    train = workload("train", {"cpu": "1"}, ["hami-0"], schedulerName="kai-scheduler")
    for metadata in (train[0]["spec"]["template"]["metadata"], train[1]["metadata"]):
        metadata["annotations"] = {"gpu-memory": "8000"}
    return [*nodes, namespace("team", {"drawbridge.internal/translate": "true"}), *train]


@pytest.mark.parametrize(
    ("adopted", "is_translated"),
    [
        ({}, True),
        ({"kai-scheduler": "default-scheduler"}, True),
        ({"kai-scheduler": "kai-scheduler"}, False),
        ({"kai-scheduler": "runai-scheduler"}, False),
    ],
    ids=["by a label", "by the setting", "stays", "another one of KAI's"],
)
def test_an_assessment_says_what_the_webhook_does_with_a_share_of_kai(
    tmp_path: Path, adopted: dict[str, str], *, is_translated: bool
) -> None:
    """The webhook leaves the pods that KAI keeps, and the assessment counted them as translated."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(dump_yaml([{"translation": {"adoptSchedulers": adopted}}]))
    pods, snapshot = tmp_path / "pods.yaml", tmp_path / "cluster.yaml"
    pods.write_text(dump_yaml(share_of_kai()[3:4]))
    options = ("--settings", settings)

    (entry,) = json.loads(assessed(tmp_path, share_of_kai(), "-o", "json", *options))["workloads"]
    translated = drawbridge("translate", "-f", pods, "--snapshot", snapshot, *options).stdout

    assert is_translated is ("resourceClaims" in translated)
    assert is_translated is (entry["outcome"] in {"translated", "lossy"})
    if not is_translated:
        assert ("unknown", ["foreignScheduler"]) == (entry["outcome"], entry["codes"])


def test_a_share_of_kai_that_stays_there_by_the_setting_is_a_note(tmp_path: Path) -> None:
    """A blocker asked for another scheduler, against the decision of its owner."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)

    answer = json.loads(assessed(tmp_path, share_of_kai(), "-o", "json", "--settings", settings))

    assert [] == answer["blockers"]
    (note,) = (entry for entry in answer["notes"] if entry["code"] == "foreignScheduler")
    assert "keeps it by translation.adoptSchedulers" in note["message"]
    assert "it stays as it is, and so does its node" in note["message"]


def test_a_plan_holds_the_node_of_a_share_of_kai_that_stays_there(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)

    plan = planned(tmp_path, share_of_kai(), "--settings", settings)

    held = {entry["object"]: entry for entry in plan["held"]}
    text = "its scheduler gives it what its annotations request, and keeps it by translation.adoptSchedulers"
    assert text in held["Node//hami-0"]["reason"]
    assert (
        "another scheduler in the setting translation.adoptSchedulers"
        in held["Node//hami-0"]["fix"]
    )
