"""Changes of others since a plan was made are never overwritten: its scripts and checks stop, and say so."""

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cli.runbooks.object_changes import FieldChange, change_command
from kube.names import TRANSLATE_LABEL
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import changes, failed_before, planned

LINE: Final = f"requests.{GPU}"
KUBECTL: Final = r"""#!/bin/sh
# A cluster whose object has the value of $VALUE, and in which a patch ends with the status of $PATCHED.
echo "kubectl $*" >> "$CALLS"
case "$*" in
  *current-context*) echo here ;;
  *--dry-run=server*) exit "$FINISHED" ;;
  *patch*) exit "$PATCHED" ;;
  *--output=name*) echo "$NAMED" ;;
  *get*) printf %s "$VALUE" ;;
esac
"""


def quota(amount: str = "8") -> dict[str, Any]:
    return resource_quota({LINE: amount, "pods": "9"})


def cluster(*others: Mapping[str, Any], label: str | None = None) -> list[Mapping[str, Any]]:
    labels = {} if label is None else {TRANSLATE_LABEL: label}
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    return [*nodes, namespace("team", labels), *others, *workload("web", SHARE, ["hami-0"] * 2)]


# --- the commands ---------------------------------------------------------------------------------


def test_a_change_tests_what_the_plan_saw_and_is_one_write() -> None:
    fields = [
        FieldChange(path=("spec", "hard", LINE), before="8", after=None),
        FieldChange(path=("spec", "hard", "pods"), before="9", after="9"),
        FieldChange(path=("spec", "hard", "a/b~c"), before=None, after="1"),
    ]

    words = shlex.split(change_command("resourcequota/gpus", "team", fields))

    name, target, place, patch, finished, *expected = words
    assert ["change_object", "resourcequota/gpus", "team"] == [name, target, place]
    line, pods, other = (
        f"/spec/hard/{key}" for key in (LINE.replace("/", "~1"), "pods", "a~1b~0c")
    )
    assert [
        {"op": "test", "path": line, "value": "8"},
        {"op": "test", "path": pods, "value": "9"},
        {"op": "test", "path": other, "value": None},
        {"op": "remove", "path": line},
        {"op": "add", "path": other, "value": "1"},
    ] == json.loads(patch)
    assert [
        {"op": "test", "path": line, "value": None},
        {"op": "test", "path": pods, "value": "9"},
        {"op": "test", "path": other, "value": "1"},
    ] == json.loads(finished)
    escaped = r".spec.hard.requests\.nvidia\.com/gpu"
    assert [escaped, "8", ".spec.hard.pods", "9", ".spec.hard.a/b~c", ""] == expected


