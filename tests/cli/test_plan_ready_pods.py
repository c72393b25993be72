"""`drawbridge plan` and `verify --wave`: pods that waited when the plan was made stop no wave, and no script."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.cluster.owners import OwnerKey
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import count_ready_pods
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, resource_slice, workload
from testing.plan import document, planned, run_script, script

HAMI: Final = "hami-core-gpu.project-hami.io"
SELECTOR: Final = {"matchLabels": {"app": "web"}}
RUNNING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
CRASHING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
LEAVING: Final = {"phase": "Running", "conditions": []}
PENDING: Final = {"phase": "Pending"}
STUCK: Final = {
    "observedGeneration": 3,
    "conditions": [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    ],
}
GIVEN_UP: Final = (
    "1 of 2 pods have device keys still (web-0): its rollout waits for web-2, and only 1 of its pods ran when the plan was "
    "made; those with keys get claims when their node is drained, or when the rollout ends: scale it to 1 for that"
)
ON_ITS_WAY: Final = (
    "1 of 2 pods have no claims, and were created before the namespace or the workload was opted in: web-0; "
    "only 1 of its pods ran when the plan was made, and where its rollout waits for web-2, scale it to 1"
)
RAN: Final = "did when the plan was made"
LEFT: Final = f"{RAN}, so the wave does not wait for"
FOR_NODE: Final = "for a node with devices"
NOTE: Final = (
    "not all pods of its workloads are ready today: {}; no script waits for more than that"
)


def pods(
    kind: str, statuses: Sequence[Mapping[str, Any]], claims: str = "", **spec: Any
) -> list[dict[str, Any]]:
    """A workload with pods of these statuses; a letter `c` stands for each with a claim."""
    nodes = ["" if status is PENDING else "hami-0" for status in statuses]
    owner, *members = workload("web", SHARE, nodes, kind=kind, **spec)
    owner["spec"]["selector"] = SELECTOR
    if kind == "Job":
        owner["apiVersion"] = "batch/v1"
        del owner["spec"]["replicas"]
    for pod, status, letter in zip(members, statuses, claims.ljust(len(statuses)), strict=True):
        pod["status"] = dict(status)
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = owner["apiVersion"]
        if letter == "c":
            pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return [owner, *members]


def before(*objects: Mapping[str, Any]) -> list[Any]:
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *objects]


def after(*objects: Mapping[str, Any]) -> list[Any]:
    """The cluster once hami-1 is switched, and the namespace is opted in."""
    switched = hami_node("hami-1")
    switched["status"]["allocatable"] = {GPU: "0"}
    return [
        *(hami_node("hami-0"), switched),
        resource_slice("hami-1", HAMI, ("GPU-hami-1-0", "GPU-hami-1-1")),
        namespace("team", {"drawbridge.internal/translate": "true"}),
        *objects,
    ]


def verified(tmp_path: Path, objects: Sequence[Any], name: str) -> tuple[int, str, str]:
    """The exit status of the check after wave 1, the state of a workload, and the text of its check."""
    now = tmp_path / "now.yaml"
    now.write_text(dump_yaml(objects))
    result = drawbridge(
        "verify", "--snapshot", now, "--wave", tmp_path / "plan" / "wave-1", "-o", "json"
    )
    (check,) = (check for check in json.loads(result.stdout)["checks"] if check["object"] == name)
    return result.exit_code, check["state"], check["message"]


@pytest.mark.parametrize(
    ("statuses", "now", "claims", "expected"),
    [
        pytest.param(
            *([PENDING], [PENDING], "c"),
            (
                "note",
                f"0 of 1 pods run, and none {LEFT} web-0; web-0 waits {FOR_NODE}, and none had one then",
            ),
            id="waited",
        ),
        pytest.param(
            *([RUNNING, CRASHING], [CRASHING, RUNNING], "cc"),
            (
                "note",
                "1 of 2 pods run, and 1 did when the plan was made, so the wave does not wait for web-0",
            ),
            id="crashed",
        ),
        pytest.param(
            *([RUNNING, RUNNING, PENDING], [RUNNING, PENDING, PENDING], "ccc"),
            (
                "waiting",
                f"1 of 3 pods run, and 2 {RAN}; web-1, web-2 wait {FOR_NODE}, though 2 had one then",
            ),
            id="fewer than before",
        ),
        pytest.param(
            *([RUNNING, PENDING], [RUNNING, RUNNING], "cc"),
            ("ok", "2 of 2 pods run, with claims"),
            id="all run meanwhile",
        ),
        pytest.param(
            *([RUNNING, RUNNING], [RUNNING, RUNNING, PENDING], "ccc"),
            (
                "note",
                f"2 of 3 pods run, and 2 {LEFT} web-2; web-2 waits {FOR_NODE}, and no more than 2 had one then",
            ),
            id="scaled up",
        ),
        pytest.param(
            *([RUNNING, PENDING], [RUNNING, PENDING], "cc"),
            (
                "note",
                f"1 of 2 pods run, and 1 {LEFT} web-1; web-1 waits {FOR_NODE}, and no more than 1 had one then",
            ),
            id="the plan knew of no devices for it",
        ),
        pytest.param(
            *([RUNNING, CRASHING], [RUNNING, PENDING], "cc"),
            (
                "note",
                f"1 of 2 pods run, and 1 {LEFT} web-1; web-1 waits {FOR_NODE}, though 2 had one then",
            ),
            id="its devices are gone",
        ),
    ],
)
def test_a_wave_waits_for_as_many_pods_as_ran(
    tmp_path: Path,
    statuses: Sequence[Any],
    now: Sequence[Any],
    claims: str,
    expected: tuple[str, str],
) -> None:
    """A replica that waited before the plan held verify.sh for half an hour, and no later wave could begin."""
    plan = planned(tmp_path, before(*pods("Deployment", statuses)), "--wave-nodes", 1)
    (entry,) = plan["waves"][0]["workloads"]
    assert statuses.count(RUNNING) == entry["readyPods"]

    status, *check = verified(
        tmp_path, after(*pods("Deployment", now, claims)), "Deployment/team/web"
    )

    assert expected == tuple(check)
    assert int(expected[0] == "waiting") == status


def test_a_plan_of_an_earlier_version_waits_for_all_pods(tmp_path: Path) -> None:
    planned(tmp_path, before(*pods("Deployment", [RUNNING, PENDING])), "--wave-nodes", 1)
    plan = document(tmp_path)
    for entry in plan["waves"][0]["workloads"]:
        del entry["readyPods"]
    (tmp_path / "plan" / "plan.yaml").write_text(dump_yaml([plan]))

    now = after(*pods("Deployment", [RUNNING, PENDING], "cc"))

    text = "1 of 2 pods run; web-1 waits for a node with devices"
    assert (1, "waiting", text) == verified(tmp_path, now, "Deployment/team/web")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Deployment", {"replicas": 0}),
        ("CronJob", {"schedule": "0 3 * * *"}),
    ],
)
def test_what_had_no_pod_at_all_has_not_waited(
    tmp_path: Path, kind: str, fields: Mapping[str, Any]
) -> None:
    """The rejection of a trial pod of it was a note, though its pods had run each night."""
    (owner,) = pods(kind, [])
    owner["spec"] |= fields
    if kind == "CronJob":
        owner["apiVersion"] = "batch/v1"
        owner["spec"]["jobTemplate"] = {"spec": {"template": owner["spec"].pop("template")}}
    plan = planned(tmp_path, before(owner), "--wave-nodes", 1)

    (entry,) = [entry for wave in plan["waves"] for entry in wave["workloads"]]

    assert (f"{kind}/team/web", None) == (entry["object"], entry["readyPods"])
    assert "leave_idle" not in script(tmp_path, "switch")


def test_a_daemon_set_with_pods_on_nodes_of_later_waves_alone_has_not_waited() -> None:
    _, *members = workload("web", SHARE, ["hami-0", "hami-1"], kind="DaemonSet")
    group = Workload(
        key=OwnerKey(kind="DaemonSet", namespace="team", name="web"),
        owner=None,
        pods=tuple(SourceObject(document=pod, source="t", line=1) for pod in members),
    )

    assert 2 == count_ready_pods(group)
    assert 1 == count_ready_pods(group, ["hami-0"])
    assert count_ready_pods(group, ["hami-0", "hami-1"]) is None


def test_no_wave_waits_for_pods_of_the_next_run_of_a_cron_job(tmp_path: Path) -> None:
    job = pods("Job", [RUNNING], restartPolicy="Never")
    planned(tmp_path, before(*job), "--wave-nodes", 1)
    plan = document(tmp_path)
    for entry in plan["waves"][0]["workloads"]:
        entry["readyPods"] = None
    (tmp_path / "plan" / "plan.yaml").write_text(dump_yaml([plan]))
    now = after(*pods("Job", [PENDING], restartPolicy="Never"))

    status, state, message = verified(tmp_path, now, "Job/team/web")

    assert (0, "note") == (status, state)
    assert message.startswith("0 of 1 pods run: nothing waits for web-0")


def test_no_wave_waits_for_pods_of_a_job_that_are_in_a_queue(tmp_path: Path) -> None:
    job = pods("Job", [RUNNING], restartPolicy="Never")
    planned(tmp_path, before(*job), "--wave-nodes", 1)
    now = pods("Job", [PENDING, RUNNING], restartPolicy="Never")

    assert (
        0,
        "note",
        "1 of 2 pods run: nothing waits for web-0, since pods that run to their end may begin later",
    ) == verified(tmp_path, after(*now), "Job/team/web")


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        pytest.param(
            *("Deployment", STUCK),
            (
                0,
                "note",
                GIVEN_UP,
            ),
            id="given up",
        ),
        pytest.param(
            *("Deployment", {**STUCK, "observedGeneration": 2}),
            (
                1,
                "waiting",
                ON_ITS_WAY,
            ),
            id="of an earlier rollout",
        ),
        pytest.param(
            *("StatefulSet", {}),
            (
                1,
                "waiting",
                ON_ITS_WAY,
            ),
            id="StatefulSet",
        ),
    ],
)
def test_a_rollout_that_waits_for_such_a_pod_is_named(
    tmp_path: Path, kind: str, status: Mapping[str, Any], expected: tuple[Any, ...]
) -> None:
    """A Deployment of two starts a third pod, and keeps the first one while the second is not ready."""
    planned(tmp_path, before(*pods(kind, [RUNNING, CRASHING])), "--wave-nodes", 1)
    owner, *members = pods(kind, [RUNNING, RUNNING, CRASHING], " cc")
    owner["spec"]["replicas"] = 2
    owner["metadata"]["generation"], owner["status"] = 3, dict(status)

    assert expected == verified(tmp_path, after(owner, *members), f"{kind}/team/web")


@pytest.mark.parametrize(
    ("is_ready", "expected"),
    [
        (
            False,
            ("note", "its pod on {} has claims and is not ready, as when the plan was made"),
        ),
        (True, ("waiting", "no pod of it runs on {} with claims")),
    ],
)
def test_a_pod_of_a_daemon_set_that_was_not_ready_stops_no_later_wave(
    tmp_path: Path, *, is_ready: bool, expected: tuple[str, str]
) -> None:
    owner, *members = workload("web", SHARE, ["hami-0", "hami-1"], kind="DaemonSet")
    owner["spec"]["selector"] = SELECTOR
    owner["status"] = {"desiredNumberScheduled": 2}
    for pod in members:
        pod["status"] = dict(RUNNING if is_ready else CRASHING)
    plan = planned(tmp_path, before(owner, *members), "--wave-nodes", 1, "--keep-free", 0)
    *_, later = (wave for wave in plan["waves"] if wave["nodes"])
    assert [] == later["workloads"]
    (name,) = (node["name"] for node in later["nodes"])
    for pod in members:
        pod["status"] = dict(CRASHING)
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    now = tmp_path / "now.yaml"
    now.write_text(dump_yaml(before(owner, *members)))

    result = drawbridge(
        *("verify", "--snapshot", now, "-o", "json"),
        *("--wave", tmp_path / "plan" / f"wave-{later['wave']}"),
    )

    checks = {check["object"]: check for check in json.loads(result.stdout)["checks"]}
    check = checks["DaemonSet/team/web"]
    state, message = expected
    assert (state, message.format(name)) == (check["state"], check["message"])


@pytest.mark.parametrize(
    ("claims", "last", "state"),
    [
        pytest.param("   cc", [CRASHING, CRASHING], "waiting", id="new pods fail"),
        pytest.param("   cc", [PENDING, PENDING], "waiting", id="all new pods wait"),
        pytest.param("   ", [], "waiting", id="no new pod is created"),
        pytest.param("  ccc", [CRASHING, PENDING], "waiting", id="one works, one fails"),
        pytest.param("  ccc", [PENDING, PENDING], "note", id="one works, others wait"),
        pytest.param("  ccc", [LEAVING, PENDING], "note", id="one is leaving"),
    ],
)
def test_new_pods_that_fail_hold_the_next_wave(
    tmp_path: Path, claims: str, last: Sequence[Any], state: str
) -> None:
    """With one pod of four that never ran, new pods that all failed were as expected, and the next wave drained the rest."""
    planned(tmp_path, before(*pods("Deployment", [RUNNING] * 3 + [CRASHING])), "--wave-nodes", 1)
    owner, *members = pods("Deployment", [*[RUNNING] * 3, *last], claims)
    owner["spec"]["replicas"] = 4
    owner["metadata"]["generation"], owner["status"] = 3, dict(STUCK)
    for pod in members:
        if pod["status"] == LEAVING:
            pod["metadata"]["deletionTimestamp"] = "2026-11-24T10:00:00Z"

    status, *check = verified(tmp_path, after(owner, *members), "Deployment/team/web")

    assert (int(state == "waiting"), state) == (status, check[0])


# --- what a person is told, and what the scripts do ------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "statuses", "fields", "text"),
    [
        ("Deployment", [RUNNING, PENDING], {}, "1 of 2 of Deployment/team/web"),
        ("StatefulSet", [CRASHING], {}, "0 of 1 of StatefulSet/team/web"),
        ("Deployment", [RUNNING], {}, ""),
        ("Job", [PENDING], {"restartPolicy": "Never"}, ""),
    ],
)
def test_a_note_names_the_workloads_with_pods_that_wait(
    tmp_path: Path, kind: str, statuses: Sequence[Any], fields: Mapping[str, Any], text: str
) -> None:
    plan = planned(tmp_path, before(*pods(kind, statuses, **fields)), "--wave-nodes", 1)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "ready today" in note]

    rollout = (
        "; a rollout may stop at pods that wait, and leave others with device keys: see first why they wait, or scale the "
        "workload to what runs"
    )
    assert ([NOTE.format(text) + rollout] if text else []) == notes


def test_a_rejected_change_of_what_did_not_run_stops_no_script(tmp_path: Path) -> None:
    """A Deployment that requests more than any node has stopped switch.sh before the others were restarted."""
    idle = pods("Deployment", [PENDING])
    web = workload("api", SHARE, ["hami-0"])
    planned(tmp_path, before(*idle, *web), "--wave-nodes", 1)
    rejecting = 'case "$*" in *"restart --namespace=team deployment/web"*) exit 1;; esac'
    answers = {"kubectl": f'{rejecting}\ncase "$*" in "get "*) echo "$2";; esac'}

    ran = run_script(tmp_path, "wave-1/switch.sh", answers)

    assert 0 == ran.returncode, ran.stderr
    text = (
        "Deployment/team/web is left as it is, with device keys: its change failed, see above, and none of its pods ran when "
        "the plan was made"
    )
    assert text in ran.stderr
    calls = (tmp_path / "calls").read_text()
    assert "kubectl rollout restart --namespace=team deployment/api --" in calls


def test_a_rejected_change_of_what_ran_stops_the_script(tmp_path: Path) -> None:
    planned(tmp_path, before(*pods("Deployment", [RUNNING, PENDING])), "--wave-nodes", 1)
    rejecting = 'case "$*" in *"restart --namespace=team deployment/web"*) exit 1;; esac'
    answers = {"kubectl": f'{rejecting}\ncase "$*" in "get "*) echo "$2";; esac'}

    ran = run_script(tmp_path, "wave-1/switch.sh", answers)

    assert 1 == ran.returncode
    assert "stopped at: kubectl rollout restart" in ran.stderr


def test_scripts_wait_for_the_pods_that_ran(tmp_path: Path) -> None:
    planned(tmp_path, before(*pods("Deployment", [RUNNING, PENDING])), "--wave-nodes", 1)
    assert "\n    deployment/web team app=web 1\n" in script(tmp_path, "rollback")

    owner, *members = pods("StatefulSet", [RUNNING, PENDING])
    owner["spec"]["updateStrategy"] = {"type": "OnDelete"}
    planned(tmp_path, before(owner, *members), "--wave-nodes", 1)
    line = "recreate_pods statefulset/web team app=web keys 1"
    assert line in script(tmp_path, "switch")
