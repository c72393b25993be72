"""The commands of `prepare.sh` that install a DRA driver, or change a release that a person confirmed. Pure.

A release is never changed with `--reuse-values`: who may write Secrets in its namespace may have written
these values, so a person reads and saves them first.
"""

import json
from collections.abc import Iterator
from typing import Final

from cli.runbooks.mapping_runbook import chart_mapping_lines
from cli.runbooks.shell import command, comment, head, quoted
from findings.text import count_text, join_names, reference_text
from migration.legacy.plugin_vendors import NVIDIA, TPU_DRIVER
from migration.plan.drivers.confirmed import DRIVER_FLAG, REPOSITORY
from migration.plan.drivers.driver_release import CHART, CHART_VERSION, FORMER_CHART
from migration.plan.drivers.operator_policy import POLICY_CHANGES, needs_policy_changes
from migration.plan.drivers.vendors import HAMI_DRIVER, NVIDIA_LABEL
from migration.plan.model.driver_charts import DriverNodes, DriverRelease, DriverValues
from migration.plan.model.plan import Plan

DRIVER_ROOT: Final = "/run/nvidia/driver"
SELECTOR_VALUE: Final = "kubeletPlugin.nodeSelector"
TOLERATIONS_VALUE: Final = "kubeletPlugin.tolerations"
"""Values of NVIDIA's chart, and of HAMi's and Google's, which are made after it."""
_CHARTS: Final = {
    HAMI_DRIVER: "HAMi's chart, hami-dra-driver",
    TPU_DRIVER: "Google's chart, dra-driver-google-tpu",
}
"""The charts of other drivers that have these values."""
_TPU_NODES: Final = "cloud.google.com/gke-tpu-dra-driver=true"
"""The label of the only nodes that the affinity in Google's chart allows.

Source: kubernetes-sigs/dra-driver-google-tpu 2821f13, deployments/helm/dra-driver-google-tpu/values.yaml."""
DRIVER_VALUES: Final = "driver-values.yaml"
"""A file of the plan's folder that a person writes: the values that the driver's release has to keep."""
_AFFINITY_VALUE: Final = "kubeletPlugin.affinity"
_NO_PRIORITY: Final = (
    "--set=controller.priorityClassName=",
    "--set=kubeletPlugin.priorityClassName=",
)
"""The flags of NVIDIA's chart; HAMi's, without a controller, has only the last one."""


def driver_lines(driver: str, label: str, plan: Plan) -> Iterator[str]:
    """Yield the commands of `prepare.sh` for one DRA driver with a DaemonSet that waits for a label."""
    key, _, value = label.partition("=")
    yield ""
    values = plan.driver_values.get(driver, DriverValues())
    if driver != NVIDIA:
        yield from _by_hand_lines(driver, label, values)
        if not plan.driver_nodes.get(driver, DriverNodes()).publishing:
            yield from _installed_lines(driver, label)
        yield from chart_mapping_lines(driver, plan)
        return
    yield comment(
        f"{driver}: the chart refuses GPUs without the override, since the driver must not share"
    )
    yield "# a node with the device plugin; the node selector keeps them apart."
    operator, release = plan.gpu_operator, plan.driver_release
    # A release has the root of its nodes already, which need not be the Operator's.
    in_container = values.has_operator_driver or (bool(operator) and not values.is_preinstalled)
    root = _root(values, has_operator=in_container) if release is None else ""
    if operator:
        yield from _operator_lines(operator, changes_policy=needs_policy_changes(plan))
    if root == DRIVER_ROOT:
        yield f"# {DRIVER_ROOT} is where the Operator's driver container has the libraries. If your nodes have the"
        yield "# GPU driver in their image (driver.enabled=false), remove nvidiaDriverRoot."
    if release is None:
        yield from _gke_lines(values, has_operator=in_container)
        yield from _affinity_lines(values)
    yield from _release_notes(release)
    if release is not None:
        where = "the repository" if release.in_repository else DRIVER_VALUES
        yield from _restart_lines(plan.driver_nodes.get(driver, DriverNodes()))
        yield from _release_toleration_lines(values, where)
        yield from _release_affinity_lines(values, where)
        if release.in_repository:
            yield from _repository_lines(release, key, value)
            return
        yield from _values_lines(release)
    words = command(
        *(_install() if release is None else _upgrade(release)),
        "--set=resources.gpus.enabled=true",
        "--set=gpuResourcesEnabledOverride=true",
        *((f"--set=nvidiaDriverRoot={root}",) if root else ()),
        *(_node_flags(values) if release is None else ()),
        f"--set-string={SELECTOR_VALUE}.{key.replace('.', chr(92) + '.')}={value}",
    )
    yield words if release is None else f'{words} --values="$here/{DRIVER_VALUES}"'


