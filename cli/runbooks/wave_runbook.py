"""The steps of `switch.sh` and `rollback.sh`: their commands, and the scripts that are made of them. Pure.

Every step may be repeated, and alone: the scripts take its name with `--step`, and `drawbridge wave`
records how far it is. A node is left cordoned by one step and uncordoned by another, so that repeating
the former evicts no pod that has come since.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from cli.runbooks.daemon_set_runbook import (
    delete_daemon_pods,
    later_rollbacks,
    leaving_drivers,
    left_pod_lines,
    pending_pod_lines,
    tolerant_lines,
)
from cli.runbooks.evicted_runbook import claim_lines, noted_lines, returning_lines
from cli.runbooks.object_changes import change_lines, json_path, line_changes
from cli.runbooks.opt_in_runbook import opt_in_lines, opt_out_lines
from cli.runbooks.restart_runbook import recreation_lines, restart_lines, returned_lines
from cli.runbooks.shell import command, comment, quoted
from findings.text import count_text
from kube.names import GROUP
from migration.cluster.node_devices import GPU, Source
from migration.conversion.replaced_lines import ReplacedLines
from migration.legacy.gpu_labels import unready_selector
from migration.plan.drivers.vendors import driver_label
from migration.plan.facts.environment import in_repository
from migration.plan.facts.repository_patches import commit_text
from migration.plan.facts.work import describe_work
from migration.plan.model.plan import (
    Plan,
    PlannedNode,
    PlannedWork,
    QuotaLines,
    Wave,
)
from migration.wave.steps import Step, StepKind

DRAIN_TIMEOUT: Final = "30m"
NODE_TIMEOUT: Final = "10m"
QUOTA_TIMEOUT: Final = "2m"
GIVEN_BACK: Final = f"{GROUP}/given-back"
"""The key of a label for a node from its drain on the way back to its end, and of the taint that keeps new pods of
DaemonSets from it until its DRA driver has left."""


class Part(NamedTuple):
    """A step with its commands, and the comments before it."""

    step: Step
    commands: Sequence[str]
    comments: Sequence[str] = ()


def part_lines(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the lines of a script that runs all its steps, or the one that `--step` names."""
    for part in parts:
        yield ""
        yield from part.comments
        yield f"if step {quoted(part.step.name)}; then"
        for text in part.commands:
            yield from (f"  {line}" for line in text.strip("\n").splitlines())
        yield "fi"


def switch_parts(plan: Plan, wave: Wave, verify: str = "") -> tuple[Part, ...]:
    """Return the parts of the script that switches a wave.

    Args:
        plan: The plan.
        wave: One of its waves.
        verify: The command that asks the cluster, with the flags of the plan's inputs.
    """
    path = switch_script(wave)
    parts = [
        Part(
            Step(script=path, kind=StepKind.BEGIN),
            [*_quota_lines(plan, wave), *_guard_lines(wave.nodes)],
        )
    ]
    for number, node in enumerate(wave.nodes):
        labels = [f"{label}={value}" for label, value in node.labels.items()]
        waiting = [work for work in wave.work if work.node == node.name and work.waits]
        wait = [
            *_wait_lines(
                wave,
                wave.nodes[number:],
                "# At once with later nodes, so that no pod moves to one that is drained next; all were simulated.",
                verify,
            )
        ]
        drain = [
            *_drain_lines(node),
            *_handshake_lines(node),
            _label_line(node, labels),
            *_published_lines(node, verify),
            *left_pod_lines(node),
        ]
        parts += _node_parts(path, node, wait, drain, waiting)
    parts.append(
        Part(Step(script=path, kind=StepKind.NAMESPACES), [*opt_in_lines(plan, wave, verify)]),
    )
    restarts = [
        *restart_lines(wave, with_claims=False),
        *pending_pod_lines(wave),
        *recreation_lines(plan, wave),
    ]
    parts.append(Part(Step(script=path, kind=StepKind.RESTARTS), restarts))
    # Later waves were simulated with all nodes of this one, the empty ones among them.
    is_last = wave.wave == plan.waves[-1].wave
    used = [node for entry in plan.waves for node in entry.nodes] if is_last else []
    parts.append(Part(Step(script=path, kind=StepKind.END), [*_release_lines(used)]))
    return _with_commands(parts)


