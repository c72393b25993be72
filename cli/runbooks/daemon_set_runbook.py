"""The commands of a runbook for DaemonSets with devices, and for those of device plugins. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from cli.runbooks.object_changes import FieldChange, change_command
from cli.runbooks.opt_in_runbook import COMMIT_TIMEOUT
from cli.runbooks.shell import command, comment, quoted
from findings.text import reference_text
from kube.api.workloads import DAEMON_SET
from migration.cluster.evidence import list_at, mapping_at
from migration.plan.drivers.vendors import KOORDLET, driver_label
from migration.plan.facts.environment import in_repository
from migration.plan.model.plan import Plan, PlannedDaemonSet, PlannedNode, PluginDaemonSet, Wave

_TERMS: Final = ".spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
"""The path of the terms of a required node affinity in a template, as a JSONPath of kubectl."""
DELETE_TIMEOUT: Final = "10m"
"""The time for which an object may be on its way; with a finalizer that nobody removes, kubectl would wait for ever."""


def tolerant_lines(plan: Plan, wave: Wave, nodes: Iterable[PlannedNode]) -> Iterator[str]:
    """Yield the commands that stop at DaemonSets with pods for a driver on its way out of a node.

    The taint keeps these pods away unless they tolerate it, whatever the plan knew of them. With device keys they wait
    for the plugin, or get its devices if it is back by then; only Kubernetes itself gives them the driver's before.
    """
    for node in nodes:
        leaving = list(leaving_drivers(plan, node))
        labels = ",".join("=".join(driver_label(driver)) for driver in leaving)
        of_driver = {driver_label(driver)[0] for driver in node.devices}
        has_plugin = not of_driver.issuperset(node.former_labels)
        for entry in node.daemon_sets if leaving else ():
            if _keeps_claims(plan, wave, entry) or not (entry.translated or has_plugin):
                words = (node.name, entry.namespace, entry.name, entry.selector)
                yield command("stop_at_tolerant", *words, ", ".join(leaving), labels)


def leaving_drivers(plan: Plan, node: PlannedNode) -> Iterator[str]:
    """Yield the DRA drivers that leave a node on the way back: those that it did not have before its wave."""
    for driver in node.devices:
        label, value = driver_label(driver)
        nodes = plan.driver_nodes.get(driver)
        was_there = nodes is not None and node.name in nodes.publishing
        if not was_there and node.former_labels.get(label) != value:
            yield driver


def _keeps_claims(plan: Plan, wave: Wave, entry: PlannedDaemonSet) -> bool:
    """Return True if the pods of a DaemonSet get claims still once a wave is taken back."""
    return entry.translated and _opting_wave(plan, entry) < wave.wave


def _opting_wave(plan: Plan, entry: PlannedDaemonSet) -> int:
    """Return the first wave that opts in a DaemonSet; 0 if it was opted in before the plan."""
    for wave in plan.waves:
        labelled = (workload.object for workload in wave.workloads if workload.labelled)
        if entry.namespace in wave.namespaces or entry.reference in labelled:
            return wave.wave
    return 0


def left_pod_lines(node: PlannedNode) -> Iterator[str]:
    """Yield the commands that delete the pods left by a drain with their devices."""
    if node.daemon_sets:
        yield "# These pods stayed, with devices that others may get now; their DaemonSet creates them again."
    for entry in node.daemon_sets:
        yield delete_daemon_pods(entry, node.name)


def pending_pod_lines(wave: Wave) -> Iterator[str]:
    """Yield the commands that delete pods of DaemonSets without a node, once they are opted in or out.

    They were created again when their node had changed hands, with device keys where the plugin is gone, or
    with claims where the driver is.
    """
    waiting = {workload.object for workload in wave.workloads if workload.waiting}
    commands = dict.fromkeys(
        delete_daemon_pods(entry, "")
        for node in wave.nodes
        for entry in node.daemon_sets
        if entry.reference in waiting
    )
    if commands:
        yield "# Pods without a node are as their namespace was before, and come again; others are not restarted."
    yield from commands


def later_rollbacks(plan: Plan, wave: Wave, node: PlannedNode) -> Iterator[str]:
    """Yield a line for each DaemonSet with claims on a node until an earlier wave is taken back, too.

    Those that were opted in before the plan are asked about first, see `claim_lines`.
    """
    for entry, opting in lasting_daemon_sets(plan, wave, node):
        text = (
            f"{reference_text(entry.reference)}: its pod on {node.name} gets claims until wave {opting}, which opted it "
            "in, is taken back, too"
        )
        yield f"echo {quoted(text)}"


def lasting_daemon_sets(
    plan: Plan, wave: Wave, node: PlannedNode
) -> Iterator[tuple[PlannedDaemonSet, int]]:
    """Yield the DaemonSets with claims on a node until an earlier wave is taken back, too, each with that wave."""
    for entry in node.daemon_sets:
        opting = _opting_wave(plan, entry)
        if opting and _keeps_claims(plan, wave, entry):
            yield entry, opting


def delete_daemon_pods(entry: PlannedDaemonSet, node: str) -> str:
    """Return the command that deletes a DaemonSet's pods on a node, or those without one."""
    return command(
        *("kubectl", "delete", "pods", f"--namespace={entry.namespace}"),
        *(f"--selector={entry.selector}", f"--field-selector=spec.nodeName={node}"),
        f"--timeout={DELETE_TIMEOUT}",
    )


