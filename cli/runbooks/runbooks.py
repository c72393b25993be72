"""The files of a plan: shell scripts that a person reads before they run them, and a page about them.

Every name in a script is quoted, and comments are on one line without control characters, so that no
name of a cluster becomes a command.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from cli.runbooks.daemon_set_runbook import plugin_lines
from cli.runbooks.driver_runbook import (
    driver_lines,
    held_lines,
    label_lines,
    upgraded_release,
)
from cli.runbooks.evicted_runbook import lasting_lines, planned_lines
from cli.runbooks.first_steps import HELD, first_step_lines
from cli.runbooks.mapping_runbook import mapping_lines, wide_mapping_lines
from cli.runbooks.markdown import inert
from cli.runbooks.opt_in_runbook import commit_lines, prepared_objects
from cli.runbooks.plan_text import evicted_again_lines, free_by_kind, losses_text, namespace_texts
from cli.runbooks.shell import CLUSTER_SCRIPT, cluster_script, command, comment, head, quoted
from cli.runbooks.wave_runbook import (
    annotation_lines,
    drained_lines,
    part_lines,
    rollback_parts,
    switch_parts,
    switch_script,
)
from cli.runbooks.work_texts import loss_lines, start_again_lines
from findings.text import count_text, join_names, printable, reference_text
from migration.legacy.plugin_vendors import NVIDIA
from migration.legacy.remaining import remaining_texts
from migration.plan.drivers.vendors import unmap_command
from migration.plan.facts.environment import in_repository, stopped_texts
from migration.plan.facts.kept_away import returning_texts
from migration.plan.model.lowered_quotas import lowered_quotas
from migration.plan.model.plan import Plan, Wave
from migration.plan.search.unmovable import CORDONED

SETTINGS: Final = "settings.yaml"
PROFILES: Final = "profiles"
_INPUT_FLAGS: Final = {SETTINGS: "--settings", PROFILES: "--profiles"}
"""Copied input of a plan to the flag that names it."""
PHASES: Final = ("preflight", "switch", "verify", "rollback")
WAVE_TIMEOUT: Final = "30m"
_MAX_NAMES: Final = 30
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
    if not plan.complete:
        names = ["prepare.sh"]
        names += [f"wave-{wave.wave}/{phase}.sh" for wave in plan.waves for phase in PHASES]
        return dict.fromkeys(names, _text(_refusal()))
    refusal = held_lines(plan)
    texts = {
        CLUSTER_SCRIPT: cluster_script(plan.cluster),
        "prepare.sh": _text(refusal or _prepare(plan)),
    }
    for wave in plan.waves:
        last = len(plan.waves)
        folder = f"wave-{wave.wave}"
        texts[f"{folder}/preflight.sh"] = _text(refusal or _preflight(wave, last, verify))
        texts[switch_script(wave)] = _text(refusal or _switch(plan, wave, last, verify))
        texts[f"{folder}/verify.sh"] = _text(_verify(plan, wave, verify, residue))
        texts[f"{folder}/rollback.sh"] = _text(_rollback(plan, wave, last))
    return texts


def _refusal() -> Iterator[str]:
    """Yield the script of a plan that is not complete."""
    yield "#!/usr/bin/env bash"
    yield "# The search for waves was interrupted, so nothing of this plan may be run."
    yield "echo 'this plan is not complete: its making was interrupted; plan again' >&2"
    yield "exit 1"


def _print(text: str, *paths: str) -> str:
    """Return a command that prints a line; for each %q in it a path, quoted if a shell needs it.

    A command that the line ends with is for the same context.
    """
    arguments = "".join(f' "{path}"' for path in paths)
    return f"\nsay_next '{text}%s\\n'{arguments} \"${{again:-}}\""


def _input_flags(inputs: Iterable[str]) -> list[tuple[str, str]]:
    """Return each flag that a plan's inputs need, with the name of its copy."""
    names = {path.partition("/")[0] for path in inputs}
    return [(flag, name) for name, flag in _INPUT_FLAGS.items() if name in names]