def rollback_parts(plan: Plan, wave: Wave) -> tuple[Part, ...]:
    """Return the parts of the script that takes a wave back."""
    path = f"wave-{wave.wave}/rollback.sh"
    # A pod that is created again by hand has claims, so it runs on a node that is drained next.
    namespaces = [*opt_out_lines(plan, wave), *recreation_lines(plan, wave)]
    comments = (
        (
            "# New pods of these namespaces keep their device keys; quotas count both, and stay. Raise again what you",
            "# have lowered in them since, or these pods are not created.",
        )
        if wave.opted_in
        else ()
    )
    nodes = wave.nodes[::-1]
    early = [name for name in plan.quota_namespaces(wave) if name in plan.early_quotas]
    text = f"note: the quotas of {', '.join(early)} stay as switch.sh has left them: pods get claims there by a label from before the plan"
    lasting = [f"echo {quoted(text)}"] if early else []
    begin = [
        *tolerant_lines(plan, wave, nodes),
        *claim_lines(plan, wave),
        *_restored_lines(plan, wave),
    ]
    parts = [
        Part(Step(script=path, kind=StepKind.BEGIN), begin),
        Part(Step(script=path, kind=StepKind.NAMESPACES), namespaces, comments),
    ]
    for number, node in enumerate(nodes):
        wait = [
            *_guard_lines([node]),
            *_wait_lines(
                wave,
                nodes[number:],
                "# At once with later nodes, so that no pod moves to one that is taken back next.",
            ),
        ]
        drain = [
            *noted_lines(plan, wave, node),
            *_giving_back_lines(plan, node),
            *later_rollbacks(plan, wave, node),
        ]
        *former, uncordon = _node_parts(path, node, wait, drain, ())
        unmark = _label_line(node, [f"{GIVEN_BACK}-"])
        released = [unmark, command("uncordon_own", node.name), *_release_commands([node])]
        parts += [*former, uncordon._replace(commands=released)]
    restarts = [
        *restart_lines(wave, with_claims=True),
        *pending_pod_lines(wave),
        *returned_lines(wave),
    ]
    parts += [
        Part(Step(script=path, kind=StepKind.RESTARTS), restarts),
        Part(Step(script=path, kind=StepKind.END), [*returning_lines(plan, wave), *lasting]),
    ]
    return _with_commands(parts)


def drained_lines(wave: Wave, *, is_switch: bool) -> Iterator[str]:
    """Yield the labels of nodes that tell a script of the drains of an earlier run.

    A switch sets all labels of DRA at once after a drain; they tell nothing of a node that had them before its wave. A
    rollback takes them off, and nodes that it has not drained may lack them, so it sets a label of its own.
    """
    nodes = [
        node
        for node in wave.nodes
        if not is_switch or dict(node.labels) != dict(node.former_labels)
    ]
    if nodes:
        yield "# Cordoned nodes that an earlier run has drained stay so if this one is given up."
    for node in nodes:
        labels = node.labels if is_switch else {GIVEN_BACK: "true"}
        text = ",".join(f"{label}={value}" for label, value in labels.items())
        yield command("drained_with", node.name, text)


def switch_script(wave: Wave) -> str:
    """Return the path of the script that switches a wave, below the plan's folder."""
    return f"wave-{wave.wave}/switch.sh"


def quota_files(plan: Plan, wave: Wave) -> list[str]:
    """Return the names of the files below `quotas/` that a wave applies."""
    return [
        file for namespace in plan.quota_namespaces(wave) for file in plan.quotas.get(namespace, ())
    ]


def _with_commands(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.commands)


