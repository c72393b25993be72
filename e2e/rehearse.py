"""`drawbridge rehearse`, from a checkout: runs the scripts of a plan on a control plane with simulated nodes.

`python -m e2e.rehearse FOLDER` reads `input.json` and the plan below FOLDER and writes `result.json` and
`history.jsonl` there. Progress goes to standard error. Nothing but the control plane that it starts is asked.
With `--until-input-ends` it stops all of that when its standard input ends, as it does when its parent is killed.
"""

import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from e2e.checker.check import check
from e2e.checker.rules import Allowance
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT, install_drawbridge, merged, rendered
from e2e.guarded import guarded_environment, printed_commands
from e2e.history_record import HistoryRecord
from e2e.processes import end_with_input
from e2e.rehearsal_load import create, missing_pods, pod_versions, without_vendors
from e2e.rehearsal_person import Person
from e2e.rehearsal_repository import Repository
from e2e.rehearsal_scripts import ScriptRunner, say
from e2e.rehearsal_vendors import RehearsedVendors
from migration.rehearsal.model import (
    RehearsalAnswer,
    RehearsalFinding,
    RehearsalInput,
    ScriptRun,
)

CONTEXT: Final = "drawbridge-e2e"
UNTIL_INPUT_ENDS: Final = "--until-input-ends"
SWITCH: Final = "switch.sh"
PHASES: Final = ("preflight.sh", SWITCH, "verify.sh")
JOB_TIMEOUT: Final = "--job-timeout=10m"
EVICT_JOBS: Final = "--evict-jobs=all"
PLACE_TIMEOUT_S: Final = 120.0
SETTLE_S: Final = 3.0
"""The time without changes before all pods count as there."""
_SETTINGS: Final = {"translation": {"mode": "OptIn"}, "controllers": {"auditPeriod": "10m"}}


def main() -> int:
    """Run the command line; return the exit status."""
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], [UNTIL_INPUT_ENDS]):
        print(f"usage: python -m e2e.rehearse FOLDER [{UNTIL_INPUT_ENDS}]", file=sys.stderr)
        return 2
    # What was started is stopped before we end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if sys.argv[2:]:
        end_with_input()
    folder = Path(sys.argv[1]).absolute()
    rehearsal = msgspec.json.decode((folder / "input.json").read_bytes(), type=RehearsalInput)
    try:
        answer = rehearse(rehearsal, folder)
    except (AssertionError, OSError) as error:
        say(str(error))
        return 1
    (folder / "result.json").write_bytes(msgspec.json.encode(answer))
    return 0


def rehearse(rehearsal: RehearsalInput, folder: Path) -> RehearsalAnswer:
    """Run every wave of a plan and return the observations.

    Args:
        rehearsal: The cluster.
        folder: The folder with the plan in `plan`; state and logs of the control plane are written below it.
    """
    say("starting a control plane")
    with Cluster(folder / "cluster") as cluster:
        overlay = ROOT / "manifests" / "overlays" / "opt-in"
        install_drawbridge(
            cluster, manifests=overlay, settings=merged(rehearsal.settings, _SETTINGS)
        )
        rejected = load(cluster, rehearsal)
        limit(cluster, rehearsal)
        rejected += missing_pods(cluster)
        own_pods = without_vendors(cluster.objects("pods"), rehearsal.objects)
        waiting = sum(not pod["spec"].get("nodeName") for pod in own_pods)
        pods = sum(pod["status"].get("phase") == "Running" for pod in own_pods)
        say(f"{len(rehearsal.nodes)} nodes, {pods} pods run, {waiting} wait")
        identify(cluster, rehearsal, folder / "plan")
        environment = guarded_environment(
            folder, cluster.kubeconfig, cluster.kubectl_binary, CONTEXT
        )
        person = Person(cluster, rehearsal)
        repository = Repository(cluster, folder / "plan")
        began = time.monotonic()
        with RehearsedVendors(cluster, rehearsal), HistoryRecord(cluster) as history:
            runner = ScriptRunner(folder / "plan", environment, cluster, repository)
            wave_ends = [*run_waves(rehearsal, runner, person, cluster)]
            scripts = tuple(runner.runs)
            settle(cluster)
            seconds = time.monotonic() - began
        history.write(folder / "history.jsonl")
        # Who evicts work knows that it is lost.
        allowance = Allowance(kills=("*",) if rehearsal.evict_jobs else ())
        findings = check(history.events(), allowance, [end - history.began_at for end in wave_ends])
    done = {run.script for run in scripts if run.status == 0}
    return RehearsalAnswer(
        waves=len(rehearsal.waves),
        waves_done=sum(f"wave-{entry.wave}/{PHASES[-1]}" in done for entry in rehearsal.waves),
        nodes=len(rehearsal.nodes),
        pods=pods,
        waiting_pods=waiting,
        seconds=round(seconds, 1),
        scripts=scripts,
        findings=tuple(
            RehearsalFinding(
                rule=entry.rule, at=round(entry.at, 1), object=entry.object, message=entry.text
            )
            for entry in findings
        ),
        not_rehearsed=(
            *rehearsal.left_out,
            *rejected,
            *waves_left(rehearsal, scripts),
            *(f"{command}: a chart of others" for command in printed_commands(folder)),
        ),
        by_hand=(*repository.done, *person.done),
    )


