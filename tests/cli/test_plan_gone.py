"""`drawbridge plan`: a workload that was deleted since the plan was made stops no script, and no check."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import SHARE, hami_node, origin, workload
from testing.plan import planned, script

KUBECTL: Final = r"""#!/bin/sh
# As kubectl does where deployment/old is gone: it goes on with the others, and ends with 1.
echo "$*" >> "@CALLS@"
case "$*" in
  *--ignore-not-found*) case "$*" in *eployment/old*) ;; *) echo deployment.apps/web ;; esac ;;
  *--dry-run=server*) exit 1 ;;
  *deployment/old*) exit 1 ;;
  "get pods"*--selector=app=web*) echo "web-0 ReplicaSet/web-1 $DEVICES True" ;;
esac
"""
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def named(name: str, notes: Mapping[str, str] = {}, **fields: Any) -> list[dict[str, Any]]:
    owner, *pods = workload(name, SHARE, ["hami-0"])
    owner["spec"] |= {"selector": {"matchLabels": {"app": name}}, **fields}
    for pod in pods:
        pod["metadata"]["annotations"] = dict(notes)
    return [owner, *pods]


def cluster(*workloads: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    documents = [document for entry in workloads for document in entry]
    return [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *documents]


def write(
    folder: Path, objects: Sequence[Mapping[str, Any]], *flags: object, labelled: bool = False
) -> Mapping[str, Any]:
    """Write a plan, and return the wave that restarts or labels the workload `old`."""
    plan = planned(folder, objects, "--wave-nodes", 1, *flags)
    programs = folder / "bin"
    programs.mkdir()
    for program, text in (("kubectl", KUBECTL), ("drawbridge", "#!/bin/sh\n")):
        (programs / program).write_text(text.replace("@CALLS@", f"{folder}/calls"))
        (programs / program).chmod(0o755)
    return next(
        wave
        for wave in plan["waves"]
        for entry in wave["workloads"]
        if entry["object"] == "Deployment/team/old" and entry["labelled"] is labelled
    )


def run(folder: Path, wave: Mapping[str, Any], phase: str, step: str) -> tuple[int, str, list[str]]:
    """Return the status of a step, its output, and its restarts, deletions and waits."""
    (folder / "calls").write_text("")
    ran = subprocess.run(
        [folder / "plan" / f"wave-{wave['wave']}" / f"{phase}.sh", "--step", step],
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "DEVICES": "keys" if phase == "switch" else "claims",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = (folder / "calls").read_text().splitlines()
    changes = [call for call in calls if call.startswith(("rollout", "delete", "wait"))]
    return ran.returncode, ran.stdout + ran.stderr, changes


GONE: Final = "team/deployment/old was deleted since the plan was made, and is left out"
MANAGER: Final = "--field-manager=flux-client-side-apply"
"""The field manager of restarts: Flux takes those of others back, so pods are replaced twice, or old ones stay."""


def test_others_of_its_namespace_are_restarted_once(tmp_path: Path) -> None:
    """They were restarted twice, and the script stopped, so other namespaces had no restart."""
    wave = write(tmp_path, cluster(named("old"), named("web")))

    assert "rollout restart --namespace=team \\\n" in script(tmp_path, "switch", wave["wave"])
    status, told, calls = run(tmp_path, wave, "switch", "restarts")

    assert 0 == status, told
    assert GONE in told
    assert [f"rollout restart --namespace=team deployment/web {MANAGER}"] == calls


def test_a_way_back_does_not_wait_for_it(tmp_path: Path) -> None:
    """It failed each time, and nothing else may begin before it is done."""
    wave = write(tmp_path, cluster(named("old"), named("web")))

    status, told, calls = run(tmp_path, wave, "rollback", "restarts")

    assert 0 == status, told
    assert GONE in told
    assert ["restart", "status"] == [call.split()[1] for call in calls]
    assert all("deployment/web" in call for call in calls)


@pytest.mark.parametrize(
    "gone",
    [named("old"), named("old", paused=True), named("old", STAYS)],
    ids=["restarted", "recreated", "asked about"],
)
@pytest.mark.parametrize("phase", ["switch", "rollback"])
def test_where_nothing_else_is_to_be_restarted_nothing_is_done(
    tmp_path: Path, phase: str, gone: Sequence[Mapping[str, Any]]
) -> None:
    wave = write(tmp_path, cluster(gone))

    status, told, calls = run(tmp_path, wave, phase, "restarts")

    assert (0, []) == (status, calls), told
    assert phase == "rollback" or GONE in told.replace("Deployment", "deployment")


@pytest.mark.parametrize("form", ["patch", "kustomize"])
@pytest.mark.parametrize("phase", ["switch", "rollback"])
def test_its_template_stops_no_namespace(tmp_path: Path, phase: str, form: str) -> None:
    """It is the first step of a way back, so no node was given back."""
    whole_card = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40000"}
    nodes = [hami_node(f"hami-{number}", 1) for number in range(3)]
    workloads = [*workload("old", whole_card, ["hami-0"]), *workload("web", whole_card, ["hami-1"])]
    flags = ("--format", "kustomize") if form == "kustomize" else ()
    wave = write(tmp_path, [*nodes, namespace("team"), *workloads], *flags, labelled=True)

    status, told, _ = run(tmp_path, wave, phase, "namespaces")

    assert 0 == status, told
    assert (phase, form) == ("rollback", "kustomize") or GONE in told


def test_what_cannot_be_read_is_not_gone(tmp_path: Path) -> None:
    wave = write(tmp_path, cluster(named("old"), named("web")))
    (tmp_path / "bin" / "kubectl").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncase "$1" in get) exit 1 ;; esac\n'
    )

    status, told, calls = run(tmp_path, wave, "switch", "restarts")

    assert 0 == status, told
    assert "was deleted" not in told
    assert [f"rollout restart --namespace=team deployment/old deployment/web {MANAGER}"] == calls


# --- the checks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unreadable", "flags", "state", "message"),
    [
        ([], ["--before"], "note", "it is gone, and the scripts leave it out"),
        ([], [], "note", "it is gone"),
        (["deployments"], [], "failed", "deployments cannot be read, and no pod of it is there"),
    ],
)
def test_checks_note_it(
    tmp_path: Path, unreadable: list[str], flags: list[str], state: str, message: str
) -> None:
    """The check before the wave was silent about it, and the check after it failed for good."""
    wave = write(tmp_path, cluster(named("old"), named("web")))
    now = tmp_path / "now.yaml"
    now.write_text(dump_yaml([origin(*unreadable), *cluster(named("web"))]))

    folder = tmp_path / "plan" / f"wave-{wave['wave']}"
    result = drawbridge("verify", "--snapshot", now, "--wave", folder, *flags, "-o", "json")

    checks = [
        (check["state"], check["message"])
        for check in json.loads(result.stdout)["checks"]
        if check["object"] == "Deployment/team/old"
    ]
    assert [(state, message)] == checks
