"""`drawbridge plan`: pods that no controller replaces are deleted one after another, and a way back waits for all."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI, hami_gpu
from testing.documents import namespace, node, resource_slice
from testing.migration import SHARE, hami_node, workload
from testing.plan import checks_before, planned, script

SELECTOR: Final = {"matchLabels": {"app": "web"}}
ON_DELETE: Final = {"updateStrategy": {"type": "OnDelete"}}
LABEL: Final = "drawbridge.internal/translate"
NOTE: Final = "no controller replaces the pods of {}"


def objects(
    kind: str, spec: Mapping[str, Any], selector: Any = SELECTOR, name: str = "web"
) -> list[dict[str, Any]]:
    """Two nodes of HAMi, and a workload on one of them with these fields of its spec."""
    owner, *pods = workload(name, SHARE, ["hami-0", "hami-0"], kind=kind)
    owner["spec"] |= {"selector": selector, **spec}
    if kind == "ReplicationController":
        owner["apiVersion"] = "v1"
        for pod in pods:
            pod["metadata"]["ownerReferences"][0]["apiVersion"] = "v1"
    if kind == "DaemonSet":
        owner["status"] = {"desiredNumberScheduled": 2}
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), owner, *pods]


def moving(
    folder: Path, found: list[dict[str, Any]]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the wave that restarts the workload, and the workload in it."""
    plan = planned(folder, found, "--wave-nodes", 2 if found[3]["kind"] == "DaemonSet" else 1)
    return next((wave, entry) for wave in plan["waves"] for entry in wave["workloads"])


@pytest.mark.parametrize(
    ("kind", "spec", "selector"),
    [
        ("StatefulSet", ON_DELETE, SELECTOR),
        ("DaemonSet", ON_DELETE, SELECTOR),
        (
            "StatefulSet",
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}},
            SELECTOR,
        ),
        ("Deployment", {"paused": True}, SELECTOR),
        ("ReplicaSet", {}, SELECTOR),
        ("ReplicationController", {}, {"app": "web"}),
    ],
    ids=["OnDelete", "DaemonSet", "partition", "paused", "ReplicaSet", "ReplicationController"],
)
def test_pods_that_no_controller_replaces_are_deleted(
    tmp_path: Path, kind: str, spec: Mapping[str, Any], selector: Any
) -> None:
    """A restart did nothing, and the check after the wave waited for half an hour."""
    wave, entry = moving(tmp_path, objects(kind, spec, selector))

    assert ("app=web", True) == (entry["selector"], entry["onDelete"])
    assert any(note.startswith(NOTE.format(f"{kind}/team/web")) for note in wave["notes"])
    for phase, devices in (("switch", "keys"), ("rollback", "claims")):
        text = script(tmp_path, phase, wave["wave"])
        assert f"recreate_pods {kind.lower()}/web team app=web {devices} 2\n" in text
        assert "rollout restart" not in text
        assert "wait_for_rollouts" not in text


@pytest.mark.parametrize(
    ("expressions", "text"),
    [
        ([{"key": "tier", "operator": "In", "values": ["a", "b"]}], "app=web,tier in (a,b)"),
        ([{"key": "tier", "operator": "NotIn", "values": ["a"]}], "app=web,tier notin (a)"),
        ([{"key": "tier", "operator": "Exists"}], "app=web,tier"),
        ([{"key": "tier", "operator": "DoesNotExist"}], "app=web,!tier"),
        ([{"key": "tier", "operator": "Like"}], ""),
    ],
)
def test_a_selector_is_as_kubectl_takes_it(
    tmp_path: Path, expressions: list[Mapping[str, Any]], text: str
) -> None:
    selector = {**SELECTOR, "matchExpressions": expressions}

    wave, entry = moving(tmp_path, objects("StatefulSet", ON_DELETE, selector))

    assert text == entry["selector"]
    by_hand = "by hand: delete the pods of StatefulSet/team/web, one after another" in script(
        tmp_path, "switch", wave["wave"]
    )
    assert by_hand == (not text)


