"""`drawbridge wave`: the scripts of a plan step by step, and a ConfigMap that holds no more than a position."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import jsonschema
import pytest
from click.testing import Result

from cli.runbooks.plan_scripts import locked_plan
from clusterstate.wave_record import WAVE_RECORD
from kube.api.urls import CONFIG_MAPS, NAMESPACES
from kube.manifests.dump import dump_yaml
from kube.names import NAMESPACE
from testing.command import ROOT, drawbridge
from testing.fake_api_server import Call, FakeApiServer
from testing.waves import UID, ScriptedCluster, write_plan

WAVES: Final = 2
SCHEMA: Final = ROOT / "docs/reference/schemas/wave.json"


@pytest.fixture(scope="module")
def written_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("plan"))


class Migration:
    """A cluster, a plan, and the commands that a person calls."""

    def __init__(self, server: FakeApiServer, folder: Path, written_plan: Path) -> None:
        self.server = server
        self.plan = folder / "plan"
        shutil.copytree(written_plan, self.plan)
        self.cluster = ScriptedCluster(folder / "cluster")
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            dump_yaml(
                [
                    {
                        "apiVersion": "v1",
                        "kind": "Config",
                        "current-context": "chosen",
                        "contexts": [{"name": "chosen", "context": {"cluster": "c", "user": "u"}}],
                        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                        "users": [{"name": "u", "user": {"token": "t"}}],
                    }
                ]
            )
        )
        self.account = "ada"

    async def wave(
        self, action: str, *flags: object, stdin: str | None = None, kill: str = ""
    ) -> Result:
        """Call it, as the account."""
        if action != "status" and stdin is None:
            flags = ("--yes", *flags)
        return await asyncio.to_thread(
            drawbridge,
            *("wave", action, "--plan", self.plan, "--kubeconfig", self.kubeconfig, *flags),
            stdin=stdin,
            LOGNAME=self.account,
            **self.cluster.environment(kill),
        )

    @property
    def record(self) -> dict[str, str]:
        """The data of the ConfigMap."""
        found = self.server.find(CONFIG_MAPS, WAVE_RECORD, NAMESPACE)
        assert found is not None
        data: dict[str, str] = found["data"]
        return data

    def overwrite(self, **data: str) -> None:
        """Write into the ConfigMap, as anybody with the right may."""
        document = {"metadata": {"name": WAVE_RECORD, "namespace": NAMESPACE}}
        self.server.put(CONFIG_MAPS, {**document, "data": {**self.record, **data}})


@pytest.fixture
async def migration(tmp_path: Path, written_plan: Path) -> AsyncIterator[Migration]:
    async with FakeApiServer() as server:
        server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": UID}})
        yield Migration(server, tmp_path, written_plan)


async def test_a_plan_is_gone_through_wave_by_wave(migration: Migration) -> None:
    first = await migration.wave("next")

    assert 0 == first.exit_code, first.output
    assert first.stdout.startswith(
        "wave 1 of 2, 2 of 3 nodes, 2 of 2 workloads\nwave 1 is done; by "
    )
    assert "next: drawbridge wave next goes on with wave-2/preflight.sh preflight" in first.stdout
    second = await migration.wave("next")
    assert 0 == second.exit_code, second.output
    assert "wave 2 of 2, 3 of 3 nodes, 2 of 2 workloads" in second.stdout
    assert "all waves are done; next: drawbridge assess --live --residue" in second.stdout
    again = await migration.wave("next")
    assert (0, second.stdout) == (again.exit_code, again.stdout)
    for node in ("hami-0", "hami-1", "hami-2"):
        assert "off" == migration.cluster.snapshot()[f"node.{node}.gpu"]
    assert not any(name.startswith("cordoned") for name in migration.cluster.snapshot())


def run_by_hand(script: Path, cluster: ScriptedCluster) -> None:
    subprocess.run(
        ["bash", script],
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


async def test_it_runs_the_commands_of_the_scripts_and_in_their_order(
    migration: Migration, tmp_path: Path
) -> None:
    by_hand = ScriptedCluster(tmp_path / "by-hand")
    scripts = ["prepare.sh"]
    for number in range(1, WAVES + 1):
        scripts += [f"wave-{number}/{phase}.sh" for phase in ("preflight", "switch", "verify")]
    for script in scripts:
        await asyncio.to_thread(run_by_hand, migration.plan / script, by_hand)

    for _ in range(WAVES):
        assert 0 == (await migration.wave("next")).exit_code

    assert by_hand.calls.read_text() == migration.cluster.calls.read_text()
    assert by_hand.snapshot() == migration.cluster.snapshot()


async def test_waves_are_taken_back_one_by_one(migration: Migration) -> None:
    for _ in range(WAVES):
        await migration.wave("next")

    second = await migration.wave("back")

    assert 0 == second.exit_code, second.output
    assert "wave 2 of 2, 2 of 3 nodes, 2 of 2 workloads\nwave 2 was taken back" in second.stdout
    first = await migration.wave("back")
    assert "wave 1 of 2, 0 of 3 nodes, 0 of 2 workloads\nwave 1 was taken back" in first.stdout
    last = await migration.wave("back")
    assert 2 == last.exit_code
    assert "no wave has changed anything, so there is nothing to take back" in last.stderr
    state = migration.cluster.snapshot()
    assert {"on"} == {value for name, value in state.items() if name.endswith(".gpu")}
    assert not any("namespace" in name or "cordoned" in name for name in state)


async def test_each_step_is_shown_and_confirmed(migration: Migration) -> None:
    result = await migration.wave("next", stdin="y\ny\ny\nn\n")

    assert 1 == result.exit_code
    assert "wave 1 of 2, steps 3 to 5 of 11: node hami-2" in result.stderr
    assert "    kubectl drain hami-2 --ignore-daemonsets --delete-emptydir-data" in result.stderr
    assert "stopped: it was not run" in result.stderr
    # prepare.sh asks whether HAMi's class maps the name of whole GPUs.
    assert ["kubectl get", "kubectl patch"] == [
        " ".join(line.split()[:2])
        for line in migration.cluster.lines("kubectl")
        if "dry-run" not in line
    ]
    assert ("begin", "done") == (migration.record["step"], migration.record["state"])


async def test_no_answer_is_no(migration: Migration) -> None:
    result = await migration.wave("next", stdin="")

    assert 1 == result.exit_code
    assert "" == migration.cluster.calls.read_text()
    assert migration.server.find(CONFIG_MAPS, WAVE_RECORD, NAMESPACE) is None


async def test_a_record_says_who_is_where_and_since_when(migration: Migration) -> None:
    await migration.wave("next", kill="12 before")

    record = migration.record
    assert ("1", "drain/hami-2", "hami-2", "begun", "4", "11") == tuple(
        record[key] for key in ("wave", "step", "node", "state", "number", "steps")
    )
    assert record["who"].startswith("tester (ada@")
    assert record["when"].endswith("Z")
    assert record["digest"].startswith("sha256:")
    status = await migration.wave("status")
    assert 0 == status.exit_code
    assert status.stdout.startswith("wave 1 of 2, 0 of 3 nodes, 0 of 2 workloads\nstep 4 of 11, ")
    assert "goes on with wave-1/switch.sh wait/hami-2" in status.stdout


async def test_the_operator_is_the_user_of_the_cluster_and_the_account(
    migration: Migration,
) -> None:
    migration.server.user = "ada@example.com"

    await migration.wave("next", kill="1 before")

    assert migration.record["who"].startswith("ada@example.com (ada@")


async def test_without_a_review_of_the_user_there_is_the_account(migration: Migration) -> None:
    migration.server.fail(403, matches=lambda call: "selfsubjectreviews" in call.path)

    await migration.wave("next", kill="1 before")

    assert migration.record["who"].startswith("ada@")


# --- what stops it --------------------------------------------------------------------------------


async def test_another_cluster_is_refused(migration: Migration) -> None:
    migration.server.remove(NAMESPACES, "kube-system")
    migration.server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": "other"}})

    for action in ("next", "back", "status"):
        result = await migration.wave(action)

        assert 2 == result.exit_code
        assert f"has the uid other, and the plan is for {UID}" in result.stderr
    assert "" == migration.cluster.calls.read_text()


async def test_a_second_operator_is_refused(migration: Migration) -> None:
    await migration.wave("next", kill="12 before")
    before = migration.cluster.calls.read_text()
    migration.account = "bob"

    for action in ("next", "back"):
        result = await migration.wave(action)

        assert 2 == result.exit_code
        assert "another operator has the migration: step 4 of 11, drain/hami-2" in result.stderr
        assert "by tester (ada@" in result.stderr
    assert before == migration.cluster.calls.read_text()
    taken = await migration.wave("next", "--take-over")
    assert 0 == taken.exit_code, taken.output
    assert migration.record["who"].startswith("tester (bob@")


async def test_another_plan_is_refused_unless_it_replaces_one_between_waves(
    migration: Migration,
) -> None:
    await migration.wave("next", kill="12 before")
    script = migration.plan / "wave-1" / "switch.sh"
    text = script.read_text()
    script.write_text(text + "# edited\n")

    assert 2 == (await migration.wave("next")).exit_code
    result = await migration.wave("next", "--replace")
    assert 2 == result.exit_code
    assert "wave 1 of another plan is not finished" in result.stderr
    assert "--replace is refused" in result.stderr
    script.write_text(text)
    assert 0 == (await migration.wave("next")).exit_code
    script.write_text(text + "# edited\n")
    result = await migration.wave("next")
    assert 2 == result.exit_code
    assert "2 of 3 nodes, 2 of 2 workloads of another plan, sha256:" in result.stderr
    replaced = await migration.wave("next", "--replace")
    assert 0 == replaced.exit_code, replaced.output
    assert "1" == migration.record["wave"]


async def fail_second_preflight(migration: Migration) -> None:
    """Go through the first wave, and into failing checks before the second."""
    await migration.wave("next")
    count = len(migration.cluster.lines("kubectl", "drawbridge"))
    result = await migration.wave("next", kill=f"{count + 1} before")
    assert 1 == result.exit_code, result.output
    position = [migration.record[key] for key in ("wave", "step", "state")]
    assert ["2", "preflight", "begun"] == position


async def test_after_failed_checks_another_plan_may_begin(migration: Migration) -> None:
    """It was refused as for a wave that is half done, and going on failed at the same checks."""
    await fail_second_preflight(migration)
    script = migration.plan / "wave-1" / "switch.sh"
    script.write_text(f"{script.read_text()}# of a new snapshot\n")

    replaced = await migration.wave("next", "--replace")

    assert 0 == replaced.exit_code, replaced.output
    assert "1" == migration.record["wave"]


async def test_after_failed_checks_the_wave_before_is_not_taken_back_unasked(
    migration: Migration,
) -> None:
    await fail_second_preflight(migration)
    before = migration.cluster.calls.read_text()

    refused = await migration.wave("back")

    warning = "nothing of wave 2 to take back, so this takes back wave 1, which is done"
    assert 2 == refused.exit_code, refused.output
    assert f"{warning}; without --yes it asks before the first step" in refused.stderr
    declined = await migration.wave("back", stdin="n\n")
    assert 1 == declined.exit_code
    assert warning in declined.stderr
    assert before == migration.cluster.calls.read_text()
    assert "preflight" == migration.record["step"]
    begun = await migration.wave("back", stdin="y\nn\n")
    assert 1 == begun.exit_code
    taken_back = await migration.wave("back")
    assert 0 == taken_back.exit_code, taken_back.output
    assert "wave 1 of 2, 0 of 3 nodes, 0 of 2 workloads\nwave 1 was taken back" in taken_back.stdout


async def test_values_that_a_person_saves_are_no_other_plan(migration: Migration) -> None:
    await migration.wave("next")
    (migration.plan / "driver-values.yaml").write_text("a: b\n")
    (migration.plan / "plan.html").write_text("")

    assert 0 == (await migration.wave("next")).exit_code


def _is_write(call: Call) -> bool:
    return call.method in {"PATCH", "POST"} and "configmaps" in call.path


@pytest.mark.parametrize("status", [409, 500, 403])
async def test_a_position_that_cannot_be_written_stops_before_its_step(
    migration: Migration, status: int
) -> None:
    migration.server.fail(status, matches=lambda call: _is_write(call) and _step(call) == "begin")

    result = await migration.wave("next")

    assert 2 == result.exit_code
    assert [] == migration.cluster.lines("kubectl cordon", "kubectl patch")
    assert "preflight" == migration.record["step"]
    if status == 409:
        assert "was changed since it was read, so somebody else is at work" in result.stderr
    assert 0 == (await migration.wave("next")).exit_code


def _step(call: Call) -> str:
    return str((call.body or {}).get("data", {}).get("step", ""))


async def test_every_write_depends_on_the_version_that_was_read(migration: Migration) -> None:
    await migration.wave("next")

    created, *patched = [call for call in migration.server.calls if _is_write(call)]
    versions = [call.body["metadata"]["resourceVersion"] for call in patched]
    assert "POST" == created.method
    assert sorted(set(versions), key=int) == versions


async def test_an_operator_at_work_elsewhere_ends_the_call(migration: Migration) -> None:
    def write(call: Call) -> bool:
        if _is_write(call) and _step(call) == "drain/hami-2":
            migration.overwrite(who="bob")
        return False

    migration.server.fail(500, matches=write)

    result = await migration.wave("next")

    assert 2 == result.exit_code
    assert "was changed since it was read" in result.stderr
    assert [] == migration.cluster.lines("kubectl drain hami-2 --ignore")
    assert "bob" == migration.record["who"]


async def test_without_a_namespace_the_message_names_it(migration: Migration) -> None:
    migration.server.fail(404, matches=lambda call: call.method == "POST" and _is_write(call))

    result = await migration.wave("next")

    assert 2 == result.exit_code
    assert f"there is no namespace {NAMESPACE}" in result.stderr


async def test_a_failed_step_ends_the_call_and_is_repeated(migration: Migration) -> None:
    result = await migration.wave("next", kill="12 before")

    assert 1 == result.exit_code
    assert "stopped: wave-1/switch.sh, step drain/hami-2, ended with status" in result.stderr
    assert "drawbridge wave next goes on with it" in result.stderr
    assert 0 == (await migration.wave("next")).exit_code
    # Its work is looked for again before the node is drained again.
    questions = migration.cluster.lines("drawbridge verify --live --node=hami-2 --before")
    assert 2 == len(questions)


async def test_an_interrupted_step_says_so_and_is_repeated(migration: Migration) -> None:
    result = await migration.wave("next", kill="8 interrupt")

    assert 130 == result.exit_code, result.stderr
    assert "ended with status 130; drawbridge wave next goes on with it" in result.stderr
    assert "begun" == migration.record["state"]
    assert 0 == (await migration.wave("next")).exit_code


async def test_a_restart_within_the_second_of_the_last_one_is_repeated(
    migration: Migration,
) -> None:
    """As after a call that was killed between the restart and its record."""
    (migration.cluster.state / "restarted").touch()

    result = await migration.wave("next", kill="restarts")

    assert 0 == result.exit_code, result.stderr
    (restart, pause, repeated) = migration.cluster.lines("kubectl rollout restart", "sleep")[:3]
    assert (restart, pause) == (repeated, "sleep 1")


async def test_a_wave_that_is_taken_back_is_finished_first(migration: Migration) -> None:
    await migration.wave("next")
    count = len(migration.cluster.lines("kubectl", "drawbridge"))
    await migration.wave("back", kill=f"{count + 4} before")

    result = await migration.wave("next")

    assert 2 == result.exit_code
    assert "wave 1 is being taken back: drawbridge wave back finishes that first" in result.stderr
    assert 0 == (await migration.wave("back")).exit_code
    assert 0 == (await migration.wave("next")).exit_code


async def test_what_was_not_begun_is_not_taken_back(migration: Migration) -> None:
    await migration.wave("next", stdin="y\ny\ny\ny\nn\n")
    assert ("uncordon/hami-2", "done") == (migration.record["step"], migration.record["state"])

    result = await migration.wave("back")

    assert 0 == result.exit_code, result.output
    calls = [call for call in migration.cluster.lines("kubectl") if "kubectl get " not in call]
    begin = calls.index("kubectl uncordon hami-2") + 1
    # Labels say which nodes a script has cordoned, and which it has given back.
    commands = [" ".join(call.split()[1:3]) for call in calls[begin : begin + 6]]
    assert ["uncordon hami-0", "cordon hami-2"] == [
        text for text in commands if text != "label node"
    ]
    assert not any("rollout restart" in call or "namespace/" in call for call in calls)
    assert "on" == migration.cluster.snapshot()["node.hami-2.gpu"]
    assert "node.hami-0.gpu" not in migration.cluster.snapshot()


# --- what the ConfigMap may say -------------------------------------------------------------------

HOSTILE: Final = "$(touch pwned)\n; kubectl delete node hami-0 #\x1b[31m"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"step": HOSTILE}, "the plan has no such step"),
        ({"node": HOSTILE}, "the plan has no such step"),
        ({"wave": "../../etc"}, "is not of drawbridge wave"),
        ({"digest": HOSTILE}, "is not of drawbridge wave"),
        ({"who": HOSTILE}, "another operator has the migration"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
async def test_nothing_that_is_run_comes_from_the_config_map(
    migration: Migration, data: dict[str, str], message: str
) -> None:
    await migration.wave("next", kill="12 before")
    before = migration.cluster.calls.read_text()
    migration.overwrite(**data)

    for action in ("next", "back", "status"):
        result = await migration.wave(action)

        assert action == "status" or 2 == result.exit_code
        assert action == "status" or message in result.output
        assert "\x1b" not in result.output
    assert before == migration.cluster.calls.read_text()
    assert [] == list(migration.plan.rglob("pwned*"))


async def test_keys_that_nobody_knows_and_times_change_nothing(migration: Migration) -> None:
    await migration.wave("next", kill="12 before")
    migration.overwrite(
        when=HOSTILE, script="/bin/sh", command="reboot", nodes="900", **{"a.b": "c"}
    )

    result = await migration.wave("next")

    assert 0 == result.exit_code, result.output
    assert "2 of 3 nodes" in result.stdout
    assert not any("reboot" in line for line in migration.cluster.lines("kubectl", "drawbridge"))


# --- calls ----------------------------------------------------------------------------------------


async def test_status_without_a_plan_tells_what_the_cluster_has(
    migration: Migration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "cluster")
    for count in (0, 1):
        result = await asyncio.to_thread(
            drawbridge, "wave", "status", "--kubeconfig", migration.kubeconfig, "-o", "json"
        )

        document = json.loads(result.stdout)
        assert "WaveReport" == document["kind"]
        assert (count == 1) == (document["record"] is not None)
        await migration.wave("next")


async def test_the_answer_is_a_document_on_demand(migration: Migration) -> None:
    result = await migration.wave("next", "-o", "json")

    document = json.loads(result.stdout)
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert "wave 1 of 2, 2 of 3 nodes, 2 of 2 workloads" == document["progress"]
    assert document["samePlan"]
    assert "wave-2/preflight.sh preflight" == document["next"][0]
    assert "wave-1/rollback.sh begin" == document["back"][0]


def _not_a_plan(plan: Path) -> None:
    (plan / "plan.yaml").unlink()


def _not_complete(plan: Path) -> None:
    text = (plan / "plan.yaml").read_text()
    (plan / "plan.yaml").write_text(text.replace("complete: true", "complete: false"))


def _without_steps(plan: Path) -> None:
    path = plan / "wave-1" / "switch.sh"
    path.write_text(path.read_text().replace("if step drain/hami-0; then", "if true; then"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_not_a_plan, "plan.yaml; drawbridge plan -o DIR writes one"),
        (_not_complete, "is not complete, since its making was interrupted: plan again"),
        (_without_steps, "switch.sh has no step drain/hami-0"),
    ],
)
async def test_a_folder_that_is_no_whole_plan_begins_nothing(
    migration: Migration, change: Callable[[Path], None], message: str
) -> None:
    change(migration.plan)

    result = await migration.wave("next")

    assert 2 == result.exit_code
    assert message in result.stderr
    assert "" == migration.cluster.calls.read_text()


async def test_status_takes_no_flag_that_changes_something(migration: Migration) -> None:
    result = await migration.wave("status", "--yes")

    assert 2 == result.exit_code
    assert "status changes nothing, and takes no --yes" in result.stderr


def test_a_command_that_outlives_its_call_is_waited_for(written_plan: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with locked_plan(written_plan):
            entered.set()

    # A kubectl that still runs has inherited the lock.
    with locked_plan(written_plan):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.3)
    other.join(60)
    assert entered.is_set()