def _operator_lines(operator: str, *, changes_policy: bool) -> Iterator[str]:
    """Yield the comments on a cluster of the GPU Operator; nodes with the GPU driver in their image have no driver manager."""
    yield comment(
        f"GPU Operator {operator}: ClusterPolicy and GPUCluster exclude each other, and a migration in"
    )
    yield "# place is not supported, so the driver's own chart is used."
    if not changes_policy:
        return
    yield "# Before you run this, change two things in ClusterPolicy, both at once:"
    yield "# - spec.driver.upgradePolicy.autoUpgrade: false, and keep it so until the last wave. Else the second change makes"
    yield "#   the Operator drain nodes and evict pods with GPUs, whatever the waves."
    yield "# - spec.driver.manager.env: the variable NODE_LABEL_FOR_GPU_POD_EVICTION with the value"
    yield f"#   {NVIDIA_LABEL}. With it the Operator's driver manager evicts the DRA driver"
    yield "#   before it replaces the GPU driver of a node."
    yield f"echo {quoted(POLICY_CHANGES)} >&2"


def upgraded_release(plan: Plan) -> DriverRelease | None:
    """Return the release of NVIDIA's driver that `prepare.sh` upgrades; None for a new one, or without that driver.

    One with its values in a repository is upgraded by nobody here.
    """
    release = plan.driver_release if NVIDIA in plan.drivers else None
    return None if release is None or release.in_repository else release


def release_texts(plan: Plan) -> Iterator[str]:
    """Yield the lines for the page beside the scripts about a release that the cluster has already."""
    release = plan.driver_release if NVIDIA in plan.drivers else None
    if release is not None and release.in_repository:
        yield f"It stops until the DaemonSet of the DRA driver in {release.namespace} has the values that it names: set them in the repository."
    elif release is not None:
        yield f"It prints the values of Helm release {release.namespace}/{release.name}, and stops until those that it has to keep are in"
        yield f"`{DRIVER_VALUES}` in this folder."


def _by_hand_lines(driver: str, label: str, values: DriverValues) -> Iterator[str]:
    """Yield the comments on the chart of another driver, for a person."""
    yield comment(f"{driver}: first install its chart, so that its DaemonSet has the node selector")
    yield comment(f"  {label}")
    if driver not in _CHARTS:
        if values.tolerations:
            yield "# and these tolerations, for the taints of its nodes:"
            yield comment(f"  {_json(values.tolerations)}")
        return
    key, _, value = label.partition("=")
    root = _root(values, has_operator=values.has_operator_driver) if driver == HAMI_DRIVER else ""
    affinity = (f"--set={_AFFINITY_VALUE}=null",) if driver == TPU_DRIVER else ()
    flags = command(
        *((f"--set=nvidiaDriverRoot={root}",) if root else ()),
        *(_NO_PRIORITY[1:] if values.gke_roots else ()),
        *affinity,
        *_toleration_flags(values),
        f"--set-string={SELECTOR_VALUE}.{key.replace('.', chr(92) + '.')}={value}",
    )
    yield f"# With {_CHARTS[driver]}, these are the flags of helm:"
    yield comment(f"  {flags}")
    if affinity:
        yield f"# The affinity of the chart leaves out nodes without {_TPU_NODES}: the driver would not come"
        yield "# to a switched node."
    yield from _gke_lines(values, has_operator=values.has_operator_driver)
    if root == DRIVER_ROOT:
        yield f"# {DRIVER_ROOT} is where the GPU Operator's driver container has the libraries: with /, the value of"
        yield "# the chart, no device is published. If your nodes have the GPU driver in their image, leave it out."


def _installed_lines(driver: str, label: str) -> Iterator[str]:
    """Yield the lines that stop the script while no DaemonSet waits for a driver's label."""
    key, _, value = label.partition("=")
    selector = f"nodeSelector.{key.replace('.', chr(92) + '.')}"
    required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    requirements = f'{required}.nodeSelectorTerms[*].matchExpressions[?(@.key=="{key}")]'
    # A line for the value that each selects, and one such as `In ["a","b"]` for each requirement.
    fields = (
        rf'{{.{selector}}}{{"\n"}}{{range .{requirements}}}{{.operator}} {{.values}}{{"\n"}}{{end}}'
    )
    look_up = command(
        *("kubectl", "get", "daemonsets", "--all-namespaces"),
        f"--output=jsonpath={{range .items[*].spec.template.spec}}{fields}{{end}}",
    )
    escaped = value.replace(".", "[.]")
    lines = (f"^{escaped}$", f'^In .*"{escaped}"', "^Exists ")
    is_there = command("grep", *(f"--regexp={line}" for line in lines))
    message = f"held: no DaemonSet has the node selector {label}: install the chart of {driver}, see the comments of this script, and run it again"
    yield "# This script stops until that is done:"
    yield f'selected="$({look_up})"'
    yield f'if ! {is_there} <<< "$selected" > /dev/null; then'
    yield f"  echo {quoted(message)} >&2"
    yield "  exit 1"
    yield "fi"


