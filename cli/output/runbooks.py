"""The files of a plan: shell scripts that a person reads before they run them, and a page about them.

Every name in a script is quoted, and comments are on one line without control characters, so that no
name of a cluster becomes a command.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cli.answers.assessment.node_devices import Source
from cli.answers.plan.driver_release import CHART, CHART_VERSION, FORMER_CHART
from cli.answers.plan.model import DriverRelease, Plan, PlannedNode, PluginDaemonSet, Wave
from cli.answers.plan.vendors import NVIDIA, NVIDIA_LABEL
from findings.text import count_text, printable, reference_text
from kube.names import TRANSLATE_LABEL

SETTINGS: Final = "settings.yaml"
PROFILES: Final = "profiles"
_INPUT_FLAGS: Final = {SETTINGS: "--settings", PROFILES: "--profiles"}
"""Copied input of a plan to the flag that names it."""
PHASES: Final = ("preflight", "switch", "verify", "rollback")
KOORDINATOR_DEVICES: Final = "devices.scheduling.koordinator.sh"
DRIVER_ROOT: Final = "/run/nvidia/driver"
DRAIN_TIMEOUT: Final = "30m"
NODE_TIMEOUT: Final = "10m"
WAVE_TIMEOUT: Final = "30m"
_RESTARTED: Final = {
    "Deployment": "deployment",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}
"""Kinds whose pods `kubectl rollout restart` creates again."""
_HEAD: Final = """\
#!/usr/bin/env bash
# {title}
# Read it before you run it. It stops at the first command that fails, and may be run again.
set -euo pipefail
stopped() {{
  printf '%s\\n' "stopped at: $1" "What comes after it in this script was not done." >&2
  printf 'Each command may be repeated; to go on, run again: %q\\n' "$0" >&2
}}
trap 'stopped "$BASH_COMMAND"' ERR
trap 'stopped "$BASH_COMMAND"; exit 130' INT
here="$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" && pwd)"
"""


_FOLDER: Final = '$(dirname -- "$here")'
"""The plan's folder, in the scripts of a wave."""


def scripts(plan: Plan, inputs: Iterable[str] = ()) -> dict[str, str]:
    """Return path below the plan's folder to text, for every script.

    Args:
        plan: The plan.
        inputs: Files below the folder that say how the cluster is translated.
    """
    flags = _input_flags(inputs)
    verify = "drawbridge verify --live" + "".join(
        f' {flag} "$here/../{name}"' for flag, name in flags
    )
    copies = "".join(f" {flag} %q" for flag, _ in flags)
    residue = _print(
        f"wave {len(plan.waves)} is done; next: drawbridge assess --live{copies} --residue",
        *(f"{_FOLDER}/{name}" for _, name in flags),
    )
    texts = {"prepare.sh": _text(_prepare(plan))}
    for wave in plan.waves:
        last = len(plan.waves)
        folder = f"wave-{wave.wave}"
        texts[f"{folder}/preflight.sh"] = _text(_preflight(plan, wave, last, verify))
        texts[f"{folder}/switch.sh"] = _text(_switch(plan, wave, last, verify))
        texts[f"{folder}/verify.sh"] = _text(_verify(wave, last, verify, residue))
        texts[f"{folder}/rollback.sh"] = _text(_rollback(wave, last))
    return texts


def _print(text: str, *paths: str) -> str:
    """Return a command that prints a line; for each %q in it a path, quoted where a shell needs it."""
    arguments = "".join(f' "{path}"' for path in paths)
    return f"\nprintf '{text}\\n'{arguments}"


def _input_flags(inputs: Iterable[str]) -> list[tuple[str, str]]:
    """Return each flag that a plan's inputs need, with the name of its copy."""
    names = {path.partition("/")[0] for path in inputs}
    return [(flag, name) for name, flag in _INPUT_FLAGS.items() if name in names]


def readme(plan: Plan) -> str:
    """Return the page beside the scripts."""
    lines = ["# Migration plan", "", *_readme_waves(plan)]
    if plan.held:
        lines += ["", "Not part of any wave:", ""]
        lines += [
            f"- {_cell(reference_text(entry.object))}: {_cell(entry.reason)}. Fix: {_cell(entry.fix)}"
            for entry in plan.held
        ]
    return "\n".join(lines) + "\n"


