"""`drawbridge plan`: CronJobs with runs that may begin in a wave, and those to suspend for it."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.names import TRANSLATE_LABEL
from testing.documents import api_object, namespace, node
from testing.migration import GPU, SHARE, hami_node, plugin_node, running_job, workload
from testing.plan import Objects, held_objects, planned, script, waves

SHARES: Final = [hami_node("hami-0"), hami_node("hami-1")]


SUSPEND: Final = (
    """kubectl patch cronjob nightly --namespace=team '--patch={"spec":{"suspend":true}}'"""
)


def cron_job(
    limits: dict[str, str], pool: str = "", *, deadline: object = None, **spec: Any
) -> dict[str, Any]:
    """A CronJob without a run."""
    (owner, _) = workload("nightly", limits, ["gpu-0"])
    template = owner["spec"]["template"]
    if pool:
        template["spec"]["nodeSelector"] = {"pool": pool}
    job = {"template": template, "activeDeadlineSeconds": deadline}
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}, **spec}
    return {**api_object("CronJob", "nightly", "team", spec=spec), "apiVersion": "batch/v1"}


def notes(plan: dict[str, Any]) -> dict[int, str]:
    """Return the number of each wave that names the schedule to its note."""
    return {
        wave["wave"]: note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "at 0 3 * * *" in note
    }


def test_a_cron_job_whose_node_is_held_is_not_to_be_suspended(tmp_path: Path) -> None:
    """It was to be suspended for the whole migration, though no wave touches its node."""
    held = plugin_node("gpu-1", pool="b")
    held["spec"] = {"unschedulable": True}
    service = workload("web", {GPU: "1"}, ["gpu-0"], nodeSelector={"pool": "a"})

    nodes = [plugin_node("gpu-0", pool="a"), plugin_node("gpu-2", pool="a"), held]

    plan = planned(tmp_path, [*nodes, *service, cron_job({GPU: "1"}, "b")])

    assert ["gpu-0", "gpu-2"] == sorted(name for nodes, _ in waves(plan) for name in nodes)
    assert {} == notes(plan)


def test_a_native_cron_job_is_named_with_the_waves_of_its_nodes(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}", pool="ab"[number // 2]) for number in range(4)]

    service = workload("web", {GPU: "1"}, ["gpu-0"], nodeSelector={"pool": "a"})

    plan = planned(tmp_path, [*nodes, *service, cron_job({GPU: "1"}, "b")], "--wave-nodes", 1)

    ((number, note),) = notes(plan).items()
    numbers = [
        wave["wave"]
        for wave in plan["waves"]
        if {node["name"] for node in wave["nodes"]} & {"gpu-2", "gpu-3"}
    ]
    assert 4 == len(plan["waves"])
    assert numbers[0] == number
    assert f"the switch.sh of wave {numbers[0]}, {numbers[1]} asks" in note
    assert note.endswith(" waits for a free device: it need not be suspended")


def test_a_cron_job_is_suspended_no_longer_than_until_its_namespace_is_opted_in(
    tmp_path: Path,
) -> None:
    """Its next pods begin on switched nodes then."""
    plan = planned(tmp_path, [*SHARES, namespace("team"), cron_job(dict(SHARE))], "--wave-nodes", 1)

    assert [["team"], []] == [namespaces for _, namespaces in waves(plan)]
    assert {1} == notes(plan).keys()
    assert "the switch.sh of wave 1 asks" in notes(plan)[1]
    assert notes(plan)[1].endswith(": it need not be suspended")


def test_a_cron_job_is_suspended_where_a_wave_takes_its_last_node(tmp_path: Path) -> None:
    """A run with device keys waited for ever once the wave had opted its namespace in."""
    plan = planned(tmp_path, [SHARES[0], namespace("team"), cron_job(dict(SHARE))])

    assert notes(plan)[1].endswith(
        "one of wave 1 with device keys may find none after it, and waits until its Job is deleted: run that script between "
        f"two runs, or suspend it first ({SUSPEND}) and set suspend to false after it"
    )


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "waits for a free device: it need not be suspended"),
        ({"concurrencyPolicy": "Allow"}, "it need not be suspended"),
        ({"startingDeadlineSeconds": 60}, "it need not be suspended"),
        (
            {"concurrencyPolicy": "Forbid"},
            (
                "if it waits until the next one, one of both may be left out, as while a CronJob is suspended (concurrencyPolicy: Forbid): "
                "run these scripts between two runs where each counts"
            ),
        ),
        (
            {"concurrencyPolicy": "Replace"},
            "(concurrencyPolicy: Replace): run these scripts between two runs where each counts",
        ),
        ({"concurrencyPolicy": [], "deadline": "1"}, "it need not be suspended"),
        ({"concurrencyPolicy": "", "deadline": True}, "it need not be suspended"),
        (
            {"deadline": 600},
            (
                "one that begins meanwhile may fail, since its wait for a device counts for activeDeadlineSeconds (600): run these "
                f"scripts between two runs, or suspend it first ({SUSPEND}) and set suspend to false after wave 2"
            ),
        ),
    ],
    ids=[
        *("nothing", "Allow", "starting deadline", "Forbid", "Replace"),
        *("odd", "no number", "deadline"),
    ],
)
def test_a_cron_job_is_suspended_only_where_its_run_would_fail(
    tmp_path: Path, spec: dict[str, Any], text: str
) -> None:
    """Everyone was to suspend them until after the last wave, though their runs only wait."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(tmp_path, [*nodes, cron_job({GPU: "1"}, **spec)], "--wave-nodes", 1)

    ((_, note),) = notes(plan).items()
    assert note.endswith(text)
    assert ("suspend it first" in note) is ("deadline" in spec and "concurrencyPolicy" not in spec)