def _replaced_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the commands that remove lines of ResourceQuotas once DeviceQuotas count both sides."""
    for entry in plan.replaced_lines:
        if entry.namespace not in plan.quota_namespaces(wave):
            continue
        names = ", ".join(entry.device_quotas)
        yield comment(
            f"DeviceQuota {names} counts pods with the keys, and claims: the old lines of ResourceQuota "
            f"{entry.namespace}/{entry.name} go as soon as it is enforced, and no earlier."
        )
        for name in entry.device_quotas:
            yield command(
                *("kubectl", "wait", f"devicequotas.{GROUP}/{name}"),
                *("--for=condition=Enforced", f"--timeout={QUOTA_TIMEOUT}"),
            )
        if in_repository(plan, "ResourceQuota", entry.namespace, entry.name):
            yield from _removed_by_hand(entry)
        else:
            removed = line_changes(entry.amounts, dict.fromkeys(entry.amounts))
            yield from change_lines(f"resourcequota/{entry.name}", entry.namespace, removed)


def _removed_by_hand(entry: ReplacedLines) -> Iterator[str]:
    """Yield the commands that stop a script until a repository has taken lines out of a ResourceQuota."""
    lines = "".join(f"{{{json_path(('spec', 'hard', line))}}}" for line in entry.amounts)
    query = command(
        *("kubectl", "get", f"resourcequota/{entry.name}", f"--namespace={entry.namespace}"),
        *("--ignore-not-found", f"--output=jsonpath={lines}"),
    )
    text = f"ResourceQuota {entry.namespace}/{entry.name} has {', '.join(entry.lines)} still: take that out in your repository"
    # An assignment stops the script if the cluster does not answer.
    yield f'left="$({query})"'
    yield f'if [ -n "$left" ]; then stop_for {quoted(text)}; fi'


def _restored_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield the commands that give ResourceQuotas the lines back that the wave has removed.

    Those of a namespace that moves in parts come back with its first part, and never where pods were opted in before
    the plan.
    """
    for entry in plan.replaced_lines:
        # A namespace is selective, too, where workloads of it were opted in before the plan.
        if entry.namespace not in wave.opted_in or entry.namespace in wave.formerly_selective:
            continue
        yield comment(
            f"The lines of ResourceQuota {entry.namespace}/{entry.name} come back with their amounts; "
            f"DeviceQuota {', '.join(entry.device_quotas)} stays."
        )
        if in_repository(plan, "ResourceQuota", entry.namespace, entry.name):
            amounts = ", ".join(f"{line}: {amount}" for line, amount in entry.amounts.items())
            text = f"by hand: give ResourceQuota {entry.namespace}/{entry.name} the lines {amounts}"
            yield f"echo {quoted(text)}"
        else:
            restored = line_changes(dict.fromkeys(entry.amounts), entry.amounts)
            yield from change_lines(f"resourcequota/{entry.name}", entry.namespace, restored)


def _quota_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    yield from _replaced_lines(plan, wave)
    files = quota_files(plan, wave)
    if files:
        yield "# Quotas get lines for claims. Each line is a limit of its own, beside the one for pods with keys:"
    for file in files:
        yield from (comment(effect) for effect in plan.quota_effects.get(file, ()))
    for namespace in plan.quota_namespaces(wave):
        for file in plan.quotas.get(namespace, ()):
            name = file.removeprefix(f"{namespace}.").removesuffix(".yaml")
            if in_repository(plan, "ResourceQuota", namespace, name):
                yield "# It comes with kustomize/prepare from the repository: kubectl diff stops while a line is missing."
                order = commit_text(plan, "prepare", f"ResourceQuota/{namespace}/{name}")
                text = f"ResourceQuota {namespace}/{name} differs from quotas/{file}, see above: {order}"
                yield f'kubectl diff --filename="$here/../quotas/"{quoted(file)} || differs {quoted(text)}'
                continue
            lines = plan.quota_lines.get(file, QuotaLines(before={}, added={}))
            added = line_changes(
                {**lines.before, **dict.fromkeys(lines.added)}, {**lines.before, **lines.added}
            )
            yield from change_lines(f"resourcequota/{name}", namespace, added)


def _node_parts(
    path: str,
    node: PlannedNode,
    wait: Sequence[str],
    drain: Sequence[str],
    waiting: Iterable[PlannedWork],
) -> Iterator[Part]:
    """Yield the steps for one node.

    Args:
        path: The script's path.
        node: The node that is drained.
        wait: The commands that cordon it, and wait for its work.
        drain: The commands that drain and label it, wait for its devices, and restart what stayed.
        waiting: Pods of the node that have to end first, as planned.
    """
    devices = count_text(sum(node.devices.values()), "device")
    comments = [comment(f"{node.name}: {node.source}, {devices}")]
    for work in waiting:
        verb = "Asks about" if work.never_ends else "Waits for"
        comments.append(comment(f"{verb} pod {work.pod.partition('/')[2]} {describe_work(work)}"))
    yield Part(Step(script=path, kind=StepKind.WAIT, node=node.name), wait, comments)
    yield Part(Step(script=path, kind=StepKind.DRAIN, node=node.name), drain)
    uncordon = Step(script=path, kind=StepKind.UNCORDON, node=node.name)
    yield Part(uncordon, [command("kubectl", "uncordon", node.name)])