def _readme_waves(plan: Plan) -> Iterator[str]:
    if not plan.waves and plan.held:
        yield "There is no wave, so there is nothing to run. Solve what is named below, then plan again."
        return
    if not plan.waves:
        yield "There is nothing to move. `drawbridge assess --residue` tells what is left of legacy systems."
        return
    yield f"{count_text(len(plan.waves), 'wave')}, from the state of the cluster at one moment."
    yield "CPU and memory are not modelled: see that pods which move find them."
    yield ""
    yield "Before the first wave run `prepare.sh`, which installs drivers that wait for their node label."
    yield "Then, wave by wave: `preflight.sh`, `switch.sh`, `verify.sh`; `rollback.sh` takes a wave back."
    yield "Roll waves back in reverse order."
    yield "A script that fails or is interrupted says at which command; run it again to go on."
    yield "Until then a node that it drained stays cordoned."
    yield ""
    yield "| wave | nodes | namespaces | workloads | pods that move | free devices |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for wave in plan.waves:
        cells = (
            str(wave.wave),
            ", ".join(node.name for node in wave.nodes) or "-",
            ", ".join(wave.namespaces) or "-",
            str(len(wave.workloads)),
            str(wave.moved_pods),
            f"{wave.free_before}, then {wave.free_after}",
        )
        yield f"| {' | '.join(map(_cell, cells))} |"


def _prepare(plan: Plan) -> Iterator[str]:
    yield _HEAD.format(title="Once, before the first wave: it changes nothing for any pod.")
    yield "# Cluster: the labels that choose nodes for DRA drivers are on no node yet."
    for driver, label in plan.drivers.items():
        yield from _driver_lines(driver, label, plan)
    for plugin in plan.plugins:
        yield from _plugin_lines(plugin)
    for resource, name in plan.mapped_classes.items():
        patch = json.dumps({"spec": {"extendedResourceName": resource}})
        yield _comment(
            f"Pods with {resource} are served by Kubernetes itself, on nodes with the plugin and with the driver."
        )
        yield _command(
            *("kubectl", "patch", "deviceclass", name, "--type=merge", f"--patch={patch}")
        )
    by_hand = [f"{driver} ({label})" for driver, label in plan.drivers.items() if driver != NVIDIA]
    if by_hand:
        names = _quoted(f"by hand, as the comments say: install {', '.join(by_hand)}")
        yield f"\necho {names}"
    if plan.waves:
        yield _print("prepared; next: %q", "$here/wave-1/preflight.sh")
    else:
        yield _print("prepared; next: see %q", "$here/README.md")


def _driver_lines(driver: str, label: str, plan: Plan) -> Iterator[str]:
    key, _, value = label.partition("=")
    yield ""
    if driver != NVIDIA:
        yield _comment(f"{driver}: install its chart so that its DaemonSet has the node selector")
        yield _comment(f"  {label}")
        return
    yield _comment(
        f"{driver}: the chart refuses GPUs without the override, since the driver must not share"
    )
    yield "# a node with the device plugin; the node selector keeps them apart."
    operator, release = plan.gpu_operator, plan.driver_release
    # A release has the root of its nodes already, which need not be the Operator's.
    sets_root = bool(operator) and release is None
    if operator:
        yield _comment(
            f"GPU Operator {operator}: ClusterPolicy and GPUCluster exclude each other, and a migration in"
        )
        yield "# place is not supported, so the driver's own chart is used. For its driver manager to evict the"
        yield f"# DRA driver, set in ClusterPolicy spec.driver.manager.env: NODE_LABEL_FOR_GPU_POD_EVICTION={NVIDIA_LABEL}"
    if sets_root:
        yield f"# {DRIVER_ROOT} is where the Operator's driver container has the libraries. If your nodes have the"
        yield "# GPU driver in their image (driver.enabled=false), remove nvidiaDriverRoot."
    yield from _release_notes(release)
    yield _command(
        *(_install() if release is None else _upgrade(release)),
        "--set=resources.gpus.enabled=true",
        "--set=gpuResourcesEnabledOverride=true",
        *((f"--set=nvidiaDriverRoot={DRIVER_ROOT}",) if sets_root else ()),
        f"--set-string=kubeletPlugin.nodeSelector.{key.replace('.', chr(92) + '.')}={value}",
    )


def _release_notes(release: DriverRelease | None) -> Iterator[str]:
    if release is None:
        yield f"# The chart is called {CHART} from 0.4.0 on, and {FORMER_CHART} up to 25.12.0."
        yield "# `nvidia` is the chart repository that the driver's installation guide adds."
        return
    yield _comment(
        f"Release {release.name} has the driver already, of chart {release.chart} {release.version}. It keeps both: a second"
    )
    yield "# release would put two drivers on a node."
    if release.chart == FORMER_CHART:
        yield f"# From 0.4.0 on the chart is called {CHART}. To go there is an upgrade of its own, before or after"
        yield f"# the migration: with nameOverride={FORMER_CHART}, with new CRDs, and without a way back."
    if not release.waits_for_label:
        yield "# BEWARE: its DaemonSet leaves the nodes without the label. Where they prepare ComputeDomains today, no"
        yield "# new pod of a ComputeDomain starts there until they are switched."