def test_a_cron_job_of_unknown_devices_waits_for_nodes_that_take_its_pods(tmp_path: Path) -> None:
    """It was to be suspended for waves of nodes that it does not select."""
    nodes = [plugin_node(f"gpu-{number}", pool="a") for number in range(2)]
    service = workload("web", {GPU: "1"}, ["gpu-0"], nodeSelector={"pool": "a"}, namespace="web")
    objects = [*nodes, *service, namespace("web"), namespace("team")]

    assert {} == notes(planned(tmp_path, [*objects, cron_job({GPU: "1.5"}, "c")]))
    assert [1] == [*notes(planned(tmp_path, [*objects, cron_job({GPU: "1.5"})]))]


def mig_node(name: str, size: str) -> dict[str, Any]:
    """A node with a GPU that is divided into three MIG devices of one size."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.strategy": "mixed",
        f"nvidia.com/mig-{size}.count": "3",
        f"nvidia.com/mig-{size}.memory": "9856" if size == "2g.10gb" else "4864",
    }
    return node(name, {f"nvidia.com/mig-{size}": "3"}, labels, {})


LARGE: Final = "nvidia.com/mig-2g.10gb"


def test_a_cron_job_that_would_be_rejected_waits_for_nodes_that_offer_its_keys(
    tmp_path: Path,
) -> None:
    """All nodes that take its pods were named, though only a held one offers such devices."""
    held = mig_node("large", "2g.10gb")
    held["spec"] = {"unschedulable": True}
    service = workload("web", {GPU: "1"}, ["gpu-0"], namespace="web")
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), held]

    plan = planned(
        tmp_path,
        [*nodes, *service, namespace("web"), namespace("team"), cron_job({LARGE: "1.5"})],
    )

    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)
    assert {} == notes(plan)


def test_a_cron_job_waits_for_nodes_with_mig_devices_of_its_size(tmp_path: Path) -> None:
    """One DeviceClass serves all sizes, so the waves of other sizes were named, too."""
    small = [mig_node(f"small-{number}", "1g.5gb") for number in range(2)]
    service = workload("web", {"nvidia.com/mig-1g.5gb": "1"}, ["small-0"], namespace="web")
    opted_in = namespace("team", {TRANSLATE_LABEL: "true"})
    objects = [*small, mig_node("large", "2g.10gb"), *service, namespace("web"), opted_in]

    plan = planned(tmp_path, [*objects, cron_job({LARGE: "1"})], "--wave-nodes", 1)

    (number,) = (wave["wave"] for wave in plan["waves"] if wave["nodes"][0]["name"] == "large")
    assert 3 == len(plan["waves"])
    assert [number] == [*notes(plan)]
    assert f"the switch.sh of wave {number} asks" in notes(plan)[number]


REVERTED: Final = "; Argo CD manages CronJob/team/nightly, and takes back what kubectl changes: change suspend in its repository"


@pytest.mark.parametrize(
    ("deadline", "end"), [(600, f"after wave 2{REVERTED}"), (None, ": it need not be suspended")]
)
def test_a_cron_job_of_a_repository_is_suspended_there(
    tmp_path: Path, deadline: int | None, end: str
) -> None:
    """The command to suspend it was undone by Argo CD within minutes."""
    cron = cron_job({GPU: "1"}, deadline=deadline)
    cron["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "team:batch/CronJob:n"}
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(tmp_path, [*nodes, cron], "--wave-nodes", 1, "--format", "kustomize")

    ((_, note),) = notes(plan).items()
    assert note.endswith(end)


# --- Jobs -----------------------------------------------------------------------------------------

GOES_ON: Final = (
    "Job/team/sweep creates other pods when its pods end, and these may run on nodes of this wave by then: switch.sh asks about "
    "them, or waits for their end (--job-timeout)"
)
FAILS: Final = ", and one that is evicted fails the Job"
IGNORED: Final = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}


def sweep(limits: dict[str, str], nodes: list[str], **spec: Any) -> Objects:
    """A Job with pods that run, and six others that have succeeded."""
    owner, *pods = running_job("sweep", limits, nodes)
    owner["spec"] |= spec
    owner["status"] = {"succeeded": 6}
    return [owner, *pods]


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        ({"completions": 24, "backoffLimit": 0}, GOES_ON + FAILS),
        ({"completions": 24, "backoffLimit": 3}, GOES_ON),
        ({"completions": 8, "backoffLimit": 0}, ""),
        ({"completions": 24, "backoffLimit": 0, "podFailurePolicy": IGNORED}, ""),
    ],
    ids=["one eviction fails it", "it survives some", "its last pods", "evictions cost nothing"],
)
def test_a_job_that_goes_on_is_named_with_later_waves(
    tmp_path: Path, spec: dict[str, Any], note: str
) -> None:
    """Its pods of today had ended by then, so nothing said that switch.sh would ask there, and --evict-jobs failed the Job."""
    other = workload("web", {GPU: "1"}, ["gpu-1"])
    other[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), *other]
    job = sweep({GPU: "1"}, ["gpu-0", "gpu-0"], **spec)

    plan = planned(tmp_path, [*objects, *job], "--wave-nodes", 1)

    assert [["gpu-0"], ["gpu-1"]] == [names for names, _ in waves(plan)]
    named = [
        [text for text in wave["notes"] if text.startswith("Job/team/sweep")]
        for wave in plan["waves"]
    ]
    assert [[], [note] if note else []] == named
    assert bool(note) is (f"# Note: {note}\n" in script(tmp_path, "switch", 2))


def test_the_next_pods_of_a_job_with_claims_are_on_switched_nodes(tmp_path: Path) -> None:
    """No later wave waits for them."""
    objects = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    job = sweep(dict(SHARE), ["hami-1"], completions=24)

    plan = planned(tmp_path, [*objects, *job], "--wave-nodes", 1)

    assert [(["hami-0"], ["team"]), (["hami-1"], [])] == waves(plan)
    assert [[GOES_ON], []] == [
        [note for note in wave["notes"] if note.startswith(GOES_ON)] for wave in plan["waves"]
    ]


MIXED: Final = [plugin_node("gpu-0"), plugin_node("gpu-1"), *SHARES]


def of_one_node_each(tmp_path: Path, *objects: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a cluster of NVIDIA's plugin and of HAMi, with waves of one node."""
    plan = planned(tmp_path, [*MIXED, namespace("team"), *objects], "--wave-nodes", 1)
    assert 4 == len(plan["waves"])
    return plan


