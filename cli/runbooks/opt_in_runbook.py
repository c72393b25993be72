"""The commands of a runbook that opt in namespaces, or workloads of them, and those that take it back. Pure.

With the format kustomize a repository changes these objects, so a script waits for it, or stops.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from cli.runbooks.object_changes import (
    change_command,
    change_comment,
    change_lines,
    label_change,
    template_label_change,
)
from cli.runbooks.shell import command, comment, quoted
from findings.text import reference_text
from kube.api.workloads import DAEMON_SET
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.plan.facts.environment import in_repository, remapped_classes
from migration.plan.facts.repository_patches import (
    commit_text,
    patch_place,
    patched_namespaces,
    template_step,
    wave_step,
)
from migration.plan.model.plan import Plan, PlannedWorkload, Wave

COMMIT_TIMEOUT: Final = "1h"
TRANSLATED_TIMEOUT: Final = "1m"
"""The time for which a label may be on its way to the API servers and to the webhook."""
ROLLED_OUT: Final = {
    "Deployment": "deployment",
    "StatefulSet": "statefulset",
    "DaemonSet": "daemonset",
}
"""Kinds that have rollouts, as kubectl calls them."""
_TEMPLATE: Final = "# A new template is a rollout, which creates the pods again."
_OPT_IN: Final = template_label_change(None, "true")
_OPT_OUT: Final = template_label_change("true", None)
_PATH: Final = f".metadata.labels.{TRANSLATE_LABEL.replace('.', chr(92) + '.')}"
"""The path of the label in a namespace or in a template, as a JSONPath of kubectl."""


def opt_in_lines(plan: Plan, wave: Wave, verify: str) -> Iterator[str]:
    """Yield the commands that set labels, or that wait until a repository has.

    Args:
        plan: The plan.
        wave: One of its waves.
        verify: The command that asks the cluster, with the flags of the plan's inputs.
    """
    if wave.kai_namespaces:
        yield "# KAI starts no share without its webhook, and with it no pod gets a claim."
        yield command("check_kai", "leaves", *wave.kai_namespaces)
    if wave.namespaces:
        yield "\n# These namespaces are opted in; pods that run stay as they are."
    namespaces = (f"Namespace//{name}" for name in patched_namespaces(wave))
    yield from commit_lines(plan, wave_step(wave.wave), _of_repository(plan, namespaces))
    for namespace in wave.namespaces:
        yield from _label(plan, wave, namespace, "true")
    if wave.partial_namespaces:
        yield "\n# Of these namespaces only pods with the label of their own are opted in."
    for entry in wave.partial_namespaces:
        yield from _label(plan, wave, entry.namespace, TRANSLATE_SELECTED)
    if any(workload.is_translated for workload in wave.workloads):
        yield "\n# Stops before any pod is created again, unless new ones of these namespaces get claims."
        yield f'{verify} --webhook --wave "$here" --wait={TRANSLATED_TIMEOUT}'
    yield from _labelled_template_lines(plan, wave)


def opt_out_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the commands that take labels back, or that stop until a repository has."""
    patched = patched_namespaces(wave)
    for namespace in wave.opted_in:
        was_selective = namespace in wave.formerly_selective
        if not in_repository(plan, "Namespace", "", namespace):
            value = "true" if namespace in wave.namespaces else TRANSLATE_SELECTED
            change = label_change(value, wave.former_labels.get(namespace))
            *comments, change_back = change_lines(f"namespace/{namespace}", "", [change])
            yield from comments
            yield f"{command('is_opted_out', namespace)} || {change_back}"
            continue
        if namespace not in patched:
            continue
        label = "=true" if was_selective else f",{TRANSLATE_LABEL}!=false"
        label = f"{TRANSLATE_LABEL}{label}"
        selector = f"--selector=kubernetes.io/metadata.name={namespace},{label}"
        words = command("kubectl", "get", "namespaces", selector, "--output=name")
        place = patch_place(plan, wave_step(wave.wave), f"Namespace//{namespace}")
        yield from _stop(words, namespace, place)
    if wave.kai_namespaces:
        yield "# Pods with shares of KAI start again only with its webhook, so it takes them before any is created."
        yield command("check_kai", "takes", *wave.kai_namespaces)
    # Without the label on its template a workload gets pods with device keys, wherever its nodes are.
    templates = list(_templates(wave))
    if templates:
        yield f"\n{_TEMPLATE}"
    for workload, target, namespace in templates:
        if workload.losses:
            yield restart_comment(workload)
        if in_repository(plan, *workload.object.split("/", 2)):
            output = f"--output=jsonpath={{.spec.template{_PATH}}}"
            flags = (f"--namespace={namespace}", "--ignore-not-found", output)
            words = command("kubectl", "get", target, *flags)
            place = patch_place(plan, template_step(wave.wave), workload.object)
            yield from _stop(words, target, place)
        else:
            yield change_comment(target, [_OPT_OUT])
            yield from _change_lines(workload, change_command(target, namespace, [_OPT_OUT]))


