"""`drawbridge rehearse`, from a checkout: runs the scripts of a plan on a control plane with simulated nodes.

`python -m e2e.rehearse FOLDER` reads `input.json` and the plan below FOLDER and writes `result.json` and
`history.jsonl` there. Progress goes to standard error. Nothing but the control plane that it starts is asked.
"""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from e2e.checker.check import check
from e2e.checker.rules import Allowance
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT, install_drawbridge, merged
from e2e.guarded import guarded_environment, printed_commands
from e2e.history_record import HistoryRecord
from e2e.rehearsal_vendors import RehearsedVendors
from migration.rehearsal.model import (
    RehearsalAnswer,
    RehearsalFinding,
    RehearsalInput,
    ScriptRun,
)

CONTEXT: Final = "drawbridge-e2e"
PHASES: Final = ("preflight.sh", "switch.sh", "verify.sh")
JOB_TIMEOUT: Final = "--job-timeout=10m"
SCRIPT_TIMEOUT_S: Final = 45 * 60
PLACE_TIMEOUT_S: Final = 120.0
SETTLE_S: Final = 3.0
"""How long nothing has to change before all pods count as there."""
TIMED_OUT: Final = 124
OUTPUT_LINES: Final = 30
_SETTINGS: Final = {"translation": {"mode": "OptIn"}, "controllers": {"auditPeriod": "10m"}}


def main() -> int:
    """Run the command line; return the exit status."""
    if len(sys.argv) != 2:
        print("usage: python -m e2e.rehearse FOLDER", file=sys.stderr)
        return 2
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
    """Run every wave of a plan and return what was seen.

    Args:
        rehearsal: The cluster.
        folder: With the plan in `plan`; state and logs of the control plane are written below it.
    """
    say("starting a control plane")
    with Cluster(folder / "cluster") as cluster:
        overlay = ROOT / "manifests" / "overlays" / "opt-in"
        install_drawbridge(
            cluster, manifests=overlay, settings=merged(rehearsal.settings, _SETTINGS)
        )
        waiting = load(cluster, rehearsal)
        pods = len(running_pods(cluster))
        say(f"{len(rehearsal.nodes)} nodes, {pods} pods run, {waiting} wait")
        identify(cluster, rehearsal, folder / "plan")
        environment = guarded_environment(
            folder, cluster.kubeconfig, cluster.kubectl_binary, CONTEXT
        )
        began = time.monotonic()
        with RehearsedVendors(cluster, rehearsal), HistoryRecord(cluster) as history:
            scripts = run_waves(rehearsal, folder / "plan", environment)
            settle(cluster)
            seconds = time.monotonic() - began
        history.write(folder / "history.jsonl")
        findings = check(history.events(), Allowance())
    done = {run.script for run in scripts if run.status == 0}
    return RehearsalAnswer(
        waves=len(rehearsal.waves),
        waves_done=sum(f"wave-{wave}/{PHASES[-1]}" in done for wave in rehearsal.waves),
        nodes=len(rehearsal.nodes),
        pods=pods,
        waiting_pods=waiting,
        seconds=round(seconds, 1),
        scripts=tuple(scripts),
        findings=tuple(
            RehearsalFinding(
                rule=entry.rule, at=round(entry.at, 1), object=entry.object, message=entry.text
            )
            for entry in findings
        ),
        not_rehearsed=(
            *rehearsal.left_out,
            *(f"{command}: a chart of others" for command in printed_commands(folder)),
        ),
    )


def say(words: str) -> None:
    """Tell a person how far it is."""
    print(f"rehearse: {words}", file=sys.stderr, flush=True)


# --- the cluster ----------------------------------------------------------------------------------


def load(cluster: Cluster, rehearsal: RehearsalInput) -> int:
    """Create the objects, and place pods where they were; return how many wait for a node."""
    cluster.apply(rehearsal.objects)
    cluster.add_nodes(node.document for node in rehearsal.nodes)
    cluster.apply(piece for node in rehearsal.nodes for piece in node.slices)
    for name in sorted({entry["metadata"]["namespace"] for entry in rehearsal.workloads}):
        cluster.wait_for("serviceaccounts", "default", name)
    # Whoever would place pods waits until they are where they were.
    cluster.children["kube-scheduler"].stop()
    cluster.apply(rehearsal.workloads)
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
    return sum(not pod["spec"].get("nodeName") for pod in cluster.objects("pods"))


def running_pods(cluster: Cluster) -> list[Mapping[str, Any]]:
    """Return the pods that run."""
    return [pod for pod in cluster.objects("pods") if pod["status"].get("phase") == "Running"]


def settle(cluster: Cluster) -> None:
    """Return when no pod has changed for a while, or nothing more is to be expected."""
    deadline = time.monotonic() + PLACE_TIMEOUT_S
    before: object = None
    since = time.monotonic()
    while time.monotonic() < min(deadline, since + SETTLE_S):
        versions = sorted(pod["metadata"]["resourceVersion"] for pod in cluster.objects("pods"))
        if versions != before:
            before, since = versions, time.monotonic()
        time.sleep(0.3)


def identify(cluster: Cluster, rehearsal: RehearsalInput, plan: Path) -> None:
    """Write the identity of this cluster into a plan in place of that which it is for."""
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
    rehearsal: RehearsalInput, plan: Path, environment: Mapping[str, str]
) -> list[ScriptRun]:
    """Run the scripts of a plan in their order until one fails."""
    scripts = [
        "prepare.sh",
        *(f"wave-{wave}/{phase}" for wave in rehearsal.waves for phase in PHASES),
    ]
    runs: list[ScriptRun] = []
    for script in scripts:
        arguments = (JOB_TIMEOUT,) if script.endswith("switch.sh") else ()
        runs.append(run_script(plan / script, arguments, environment, script))
        say(f"{script}: {runs[-1].seconds:.0f} s, exit status {runs[-1].status}")
        if runs[-1].status:
            break
    return runs


def run_script(
    path: Path, arguments: tuple[str, ...], environment: Mapping[str, str], name: str
) -> ScriptRun:
    """Run a script as a person would who has no terminal."""
    began = time.monotonic()
    try:
        result = subprocess.run(
            ["bash", path, *arguments],
            cwd=path.parent,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SCRIPT_TIMEOUT_S,
            check=False,
        )
        status, output = result.returncode, result.stdout
    except subprocess.TimeoutExpired as error:
        status, output = TIMED_OUT, str(error)
    path.with_suffix(".log").write_text(output)
    return ScriptRun(
        script=name,
        seconds=round(time.monotonic() - began, 1),
        status=status,
        output="\n".join(output.splitlines()[-OUTPUT_LINES:]) if status else "",
    )


if __name__ == "__main__":
    sys.exit(main())
