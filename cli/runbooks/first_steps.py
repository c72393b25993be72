"""The part of README.md on the time before the first wave: a line for each step, with the place of its details. Pure.

It has what the notes, the scripts and the rest of the page say, in the order in which a person needs it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from cli.runbooks.daemon_set_runbook import changed_plugins
from cli.runbooks.driver_runbook import release_texts
from cli.runbooks.markdown import inert
from cli.runbooks.opt_in_runbook import prepared_objects
from cli.runbooks.work_texts import losing_by_claims
from findings.text import count_text, join_names, reference_text
from kube.api.workloads import DAEMON_SET
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.operator_policy import needs_policy_changes
from migration.plan.facts.environment import (
    chart_names,
    in_repository,
    remapped_classes,
    stopped_texts,
)
from migration.plan.facts.kept_away import returning_texts
from migration.plan.facts.repository_patches import KUSTOMIZE, release_file
from migration.plan.model.plan import Plan

HELD: Final = "Not part of any wave"
"""The part of the page on objects without a wave."""
_NOUNS: Final = {"Node": "node", "Namespace": "namespace"}
_MAX_NAMES: Final = 5


def first_step_lines(plan: Plan, settings: str) -> Iterator[str]:
    """Yield the part of the page.

    Args:
        plan: A plan with waves.
        settings: The file below the folder with the settings of the cluster; empty without one.
    """
    steps = (
        *_decisions(plan),
        *_readings(plan),
        *_autoscaler_steps(plan),
        *_installations(plan, settings),
        *_preparation(plan),
    )
    yield "## Before the first wave"
    yield ""
    yield from (f"{number}. {step}" for number, step in enumerate(steps, 1))


def _decisions(plan: Plan) -> Iterator[str]:
    """Yield the decisions that lead to a new plan."""
    if plan.proposals:
        flags = join_names(sorted({entry.flag for entry in plan.proposals}))
        yield f"Plan again with {flags}: until somebody confirms what the snapshot shows, no script does anything ({HELD})."
    yield from map(inert, (*stopped_texts(plan), *returning_texts(plan)))
    names = {entry.object for entry in plan.held}
    counts = Counter(_NOUNS.get(name.partition("/")[0], "other object") for name in names)
    if names:
        texts = join_names([count_text(counts[noun], noun) for noun in sorted(counts)])
        yield f"Decide about what has no wave ({HELD}): {texts}. What you solve gets one by a new plan, from a new snapshot."


def _readings(plan: Plan) -> Iterator[str]:
    """Yield the parts of the page and of the folder to read."""
    if notes := plan.waves[0].notes:
        yield f"Do what the notes of wave 1 ask for ({count_text(len(notes), 'note')}, the first below). Those of later waves are for the time before these."
    pods = {work.pod for wave in plan.waves for work in (*wave.work, *wave.deleted_by_hand)}
    workloads = {
        *(it.object for wave in plan.waves for it in wave.workloads if it.losses),
        *(reference for _, reference, _ in losing_by_claims(plan)),
    }
    losing = [
        count_text(len(names), noun)
        for names, noun in ((workloads, "workload"), (pods, "pod"))
        if names
    ]
    if losing:
        yield f"Tell those whose work it is what {' and '.join(losing)} would lose (below, wave by wave)."
    of_waves = {name for wave in plan.waves for name in plan.quota_namespaces(wave)}
    replaced = {entry.namespace for entry in plan.replaced_lines}
    if namespaces := {*plan.quotas, *(replaced & of_waves)}:
        names = inert(join_names(sorted(namespaces), _MAX_NAMES))
        files = "`quotas/`, and " if plan.quotas else ""
        yield f"Read what becomes of the quotas of {names} ({files}the notes of their waves)."


def _autoscaler_steps(plan: Plan) -> Iterator[str]:
    """Yield the pools and the labels of nodes that autoscalers go by."""
    nodes = [(wave.wave, node) for wave in plan.waves for node in wave.nodes]
    for subject, names in (
        ("node pools that grow by themselves", ((wave, node.pool) for wave, node in nodes)),
        ("labels of GPUs for Cluster Autoscaler", ((wave, node.gpu_label) for wave, node in nodes)),
    ):
        if text := _with_first_waves(names):
            yield f"See to {subject}: {text}."


def _with_first_waves(names: Iterable[tuple[int, str]]) -> str:
    """Return names with the first wave of each, for its notes; empty without any."""
    first: dict[str, int] = {}
    for wave, name in names:
        if name:
            first.setdefault(name, wave)
    return inert(
        join_names([f"{name} (notes of wave {wave})" for name, wave in first.items()], _MAX_NAMES)
    )


def _installations(plan: Plan, settings: str) -> Iterator[str]:
    """Yield the changes and charts that `prepare.sh` leaves to a person."""
    if needs_policy_changes(plan):
        yield "Change two things in ClusterPolicy (notes of wave 1, and comments of `prepare.sh`)."
    if any(wave.opted_in for wave in plan.waves):
        addition = f", with what `{settings}` says" if settings else ""
        yield f"Install Drawbridge in mode `OptIn`{addition}: `prepare.sh` stops until its webhook is called."
    for driver in plan.drivers:
        if driver == NVIDIA:
            continue
        text = f"Install the chart of {inert(driver)} with the flags that `prepare.sh` names: that stops until it is there."
        if resource := chart_names(plan).get(driver):
            text += (
                f" The chart has its DeviceClass map {resource}, too, and `prepare.sh` takes that back: of two classes Kubernetes "
                "takes the younger, so pods for whole devices would come there. Run `prepare.sh` after each upgrade of that chart."
            )
        yield text


def _preparation(plan: Plan) -> Iterator[str]:
    """Yield the run of `prepare.sh`, with its questions and changes."""
    releases = {plan.helm_releases.get(name, "") for name in prepared_objects(plan)}
    for release in sorted(releases):
        entries = f"the entries of `{KUSTOMIZE}/prepare/{release_file(release)}`"
        order = (
            f"Add {entries} to `spec.postRenderers` of HelmRelease {release} in the repository"
            if release
            else f"Commit `{KUSTOMIZE}/prepare` to the repository"
        )
        yield f"{order} when `prepare.sh` asks for it, not earlier."
    texts = ["Run `prepare.sh`, which installs drivers that wait for their node label."]
    texts += release_texts(plan)
    if stops := [entry.object for entry in plan.held if entry.stops_preparation]:
        names = join_names([reference_text(name) for name in stops])
        texts.append(
            f"It asks first about {inert(names)}, whose next pods would be rejected ({HELD})."
        )
    if changed := [*_changed_by_script(plan)]:
        texts.append(f"It changes {inert(join_names(changed, _MAX_NAMES))}.")
    yield " ".join(texts)


def _changed_by_script(plan: Plan) -> Iterator[str]:
    """Yield the objects that `prepare.sh` changes itself, as `Kind/name` or `Kind/namespace/name`."""
    for name in sorted(remapped_classes(plan)):
        if not in_repository(plan, "DeviceClass", "", name):
            yield f"DeviceClass/{name}"
    for plugin in changed_plugins(plan):
        yield f"{DAEMON_SET}/{plugin.namespace}/{plugin.name}"
