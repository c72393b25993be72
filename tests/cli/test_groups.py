"""Groups of pods in `simulate`, `why` and `check`."""

import json
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects
from testing.builders import gpus
from testing.command import CLUSTER as SHARED_GPUS
from testing.command import EXAMPLES, drawbridge
from testing.documents import (
    NVIDIA,
    Document,
    api_object,
    owned,
    ownership,
    resource_slice,
)

GROUPS = EXAMPLES / "groups"
CLUSTER = GROUPS / "cluster.yaml"


def documents(name: str) -> list[Document]:
    return [dict(entry.document) for entry in read_objects((GROUPS / name).read_bytes(), name)]


@pytest.fixture
def pending(tmp_path: Path) -> Path:
    """The PodGroup `training`, its template, and its four pods as they wait in a cluster."""
    group, template, job = documents("training.yaml")
    pods = [
        api_object("Pod", f"train-{number}", "default", spec=job["spec"]["template"]["spec"])
        for number in range(4)
    ]
    file = tmp_path / "pending.yaml"
    file.write_text(dump_yaml([group, template, *pods]))
    return file


def simulated(*arguments: object, exit_code: int) -> Document:
    result = drawbridge("simulate", *arguments, "-o", "json")
    assert result.exit_code == exit_code, result.stderr
    document: Document = json.loads(result.stdout)
    return document


def test_simulate_has_each_group_in_its_document() -> None:
    document = simulated("-f", GROUPS / "training.yaml", "--snapshot", CLUSTER, exit_code=1)

    assert document["groups"] == [
        {
            "kind": "PodGroup",
            "namespace": "default",
            "name": "training",
            "minCount": 4,
            "running": 0,
            "pods": ["train-0", "train-1", "train-2", "train-3"],
            "placed": 0,
            "score": 0,
            "code": "groupDoesNotFit",
            "reason": "3 of 4 pods fit, and 4 are needed; default/train-3 fits nowhere beside them",
        }
    ]
    assert [pod["node"] for pod in document["pods"]] == [None] * 4
    assert [claim["allocation"] for claim in document["claims"]] == [None] * 4


def test_simulate_names_the_minimum_with_which_a_group_fits(tmp_path: Path) -> None:
    documents_ = documents("training.yaml")

    def advised(*, minimum: int, wanted_gpus: int = 2) -> str:
        documents_[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] = minimum
        devices = documents_[1]["spec"]["spec"]["devices"]
        devices["requests"][0]["exactly"]["count"] = wanted_gpus
        file = tmp_path / "training.yaml"
        file.write_text(dump_yaml(documents_))
        return " ".join(drawbridge("simulate", "-f", file, "--snapshot", CLUSTER).stdout.split())

    smaller = "write minCount: 3 in PodGroup default/training, and create as many pods (parallelism"
    assert f"closest {smaller}" in advised(minimum=4)
    assert "3 pods placed; 3 needed" in advised(minimum=3)
    assert "advice" not in advised(minimum=4, wanted_gpus=5)


SWEEP = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: sweep}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  parallelism: 3
  completions: 3
  completionMode: Indexed
  template:
    spec:
      schedulingGroup: {podGroupName: sweep}
      restartPolicy: Never
      containers:
      - {name: worker, image: a, resources: {limits: {nvidia.com/gpu: 2}}}
