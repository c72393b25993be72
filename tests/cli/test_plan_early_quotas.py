"""`drawbridge plan` with ResourceQuotas of namespaces with pods that were opted in before it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cli.runbooks.wave_course import step_lines
from migration.wave.steps import Step, StepKind
from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import namespace, node, resource_quota, resource_slice
from testing.migration import GPU, SHARE, daemon_set, device_quota, hami_node, plugin_node, workload
from testing.plan import changes, checks_before, failed_before, planned, run_script, script

FILE: Final = "team.gpus.yaml"
LABEL: Final = "drawbridge.internal/translate"
NODES: Final = tuple(hami_node(f"hami-{number}") for number in range(4))
DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
HALF: Final = (
    node("hami-0", {}, {}, {}),
    resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
    hami_node("hami-1"),
    DRIVER,
)
"""A switched node, and one of HAMi."""
QUOTA: Final = "team/resourcequota/gpus"
REFERENCE: Final = "ResourceQuota/team/gpus"
BEGIN: Final = Step(script="", kind=StepKind.BEGIN)


def web(value: str = "true", place: str = "hami-2") -> list[dict[str, Any]]:
    """A namespace with a quota of keys, and an opted-in Deployment with pods that have keys."""
    owner, *pods = workload("web", SHARE, [place])
    if value == "selected":
        owner["spec"]["template"]["metadata"]["labels"] |= {LABEL: "true"}
    return [
        namespace("team", {LABEL: value}),
        resource_quota({f"requests.{GPU}": "5"}),
        owner,
        *pods,
    ]


def converted(objects: list[dict[str, Any]], plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects with the lines that the plan adds."""
    hard = plan["quotaLines"]["team.gpus.yaml"]
    lines = {**hard["before"], **hard["added"]}
    return [
        {**entry, "spec": {"hard": lines}} if entry["kind"] == "ResourceQuota" else entry
        for entry in objects
    ]


def begin(
    tmp_path: Path, phase: str, wave: int = 1
) -> list[tuple[str, dict[str, tuple[Any, Any]]]]:
    """The changes in the first step of a script."""
    return changes("\n".join(step_lines(script(tmp_path, phase, wave), BEGIN) or ()))


@pytest.mark.parametrize("value", ["true", "selected"])
def test_quotas_of_early_opt_ins_count_claims_before_the_first_drain(
    tmp_path: Path, value: str
) -> None:
    """No script applied them, so the webhook rejected the next pods of a drained node."""
    plan = planned(tmp_path, [*NODES, *web(value)], "--wave-nodes", 1)

    assert ["team"] == plan["earlyQuotas"]
    added = plan["quotaLines"]["team.gpus.yaml"]["added"]
    assert added
    lines = {line: (None, amount) for line, amount in added.items()}
    kept = {f"requests.{GPU}": ("5", "5")}
    assert [(QUOTA, {**kept, **lines})] == begin(tmp_path, "switch")
    drained = [wave for wave in plan["waves"] if wave["evictedPods"]]
    assert drained
    assert 1 != drained[0]["wave"]
    (note,) = (note for note in plan["waves"][0]["notes"] if "quotaNotCounted" in note)
    assert note.startswith("namespace team has pods that are opted in already, and quotas")


def test_a_way_back_leaves_quotas_of_early_opt_ins(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*NODES, *web()], "--wave-nodes", 1)

    text = script(tmp_path, "rollback")
    assert QUOTA not in dict(changes(text))
    ran = run_script(tmp_path, "wave-1/rollback.sh", options=["--step=end", "--context=test"])
    assert ran.stdout.startswith("note: the quotas of team stay as switch.sh has left them")
    last = len(plan["waves"])
    assert "the quotas of team stay" not in script(tmp_path, "rollback", last)
    assert "lower requests." in script(tmp_path, "verify", last)