def _wait_lines(
    wave: Wave, nodes: Sequence[PlannedNode], reason: str, verify: str = ""
) -> Iterator[str]:
    """Yield the commands that cordon nodes, and wait for the work and the budgets of the first.

    Nodes are cordoned with the first one, but for those with work that ends alone: the wait for that may be long, so each
    of these is cordoned at its turn, with those of the same training. Pods that never end are asked about without a wait,
    and all others of their node with them.

    Args:
        wave: The wave with its work.
        nodes: The nodes that are not drained yet.
        reason: A comment on the later ones.
        verify: The command that asks whether the plan has the pods of the first; empty on a way back, which evicts others,
            too.
    """
    endless = {work.node for work in wave.work if work.waits and work.never_ends}
    waiting = {work.node for work in wave.work if work.waits} - endless
    first, *later = (node.name for node in nodes)
    selectors = [f"--selector={node.drain_selector}" for node in nodes[:1] if node.drain_selector]
    names = [first]
    if first in waiting and (sharing := wave.nodes_sharing_work(first)):
        yield "# At once with all nodes that wait for the same pods: these end together, and an open node would take others then."
        names += [name for name in later if name in sharing]
    elif first in waiting:
        yield "# Alone, and no earlier than now: it took pods while others were waited for."
    elif later := [name for name in later if name not in waiting]:
        yield reason
        names += later
    yield command("kubectl", "cordon", *names)
    yield command("finish_work", *names)
    if verify:
        question = command(f"--node={first}", "--before")
        yield f"{command('evicts', first)} ||"
        yield f'  {verify} --wave "$here" {question} ||'
        yield f"  stop_at_unplanned {command(*names)}"
    yield command("check_budgets", *names)
    yield command("delete_bare_pods", first, *selectors)


def _drain_lines(node: PlannedNode) -> Iterator[str]:
    yield "# --delete-emptydir-data: what pods keep in emptyDir volumes is lost when they leave."
    yield command(
        *("kubectl", "drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data"),
        *([f"--pod-selector={node.drain_selector}"] if node.drain_selector else []),
        f"--timeout={DRAIN_TIMEOUT}",
    )


def _label_line(node: PlannedNode, labels: Sequence[str]) -> str:
    return command("kubectl", "label", "node", node.name, "--overwrite", *labels)


def _giving_back_lines(plan: Plan, node: PlannedNode) -> Iterator[str]:
    """Yield the commands that drain a node, give it back to its legacy system, and wait for that.

    The kubelet ends no pod with devices of a driver that has left, so what a drain leaves is deleted while the
    driver serves, beside the device plugin if that has a label of its own. New pods come when the driver and the taint
    are gone; of a DaemonSet that tolerates every taint at once, see `tolerant_lines`. No pod of a plugin or a driver has
    to start under it.

    Source: k8s.io/kubernetes v1.37.1, pkg/kubelet/cm/dra/manager.go, UnprepareResources.
    """
    of_driver = {driver_label(driver)[0] for driver in node.devices}
    former = {
        label: f"{label}-" if value is None else f"{label}={value}"
        for label, value in node.former_labels.items()
    }
    mark = f"{GIVEN_BACK}=true"
    yield from _drain_lines(node)
    if not node.daemon_sets:
        yield _label_line(node, [mark, *former.values()])
        yield from _leaving_lines(plan, node)
        yield from _offered_lines(node)
        return
    of_plugin = [text for label, text in former.items() if label not in of_driver]
    if of_plugin:
        yield _label_line(node, [mark, *of_plugin])
        yield from _offered_lines(node)
    yield "# These pods stayed, with devices of the driver, and end only while it is there. The taint keeps new ones"
    yield "# away, but for those that tolerate every taint."
    yield command("kubectl", "taint", "node", node.name, "--overwrite", f"{GIVEN_BACK}=:NoSchedule")
    yield from (delete_daemon_pods(entry, node.name) for entry in node.daemon_sets)
    labels = [text for label, text in former.items() if label in of_driver]
    yield _label_line(node, labels if of_plugin else [mark, *labels])
    yield from _leaving_lines(plan, node)
    yield command("kubectl", "taint", "node", node.name, f"{GIVEN_BACK}:NoSchedule-")
    if not of_plugin:
        yield from _offered_lines(node)