def changed_plugins(plan: Plan) -> list[PluginDaemonSet]:
    """Return the DaemonSets of device plugins that `prepare.sh` changes itself."""
    return [
        plugin
        for plugin in plan.plugins
        if not in_repository(plan, DAEMON_SET, plugin.namespace, plugin.name)
    ]


def plugin_lines(plan: Plan, plugin: PluginDaemonSet) -> Iterator[str]:
    """Yield the commands that keep a device plugin from switched nodes, or that wait until a repository does."""
    yield ""
    yield comment(f"{plugin.name} stays away from nodes with {' or '.join(plugin.labels)}.")
    yield "# Its pods restart: pods with devices go on, and none gets devices on a node until its plugin is back."
    if in_repository(plan, DAEMON_SET, plugin.namespace, plugin.name):
        yield from _affinity_waits(plugin)
    else:
        yield from _affinity_change(plugin)
    if KOORDLET in plugin.name:
        yield "# Where it has come back to switched nodes, it has registered their GPUs again."
        yield from (command("forget_switched", label) for label in plugin.labels)


def _affinity_waits(plugin: PluginDaemonSet) -> Iterator[str]:
    """Yield the commands that wait until each term of a plugin's node affinity leaves out switched nodes."""
    target = f"daemonset/{plugin.name}"
    for number, term in enumerate(plugin.node_selector_terms):
        for key, value in _added_exclusions(term, plugin.labels):
            wait = command(
                *("kubectl", "wait", target, f"--namespace={plugin.namespace}"),
                f"--timeout={COMMIT_TIMEOUT}",
                f"--for=jsonpath={{{_TERMS}[{number}]{_expression(key, value)}}}={value}",
            )
            yield f"{command('is_gone', target, plugin.namespace)} || {wait}"


def _expression(key: str, value: str) -> str:
    """Return a path from a term to a value that it names for a key; kubectl stops at a path to several values."""
    return f'.matchExpressions[?(@.key=="{key}")].values[?(@=="{value}")]'


def _added_exclusions(
    term: Mapping[str, object], labels: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the labels, as key and value, that the plan has a term leave out; others it may leave out in other ways."""
    for entry in map(mapping_at, list_at(term, "matchExpressions")):
        key, values = str(entry.get("key")), list_at(entry, "values")
        if entry.get("operator") == "NotIn" and len(values) == 1 and f"{key}={values[0]}" in labels:
            yield key, str(values[0])


def _affinity_change(plugin: PluginDaemonSet) -> Iterator[str]:
    """Yield the command that has the node affinity of a plugin leave out switched nodes."""
    required = {"nodeSelectorTerms": list(plugin.node_selector_terms)}
    former = plugin.affinity or {}
    node_affinity = {
        **mapping_at(former, "nodeAffinity"),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    change = FieldChange(
        path=("spec", "template", "spec", "affinity"),
        before=plugin.affinity,
        after={**former, "nodeAffinity": node_affinity},
    )
    yield "# If a chart owns it, an upgrade takes the affinity back, and the plugin comes to switched nodes, too: do not upgrade"
    yield "# it until the migration is over; if it has been upgraded, run this script again at once. Do not set it in values that"
    yield "# are for other DaemonSets, too: with those of NVIDIA's chart, switched nodes lose the labels of GPU feature discovery."
    yield change_command(f"daemonset/{plugin.name}", plugin.namespace, [change])
