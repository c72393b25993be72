"""Fields that pods do not have: kubectl rejects them, everybody else has them dropped in silence."""

from typing import Any

import pytest

from findings.field_path import FieldPath
from rules.model.recorded_pods import FIELDS
from rules.objects.pod_fields import MAX_FINDINGS, find_unknown_pod_fields
from testing.documents import api_object

POD = api_object("Pod", "p", labels={"any": "label"})
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("limit for limits asks for no GPU", {"containers": [{"resources": {"limit": {"nvidia.com/gpumem": 3000}}}]},
     ('spec.containers[0].resources.limit: Kubernetes 1.37 has no field "limit" here, and drops it, so '
     '"nvidia.com/gpumem" is not requested; did you mean "limits"?')),
    ("the slide's request", {"containers": [{"resources": {"request": {}}}]},
     ('spec.containers[0].resources.request: Kubernetes 1.37 has no field "request" here, and drops it; did you '
     'mean "requests"?')),
    ("a field of the pod", {"nodeSelectors": {"a": "b"}},
     'spec.nodeSelectors: Kubernetes 1.37 has no field "nodeSelectors" here, and drops it; did you mean "nodeSelector"?'),
    ("a claim of a container", {"initContainers": [{"resources": {"claims": [{"nam": "gpu"}]}}]},
     ('spec.initContainers[0].resources.claims[0].nam: Kubernetes 1.37 has no field "nam" here, and drops it; did '
     'you mean "name"?')),
]  # fmt: skip


def texts(raw: object, *, is_template: bool = False) -> list[str]:
    findings = find_unknown_pod_fields(raw, FieldPath.of(), is_template=is_template)
    return [f"{entry.path}: {entry.message}; {entry.fix}" for entry in findings]


@pytest.mark.parametrize(("_name", "spec", "expected"), CASES, ids=[case[0] for case in CASES])
def test_an_unknown_field_is_named(_name: str, spec: dict[str, Any], expected: str) -> None:
    assert texts({**POD, "spec": spec}) == [expected]


def test_known_fields_and_free_maps_are_no_findings() -> None:
    container = {
        "name": "main",
        "resources": {"limits": {"nvidia.com/gpu": 1}, "claims": [{"name": "a", "request": "b"}]},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    spec = {"nodeSelector": {"any": "value"}, "containers": [container]}

    assert texts({**POD, "spec": spec, "status": {"phase": "Running"}}) == []
    assert texts({"metadata": {}, "spec": spec}, is_template=True) == []


@pytest.mark.parametrize("raw", [None, 1, [1], {"spec": 1}, {"spec": {"containers": "x"}}])
def test_values_of_wrong_types_are_reported_elsewhere(raw: object) -> None:
    assert texts(raw) == []


def test_a_pod_has_a_bounded_number_of_findings() -> None:
    assert len(texts({f"x{number}": 1 for number in range(100)})) == MAX_FINDINGS


def test_every_recorded_type_is_reached() -> None:
    kinds = {word.partition("=")[2] for words in FIELDS.values() for word in words.split()}

    assert kinds - {""} | {"Pod", "PodTemplateSpec"} == set(FIELDS)
