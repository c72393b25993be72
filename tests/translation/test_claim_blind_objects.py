"""Objects that name device keys, and so do not see the claims of translated pods."""

from typing import Any, NamedTuple

import pytest

from findings.finding import Severity
from testing.builders import Document, finding_texts
from translation.claim_blind_objects import MAX_VALUES, find_unseen_claims

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
CLASS = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def of_kind(kind: str, **spec: Any) -> Document:
    return {"kind": kind, "metadata": {"name": "a"}, "spec": spec}


def policy(kind: str, *expressions: str) -> Document:
    return of_kind(kind, validations=[{"expression": text} for text in expressions])


ONE_GPU = f'object.spec.containers.all(c, int(c.resources.limits["{GPU}"]) <= 1)'


class Case(NamedTuple):
    name: str
    document: Document
    path: str = ""
    """Empty for no finding."""


CASES = (
    Case("a quota on a key", of_kind("ResourceQuota", hard={f"requests.{GPU}": "4"}), "spec.hard"),
    Case("a quota on CPU", of_kind("ResourceQuota", hard={"requests.cpu": "4", "pods": "9"})),
    Case(
        "a quota on a key and on the class",
        of_kind("ResourceQuota", hard={f"requests.{GPU}": "4", CLASS: "4"}),
    ),
    Case(
        "a LimitRange",
        of_kind("LimitRange", limits=[{"type": "Container", "max": {MEMORY: "9k"}}]),
        "spec.limits[0].max",
    ),
    Case(
        "a policy",
        policy("ValidatingAdmissionPolicy", "true", ONE_GPU),
        "spec.validations[1].expression",
    ),
    Case(
        "a policy that mutates",
        policy("MutatingAdmissionPolicy", ONE_GPU),
        "spec.validations[0].expression",
    ),
    Case("a policy on another domain", policy("ValidatingAdmissionPolicy", 'x["example.com/gpu"]')),
    Case("a pod", of_kind("Pod", containers=[{"resources": {"limits": {GPU: "1"}}}])),
    Case("a kind that is no text", {"kind": 7, "spec": {"hard": {GPU: "1"}}}),
    Case("a spec that is a list", {"kind": "LimitRange", "spec": [GPU]}),
    Case("no spec", {"kind": "ResourceQuota"}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_find_unseen_claims(case: Case) -> None:
    want = [f"warning claimsNotSeen {case.path}"] if case.path else []

    assert finding_texts(find_unseen_claims(case.document)) == want


def test_all_keys_of_an_object_are_one_finding() -> None:
    hard = {f"requests.{key}": "1" for key in (GPU, MEMORY, "nvidia.com/gpucores")}

    (finding,) = find_unseen_claims(of_kind("ResourceQuota", hard=hard))

    assert finding.severity is Severity.WARNING
    assert finding.message.startswith(
        "names nvidia.com/gpu, nvidia.com/gpucores, nvidia.com/gpumem"
    )


def test_a_huge_object_is_searched_up_to_a_bound() -> None:
    texts = ["x"] * (2 * MAX_VALUES) + [GPU]

    assert len(list(find_unseen_claims(of_kind("LimitRange", limits=texts)))) <= 1