def test_the_runs_of_a_native_cron_job_may_begin_on_nodes_of_hami(tmp_path: Path) -> None:
    """These offer shares under the name of its key, and their waves were not named."""
    others = [
        namespace("o"),
        *workload("share", dict(SHARE), ["hami-0"], namespace="o"),
        *workload("whole", {GPU: "1"}, ["gpu-0"], namespace="o"),
    ]

    assert (
        "of each wave asks" in notes(of_one_node_each(tmp_path, *others, cron_job({GPU: "1"})))[1]
    )


def test_a_native_cron_job_waits_beyond_the_opt_in_of_its_namespace(tmp_path: Path) -> None:
    """Its runs get no claims, so they begin on nodes of any wave."""
    others = [
        *workload("share", dict(SHARE), ["hami-0"]),
        *workload("whole", {GPU: "1"}, ["gpu-0"]),
    ]

    plan = of_one_node_each(tmp_path, *others, cron_job({GPU: "1"}))

    (opted_in,) = (wave["wave"] for wave in plan["waves"] if wave["namespaces"])
    assert opted_in < 4
    assert "of each wave asks" in notes(plan)[1]


def test_a_cron_job_waits_for_the_wave_of_its_run(tmp_path: Path) -> None:
    """Its template selects another node since, and the run is there still."""
    nodes = [plugin_node(f"gpu-{number}", pool="ab"[number]) for number in range(2)]
    service = workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])
    cron = cron_job({GPU: "1"}, "b")
    (job, pod) = workload("nightly-1", {GPU: "1"}, ["gpu-0"], kind="Job")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    job["apiVersion"] = "batch/v1"
    job["metadata"]["ownerReferences"] = [{**owner, "uid": "nightly"}]
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"

    plan = planned(tmp_path, [*nodes, *service, cron, job, pod], "--wave-nodes", 1)

    assert "of each wave asks" in notes(plan)[1]