def label_lines(plan: Plan) -> Iterator[str]:
    """Yield comments on the nodes that have the labels of drivers before the first wave."""
    labelled = {
        driver: nodes
        for driver in plan.drivers
        if (nodes := plan.driver_nodes.get(driver, DriverNodes()).labelled)
    }
    if not labelled:
        yield "# Cluster: the labels that choose nodes for DRA drivers are on no node yet."
    for driver, nodes in labelled.items():
        yield comment(
            f"Cluster: {plan.drivers[driver]} is on {count_text(len(nodes), 'node')} already: {join_names(nodes)}; {driver} runs there."
        )
    others = plan.drivers.keys() - labelled.keys()
    if labelled and others:
        names = ", ".join(plan.drivers[driver] for driver in sorted(others))
        yield comment(f"No node has {names} yet.")


def _restart_lines(nodes: DriverNodes) -> Iterator[str]:
    """Yield comments on the pods of a release that its upgrade restarts."""
    names = nodes.publishing or nodes.labelled
    if not names:
        return
    yield comment(f"The upgrade restarts the driver on {join_names(names)}: pods there go on, and")
    in_use = f"; {count_text(nodes.claims, 'claim')} of pods {'has' if nodes.claims == 1 else 'have'} its devices"
    yield f"# no new pod with claims starts on such a node until its driver is back{in_use if nodes.claims else ''}."


def _root(values: DriverValues, *, has_operator: bool) -> str:
    """Return the directory with the nodes' GPU driver; empty for the chart's own."""
    if has_operator:
        return DRIVER_ROOT
    return values.gke_roots[0] if values.gke_roots else ""


def _gke_lines(values: DriverValues, *, has_operator: bool) -> Iterator[str]:
    """Yield comments on the values for nodes of GKE."""
    if not values.gke_roots:
        return
    roots = join_names(values.gke_roots)
    if has_operator:
        yield f"# On GKE the driver that Google installs is in {roots}: where the nodes have that, write it for {DRIVER_ROOT}."
    else:
        yield f"# On GKE the GPU driver is in {roots}: with /, the value of the chart, no device is published."
    if len(values.gke_roots) > 1:
        yield "# BEWARE: a release has one of these roots, and publishes nothing on nodes with the other. Install one for each image,"
        yield "# with one more node selector: cloud.google.com/gke-os-distribution."
    yield "# GKE refuses pods of the chart's priority classes outside kube-system without a ResourceQuota for these, so they have"
    yield "# none. With such a quota leave priorityClassName out."


def _affinity_lines(values: DriverValues) -> Iterator[str]:
    """Yield comments on the chart's affinity, for nodes without its labels."""
    if values.unlabelled_nodes:
        yield "# By its affinity the chart selects nodes with labels of Node Feature Discovery or of the GPU Operator, and"
        yield comment(
            f"{join_names(values.unlabelled_nodes)} {'has' if len(values.unlabelled_nodes) == 1 else 'have'} none of them. Without it the node selector alone chooses the driver's nodes."
        )


def _release_affinity_lines(values: DriverValues, where: str) -> Iterator[str]:
    """Yield comments on the affinity in the kept values of a release, for nodes without the labels of the chart's."""
    if values.unlabelled_nodes:
        yield comment(
            f"{join_names(values.unlabelled_nodes)} {'has' if len(values.unlabelled_nodes) == 1 else 'have'} no label that the chart's own affinity requires: unless the release has another"
        )
        yield f"# one, {_AFFINITY_VALUE} in {where} has to be null; the node selector chooses the driver's nodes."


def _node_flags(values: DriverValues) -> tuple[str, ...]:
    """Return the flags of helm for the nodes of a new release of NVIDIA's driver."""
    return (
        *(_NO_PRIORITY if values.gke_roots else ()),
        *((f"--set={_AFFINITY_VALUE}=null",) if values.unlabelled_nodes else ()),
        *_toleration_flags(values),
    )


def _toleration_flags(values: DriverValues) -> tuple[str, ...]:
    """Return the flag of helm for the tolerations of a driver's pods; empty without any."""
    if not values.tolerations:
        return ()
    return (f"--set-json={TOLERATIONS_VALUE}={_json(values.tolerations)}",)


