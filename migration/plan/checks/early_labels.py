"""Checks of the labels that opt namespaces in: none has its label before its wave. Pure.

A repository gives namespaces their labels too early where the patches of all waves are committed at once.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from findings.text import join_names
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.cluster.evidence import text_map
from migration.plan.checks.checks import Check, ClusterView, failed_check
from migration.plan.facts.opted_in import opted_in_workloads
from migration.plan.model.plan import Plan, Wave

_EARLY: Final = (
    f"label {TRANSLATE_LABEL} is {{}} already, before wave {{}} opts it in: new pods{{}} get claims before the nodes for these "
    "are switched; set it back ({}; in your repository if it is there), or plan again from a new snapshot"
)
_REST: Final = (
    f"label {TRANSLATE_LABEL} is true, and no wave opts in more than the workloads of wave {{}}: new pods of the others get claims "
    "that no node may serve; set it back ({}; in your repository if it is there), or plan again from a new snapshot"
)
_RANKS: Final = {TRANSLATE_SELECTED: 1, "true": 2}
"""The values that opt in; the second one opts in more pods."""


def check_early_labels(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for each namespace that has more pods opted in than before its next wave.

    Where its label selects pods by theirs, that takes a pod template, or a pod, with the label.

    Args:
        plan: The whole plan.
        wave: The wave that is to begin.
        view: The cluster.
    """
    next_waves: dict[str, Wave] = {}
    for later in plan.waves[plan.waves.index(wave) :]:
        for namespace in later.opted_in:
            next_waves.setdefault(namespace, later)
    for namespace, later in next_waves.items():
        document = view.find("Namespace", namespace)
        value = text_map(document, "metadata", "labels").get(TRANSLATE_LABEL)
        # A wave without nodes may have its own labels, and any other value than its own fails as changed.
        if later is wave and (not wave.nodes or value != _label_of(wave, namespace)):
            continue
        former = later.former_labels.get(namespace)
        if _RANKS.get(str(value), 0) <= _RANKS.get(str(former), 0):
            continue
        own_pods = ""
        if value == TRANSLATE_SELECTED:
            names = opted_in_workloads(view.groups.values(), namespace)
            if not names:
                continue
            own_pods = f" of {join_names(names)}, which have this label with true,"
        message = _EARLY.format(value, later.wave, own_pods, _former_label(namespace, former))
        yield failed_check(f"Namespace//{namespace}", message)
    yield from _wide_labels(plan, wave, view)


def _wide_labels(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for each namespace with parts in earlier waves that is opted in as a whole, and by no wave."""
    whole = {name for entry in plan.waves for name in entry.namespaces}
    parts: dict[str, list[str]] = {}
    for entry in plan.waves:
        for part in entry.partial_namespaces:
            parts.setdefault(part.namespace, []).append(str(entry.wave))
    ended = {name for entry in plan.waves[: plan.waves.index(wave)] for name in entry.opted_in}
    for name in sorted((parts.keys() & ended) - whole):
        label = text_map(view.find("Namespace", name), "metadata", "labels").get(TRANSLATE_LABEL)
        if label == "true":
            command = _former_label(name, TRANSLATE_SELECTED)
            text = _REST.format(", ".join(parts[name]), command)
            yield failed_check(f"Namespace//{name}", text)


def _label_of(wave: Wave, namespace: str) -> str:
    """Return the value that a wave sets."""
    return "true" if namespace in wave.namespaces else TRANSLATE_SELECTED


def _former_label(namespace: str, value: str | None) -> str:
    """Return the command that sets a label back."""
    change = f"{TRANSLATE_LABEL}-" if value is None else f"{TRANSLATE_LABEL}={value}"
    overwrite = () if value is None else ("--overwrite",)
    return shlex.join(("kubectl", "label", "namespace", namespace, change, *overwrite))