def test_a_cron_job_that_keeps_its_keys_needs_only_nodes_that_its_template_selects(
    tmp_path: Path,
) -> None:
    """Without a run it held every node with GPUs, as if its pods could go anywhere."""
    kept_away = {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}
    nodes = [plugin_node(f"gpu-{number}", pool="ab"[number // 2]) for number in range(4)]
    tainted = plugin_node("gpu-4", pool="a") | kept_away
    opted_out = cron_job({GPU: "1", "nvidia.com/gpumem": "8000"}, "a")
    template = opted_out["spec"]["jobTemplate"]["spec"]["template"]
    template["metadata"]["labels"] = {TRANSLATE_LABEL: "false"}

    plan = planned(tmp_path, [*nodes, tainted, opted_out])

    assert {"Node//gpu-0", "Node//gpu-1", "Node//gpu-4"} == held_objects(plan).keys()
    assert ["gpu-2", "gpu-3"] == sorted(name for names, _ in waves(plan) for name in names)


def test_many_jobs_that_go_on_are_one_note_of_a_wave(tmp_path: Path) -> None:
    """A sentence for each Job on each wave made the scripts of a large cluster as long as Jobs times waves."""
    other = workload("web", {GPU: "1"}, ["gpu-1"])
    other[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [plugin_node("gpu-0", 16), plugin_node("gpu-1", 16), namespace("team"), *other]
    for number in range(12):
        owner, pod = sweep({GPU: "1"}, ["gpu-0"], completions=24, backoffLimit=0 if number else 9)
        name = f"sweep-{number:02}"
        owner["metadata"]["name"] = pod["metadata"]["ownerReferences"][0]["name"] = name
        pod["metadata"]["name"] = f"{name}-0"
        objects += [dict(owner), dict(pod)]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    last = plan["waves"][-1]
    named = [text for text in last["notes"] if text.startswith("Job/team/sweep-")]
    assert 2 == len(named), last["notes"]
    assert GOES_ON.replace("sweep", "sweep-00") == named[0]
    assert "Job/team/sweep-08 and 3 more create other pods when their pods end" in named[1]
    assert named[1].endswith(", and one that is evicted fails its Job")


def cron_workflow(limits: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A CronWorkflow of Argo without a run."""
    step = {"name": "b", "container": {"image": "a", "resources": {"limits": dict(limits)}}}
    flow = {"entrypoint": "b", "templates": [step]}
    fields = {"schedules": ["0 3 * * *"], "timezone": "Europe/Berlin", "workflowSpec": flow, **spec}
    return api_object(
        "CronWorkflow", "nightly", "team", api_version="argoproj.io/v1alpha1", spec=fields
    )


@pytest.mark.parametrize(
    ("limits", "spec", "at", "course"),
    [
        ({GPU: "1"}, {}, "0 3 * * * Europe/Berlin", "it need not be suspended"),
        (
            {GPU: "1"},
            {"concurrencyPolicy": "Forbid"},
            "0 3 * * * Europe/Berlin",
            "as while a CronWorkflow is suspended (concurrencyPolicy: Forbid): run these scripts between two runs where each counts",
        ),
        ({GPU: "1"}, {"schedules": []}, "times of its schedule", "it need not be suspended"),
        (
            dict(SHARE),
            {},
            "0 3 * * * Europe/Berlin",
            (
                "waits until its Workflow is deleted: run that script between two runs, or suspend it first (kubectl patch cronworkflow "
                """nightly --namespace=team --type=merge '--patch={"spec":{"suspend":true}}') and set suspend to false after it"""
            ),
        ),
    ],
    ids=["native", "one run", "a schedule that is not known", "shares"],
)
def test_a_cron_workflow_starts_on_its_schedule(
    tmp_path: Path, limits: dict[str, str], spec: dict[str, Any], at: str, course: str
) -> None:
    """A person was to start it after the last wave, and no note had its schedule."""
    one = SHARES[0] if limits == SHARE else plugin_node("gpu-0")

    plan = planned(tmp_path, [one, namespace("team"), cron_workflow(limits, **spec)])

    (note,) = [
        note for wave in plan["waves"] for note in wave["notes"] if "CronWorkflow/team/nigh" in note
    ]
    assert [] == plan["stoppedWorkloads"]
    assert note.startswith(f"CronWorkflow/team/nightly starts pods with devices at {at}: ")
    assert note.endswith(course)


def test_a_suspended_cron_workflow_is_resumed_by_a_person(tmp_path: Path) -> None:
    workflow = cron_workflow({GPU: "1"}, suspend=True)

    plan = planned(tmp_path, [plugin_node("gpu-0"), namespace("team"), workflow])

    (entry,) = plan["stoppedWorkloads"]
    assert entry["reason"].startswith("it is suspended")
    assert {} == notes(plan)


def run_of(name: str, node: str, limits: dict[str, str]) -> list[dict[str, Any]]:
    """A Workflow of the CronWorkflow, and a pod of it that runs."""
    cron = {"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "name": "nightly"}
    run = cron_workflow(limits)
    run["kind"], run["metadata"]["name"] = "Workflow", name
    run["metadata"]["ownerReferences"] = [{**cron, "controller": True}]
    run["spec"] = run["spec"]["workflowSpec"]
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": name}
    container = {"name": "c", "image": "a", "resources": {"limits": dict(limits)}}
    pod = api_object(
        *("Pod", f"{name}-b", "team"),
        ownerReferences=[{**owner, "controller": True}],
        spec={"containers": [container], "nodeName": node, "restartPolicy": "Never"},
        status={"phase": "Running"},
    )
    return [run, pod]


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("runs", [1, 2])
def test_a_cron_workflow_with_runs_starts_more_on_its_schedule(
    tmp_path: Path, runs: int, *, suspend: bool
) -> None:
    """Its run was named alone, so that nobody read of the next one."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]
    workflow = cron_workflow({GPU: "1"}, suspend=suspend)
    own = [
        entry
        for number in range(runs)
        for entry in run_of(f"nightly-{number}", f"gpu-{number}", {GPU: "1"})
    ]

    plan = planned(tmp_path, [*nodes, namespace("team"), workflow, *own], "--wave-nodes", 1)

    named = [
        note for wave in plan["waves"] for note in wave["notes"] if "CronWorkflow/team/nigh" in note
    ]
    assert len(named) == (not suspend), plan["waves"]
    text = "CronWorkflow/team/nightly starts pods with devices at 0 3 * * * Europe/Berlin: the switch.sh of each wave asks"
    assert all(note.startswith(text) for note in named)