def readme(plan: Plan, inputs: Iterable[str] = ()) -> str:
    """Return the page beside the scripts.

    Args:
        plan: The plan.
        inputs: Input files below the folder, as for `scripts`.
    """
    lines = ["# Migration plan", "", *_readme_waves(plan, frozenset(inputs))]
    lines += annotation_lines(plan)
    lines += _readme_notes(plan)
    lines += _readme_quotas(plan)
    lines += map(inert, (*loss_lines(plan), *start_again_lines(plan)))
    if remaining := tuple(remaining_texts(plan.remaining)):
        lines += ["", "What translation.keep leaves with its device plugin:", ""]
        lines += [f"- {inert(text)}" for text in remaining]
    if plan.held:
        lines += ["", f"{HELD}:", ""]
        names: dict[tuple[str, str], list[str]] = {}
        for entry in plan.held:
            names.setdefault((entry.reason, entry.fix), []).append(reference_text(entry.object))
        lines += [
            f"- {inert(', '.join(objects))}: {inert(reason)}. Fix: {inert(fix)}"
            for (reason, fix), objects in names.items()
        ]
    return "\n".join(lines) + "\n"


def _readme_waves(plan: Plan, inputs: Collection[str]) -> Iterator[str]:
    if not plan.complete:
        yield "The search for waves was interrupted, so the plan is not complete, and its scripts refuse to run."
        yield "Plan again."
        return
    if not plan.waves and plan.held:
        yield "There is no wave, so there is nothing to run. Solve what is named below, then plan again."
        return
    if not plan.waves:
        yield "There is nothing to move. `drawbridge assess --residue` tells what is left of legacy systems."
        return
    yield f"{count_text(len(plan.waves), 'wave')}, from the state of the cluster at {inert(plan.cluster.taken_at) or 'one moment'}."
    yield ""
    if plan.cluster.uid:
        server = f", {inert(plan.cluster.server)}" if plan.cluster.server else ""
        server += f" (context {inert(plan.cluster.context)})" if plan.cluster.context else ""
        yield f"It is for the cluster whose namespace kube-system has the uid {inert(plan.cluster.uid)}{server}."
        yield "Every script stops at another one; `--context NAME` chooses a context of KUBECONFIG."
    else:
        yield "The snapshot does not tell which cluster it is of, so no script can stop at another one."
        yield "`--context NAME` chooses a context of KUBECONFIG."
    yield ""
    yield from first_step_lines(plan, SETTINGS if SETTINGS in inputs else "")
    yield ""
    yield from _readme_lasting(plan)
    yield "The scripts need bash 4.4 or later, which macOS does not have by itself, `kubectl`, and `drawbridge`."
    yield "Then, wave by wave: `preflight.sh`, `switch.sh`, `verify.sh`; `rollback.sh` takes a wave back."
    yield "Roll waves back in reverse order."
    yield from _readme_sittings(plan)
    yield "`drawbridge wave next` runs these scripts step by step, and remembers how far it is; `wave back` takes"
    yield "the last wave back."
    yield "A script that fails or is interrupted says at which command; run it again to go on."
    yield "Run by hand it waits for and drains nodes that are done once more; `drawbridge wave next` goes on where it was."
    yield "Until then a node that it drained stays cordoned."
    yield "Before a drain `switch.sh` and `rollback.sh` look for pods that would lose work, and ask; `--job-timeout DURATION`"
    yield "waits first for those that end by themselves, and `--evict-jobs NODE` evicts those of one node, of all with `all`."
    yield "A script cordons nodes of its own wave only: one with pods that end by themselves at its turn, with those of the same"
    yield "training, and the others together, before the first of them is drained. Nodes with pods that never end come last, so that"
    yield "no other node waits behind them."
    yield ""
    yield from _readme_columns(plan)
    yield ""
    yield "| wave | nodes | namespaces | workloads | leaving pods | evicted of them | free for keys | free for claims |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for wave in plan.waves:
        cells = (
            str(wave.wave),
            ", ".join(node.name for node in wave.nodes) or "-",
            ", ".join(namespace_texts(wave)) or "-",
            str(len(wave.workloads)),
            str(wave.moved_pods),
            str(wave.evicted_pods),
            f"{wave.free_for_keys.before}, then {wave.free_for_keys.after}",
            f"{wave.free_for_claims.before}, then {wave.free_for_claims.after}",
        )
        yield f"| {' | '.join(map(inert, cells))} |"
    yield from _readme_kinds(plan)


