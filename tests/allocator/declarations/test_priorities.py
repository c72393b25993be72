"""Priorities of pods and PodGroups, as the API server writes them by their PriorityClasses."""

from typing import Any, Final

import pytest

from allocator.declarations.pod_group import PodGroup
from allocator.declarations.priorities import PriorityClass, read_priorities
from kube.api.core import Pod
from kube.api.meta import convert

HIGH: Final = {"metadata": {"name": "high"}, "value": 1000}
BATCH: Final = {
    "metadata": {"name": "batch"},
    "value": -5,
    "globalDefault": True,
    "preemptionPolicy": "Never",
}
OTHER_DEFAULT: Final = {"metadata": {"name": "other"}, "value": 7, "globalDefault": True}
UNKNOWN: Final = (None, "", None)


def resolved(spec: dict[str, Any], *classes: dict[str, Any]) -> tuple[int | None, str, str | None]:
    priorities = read_priorities([convert(entry, PriorityClass) for entry in classes])
    spec_after = priorities.of_pod(convert({"spec": spec}, Pod)).spec
    return spec_after.priority, spec_after.priority_class_name, spec_after.preemption_policy


@pytest.mark.parametrize(
    ("want", "spec", "classes"),
    [
        ((1000, "high", "PreemptLowerPriority"), {"priorityClassName": "high"}, [HIGH]),
        ((-5, "batch", "Never"), {"priorityClassName": "batch"}, [BATCH]),
        ((-5, "batch", "Never"), {}, [HIGH, BATCH]),
        # Of two default classes the lowest counts.
        ((-5, "batch", "Never"), {}, [OTHER_DEFAULT, BATCH]),
        ((0, "", "PreemptLowerPriority"), {}, [HIGH]),
        # The cluster may have a default class.
        (UNKNOWN, {}, []),
        ((None, "low", None), {"priorityClassName": "low"}, [HIGH]),
        ((7, "high", None), {"priorityClassName": "high", "priority": 7}, [HIGH]),
        (
            (2_000_001_000, "system-node-critical", "PreemptLowerPriority"),
            {"priorityClassName": "system-node-critical"},
            [],
        ),
        (
            (2_000_000_000, "system-cluster-critical", "PreemptLowerPriority"),
            {"priorityClassName": "system-cluster-critical"},
            [HIGH],
        ),
    ],
)
def test_a_pod_has_the_priority_of_its_class(
    want: tuple[int | None, str, str | None],
    spec: dict[str, Any],
    classes: list[dict[str, Any]],
) -> None:
    assert want == resolved(spec, *classes)


@pytest.mark.parametrize(
    ("want", "api_version"),
    [(1000, "scheduling.k8s.io/v1beta1"), (None, "scheduling.volcano.sh/v1beta1")],
)
def test_a_group_of_kubernetes_has_the_priority_of_its_class(
    want: int | None, api_version: str
) -> None:
    document = {"apiVersion": api_version, "spec": {"priorityClassName": "high"}}
    priorities = read_priorities([convert(HIGH, PriorityClass)])

    assert priorities.of_group(convert(document, PodGroup)).spec.priority == want