def _install() -> tuple[str, ...]:
    """Return the command for a new release."""
    return (
        *("helm", "upgrade", "--install", CHART, f"nvidia/{CHART}", f"--namespace={CHART}"),
        *("--create-namespace", f"--version={CHART_VERSION}"),
    )


def _upgrade(release: DriverRelease) -> tuple[str, ...]:
    """Return the command that changes values of a release, and nothing else."""
    return (
        *("helm", "upgrade", release.name, f"nvidia/{release.chart}"),
        *(f"--namespace={release.namespace}", f"--version={release.version}", "--reuse-values"),
    )


def _plugin_lines(plugin: PluginDaemonSet) -> Iterator[str]:
    required = {"nodeSelectorTerms": list(plugin.node_selector_terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    patch = json.dumps({"spec": {"template": {"spec": {"affinity": affinity}}}}, sort_keys=True)
    yield ""
    yield _comment(
        f"The device plugin stays away from nodes with {NVIDIA_LABEL}=true. If a chart owns it, set the same"
    )
    yield "# affinity in its values, or the next upgrade takes it back."
    yield _command(
        *("kubectl", "patch", "daemonset", plugin.name, f"--namespace={plugin.namespace}"),
        *("--type=merge", f"--patch={patch}"),
    )


def _preflight(plan: Plan, wave: Wave, last: int, verify: str) -> Iterator[str]:
    yield _HEAD.format(title=f"Wave {wave.wave} of {last}, before it: checks, and changes nothing.")
    for note in wave.notes:
        yield _comment(f"Note: {note}")
    if wave.wave > 1:
        yield f'\n{verify} --wave "$here/../wave-{wave.wave - 1}"'
    for file in _quota_files(plan, wave):
        yield f'kubectl apply --dry-run=server --filename="$here/../quotas/"{_quoted(file)}'
    if wave.nodes:
        yield _command(
            *("kubectl", "drain", *(node.name for node in wave.nodes), "--dry-run=server"),
            *("--ignore-daemonsets", "--delete-emptydir-data"),
        )
    yield f'{verify} --wave "$here" --before'
    yield _print(f"wave {wave.wave} may begin: %q", "$here/switch.sh")


def _switch(plan: Plan, wave: Wave, last: int, verify: str) -> Iterator[str]:
    what = f"{count_text(len(wave.nodes), 'node')} to DRA, then {count_text(len(wave.namespaces), 'namespace')}"
    yield _HEAD.format(title=f"Wave {wave.wave} of {last}: {what}.")
    for note in wave.notes:
        yield _comment(f"Note: {note}")
    files = _quota_files(plan, wave)
    if files:
        yield "\n# Quotas count claims beside device keys, so the limits hold for both."
    for file in files:
        yield f'kubectl apply --filename="$here/../quotas/"{_quoted(file)}'
    if wave.nodes:
        yield "\n# All at once, so that no pod moves to a node that is drained next; all of them were simulated."
        yield _command("kubectl", "cordon", *(node.name for node in wave.nodes))
    for node in wave.nodes:
        labels = [f"{label}={value}" for label, value in node.labels.items()]
        yield from _node_lines(node, labels, verify)
    if wave.namespaces:
        yield "\n# New pods of these namespaces get claims; pods that run stay as they are."
    for namespace in wave.namespaces:
        yield _command(
            *("kubectl", "label", "namespace", namespace, f"{TRANSLATE_LABEL}=true", "--overwrite")
        )
    yield from _restarts(wave)
    yield from _recreations(wave)
    yield _print(f"wave {wave.wave} is switched; next: %q", "$here/verify.sh")


def _verify(wave: Wave, last: int, verify: str, residue: str) -> Iterator[str]:
    yield _HEAD.format(title=f"Wave {wave.wave} of {last}, after it: checks, and changes nothing.")
    yield f'{verify} --wave "$here" --wait={WAVE_TIMEOUT}'
    yield "drawbridge verify --live"
    if wave.wave == last:
        yield residue
    else:
        following = f"{_FOLDER}/wave-{wave.wave + 1}/preflight.sh"
        yield _print(f"wave {wave.wave} is done; next: %q", following)


def _rollback(wave: Wave, last: int) -> Iterator[str]:
    yield _HEAD.format(
        title=f"Wave {wave.wave} of {last}, taken back. Later waves are taken back first."
    )
    if wave.namespaces:
        yield "\n# New pods of these namespaces keep their device keys; quotas count both, and stay."
    for namespace in wave.namespaces:
        yield _command("kubectl", "label", "namespace", namespace, f"{TRANSLATE_LABEL}-")
    # Such a pod has claims, so it runs on a node that is drained next.
    yield from _recreations(wave)
    for node in reversed(wave.nodes):
        labels = [
            f"{label}-" if former is None else f"{label}={former}"
            for label, former in node.former_labels.items()
        ]
        yield from _node_lines(node, labels)
    yield from _restarts(wave)
    yield _print(f"wave {wave.wave} is taken back; to move it again: %q", "$here/preflight.sh")


def _node_lines(node: PlannedNode, labels: Sequence[str], verify: str = "") -> Iterator[str]:
    """Yield the commands for one node: drain, labels, wait for its devices, uncordon.

    Args:
        labels: As `kubectl label` takes them.
        verify: The command that waits for DRA devices; without it those of the device plugin are.
    """
    yield _comment(
        f"{node.name}: {node.source}, {count_text(sum(node.devices.values()), 'device')}", 1
    )
    yield "# --delete-emptydir-data: what pods keep in emptyDir volumes is lost when they leave."
    yield _command(
        *("kubectl", "drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data"),
        f"--timeout={DRAIN_TIMEOUT}",
    )
    yield _command("kubectl", "label", "node", node.name, "--overwrite", *labels)
    if verify:
        expected = sum(node.devices.values())
        flags = (f"--node={node.name}", f"--expect-devices={expected}", f"--wait={NODE_TIMEOUT}")
        yield f"{verify} {_command(*flags)}"
        if node.source == Source.KOORDINATOR:
            yield "# koordlet has left the node with its label; what it registered would stay, and be allocated."
            yield _command(
                *("kubectl", "delete", KOORDINATOR_DEVICES, node.name, "--ignore-not-found")
            )
    else:
        for resource, amount in node.resources.items():
            escaped = resource.replace(".", r"\.")
            yield _command(
                *("kubectl", "wait", f"node/{node.name}", f"--timeout={NODE_TIMEOUT}"),
                f"--for=jsonpath={{.status.allocatable.{escaped}}}={amount}",
            )
    yield _command("kubectl", "uncordon", node.name)


def _restarts(wave: Wave) -> Iterator[str]:
    """Yield the commands that create pods again."""
    translated = [workload for workload in wave.workloads if workload.is_translated]
    if translated:
        yield "\n# Only workloads whose pods change are restarted; Jobs run out, CronJobs change with their next run."
    targets: dict[str, list[str]] = {}
    for workload in translated:
        kind, namespace, name = workload.object.split("/", 2)
        if kind in _RESTARTED:
            targets.setdefault(namespace, []).append(f"{_RESTARTED[kind]}/{name}")
    for namespace, names in targets.items():
        command = ("kubectl", "rollout", "restart", f"--namespace={namespace}")
        yield " \\\n  ".join((_command(*command), *map(_quoted, names)))


def _recreations(wave: Wave) -> Iterator[str]:
    """Yield commands that name the pods that no command creates again."""
    for workload in wave.workloads:
        if workload.is_translated and workload.object.startswith("Pod/"):
            text = (
                f"by hand: delete {reference_text(workload.object)}, and apply its manifest again"
            )
            yield f"echo {_quoted(text)}"


def _quota_files(plan: Plan, wave: Wave) -> list[str]:
    return [file for namespace in wave.namespaces for file in plan.quotas.get(namespace, ())]


def _command(*words: str) -> str:
    return shlex.join(printable(word) for word in words)


def _quoted(word: str) -> str:
    return shlex.quote(printable(word))


def _comment(text: str, blank_lines: int = 0) -> str:
    return "\n" * blank_lines + f"# {printable(text)}"


def _cell(text: str) -> str:
    """Return foreign text for a page, in which it is neither markup nor the end of a cell."""
    marks = {"|": "\\|", "<": "&lt;", ">": "&gt;", "`": "'", "[": "\\["}
    return "".join(marks.get(char, char) for char in printable(text))


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip("\n") if "\n" in line else line for line in lines) + "\n"


def folder_files(
    plan: Plan, document: str, quotas: Mapping[str, str], inputs: Iterable[str] = ()
) -> dict[str, str]:
    """Return path below the plan's folder to text, for every file but the inputs.

    Args:
        plan: The plan.
        document: The text of `plan.yaml`.
        quotas: File name to text.
        inputs: As of `scripts`.
    """
    return {
        "plan.yaml": document,
        "README.md": readme(plan),
        **scripts(plan, inputs),
        **{f"quotas/{name}": text for name, text in quotas.items()},
    }