def test_the_line_of_a_namespace_that_a_wave_opts_in_is_lowered_after_that_wave_alone(
    tmp_path: Path,
) -> None:
    """Some of its pods were opted in before, and the last wave would name it again."""
    rest = workload("rest", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*NODES, *web("selected"), *rest], "--wave-nodes", 1)

    (number,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert number < len(plan["waves"])
    assert ["team"] == plan["earlyQuotas"]
    assert [number] == [
        wave["wave"]
        for wave in plan["waves"]
        if "lower requests." in script(tmp_path, "verify", wave["wave"])
    ]


def test_quotas_count_claims_of_early_pods_that_nothing_here_restarts(tmp_path: Path) -> None:
    """Their controller creates the next ones with claims, though no wave moves them."""
    owned = workload("tune", SHARE, ["hami-2"], kind="RayCluster")[1:]
    for pod in owned:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "ray.io/v1"
    quota = resource_quota({f"requests.{GPU}": "5"})

    objects = [*NODES, namespace("team", {LABEL: "true"}), quota, *owned]

    plan = planned(tmp_path, [*objects, plugin_node("gpu-0")])

    assert ["team"] == plan["earlyQuotas"]
    assert "team.gpus.yaml" in plan["quotaLines"]
    # Without a wave nothing changes them.
    plan = planned(tmp_path, objects)
    assert ([], [], {}) == (plan["waves"], plan["earlyQuotas"], plan["quotas"])


def test_a_wave_does_not_drain_pods_that_an_old_line_would_reject(tmp_path: Path) -> None:
    objects = [*HALF, *web(place="hami-1"), device_quota({"name": GPU})]
    planned(tmp_path, [entry for entry in objects if "Quota" not in entry["kind"]])

    failed = failed_before(tmp_path, objects)

    assert f"take requests.{GPU} out, since DeviceQuotas count them" in failed[REFERENCE]
    planned(tmp_path, objects)
    assert {} == failed_before(tmp_path, objects)


def test_lines_that_device_quotas_replace_go_with_the_first_wave_for_good(tmp_path: Path) -> None:
    quota = device_quota({"name": GPU})
    planned(tmp_path, [*NODES, *web(), quota], "--wave-nodes", 1)

    assert [(QUOTA, {f"requests.{GPU}": ("5", None)})] == begin(tmp_path, "switch")
    assert QUOTA not in dict(changes(script(tmp_path, "rollback")))


def test_the_first_wave_compares_quotas_of_early_opt_ins(tmp_path: Path) -> None:
    objects = [*NODES, *web()]
    planned(tmp_path, objects)

    messages = [
        entry["message"]
        for entry in checks_before(tmp_path, objects)
        if entry["object"] == REFERENCE
    ]
    assert [message for message in messages if message.startswith("with this wave requests.")]
    now = [
        resource_quota({f"requests.{GPU}": "6"}) if entry["kind"] == "ResourceQuota" else entry
        for entry in objects
    ]
    assert "is 6, and the plan expects 5" in failed_before(tmp_path, now)[REFERENCE]


def test_a_wave_does_not_drain_pods_whose_next_ones_would_be_rejected(tmp_path: Path) -> None:
    """All was as expected, and the evicted pods came no more."""
    objects = [*HALF, *web(place="hami-1")]
    bare = [entry for entry in objects if entry["kind"] != "ResourceQuota"]
    plan = planned(tmp_path, bare)
    assert plan["waves"][0]["evictedPods"]
    assert {} == failed_before(tmp_path, bare)

    failed = failed_before(tmp_path, objects)

    assert "(quotaNotCounted): apply what drawbridge quota convert prints" in failed[REFERENCE]
    changing = planned(tmp_path, objects)
    assert {} == failed_before(tmp_path, objects)
    assert {} == failed_before(tmp_path, converted(objects, changing))


@pytest.mark.parametrize("value", ["", "false"])
def test_quotas_of_other_namespaces_wait_for_their_wave(tmp_path: Path, value: str) -> None:
    owner, *pods = workload("web", SHARE, ["hami-2"])
    labels = {LABEL: value} if value else {}
    quota = resource_quota({f"requests.{GPU}": "5"})

    plan = planned(tmp_path, [*NODES, namespace("team", labels), quota, owner, *pods])

    assert [] == plan["earlyQuotas"]


@pytest.mark.parametrize(("now", "status"), [("5", 1), ("", 0)])
def test_a_repository_takes_an_old_line_out_before_the_first_drain(
    tmp_path: Path, now: str, status: int
) -> None:
    """The script named it, drained the node all the same, and the webhook rejected the next pods."""
    quota = device_quota({"name": GPU})
    plan = planned(tmp_path, [*NODES, *web(), quota], "--format", "kustomize")
    (note,) = (note for note in plan["waves"][0]["notes"] if "quotaNotCounted" in note)
    assert "switch.sh of this wave stops until your repository has changed those that are" in note
    line = r"{.spec.hard.requests\.nvidia\.com/gpu}"
    asked = f"get resourcequota/gpus --namespace=team --ignore-not-found --output=jsonpath={line}"
    answer = f"case \"$*\" in *'{asked}') printf '%s' '{now}' ;; esac"

    result = run_script(
        tmp_path, "wave-1/switch.sh", {"kubectl": answer}, ["--step=begin", "--context=test"]
    )

    assert asked in (tmp_path / "calls").read_text()
    assert status == result.returncode, result.stderr
    text = f"ResourceQuota team/gpus has requests.{GPU} still: take that out in your repository"
    again = f"; then run again: {tmp_path}/plan/wave-1/switch.sh --context=test --step=begin"
    assert (f"{text}{again}\n" in result.stderr) is bool(status)


def test_a_repository_adds_the_lines_of_early_opt_ins_before_the_first_drain(
    tmp_path: Path,
) -> None:
    planned(tmp_path, [*NODES, *web()], "--format", "kustomize")

    commands = step_lines(script(tmp_path, "switch"), BEGIN) or ()
    diff = f'kubectl diff --filename="$here/../quotas/"{FILE} || '
    assert [line for line in map(str.strip, commands) if line.startswith(diff)]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ""),
        (1, f"differs from quotas/{FILE}, see above: commit kustomize/prepare of the plan"),
        (2, "stopped at: kubectl diff --filename="),
    ],
)
def test_a_script_that_waits_for_lines_of_a_repository_says_for_what(
    tmp_path: Path, status: int, words: str
) -> None:
    """It ended with the command alone."""
    planned(tmp_path, [*NODES, *web()], "--format", "kustomize")
    answer = f'case "$*" in *diff*) exit {status} ;; esac'
    options = ("--step=begin", "--context=test")

    result = run_script(tmp_path, "wave-1/switch.sh", {"kubectl": answer}, options)

    assert bool(status) is bool(result.returncode), result.stderr
    assert words in result.stderr
    again = f"run again: {tmp_path}/plan/wave-1/switch.sh --context=test --step=begin\n"
    assert bool(status) is (again in result.stderr)
    assert ("commit kustomize/prepare" in result.stderr) is (status == 1)