def test_a_way_back_waits_for_the_pods_that_it_restarted(tmp_path: Path) -> None:
    """It ended while they were still on their way, or pending for ever."""
    wave, _ = moving(tmp_path, objects("StatefulSet", {}))

    lines = [line.strip() for line in script(tmp_path, "rollback", wave["wave"]).splitlines()]
    restart = lines.index("restart_with_claims statefulset/web team app=web")
    wait = lines.index("wait_for_rollouts \\")
    assert restart < wait
    assert "statefulset/web team app=web 2" == lines[wait + 1]
    # The check after a wave waits for them on the way there.
    assert "wait_for_rollouts" not in script(tmp_path, "switch", wave["wave"])


# --- what the scripts do --------------------------------------------------------------------------

_KUBECTL: Final = r"""#!/bin/sh
# The folder has a file for each pod: its owner, claims or keys, unplaced without a node, and True if it is ready.
pods="@PODS@"
echo "$@" >> "@CALLS@"
case "$1 $2" in
  "get pods")
    for path in "$pods"/*; do echo "${path##*/} $(cat "$path")"; done ;;
  "get "*) echo "${WANTED:-2}" ;;
  "delete pod")
    if [ "$3" = "${WITHOUT_NODE:-}" ]; then READY=unplaced; fi
    if [ "$3" = "${NOT_CREATED:-}" ]; then rm "$pods/$3" && exit; fi
    sed -i "s/$FROM/$TO/; s/True/$READY/" "$pods/$3" ;;
  "rollout status") exit "$STATUS" ;;
esac
"""