def _labelled_template_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the commands that set the label of templates, or that wait until a repository has."""
    templates = list(_templates(wave))
    if templates:
        yield f"\n{_TEMPLATE}"
    # A commit of these begins rollouts, so it is no part of that of the namespaces.
    objects = _of_repository(plan, (workload.object for workload, *_ in templates))
    yield from commit_lines(plan, template_step(wave.wave), objects)
    for workload, target, namespace in templates:
        if workload.losses:
            yield restart_comment(workload)
        if in_repository(plan, *workload.object.split("/", 2)):
            wait = command(
                *("kubectl", "wait", target, f"--namespace={namespace}"),
                f"--timeout={COMMIT_TIMEOUT}",
                f"--for=jsonpath={{.spec.template{_PATH}}}=true",
            )
            yield f"{command('is_gone', target, namespace)} || {wait}"
        else:
            yield change_comment(target, [_OPT_IN])
            change = change_command(target, namespace, [_OPT_IN])
            yield from _change_lines(workload, tolerant(workload, change))


def restart_comment(workload: PlannedWorkload) -> str:
    """Return a comment on the losses of a workload's pods when they are created again."""
    return comment(f"{reference_text(workload.object)}: {'; '.join(workload.losses)}")


def tolerant(workload: PlannedWorkload, change: str) -> str:
    """Return the command of a change that gives pods claims; a script goes on if it is rejected and no pod of them ran."""
    if not workload.has_waited:
        return change
    return f"{change} || leave_idle {quoted(reference_text(workload.object))}"


def asked_lines(workload: PlannedWorkload, restart: str) -> Iterator[str]:
    """Yield a command that creates pods again; a person decides if these ask not to be evicted."""
    if workload.asks:
        yield f"if may_restart {quoted(reference_text(workload.object))}; then {restart}; fi"
    else:
        yield restart


def _change_lines(workload: PlannedWorkload, change: str) -> Iterator[str]:
    """Yield the change of a template, a rollout unless the pods are deleted afterwards."""
    return iter([change]) if workload.on_delete else asked_lines(workload, change)


def _of_repository(plan: Plan, objects: Iterable[str]) -> list[str]:
    """Return the objects, as `Kind/namespace/name`, that a repository changes."""
    return [name for name in objects if in_repository(plan, *name.split("/", 2))]


def prepared_objects(plan: Plan) -> list[str]:
    """Return the objects, as `Kind/namespace/name`, that a repository changes before the first wave; quotas are there then, too."""
    objects = [
        *(f"{DAEMON_SET}/{plugin.namespace}/{plugin.name}" for plugin in plan.plugins),
        *(f"DeviceClass//{name}" for name in sorted(remapped_classes(plan))),
        *(
            f"ResourceQuota/{namespace}/{file.removeprefix(f'{namespace}.').removesuffix('.yaml')}"
            for namespace, files in plan.quotas.items()
            for file in files
        ),
    ]
    return _of_repository(plan, objects)


def commit_lines(plan: Plan, step: str, objects: Iterable[str]) -> Iterator[str]:
    """Yield the commands that ask a person for the patches of a step.

    Args:
        plan: The plan.
        step: The folder below `kustomize`.
        objects: The objects that a repository changes in this step, as `Kind/namespace/name`.
    """
    for text in dict.fromkeys(commit_text(plan, step, name) for name in objects):
        yield f"echo {quoted(f'{text} now, unless that is done; this waits for it')}"


def _stop(query: str, name: str, place: str) -> Iterator[str]:
    """Yield the lines that stop a script while a command prints something."""
    text = f"{name} has the label still: take {place} out of your repository"
    # An assignment stops the script if the cluster does not answer.
    yield f'labelled="$({query})"'
    yield f'if [ -n "$labelled" ]; then stop_for {quoted(text)}; fi'


def _label(plan: Plan, wave: Wave, namespace: str, value: str) -> tuple[str, ...]:
    if in_repository(plan, "Namespace", "", namespace):
        wait = ("kubectl", "wait", f"namespace/{namespace}", f"--timeout={COMMIT_TIMEOUT}")
        return (command(*wait, f"--for=jsonpath={{{_PATH}}}={value}"),)
    change = label_change(wave.former_labels.get(namespace), value)
    return change_lines(f"namespace/{namespace}", "", [change])


def _templates(wave: Wave) -> Iterator[tuple[PlannedWorkload, str, str]]:
    """Yield the workloads with the label in their template, each with `kind/name` and its namespace."""
    for workload in wave.workloads:
        if workload.labelled:
            kind, namespace, name = workload.object.split("/", 2)
            yield workload, f"{ROLLED_OUT[kind]}/{name}", namespace