@pytest.fixture
def plan_folder(tmp_path: Path) -> Path:
    """The folder of a plan with programs in place of kubectl and drawbridge."""
    planned(tmp_path, cluster(quota()))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("kubectl", KUBECTL), ("drawbridge", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path / "plan"


def begin(
    plan_folder: Path, *, finished: int, patched: int, value: str, named: str = "object"
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the step that changes quotas; return its output, and the patches that it has sent."""
    calls = plan_folder.parent / "calls"
    calls.unlink(missing_ok=True)
    wave = next(plan_folder.glob("wave-*/switch.sh"))
    for script in sorted(plan_folder.glob("wave-*/switch.sh")):
        if "change_object resourcequota" in script.read_text():
            wave = script
    result = subprocess.run(
        ["bash", wave, "--step=begin"],
        env={
            "PATH": f"{plan_folder.parent / 'bin'}:/usr/bin:/bin",
            "CALLS": str(calls),
            "FINISHED": str(finished),
            "PATCHED": str(patched),
            "VALUE": value,
            "NAMED": named,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    lines = calls.read_text().splitlines()
    return result, [line for line in lines if "patch" in line and "--dry-run" not in line]


def test_a_changed_object_stops_the_script_with_the_difference(plan_folder: Path) -> None:
    result, patches = begin(plan_folder, finished=1, patched=1, value="16")

    assert 1 == result.returncode, result.stderr
    assert 1 == len(patches)
    expected = (
        r"resourcequota/gpus: .spec.hard.requests\.nvidia\.com/gpu is 16, and the plan expects 8"
    )
    assert expected in result.stderr
    assert "was changed since the plan was made, and nothing of it is changed here" in result.stderr
    assert "to go on, run again: " in result.stderr


def test_a_patch_that_fails_for_another_reason_blames_nobody(plan_folder: Path) -> None:
    """The amounts differ from line to line, so this cluster has one that no line has."""
    result, _ = begin(plan_folder, finished=1, patched=1, value="")

    assert 1 == result.returncode
    assert "is missing, and the plan expects 8" in result.stderr
    only_label = change_command(
        "namespace/team", "", [FieldChange(path=("metadata", "labels"), before="a", after="b")]
    )
    script = plan_folder / "wave-1" / "own.sh"
    head = '#!/usr/bin/env bash\nset -euo pipefail\nhere="$(dirname -- "$0")"\n. "$here/../cluster.sh"\n'
    script.write_text(f"{head}{only_label}\n")
    environment = {
        "CALLS": "/dev/null",
        "FINISHED": "1",
        "PATCHED": "1",
        "VALUE": "a",
        "NAMED": "a",
    }
    path = f"{plan_folder.parent / 'bin'}:/usr/bin:/bin"
    forbidden = subprocess.run(
        ["bash", script],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == forbidden.returncode
    assert "was changed since" not in forbidden.stderr
    assert "stopped at: kubectl patch namespace/team" in forbidden.stderr


def test_an_object_that_is_gone_stops_no_script(plan_folder: Path) -> None:
    result, patches = begin(plan_folder, finished=1, patched=1, value="", named="")

    assert 0 == result.returncode, result.stderr
    assert 1 == len(patches)
    assert "team/resourcequota/gpus was deleted since the plan was made, and is" in result.stdout


def test_a_second_run_writes_nothing(plan_folder: Path) -> None:
    first, patches = begin(plan_folder, finished=1, patched=0, value="8")
    again, no_patches = begin(plan_folder, finished=0, patched=1, value="8")

    assert (0, 0) == (first.returncode, again.returncode), first.stderr + again.stderr
    assert (1, 0) == (len(patches), len(no_patches))
    assert "resourcequota/gpus is as it is to become" in again.stdout


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_records_what_its_waves_change(tmp_path: Path) -> None:
    plan = planned(tmp_path, cluster(quota(), label="selected"))

    (wave,) = (wave for wave in plan["waves"] if wave["namespaces"])
    assert {"team": "selected"} == wave["formerLabels"]
    assert {LINE: "8", "pods": "9"} == plan["quotaLines"]["team.gpus.yaml"]["before"]
    texts = [
        (tmp_path / "plan" / f"wave-{wave['wave']}" / f"{phase}.sh").read_text()
        for phase in ("switch", "rollback")
    ]
    label = [dict(changes(text))["namespace/team"][TRANSLATE_LABEL] for text in texts]
    assert [("selected", "true"), ("true", "selected")] == label


def test_the_affinity_of_a_plugin_is_added_to_what_it_has(tmp_path: Path) -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    affinity = {"podAffinity": {}, "nodeAffinity": preferred}
    plugin = api_object(
        "DaemonSet",
        "nvidia-device-plugin",
        "kube-system",
        spec={"template": {"spec": {"containers": [{"name": "c"}], "affinity": affinity}}},
    )

    planned(tmp_path, [plugin_node("gpu-0"), plugin])

    prepare = (tmp_path / "plan" / "prepare.sh").read_text()
    before, after = dict(changes(prepare))["kube-system/daemonset/nvidia-device-plugin"]["affinity"]
    assert affinity == before
    assert {} == after["podAffinity"]
    assert [{"weight": 1}] == after["nodeAffinity"][next(iter(preferred))]
    assert "NotIn" in json.dumps(after)


# --- the checks before a wave ---------------------------------------------------------------------


def before(tmp_path: Path, objects: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return object to the messages of the failed checks before the wave of the namespace."""
    plan = planned(tmp_path, cluster(quota()))
    number = next(wave["wave"] for wave in plan["waves"] if wave["namespaces"])
    return failed_before(tmp_path, objects, number)


@pytest.mark.parametrize(
    ("objects", "subject", "message"),
    [
        (
            cluster(quota("16")),
            "ResourceQuota/team/gpus",
            f"{LINE} is 16, and the plan expects 8: ",
        ),
        (cluster(), "ResourceQuota/team/gpus", "there is none: plan again"),
        (
            cluster(quota(), label="false"),
            "Namespace//team",
            f"label {TRANSLATE_LABEL} is false, and the plan expects missing or true: ",
        ),
    ],
)
def test_what_was_changed_since_the_plan_stops_its_wave(
    tmp_path: Path, objects: list[Mapping[str, Any]], subject: str, message: str
) -> None:
    assert message in before(tmp_path, objects)[subject]


def test_an_amount_that_is_written_in_another_way_stops_no_wave(tmp_path: Path) -> None:
    """A plan has 8k, as the API server stores it, and a file may have 8000."""
    plan = planned(tmp_path, cluster(quota("8000")))
    number = next(wave["wave"] for wave in plan["waves"] if wave["namespaces"])

    for amount in ("8000", "8k"):
        failed = failed_before(tmp_path, cluster(quota(amount)), number)
        assert "ResourceQuota/team/gpus" not in failed


def test_an_equal_amount_in_another_form_is_told_as_equal(tmp_path: Path) -> None:
    """The API server stores either, and a script of the wave would stop at it: a JSON Patch tests texts."""
    plan = planned(tmp_path, cluster(quota("8k")))
    number = next(wave["wave"] for wave in plan["waves"] if wave["namespaces"])

    failed = failed_before(tmp_path, cluster(quota("8e3")), number)

    assert failed["ResourceQuota/team/gpus"].startswith(
        f"{LINE} is 8e3, as much as 8k, which the plan expects; its scripts compare the texts: put that back, or plan again"
    )


def test_what_the_wave_has_changed_itself_is_right(tmp_path: Path) -> None:
    failed = before(tmp_path, cluster(quota()))

    assert not {"ResourceQuota/team/gpus", "Namespace//team"} & set(failed)