class Scripts:
    """The last steps of a wave's scripts, and pods that a kubectl of files creates again."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        spec: Mapping[str, Any],
        *,
        pending: int = 0,
        minute: int = 60,
        name: str = "web",
    ) -> None:
        found = objects(kind, spec, name=name)
        for pod in found[4 : 4 + pending]:
            pod["status"] = {"phase": "Pending"}
        wave, _ = moving(folder, found)
        self._wave = folder / "plan" / f"wave-{wave['wave']}"
        shared = folder / "plan" / "cluster.sh"
        text = shared.read_text().replace("most_seconds=1800", "most_seconds=0")
        shared.write_text(text.replace("fewer_seconds=60", f"fewer_seconds={minute}"))
        self._pods, self._calls, binaries = folder / "pods", folder / "calls", folder / "bin"
        for path in (self._pods, binaries):
            path.mkdir()
        text = _KUBECTL.replace("@PODS@", str(self._pods)).replace("@CALLS@", str(self._calls))
        (binaries / "kubectl").write_text(text)
        (binaries / "kubectl").chmod(0o755)
        self._path = f"{binaries}:{os.environ['PATH']}"

    def show(self, **pods: str) -> None:
        for name, line in pods.items():
            (self._pods / name).write_text(line)

    def calls(self) -> str:
        """Return the calls of the last run."""
        return self._calls.read_text()

    def run(self, phase: str, **environment: str) -> tuple[int, list[str], str]:
        """Return the status, the deleted pods, and standard error."""
        self._calls.write_text("")
        ran = subprocess.run(
            [self._wave / f"{phase}.sh", "--step", "restarts"],
            env={
                "PATH": self._path,
                "FROM": "keys",
                "TO": "claims",
                "READY": "True",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        calls = self._calls.read_text().splitlines()
        deleted = [line.split()[2] for line in calls if line.startswith("delete pod ")]
        return ran.returncode, deleted, ran.stderr


def test_only_pods_of_the_workload_are_deleted_and_each_once(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, "StatefulSet", ON_DELETE)
    scripts.show(
        a="StatefulSet/web keys True",
        b="StatefulSet/web claims True",
        c="StatefulSet/web keys True",
        d="StatefulSet/web-2 keys True",
        e="keys True",
    )

    assert (0, ["a", "c"]) == scripts.run("switch")[:2]
    # As after a script that was stopped: nothing is left to do.
    assert (0, []) == scripts.run("switch")[:2]
    assert (0, ["a", "b", "c"]) == scripts.run("rollback", FROM="claims", TO="keys")[:2]


def test_pods_of_deployments_with_other_names_are_left_alone(tmp_path: Path) -> None:
    """Every ReplicaSet with the labels was taken for one of the Deployment, and a dot for any letter."""
    scripts = Scripts(tmp_path, "Deployment", {"paused": True}, name="web.a")
    scripts.show(
        a="ReplicaSet/web.a-7f keys True",
        b="ReplicaSet/web.a-canary-7f keys True",
        c="ReplicaSet/web-a-7f keys True",
        d="ReplicaSet/other-7f keys True",
        e="ReplicaSet/web.a-8c keys True",
    )

    assert (0, ["a", "e"]) == scripts.run("switch")[:2]


def test_a_script_stops_at_a_pod_that_does_not_come_back(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, "Deployment", {"paused": True})
    scripts.show(a="ReplicaSet/web-1 keys True", b="ReplicaSet/web-1 keys True")

    status, deleted, told = scripts.run("switch", READY="False")

    assert (1, ["a"]) == (status, deleted)
    assert "team/deployment/web: 1 of 2 pods are ready; not yet: a\n" in told
    assert "stopped at: wait for team/deployment/web" in told


def test_a_way_back_names_the_pods_that_are_not_back(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, "Deployment", {})
    scripts.show(
        a="ReplicaSet/web-1 keys True",
        b="ReplicaSet/web-1 keys",
        c="ReplicaSet/web-1 claims unplaced",
        d="ReplicaSet/web-1 keys ending",
    )

    assert 0 == scripts.run("rollback", STATUS="0")[0]
    status, _, told = scripts.run("rollback", STATUS="1")

    assert 1 == status
    assert "team/deployment/web is not back; not yet: b c (no node) d\n" in told
    assert "stopped at: wait for team/deployment/web" in told


def test_a_script_goes_on_when_as_many_pods_are_ready_as_before(tmp_path: Path) -> None:
    """One replica that no node could take stopped each script after half an hour."""
    scripts = Scripts(tmp_path, "Deployment", {"paused": True}, pending=1)
    scripts.show(a="ReplicaSet/web-1 keys", b="ReplicaSet/web-1 keys True")

    assert (0, ["a", "b"]) == scripts.run("switch", FROM="keys True", TO="claims True")[:2]
    status, deleted, told = scripts.run("rollback", FROM="claims True", TO="keys")

    assert (1, ["b"]) == (status, deleted)
    assert "team/deployment/web: 0 of 1 pods are ready; not yet: a b\n" in told


@pytest.mark.parametrize(
    ("wanted", "expected", "ready"),
    [
        pytest.param("2", ["a"], "1 of 2 pods are ready; not yet: a", id="all"),
        pytest.param("1", ["a", "b"], "0 of 1 pods are ready; not yet: a b", id="scaled down"),
    ],
)
def test_pods_that_are_ready_since_the_plan_are_waited_for(
    tmp_path: Path, wanted: str, expected: Sequence[str], ready: str
) -> None:
    """None was ready in the snapshot, so all pods of a workload that was healthy again were deleted at once."""
    scripts = Scripts(tmp_path, "StatefulSet", ON_DELETE, pending=2)
    scripts.show(a="StatefulSet/web keys True", b="StatefulSet/web keys True")

    # No new pod becomes ready.
    status, deleted, text = scripts.run("switch", READY="False", WANTED=wanted)

    assert (1, expected) == (status, deleted), text
    assert f"team/statefulset/web: {ready}\n" in text


def test_a_way_back_waits_for_no_pods_without_a_node_that_came_with_claims(tmp_path: Path) -> None:
    """The legacy system had devices for one pod, and each of the others stopped the script for half an hour."""
    scripts = Scripts(tmp_path, "StatefulSet", ON_DELETE, pending=1, minute=0)
    scripts.show(a="StatefulSet/web claims True", b="StatefulSet/web claims True")

    status, deleted, text = scripts.run("rollback", FROM="claims", TO="keys", WITHOUT_NODE="a")

    assert (0, ["a", "b"]) == (status, deleted), text

    scripts.show(a="StatefulSet/web claims True", b="StatefulSet/web claims True")
    status, deleted, text = scripts.run("rollback", FROM="claims", TO="keys", READY="unplaced")

    assert (1, ["a", "b"]) == (status, deleted), text
    assert "team/statefulset/web: 0 of 1 pods are ready; not yet: a (no node) b (no node)\n" in text


def test_a_new_pod_has_a_minute_to_find_a_node_on_the_way_back(tmp_path: Path) -> None:
    """Each pod has none when it is created, so a script that went on at once would delete all of them."""
    scripts = Scripts(tmp_path, "StatefulSet", ON_DELETE, pending=2)
    scripts.show(a="StatefulSet/web claims True", b="StatefulSet/web claims True")

    status, deleted, text = scripts.run("rollback", FROM="claims", TO="keys", READY="unplaced")

    assert (1, ["a"]) == (status, deleted), text
    assert "team/statefulset/web: 1 of 2 pods are ready; not yet: a (no node)\n" in text


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"READY": "False"}, (1, ["a"]), id="new pods fail"),
        pytest.param({"READY": "unplaced"}, (0, ["a", "b", "c"]), id="no node"),
        pytest.param({"READY": "False", "WITHOUT_NODE": "a"}, (1, ["a", "b"]), id="the next fails"),
        pytest.param({"NOT_CREATED": "a"}, (1, ["a"]), id="none is created"),
        # A StatefulSet creates none as long as one of a lower number is not ready.
        pytest.param(
            {"WITHOUT_NODE": "a", "NOT_CREATED": "b"}, (0, ["a", "b", "c"]), id="one after another"
        ),
    ],
)
def test_a_way_back_waits_for_pods_that_became_ready_with_claims(
    tmp_path: Path, environment: Mapping[str, str], expected: tuple[int, Sequence[str]]
) -> None:
    """None was ready in the snapshot, and all were deleted at once, though the legacy system had devices for them."""
    scripts = Scripts(tmp_path, "StatefulSet", ON_DELETE, pending=2, minute=0)
    scripts.show(**dict.fromkeys("abc", "StatefulSet/web claims True"))

    status, deleted, text = scripts.run(
        "rollback", FROM="claims", TO="keys", WANTED="3", **environment
    )

    assert expected == (status, deleted), text


def test_a_way_back_ends_when_as_many_pods_are_back_as_before(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, "Deployment", {}, pending=1)
    scripts.show(a="ReplicaSet/web-1 keys True", b="ReplicaSet/web-1 keys")

    status, _, told = scripts.run("rollback", STATUS="1")
    assert 0 == status
    text = "team/deployment/web: 1 of 2 pods are ready, and 1 were when the plan was made; not yet: b\n"
    assert text in told

    scripts.show(a="ReplicaSet/web-1 keys")
    status, _, told = scripts.run("rollback", STATUS="1")
    assert 1 == status
    assert "team/deployment/web is not back; not yet: a b\n" in told


@pytest.mark.parametrize(
    ("pods", "is_back"),
    [
        pytest.param(("claims True", "claims True", "keys"), False, id="new pods fail"),
        pytest.param(("claims True", "claims True"), False, id="no new pod is created"),
        pytest.param(("claims True", "claims True", "keys unplaced"), False, id="none is back"),
        pytest.param(("keys True", "claims True", "keys"), False, id="one is back, one fails"),
        pytest.param(
            ("keys True", "claims True", "keys unplaced"), True, id="one is back, one waits"
        ),
        pytest.param(("keys True", "claims True", "keys ending"), True, id="one is leaving"),
        pytest.param(("keys True", "keys True", "keys"), True, id="as many are back"),
    ],
)
def test_a_way_back_does_not_count_what_ran_before_it_alone(
    tmp_path: Path, pods: Sequence[str], *, is_back: bool
) -> None:
    """With one pod of three that never ran, new pods that failed looked like it, and the script went on."""
    scripts = Scripts(tmp_path, "Deployment", {})
    scripts.show(**{f"p{number}": f"ReplicaSet/web-1 {pod}" for number, pod in enumerate(pods)})

    status, _, text = scripts.run("rollback", STATUS="1", WANTED="3")

    assert is_back is (status == 0), text
    assert is_back is ("is not back" not in text)


@pytest.mark.parametrize(
    ("pods", "is_restarted"),
    [
        ({"web-0": "claims True", "web-1": "claims True"}, True),
        ({"web-0": "claims", "web-1": "keys True"}, True),
        ({"web-0": "claims unplaced", "web-1": "keys True"}, True),
        ({"web-0": "keys True", "web-1": "keys True"}, False),
        ({"web-0": "claims ending", "web-1": "keys True"}, False),
    ],
)
def test_a_way_back_restarts_nothing_that_a_drain_has_given_keys_already(
    tmp_path: Path, pods: Mapping[str, str], *, is_restarted: bool
) -> None:
    """The rollout of a full quota waited for ever for room for one more pod, and the rollback failed."""
    scripts = Scripts(tmp_path, "StatefulSet", {})
    scripts.show(**{name: f"StatefulSet/web {state}" for name, state in pods.items()})

    status, _, text = scripts.run("rollback", STATUS="0")

    assert 0 == status, text
    assert is_restarted is ("rollout restart --namespace=team statefulset/web" in scripts.calls())


def bare(node: str) -> dict[str, Any]:
    """A pod without a controller."""
    _, pod = workload("solo", SHARE, [node])
    del pod["metadata"]["ownerReferences"]
    return pod


def bare_notes(plan: Mapping[str, Any]) -> dict[int, str]:
    """Return the number of each wave to its note on pods that a drain stops at."""
    return {
        wave["wave"]: note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "nothing creates" in note
    }


def test_a_bare_pod_that_is_applied_again_with_its_opt_in_is_not_deleted_again(
    tmp_path: Path,
) -> None:
    """The next wave had it deleted a second time, though it has claims and runs on a switched node by then."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, bare("hami-1")], "--wave-nodes", 1)

    assert ["hami-0", "hami-1"] == [wave["nodes"][0]["name"] for wave in plan["waves"]]
    assert "by hand: delete Pod/team/solo-0" in script(tmp_path, "switch", 1)
    assert [1] == [*bare_notes(plan)]
    assert [0, 0] == [wave["movedPods"] for wave in plan["waves"]]
    moved = {
        check["object"]: check["message"]
        for check in checks_before(tmp_path, [*nodes, bare("hami-0")], 2)
        if "nothing creates" in check["message"]
    }
    assert {} == moved