def _readme_columns(plan: Plan) -> Iterator[str]:
    """Yield the meaning of the columns of the waves."""
    yield "Free devices are those of device plugins, for pods with device keys, and those of DRA drivers, for pods"
    yield "with claims; pods whose resource names a DeviceClass maps use both. A node with pods whose devices are not known,"
    yield "since they would be rejected or nothing here translates them, takes no other pods, and counts in neither."
    yield from _readme_out_of_service(plan)
    yield ""
    yield losses_text(plan)
    yield ""
    yield "Workloads are those that get claims with a wave, and those with pods on its nodes that Kubernetes serves by their keys."
    yield "Those whose pods run to their end count, too, and these pods keep their keys: pods that are created later get claims."
    yield "`verify.sh` waits for others with evicted pods, too: `evictedWorkloads` in `plan.yaml`."
    yield "Leaving pods are those with devices on the nodes of a wave: evicted ones, and others that a script waits for or asks"
    yield "about, that a person deletes first, or that a DaemonSet creates again there. `plan.html` has their workloads."
    yield from evicted_again_lines(plan)


def _readme_out_of_service(plan: Plan) -> Iterator[str]:
    """Yield the nodes that take no pods, and the part of their devices."""
    cordoned = [
        entry.object.removeprefix("Node//") for entry in plan.held if entry.reason == CORDONED
    ]
    if names := [name for name in cordoned if name not in plan.unready_nodes]:
        nodes = f"the node{' is' if len(names) == 1 else 's are'}"
        yield f"Those of {inert(join_names(names, _MAX_NAMES))} count, too: no pod gets them while {nodes} cordoned."
    if plan.unready_nodes:
        nodes = f"the node{' is' if len(plan.unready_nodes) == 1 else 's are'}"
        yield f"Those of {inert(join_names(plan.unready_nodes, _MAX_NAMES))} do not count: {nodes} not ready."


def _readme_kinds(plan: Plan) -> Iterator[str]:
    """Yield the free devices of each kind of node; nothing for a cluster with one kind."""
    texts = [free_by_kind(wave) for wave in plan.waves]
    if not any(texts):
        return
    yield ""
    yield "Free devices by kind of node, of device plugins for keys and of DRA drivers for claims:"
    yield ""
    yield f"| wave | {' | '.join(map(inert, texts[0]))} |"
    yield f"| --- |{' --- |' * len(texts[0])}"
    for wave, kinds in zip(plan.waves, texts, strict=True):
        yield f"| {' | '.join(map(inert, (str(wave.wave), *kinds.values())))} |"


def _readme_lasting(plan: Plan) -> Iterator[str]:
    """Yield the remains of the preparation after the rollback of all waves."""
    yield "No script takes `prepare.sh` back: once all waves are taken back, drivers stay installed, on nodes with their label."
    for resource, name in plan.mapped_classes.items():
        nodes = f" ({inert(join_names(own))})" if (own := plan.class_nodes.get(name)) else ""
        yield f"DeviceClass {inert(name)} goes on mapping {inert(resource)}, so pods with it may use nodes of its driver{nodes}; if it did not"
        yield f"before, {'take that out of the repository' if in_repository(plan, 'DeviceClass', '', name) else f'this ends it: `{unmap_command(name)}`'}"
    for mapping in plan.wide_mappings:
        yield f"DeviceClass {inert(mapping.device_class)} maps {inert(mapping.resource)} no more."