def _release_toleration_lines(values: DriverValues, where: str) -> Iterator[str]:
    """Yield the tolerations that the kept values of a release have to have."""
    if values.tolerations:
        yield f"# For the taints of its nodes, {TOLERATIONS_VALUE} in {where} needs:"
        yield comment(f"  {_json(values.tolerations)}")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def held_lines(plan: Plan) -> list[str]:
    """Return a script that only names the facts to be confirmed; nothing if all are confirmed."""
    if not plan.proposals:
        return []
    lines = [
        head("Held: nobody has confirmed what this script would depend on. It does nothing.", "")
    ]
    subjects = {proposal.subject for proposal in plan.proposals}
    for entry in plan.held:
        if entry.object in subjects:
            reason = f"held: {reference_text(entry.object)}: {entry.reason}"
            lines.append(f"echo {quoted(reason)} >&2")
            lines.append(f"echo {quoted(f'fix: {entry.fix}')} >&2")
    return [*lines, "exit 1"]


def _repository_lines(release: DriverRelease, key: str, value: str) -> Iterator[str]:
    """Yield the values for a repository, and the lines that stop the script until the cluster shows them.

    The chart's DaemonSet has a container `gpus` once it serves GPUs.

    Source: kubernetes-sigs/dra-driver-nvidia-gpu, deployments/helm, templates/kubeletplugin.yaml.

    Args:
        release: The release.
        key: The key of the label of the driver's nodes.
        value: The value of that label.
    """
    selector = f"{SELECTOR_VALUE}: {{{json.dumps(key)}: {json.dumps(value)}}}"
    settings = ("resources.gpus.enabled: true", "gpuResourcesEnabledOverride: true", selector)
    yield "# Set these values in the repository, beside those that the release has, all in one commit, and let it roll out:"
    yield "# with GPUs and without the node selector the driver would come to nodes with the device plugin."
    yield from (comment(f"  {setting}") for setting in settings)
    fields = rf'{{.nodeSelector.{key.replace(".", chr(92) + ".")}}}{{" "}}{{.containers[*].name}}{{"\n"}}'
    look_up = command(
        *("kubectl", "get", "daemonsets", f"--namespace={release.namespace}"),
        f"--output=jsonpath={{range .items[*].spec.template.spec}}{fields}{{end}}",
    )
    is_there = command("grep", "--extended-regexp", rf"^{value} (.* )?gpus( |$)")
    message = (
        f"held: no DaemonSet of namespace {release.namespace} has the node selector {key}={value} and a container gpus: "
        f"set {'; '.join(settings)} in the repository, and run this again once it is rolled out"
    )
    yield "# This script stops until the DaemonSet has the node selector and serves GPUs:"
    yield f'selected="$({look_up})"'
    yield f'if ! {is_there} <<< "$selected" > /dev/null; then'
    yield f"  echo {quoted(message)} >&2"
    yield "  exit 1"
    yield "fi"


def _values_lines(release: DriverRelease) -> Iterator[str]:
    """Yield the lines that stop the script until a person has read and saved a release's values."""
    words = ("helm", "get", "values", release.name, f"--namespace={release.namespace}")
    show = command(*words, "--output=yaml")
    in_repository = f"{DRIVER_FLAG} {REPOSITORY}{release.namespace}/{release.name}"
    yield "# Where helm knows no such release, since Argo CD renders its chart, for example, plan again with"
    yield comment(f"{in_repository}: it changes nothing of the driver then.")
    yield "# Whoever may write Secrets in its namespace can write its values: read them, and save what you know."
    yield "# nvidiaDriverRoot is one of them: without it the / of the chart counts, and no device is published where the GPU"
    yield f"# driver is elsewhere, such as in {DRIVER_ROOT} with the Operator's driver container."
    yield f'if [ ! -f "$here/{DRIVER_VALUES}" ]; then'
    yield f"  {show}"
    yield "  printf 'held: read the values above, and save those that the release has to keep as %q\\n' \\"
    yield f'    "$here/{DRIVER_VALUES}" >&2'
    yield "  exit 1"
    yield "fi"


def _release_notes(release: DriverRelease | None) -> Iterator[str]:
    if release is None:
        yield f"# The chart is called {CHART} from 0.4.0 on, and {FORMER_CHART} up to 25.12.0."
        yield "# `nvidia` is the chart repository of NVIDIA, as you have added it; the driver's guide installs from a registry."
        return
    yield comment(
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
        *(f"--namespace={release.namespace}", f"--version={release.version}", "--reset-values"),
    )