def test_a_bare_pod_of_the_first_wave_is_named_there_alone(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    service = workload("web", SHARE, ["hami-1", "hami-1"])

    plan = planned(tmp_path, [*nodes, bare("hami-0"), *service], "--wave-nodes", 1)

    assert {1} == bare_notes(plan).keys()
    assert "node hami-0: nothing creates team/solo-0 again" in bare_notes(plan)[1]


def test_a_bare_pod_with_claims_on_a_switched_node_is_left_alone_by_a_plan_made_anew(
    tmp_path: Path,
) -> None:
    pod = bare("hami-0")
    (container,) = pod["spec"]["containers"]
    container["resources"] = {"claims": [{"name": "gpu"}]}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "solo"}]
    switched = [
        node("hami-0", {}, {"drawbridge.internal/dra-driver": HAMI, "gpu": "off"}, {}),
        resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
    ]

    plan = planned(
        tmp_path, [*switched, hami_node("hami-1"), namespace("team", {LABEL: "true"}), pod]
    )

    assert [["hami-1"]] == [[entry["name"] for entry in wave["nodes"]] for wave in plan["waves"]]
    assert {} == bare_notes(plan)
    assert "solo" not in script(tmp_path, "switch", 1)


def test_a_bare_pod_that_runs_to_its_end_is_not_applied_again_with_its_opt_in(
    tmp_path: Path,
) -> None:
    """It has device keys until it ends, so its GPU is not free for others before the wave of its node."""
    pod = bare("hami-0")
    pod["spec"]["restartPolicy"] = "Never"
    pod["status"] = {"phase": "Running"}
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, pod], "--wave-nodes", 1)

    assert {} == bare_notes(plan)
    first, last = plan["waves"]
    assert ["hami-1", "hami-0"] == [wave["nodes"][0]["name"] for wave in (first, last)]
    assert [1, 2] == [first[name]["after"] for name in ("freeForKeys", "freeForClaims")]
    assert ["Pod/team/solo-0"] == [work["pod"] for work in last["work"]]