def _leaving_lines(plan: Plan, node: PlannedNode) -> Iterator[str]:
    """Yield the commands that wait until DRA drivers have left a node."""
    for driver in leaving_drivers(plan, node):
        yield command("wait_for_slices", node.name, driver)


def _published_lines(node: PlannedNode, verify: str) -> Iterator[str]:
    """Yield the commands that wait for the devices of a DRA driver."""
    expected = (f"--expect-devices={driver}={number}" for driver, number in node.devices.items())
    # Other vendors' devices stay with their device plugins. Koordinator's nodes offer none of the plan's.
    resources = (f"--resource={key}" for key in node.resources or (GPU,))
    flags = (f"--node={node.name}", *expected, *resources, f"--wait={NODE_TIMEOUT}")
    yield f"{verify} {command(*flags)}"
    if node.source == Source.KOORDINATOR:
        yield "# koordlet leaves the node with its label; what it registered would stay, and be allocated."
        yield command("forget_registered", node.name)
    if node.source == Source.HAMI:
        yield "# HAMi's scheduler may count the GPUs again while the plugin's annotation is there."
        yield command("forget_register", node.name)


def _handshake_lines(node: PlannedNode) -> Iterator[str]:
    """Yield the command that notes the handshake of HAMi's scheduler with a node before the plugin leaves it."""
    if node.source == Source.HAMI:
        yield command("note_handshake", node.name, *(node.resources or (GPU,)))


def _offered_lines(node: PlannedNode) -> Iterator[str]:
    """Yield the commands that wait for the devices of a device plugin."""
    for resource, amount in node.resources.items():
        yield command("wait_for_offer", node.name, resource, amount)


def _guard_lines(nodes: Iterable[PlannedNode]) -> Iterator[str]:
    """Yield the commands that keep autoscalers from nodes until the last wave is done."""
    guarded = [node for node in nodes if node.annotations]
    if guarded:
        yield "# No autoscaler removes a node that is drained, or that pods of a later wave are to use."
    for node in guarded:
        marks = [f"{key}=true" for key in node.annotations]
        yield command("kubectl", "annotate", "node", node.name, "--overwrite", *marks)


def annotation_lines(plan: Plan) -> Iterator[str]:
    """Yield a paragraph on the end of a migration before its last wave, for nodes that autoscalers are kept from."""
    guarded = [node for wave in plan.waves for node in wave.nodes if node.annotations]
    if plan.complete and guarded:
        labelled = any(node.gpu_label for node in guarded)
        rest = (
            ", but those that are unready by their label of GPUs, and names these"
            if labelled
            else ""
        )
        yield ""
        yield "Nodes keep the annotation that holds off autoscalers until the end of the last wave. If you end the migration before it,"
        yield f"run `{switch_script(plan.waves[-1])} --step end`: it takes the annotation off the nodes of all waves{rest}."


def _release_lines(nodes: Sequence[PlannedNode]) -> Iterator[str]:
    """Yield the commands that give nodes back to autoscalers, with a comment."""
    commands = [*_release_commands([node for node in nodes if not node.gpu_label])]
    names_by_label: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for key in node.annotations if node.gpu_label else ():
            names_by_label.setdefault((key, node.gpu_label), []).append(node.name)
    commands += [
        command("give_to_autoscaler", key, label, unready_selector(label), *names)
        for (key, label), names in names_by_label.items()
    ]
    if commands:
        yield "# No wave counts on these nodes any more; an autoscaler may remove one that stays empty."
    yield from commands


def _release_commands(nodes: Iterable[PlannedNode]) -> Iterator[str]:
    for node in nodes:
        if node.annotations:
            marks = [f"{key}-" for key in node.annotations]
            yield command("kubectl", "annotate", "node", node.name, *marks)