def _readme_sittings(plan: Plan) -> Iterator[str]:
    """Yield the ranges of waves without a place to pause."""
    last = 0
    for wave in plan.waves:
        if wave.coupled_until <= last:
            continue
        first, end = wave.wave, wave.coupled_until
        while (further := max(entry.coupled_until for entry in plan.waves[first - 1 : end])) > end:
            end = further
        last = end
        yield f"Do waves {first} to {end} in one sitting: the notes say what is half done between them."


def _readme_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes of the waves, each once."""
    waves_of: dict[str, list[str]] = {}
    for wave in plan.waves:
        for note in wave.notes:
            waves_of.setdefault(note, []).append(str(wave.wave))
    if waves_of:
        yield ""
        yield "Notes:"
        yield ""
    for note, numbers in waves_of.items():
        yield f"- wave {', '.join(numbers)}: {inert(note)}"


def _readme_quotas(plan: Plan) -> Iterator[str]:
    """Yield the lines of quotas that a person lowers once a namespace has moved."""
    texts = [
        f"- after wave {wave.wave}: {inert(text)}"
        for wave in plan.waves
        for text in _lowered_lines(plan, wave)
    ]
    if texts:
        yield ""
        yield "Quotas with lines for keys and lines for claims. Together they allow more than before until a person lowers the"
        yield "former; claims alone may get less than pods with keys had. Lower none that a rollback may still need:"
        yield "`rollback.sh` raises none, and pods with keys are not created above it."
        yield ""
    yield from texts


def _lowered_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the lines of quotas for keys, with the way to lower them, for namespaces that have moved with a wave."""
    for quota in lowered_quotas(plan, wave):
        namespace, name, lines = quota.namespace, quota.lines.name, quota.lines.doubled
        patch = json.dumps({"spec": {"hard": dict.fromkeys(lines, "AMOUNT")}})
        words = ("kubectl", "patch", "resourcequota", name, f"--namespace={namespace}")
        way = command(*words, "--type=merge", f"--patch={patch}")
        is_there = in_repository(plan, "ResourceQuota", namespace, name)
        where = "in the repository" if is_there else f"with {way}"
        # Effects have several parts, so each is a sentence.
        effects = ". ".join(plan.quota_effects.get(quota.file, ()))
        yield (
            f"{quota.reference}: {effects}. The added lines count these claims, so lower {', '.join(lines)} to what still "
            f"counts in it once no rollback will follow (native pods, and those that no wave moves, go on to need it), {where}"
        )


def _prepare(plan: Plan) -> Iterator[str]:
    yield head(f"Once, before the first wave: {_effect(plan)}.", CLUSTER_SCRIPT)
    if any(wave.opted_in for wave in plan.waves):
        yield "# Stops unless the webhook is called: without it no pod would ever get claims."
        yield "drawbridge verify --live --webhook"
        yield ""
    for note in (*plan.early_rollouts, *stopped_texts(plan), *returning_texts(plan)):
        yield f"echo {quoted(f'note: {printable(note)}')}"
    yield from _stopped_preparation(plan)
    yield from label_lines(plan)
    # What a person installs comes first: nothing has changed when the script stops for it.
    for driver in sorted(plan.drivers, key=lambda driver: (driver == NVIDIA, driver)):
        yield from driver_lines(driver, plan.drivers[driver], plan)
    yield from commit_lines(plan, "prepare", prepared_objects(plan))
    for plugin in plan.plugins:
        yield from plugin_lines(plan, plugin)
    yield from wide_mapping_lines(plan)
    yield from mapping_lines(plan)
    if plan.waves:
        yield _print("prepared; next: %q", "$here/wave-1/preflight.sh")
    else:
        yield _print("prepared; next: see %q", "$here/README.md")


def _stopped_preparation(plan: Plan) -> Iterator[str]:
    """Yield the lines that stop before the next pods of a namespace would be rejected, unless somebody says otherwise."""
    stops = [entry for entry in plan.held if entry.stops_preparation]
    for entry in stops:
        text = f"{reference_text(entry.object)}: {entry.reason}; {entry.fix}, and plan again from a new snapshot"
        yield f"echo {quoted(f'held: {printable(text)}')} >&2"
    if stops:
        yield "ask 'Prepare all the same, or abort (p/a)?'"
        yield 'case "$answer" in p*) ;; *) exit 1 ;; esac'