def test_quotas_of_early_opt_ins_stay_where_the_webhook_only_warns(tmp_path: Path) -> None:
    """No pod was rejected, and a new line could be below the use of claims."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  quota: warn\n")

    plan = planned(
        tmp_path,
        [*NODES, *web()],
        "--settings",
        settings,
        "--format",
        "kustomize",
        "--wave-nodes",
        1,
    )

    assert [] == plan["earlyQuotas"]
    assert {} == plan["quotas"]
    assert QUOTA not in dict(changes(script(tmp_path, "switch")))
    assert not [*(tmp_path / "plan").rglob("*team.gpus*")]
    words = f"{REFERENCE}: no line counts the claims of pods that are opted in already"
    told = [[note for note in wave["notes"] if note.startswith(words)] for wave in plan["waves"]]
    assert [1, 0, 0, 0] == [*map(len, told)]
    assert "drawbridge quota convert" in told[0][0]


def test_a_quota_that_counts_the_claims_of_early_opt_ins_has_no_note(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  quota: warn\n")
    objects = [*NODES, *web()]
    plan = planned(tmp_path, objects)

    changed = converted(objects, plan)
    plan = planned(tmp_path, changed, "--settings", settings)

    assert not [note for note in plan["waves"][0]["notes"] if "counts the claims" in note]


def test_no_wave_fails_for_quotas_where_the_webhook_only_warns(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  quota: warn\n")
    objects = [*HALF, *web(place="hami-1")]
    bare = [entry for entry in objects if entry["kind"] != "ResourceQuota"]
    planned(tmp_path, bare, "--settings", settings)
    assert [REFERENCE] == list(failed_before(tmp_path, objects))
    file, folder = tmp_path / "now.yaml", tmp_path / "plan" / "wave-1"

    options = ("--snapshot", file, "--wave", folder, "--before", "--settings", settings)
    result = drawbridge("verify", *options)

    assert 0 == result.exit_code, result.stdout
    assert REFERENCE not in result.stdout
