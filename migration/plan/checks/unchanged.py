"""Checks of the fields that a wave changes: they still have the values that its plan saw. Pure.

A second run of a wave finds it changed already, and that is right, too.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from kube.quantity import Quantity
from migration.cluster.evidence import mapping_at, text_map
from migration.conversion.quota_amounts import read_amount
from migration.conversion.replaced_lines import stored_amount
from migration.plan.checks.checks import Check, ClusterView, failed_check, note_check
from migration.plan.model.plan import Plan, Wave

QUOTAS: Final = "resourcequotas"
_AGAIN: Final = "put that back, or plan again from a new snapshot"
_WRITTEN: Final = (
    "{} is {}, as much as {}, which the plan expects; its scripts compare the texts: {}"
)


def check_unchanged(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for each value that somebody else has changed since the plan was made.

    Args:
        plan: The whole plan.
        wave: The wave that changes them.
        view: The cluster.
    """
    for namespace in wave.opted_in:
        target = "true" if namespace in wave.namespaces else TRANSLATE_SELECTED
        expected = {wave.former_labels.get(namespace), target}
        document = view.find("Namespace", namespace)
        value = text_map(document, "metadata", "labels").get(TRANSLATE_LABEL)
        if document is not None and value not in expected:
            yield _changed(f"Namespace//{namespace}", f"label {TRANSLATE_LABEL}", value, expected)
    for namespace in plan.quota_namespaces(wave):
        yield from _check_quotas(plan, namespace, view)
    for workload in wave.workloads:
        group = view.groups.get(workload.object)
        if not workload.labelled or group is None or group.owner is None:
            continue
        labels = text_map(group.owner.document, "spec", "template", "metadata", "labels")
        value = labels.get(TRANSLATE_LABEL)
        if value not in {None, "true"}:
            text = f"label {TRANSLATE_LABEL} of its template"
            yield _changed(workload.object, text, value, {None, "true"})


def _check_quotas(plan: Plan, namespace: str, view: ClusterView) -> Iterator[Check]:
    """Yield the lines of ResourceQuotas of a namespace that have other amounts than the plan saw."""
    expected: dict[str, dict[str, set[str | None]]] = {}
    for file in plan.quotas.get(namespace, ()):
        name = file.removeprefix(f"{namespace}.").removesuffix(".yaml")
        lines = plan.quota_lines.get(file)
        if lines is not None:
            amounts = expected.setdefault(name, {})
            amounts |= {line: {amount} for line, amount in lines.before.items()}
            amounts |= {line: {None, amount} for line, amount in lines.added.items()}
    for entry in plan.replaced_lines:
        if entry.namespace == namespace:
            amounts = expected.setdefault(entry.name, {})
            amounts |= {line: {amount, None} for line, amount in entry.amounts.items()}
    for name, amounts in expected.items():
        reference = f"ResourceQuota/{namespace}/{name}"
        document = view.find("ResourceQuota", name, namespace)
        if document is None and QUOTAS in view.unreadable:
            yield note_check(reference, "it cannot be read: see that its lines are as planned")
        elif document is None:
            yield failed_check(reference, "there is none: plan again from a new snapshot")
        else:
            yield from _check_lines(reference, mapping_at(document, "spec", "hard"), amounts)


def _check_lines(
    reference: str, hard: Mapping[str, object], expected: Mapping[str, set[str | None]]
) -> Iterator[Check]:
    for line, amounts in expected.items():
        # A plan has amounts as the API server stores them, and a file may have them in another way.
        value = stored_amount(hard[line]) if line in hard else None
        if value in amounts:
            continue
        equal = next((text for text in amounts if _is_same_amount(value, text)), None)
        if equal is not None:
            yield failed_check(reference, _WRITTEN.format(line, value, equal, _AGAIN))
        else:
            yield _changed(reference, line, value, amounts)


def _is_same_amount(text: str | None, other: str | None) -> bool:
    """Return True if two texts are one amount, as 1e3 and 1k; the API server stores each as it is."""
    amounts = [read_amount(entry) for entry in (text, other)]
    return amounts[0] == amounts[1] and isinstance(amounts[0], Quantity)


def _changed(reference: str, field: str, value: str | None, expected: set[str | None]) -> Check:
    texts = sorted("missing" if entry is None else entry for entry in expected)
    now = "missing" if value is None else value
    return failed_check(
        reference, f"{field} is {now}, and the plan expects {' or '.join(texts)}: {_AGAIN}"
    )