# --- the cluster ----------------------------------------------------------------------------------


def load(cluster: Cluster, rehearsal: RehearsalInput) -> list[str]:
    """Create the objects, and place pods on their former nodes; return a sentence about each object that is rejected."""
    rejected = [*create(cluster, rehearsal.objects)]
    cluster.add_nodes(node.document for node in rehearsal.nodes)
    rejected += create(cluster, (piece for node in rehearsal.nodes for piece in node.slices))
    for name in sorted({entry["metadata"]["namespace"] for entry in rehearsal.workloads}):
        cluster.wait_for("serviceaccounts", "default", name)
    # Whoever would place pods waits until they are where they were.
    cluster.children["kube-scheduler"].stop()
    rejected += create(cluster, rehearsal.workloads)
    vendors = RehearsedVendors(cluster, rehearsal)
    deadline = time.monotonic() + PLACE_TIMEOUT_S
    bound_at = time.monotonic()
    # Pods come one by one, and some of them are not placed here.
    while time.monotonic() < min(deadline, bound_at + SETTLE_S):
        if vendors.place_as_before():
            bound_at = time.monotonic()
        time.sleep(0.3)
    cluster.start_scheduler()
    settle(cluster)
    return rejected


def limit(cluster: Cluster, rehearsal: RehearsalInput) -> None:
    """Create the DeviceQuotas that count both sides, and the policies that hold pods back for them."""
    if rehearsal.device_quotas:
        cluster.apply(rendered(cluster, ROOT / "manifests" / "quota-gates"))
        cluster.apply(rehearsal.device_quotas)


def settle(cluster: Cluster) -> None:
    """Wait until no pod has changed for a while, or nothing more is to be expected."""
    deadline = time.monotonic() + PLACE_TIMEOUT_S
    before: object = None
    since = time.monotonic()
    while time.monotonic() < min(deadline, since + SETTLE_S):
        versions = pod_versions(cluster)
        if versions != before:
            before, since = versions, time.monotonic()
        time.sleep(0.3)


def identify(cluster: Cluster, rehearsal: RehearsalInput, plan: Path) -> None:
    """Write the identity of this cluster into a plan, in place of that of the original."""
    uid = cluster.get("namespaces", "kube-system")["metadata"]["uid"]
    names = {rehearsal.uid: uid, rehearsal.server: cluster.server}
    for path in (plan / "plan.yaml", plan / "cluster.sh"):
        text = path.read_text()
        for former, own in names.items():
            if former:  # A whole value: it may be as short as a word of the scripts.
                value = rf"(?m)((?:uid|server)(?:: |=)[\"']?){re.escape(former)}(?=[\"']?$)"
                text = re.sub(value, lambda match, own=own: f"{match[1]}{own}", text)  # type: ignore[misc]
        path.write_text(text)


# --- the scripts ----------------------------------------------------------------------------------


def run_waves(
    rehearsal: RehearsalInput, runner: ScriptRunner, person: Person, cluster: Cluster
) -> Iterator[float]:
    """Run the scripts of a plan in their order until one fails, with the manual steps between them.

    Yields the clock at the end of each wave, once all pods have settled.
    """
    is_done = runner.run("prepare.sh")
    for wave in rehearsal.waves:
        if not is_done:
            break
        person.prepare(wave)
        for phase in PHASES:
            arguments: tuple[str, ...] = ()
            if phase == SWITCH:
                arguments = (EVICT_JOBS if rehearsal.evict_jobs else JOB_TIMEOUT,)
            is_done = runner.run(f"wave-{wave.wave}/{phase}", arguments)
            if not is_done:
                break
            if phase == SWITCH:
                person.create_again(wave)
        else:
            person.finish(wave)
            settle(cluster)
            yield time.monotonic()


def waves_left(rehearsal: RehearsalInput, runs: Sequence[ScriptRun]) -> Iterator[str]:
    """Yield a sentence on each wave that was not begun, with the script that stopped before it."""
    begun = {run.script.partition("/")[0] for run in runs}
    for wave in rehearsal.waves:
        if f"wave-{wave.wave}" not in begun:
            yield f"wave {wave.wave}, since {runs[-1].script} stopped before it"


if __name__ == "__main__":
    sys.exit(main())