def _effect(plan: Plan) -> str:
    """Return the effect of the preparation on pods that run."""
    restarts_driver = upgraded_release(plan) is not None and NVIDIA in plan.driver_nodes
    restarted = [
        *(["the DRA driver"] if restarts_driver else []),
        *(["device plugins"] if plan.plugins else []),
    ]
    if not restarted:
        return "it changes nothing for any pod that runs"
    return (
        f"it restarts pods of {' and '.join(restarted)}, and changes nothing for pods with devices"
    )


def _preflight(wave: Wave, last: int, verify: str) -> Iterator[str]:
    yield head(f"Wave {wave.wave} of {last}, before it: checks, and changes nothing.")
    # They come before the checks, since one says why a check stops the script.
    for note in wave.notes:
        yield f"echo {quoted(f'note: {printable(note)}')}"
    if wave.wave > 1:
        yield f'\n{verify} --wave "$here/../wave-{wave.wave - 1}"'
    yield f'{verify} --wave "$here" --before'
    if wave.nodes:
        yield "# --force: the check before has told of pods without a controller, those that came since the plan was made, too."
    nodes_of: dict[str, list[str]] = {}
    for node in wave.nodes:
        nodes_of.setdefault(node.drain_selector, []).append(node.name)
    for selector, names in nodes_of.items():
        yield command(
            *("kubectl", "drain", *names, "--dry-run=server"),
            *("--ignore-daemonsets", "--delete-emptydir-data", "--force"),
            *([f"--pod-selector={selector}"] if selector else []),
            "--timeout=5m",
        )
    yield _print(f"wave {wave.wave} may begin: %q", "$here/switch.sh")


def _switch(plan: Plan, wave: Wave, last: int, verify: str) -> Iterator[str]:
    nodes = f"{count_text(len(wave.nodes), 'node')} to DRA"
    namespaces = count_text(len(wave.opted_in), "namespace")
    parts = [*([nodes] if wave.nodes else []), *([namespaces] if wave.opted_in else [])]
    yield head(f"Wave {wave.wave} of {last}: {', then '.join(parts)}.")
    yield from (comment(f"Note: {note}") for note in wave.notes)
    yield from drained_lines(wave, is_switch=True)
    yield from part_lines(switch_parts(plan, wave, verify))
    yield _print(f"wave {wave.wave} is switched; next: %q", "$here/verify.sh")


def _rollback(plan: Plan, wave: Wave, last: int) -> Iterator[str]:
    yield head(f"Wave {wave.wave} of {last}, taken back. Later waves are taken back first.")
    yield from (comment(f"Note: {note}") for note in wave.notes)
    yield from drained_lines(wave, is_switch=False)
    yield from lasting_lines(plan, wave)
    yield from planned_lines(plan, wave)
    yield from part_lines(rollback_parts(plan, wave))
    yield _print(f"wave {wave.wave} is taken back; to move it again: %q", "$here/preflight.sh")


def _verify(plan: Plan, wave: Wave, verify: str, residue: str) -> Iterator[str]:
    last = len(plan.waves)
    yield head(f"Wave {wave.wave} of {last}, after it: checks, and changes nothing.")
    yield f'{verify} --wave "$here" --wait={WAVE_TIMEOUT}'
    yield from (f"echo {quoted(f'by hand: {text}')}" for text in _lowered_lines(plan, wave))
    yield verify
    if wave.wave == last:
        yield residue
    else:
        following = f"{_FOLDER}/wave-{wave.wave + 1}/preflight.sh"
        yield _print(f"wave {wave.wave} is done; next: %q", following)


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
        inputs: Input files below the folder, as for `scripts`.
    """
    return {
        "plan.yaml": document,
        "README.md": readme(plan, inputs),
        **scripts(plan, inputs),
        **{f"quotas/{name}": text for name, text in quotas.items()},
    }