"""


def _swept(tmp_path: Path, manifest: str) -> str:
    """The words of `why` for a manifest on two nodes with three GPUs each."""
    devices = [{"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}} for n in range(3)]
    state = [
        device_class_of_gpus(),
        *(api_object("Node", name) for name in ("a", "b")),
        *(resource_slice(*devices, node=name, name=name, driver=NVIDIA) for name in ("a", "b")),
    ]
    file, cluster = tmp_path / "sweep.yaml", tmp_path / "cluster.yaml"
    file.write_text(manifest)
    cluster.write_text(dump_yaml(state))
    result = drawbridge("why", "-f", file, "--snapshot", cluster)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def device_class_of_gpus() -> Document:
    expression = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"
    return api_object(
        "DeviceClass", NVIDIA, spec={"selectors": [{"cel": {"expression": expression}}]}
    )


def test_a_smaller_group_comes_before_smaller_pods(tmp_path: Path) -> None:
    fix = (
        "closest write minCount: 2 in PodGroup default/sweep, and create as many pods "
        "(parallelism and completions of a Job, or replicas), or write nvidia.com/gpu: 1 in each of the 3 pods"
    )
    fewer = SWEEP.replace("minCount: 3", "minCount: 2")

    assert fix in _swept(tmp_path, SWEEP)
    left = _swept(tmp_path, fewer)
    assert "advice write parallelism: 2 in Job sweep: as many pods have a place together" in left
    assert "Pod default/sweep-2 not placed closest write nvidia.com/gpu: 1 to fit node" in left
    assert "request 1 device" not in left
    fitting = _swept(tmp_path, fewer.replace(": 3", ": 2"))
    assert "all 2 pods get a place" in fitting
    assert "advice" not in fitting


def test_a_simulation_without_groups_says_nothing_of_groups() -> None:
    busy = EXAMPLES / "busy"

    document = simulated("-f", busy / "pods.yaml", "--snapshot", busy / "cluster.yaml", exit_code=1)

    assert "groups" not in document


def test_a_node_more_makes_the_group_fit(tmp_path: Path) -> None:
    more = [entry for entry in documents("cluster.yaml") if "node-b" in json.dumps(entry)]
    file = tmp_path / "node-c.yaml"
    file.write_text(dump_yaml(json.loads(json.dumps(more).replace("node-b", "node-c"))))

    document = simulated(
        "-f", GROUPS / "training.yaml", "--snapshot", CLUSTER, "--snapshot", file, exit_code=0
    )

    assert [pod["node"] for pod in document["pods"]] == ["node-a", "node-a", "node-b", "node-c"]


def test_why_explains_a_pending_pod_by_its_group(pending: Path) -> None:
    result = drawbridge(
        "why", "pod", "train-0", "--snapshot", CLUSTER, "--snapshot", pending, COLUMNS="110"
    )

    assert result.exit_code == 0
    assert result.stdout.splitlines()[:8] == [
        "Pod default/train-0",
        "  status    pending: no place for PodGroup default/training as a whole now",
        "",
        "PodGroup default/training  not placed",
        "  closest   write minCount: 3 in PodGroup default/training, and create as many pods (parallelism and",
        "            completions of a Job, or replicas), or request 1 device in each of the 4 pods",
        "  pods      train-0, train-1, train-2, train-3",
        (
            "  because   3 of 4 pods fit, and 4 are needed; default/train-3 fits nowhere beside them "
            "[groupDoesNotFit]"
        ),
    ]


def test_the_closest_fit_of_a_translated_group_is_in_its_key() -> None:
    """It was an amount of a claim, and suited only the first pod without a place."""
    group, _, job = documents("training.yaml")
    spec = job["spec"]["template"]["spec"]
    del spec["resourceClaims"]
    spec["containers"] = [gpus(1, mem=60000)]

    result = drawbridge(
        "simulate", "-f", "-", "--snapshot", SHARED_GPUS, stdin=dump_yaml([group, job])
    )

    words = " ".join(result.stdout.split())
    assert "write nvidia.com/gpumem: 40960 in each of the 4 pods" in words


def test_why_answers_about_the_pod_alone(pending: Path) -> None:
    call = ("why", "pod", "train-1", "--snapshot", CLUSTER, "--snapshot", pending, "-o", "json")
    document = json.loads(drawbridge(*call).stdout)["simulation"]

    assert [pod["name"] for pod in document["pods"]] == ["train-1"]
    assert [claim["name"] for claim in document["claims"]] == ["train-1-gpus"]
    assert document["groups"][0]["pods"] == ["train-0", "train-1", "train-2", "train-3"]


def test_a_volcano_job_is_a_gang(tmp_path: Path) -> None:
    _, template, job = documents("training.yaml")
    spec = job["spec"]["template"]["spec"]
    del spec["schedulingGroup"]
    gang = api_object(
        "Job",
        "gang",
        api_version="batch.volcano.sh/v1alpha1",
        spec={
            "tasks": [{"name": "worker", "replicas": 4, "template": {"spec": spec}}],
        },
    )
    file = tmp_path / "job.yaml"

    file.write_text(dump_yaml([template, gang]))
    whole = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)
    gang["spec"]["minAvailable"] = 3
    file.write_text(dump_yaml([template, gang]))
    part = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)

    assert [pod["node"] for pod in whole["pods"]] == [None] * 4
    assert whole["groups"][0]["minCount"] == 4
    assert [pod["node"] for pod in part["pods"]] == ["node-a", "node-a", "node-b", None]
    assert part["groups"][0]["kind"] == "Volcano PodGroup"


def test_a_volcano_job_that_needs_no_pods_is_no_gang(tmp_path: Path) -> None:
    _, template, job = documents("training.yaml")
    spec = job["spec"]["template"]["spec"]
    del spec["schedulingGroup"]
    task = {"name": "worker", "replicas": 4, "minAvailable": 0, "template": {"spec": spec}}
    kind = "batch.volcano.sh/v1alpha1"
    file = tmp_path / "job.yaml"
    file.write_text(
        dump_yaml([template, api_object("Job", "gang", api_version=kind, spec={"tasks": [task]})])
    )

    answer = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)

    assert [pod["node"] for pod in answer["pods"]] == ["node-a", "node-a", "node-b", None]
    assert "groups" not in answer


def test_check_reports_what_is_wrong_with_a_group(tmp_path: Path) -> None:
    _, template, job = documents("training.yaml")
    file = tmp_path / "job.yaml"
    file.write_text(dump_yaml([template, job]))

    result = drawbridge("check", "-f", file, "--snapshot", CLUSTER, "-o", "json")

    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["code"]) == ("warning", "groupNotFound")
    assert finding["object"] == "Job/default/train"
    assert finding["path"] == "spec.template.spec.schedulingGroup.podGroupName"


def test_the_pod_group_that_was_probably_meant_is_named() -> None:
    missing = (GROUPS / "missing.yaml").read_text(encoding="utf-8").replace("nowhere", "evalution")
    state = ("--snapshot", CLUSTER, "--snapshot", GROUPS / "evaluation.yaml")

    check = drawbridge("check", "-f", "-", *state, stdin=missing)

    assert 'did you mean "evaluation"? If not, create it with' in check.stdout


def test_check_does_not_miss_a_pod_group_without_a_cluster(tmp_path: Path) -> None:
    _, template, job = documents("training.yaml")
    file = tmp_path / "job.yaml"
    file.write_text(dump_yaml([template, job]))

    result = drawbridge("check", "-f", file, "-o", "json")

    codes = [finding["code"] for finding in json.loads(result.stdout)["findings"]]
    assert "groupNotFound" not in codes


class Gang(NamedTuple):
    """A pod with a group that does not exist, or has too few pods.

    Attributes:
        keys: The labels and annotations that declare the group.
        is_owned: The bridge owns the driver of the pod's GPU.
        codes: The codes of the findings about the group.
    """

    name: str
    scheduler: str
    keys: dict[str, str]
    codes: tuple[str, ...] = ()
    is_owned: bool = False
    adopts: str = ""


KOORDINATOR: Final = {"gang.scheduling.koordinator.sh/name": "g"}
OF_FOUR: Final = KOORDINATOR | {"gang.scheduling.koordinator.sh/min-available": "4"}
SIGS: Final = {"pod-group.scheduling.sigs.k8s.io/name": "g"}
VOLCANO: Final = {"scheduling.k8s.io/group-name": "g"}
LEFT: Final = ("claimsNotSeen",)
GONE: Final = ("groupNotFound",)
SMALL: Final = ("groupTooSmall",)
GANGS: Final = (
    Gang("kube-scheduler knows no gang", "", KOORDINATOR, LEFT),
    Gang("nor one with a minimum", "", OF_FOUR, LEFT),
    Gang("nor under its own name", "default-scheduler", VOLCANO, LEFT),
    Gang("KAI knows no gang of Koordinator", "kai-scheduler", SIGS),
    Gang("nor does Volcano", "volcano", OF_FOUR),
    Gang("Koordinator waits for its gang", "koord-scheduler", SIGS, GONE),
    Gang("and for all of its pods", "koord-scheduler", OF_FOUR, SMALL),
    Gang("Volcano waits for its PodGroup", "volcano", VOLCANO, GONE),
    Gang("another scheduler may know any", "second", {"scheduling.x-k8s.io/pod-group": "g"}, GONE),
    Gang("the bridge waits for every gang", "", KOORDINATOR, GONE, is_owned=True),
    Gang("and for all of its pods, too", "", OF_FOUR, SMALL, is_owned=True),
    Gang("a scheduler that is left waits no more", "volcano", VOLCANO, LEFT, adopts="volcano: ''"),
    Gang("one that gets claims does", "volcano", VOLCANO, GONE, adopts="volcano: volcano"),
)


@pytest.mark.parametrize("gang", GANGS, ids=lambda gang: gang.name)
def test_check_reports_a_group_only_where_its_scheduler_reads_it(
    tmp_path: Path, gang: Gang
) -> None:
    """It said that no scheduler places the pods that kube-scheduler places one by one."""
    cluster, settings = tmp_path / "cluster.yaml", tmp_path / "settings.yaml"
    gpu = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    objects = [
        device_class_of_gpus(),
        api_object("Node", "a"),
        resource_slice(gpu, node="a", driver=NVIDIA),
    ]
    if gang.is_owned:
        objects.append(ownership(owned(name=NVIDIA)))
    cluster.write_text(dump_yaml(objects))
    settings.write_text(f"translation:\n  adoptSchedulers: {{{gang.adopts}}}\n")
    pod = api_object(
        "Pod",
        "ring-0",
        labels=gang.keys,
        annotations=gang.keys,
        spec={"schedulerName": gang.scheduler, "containers": [gpus(1)]},
    )

    call = ("check", "-f", "-", "--snapshot", cluster, "--settings", settings, "-o", "json")
    result = drawbridge(*call, stdin=dump_yaml([pod]))

    codes = [finding["code"] for finding in json.loads(result.stdout)["findings"]]
    of_group = {"claimsNotSeen", "groupNotFound", "groupTooSmall"}
    assert tuple(dict.fromkeys(code for code in codes if code in of_group)) == gang.codes


def test_a_launcher_waits_with_the_others_of_its_gang(tmp_path: Path) -> None:
    """The bridge gets it as well, though it has no devices."""
    cluster = tmp_path / "cluster.yaml"
    gpu = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    slices = [resource_slice(gpu, node="a", driver=NVIDIA)]
    cluster.write_text(dump_yaml([device_class_of_gpus(), *slices, ownership(owned(name=NVIDIA))]))
    pods = [
        api_object("Pod", name, annotations=KOORDINATOR, spec={"containers": [container]})
        for name, container in (("launcher", {"name": "main"}), ("worker", gpus(1)))
    ]

    def reported(*pods: Document) -> set[str]:
        call = ("check", "-f", "-", "--snapshot", cluster, "-o", "json")
        findings = json.loads(drawbridge(*call, stdin=dump_yaml(list(pods))).stdout)["findings"]
        return {entry["object"] for entry in findings if entry["code"] == "groupNotFound"}

    assert reported(*pods) == {"Pod/default/launcher", "Pod/default/worker"}
    assert reported(pods[0]) == set()


@pytest.mark.parametrize("verb", ["check", "simulate"])
def test_a_group_that_needs_too_many_pods_is_too_large(tmp_path: Path, verb: str) -> None:
    """Simulated were 500 of its pods, and the others were missed."""
    group, template, job = documents("training.yaml")
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 600
    job["spec"] |= {"parallelism": 600, "completions": 600}
    file = tmp_path / "training.yaml"
    file.write_text(dump_yaml([group, template, job]))

    result = drawbridge(verb, "-f", file, "--snapshot", CLUSTER)

    assert result.exit_code == 1
    assert "[groupTooLarge]" in result.stdout
    assert "needs 600 pods" in " ".join(result.stdout.split())


def test_check_names_the_wrong_value_of_a_pod_group_and_blames_no_job(tmp_path: Path) -> None:
    """It said that the PodGroup of the same file does not exist."""
    group, *rest = documents("training.yaml")
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = "four"
    file = tmp_path / "training.yaml"
    file.write_text(dump_yaml([group, *rest]))

    result = drawbridge("check", "-f", file, "--snapshot", CLUSTER, "-o", "json")

    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["object"], finding["code"]) == ("PodGroup/default/training", "invalidObject")
    assert finding["path"] == "spec.schedulingPolicy.gang.minCount"


def test_a_pod_group_with_a_wrong_value_is_a_finding(tmp_path: Path) -> None:
    group, *rest = documents("training.yaml")
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = "four"
    file = tmp_path / "training.yaml"
    file.write_text(dump_yaml([group, *rest]))

    result = drawbridge("simulate", "-f", file, "--snapshot", CLUSTER)

    assert result.exit_code == 1
    assert "spec.schedulingPolicy.gang.minCount" in result.stderr
    assert "[groupNotFound]" in result.stdout


def test_check_warns_of_a_claim_that_is_not_that_of_the_group(tmp_path: Path) -> None:
    group, template, job = documents("training.yaml")
    entry = job["spec"]["template"]["spec"]["resourceClaims"][0]
    source = entry["resourceClaimTemplateName"]
    findings: list[Document] = []
    for shared, codes in ((source, []), ("another", ["groupClaimDiffers"])):
        group["spec"]["resourceClaims"] = [{**entry, "resourceClaimTemplateName": shared}]
        file = tmp_path / f"{shared}.yaml"
        file.write_text(dump_yaml([group, template, job]))

        findings = json.loads(drawbridge("check", "-f", file, "-o", "json").stdout)["findings"]

        assert [finding["code"] for finding in findings] == codes
    assert findings[0]["path"] == "spec.template.spec.resourceClaims[0]"


def job_with_gang(tmp_path: Path, gang: Document, **changes: Document) -> Path:
    """The Job of the example without its PodGroup, and with a gang of its own."""
    _, template, job = documents("training.yaml")
    del job["spec"]["template"]["spec"]["schedulingGroup"]
    spec = {**job["spec"], "scheduling": {"schedulingPolicy": {"gang": gang}}}
    file = tmp_path / "job.yaml"
    file.write_text(dump_yaml([template, {**job, "spec": spec} | changes]))
    return file


def test_the_pods_of_a_job_with_a_gang_are_placed_together(tmp_path: Path) -> None:
    file = job_with_gang(tmp_path, {})

    (group,) = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)["groups"]

    assert (group["kind"], group["name"]) == ("PodGroup", "train-gang")
    assert (group["minCount"], group["placed"]) == (4, 0)
    assert group["reason"].startswith("3 of 4 pods fit, and 4 are needed")


def test_the_gang_of_a_job_counts_its_parallelism_whatever_its_completions_are(
    tmp_path: Path,
) -> None:
    """Kubernetes gives it a minCount of 4, and makes 2 pods."""
    file = job_with_gang(tmp_path, {})
    file.write_text(file.read_text().replace("completions: 4", "completions: 2"))

    (group,) = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)["groups"]

    assert (group["minCount"], len(group["pods"])) == (4, 2)


def test_a_gang_of_a_job_may_need_fewer_than_all_pods(tmp_path: Path) -> None:
    file = job_with_gang(tmp_path, {"minCount": 3})

    (group,) = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)["groups"]

    assert (group["minCount"], group["placed"]) == (3, 3)


def test_pods_of_a_job_that_run_count_for_its_gang(tmp_path: Path) -> None:
    running = api_object(
        "Pod",
        "train-0-abcde",
        "default",
        ownerReferences=[
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
        ],
        spec={"nodeName": "node-a", "containers": [{"name": "main"}]},
    )
    snapshot = tmp_path / "snapshot.yaml"
    snapshot.write_text(dump_yaml([*documents("cluster.yaml"), running]))
    file = job_with_gang(tmp_path, {})

    (group,) = simulated("-f", file, "--snapshot", snapshot, exit_code=0)["groups"]

    assert (group["minCount"], group["placed"], len(group["pods"])) == (3, 3, 3)


@pytest.mark.parametrize(
    "metadata",
    [{"name": "train", "ownerReferences": [{"kind": "JobSet", "name": "x", "controller": True}]}],
)
def test_a_job_of_a_controller_has_no_group_of_its_own(tmp_path: Path, metadata: Document) -> None:
    file = job_with_gang(tmp_path, {}, metadata=metadata)

    document = simulated("-f", file, "--snapshot", CLUSTER, exit_code=1)

    assert "groups" not in document
    assert sum(pod["node"] is not None for pod in document["pods"]) == 3


@pytest.mark.parametrize("minimum", [0, "4", [], 2**40, -1, None, True])
def test_a_gang_that_needs_no_number_of_pods_is_no_crash(tmp_path: Path, minimum: object) -> None:
    file = job_with_gang(tmp_path, {"minCount": minimum})

    result = drawbridge("simulate", "-f", file, "--snapshot", CLUSTER)

    assert result.exit_code in {0, 1, 2}
    assert "Traceback" not in result.output


@pytest.mark.parametrize("strategy", ["stock", "CompactFirst"])
def test_replay_places_a_group_whole_or_not_at_all(strategy: str) -> None:
    call = ("replay", "-f", GROUPS / "training.yaml", "--snapshot", CLUSTER, "-o", "json")

    (lacks,) = json.loads(drawbridge(*call, "--strategy", strategy).stdout)["strategies"]
    more = ("--snapshot", GROUPS / "node-c.yaml", "--strategy", strategy)
    (fits,) = json.loads(drawbridge(*call, *more).stdout)["strategies"]

    assert (lacks["pods"]["placed"], lacks["failedBy"]) == (0, {"groupDoesNotFit": 4})
    assert (fits["pods"]["placed"], fits["failedBy"]) == (4, {})


def test_replay_leaves_out_groups_that_cannot_be_one() -> None:
    result = drawbridge(
        "replay", "-f", GROUPS / "disagreeing.yaml", "-f", GROUPS / "training.yaml",
        "--snapshot", CLUSTER, "--strategy", "CompactFirst",
    )  # fmt: skip

    assert result.exit_code == 0
    assert "pods of Koordinator gang default/ring disagree" in " ".join(result.output.split())
