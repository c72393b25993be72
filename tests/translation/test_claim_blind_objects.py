"""Objects that name device keys, and so do not see the claims of translated pods."""

from typing import Any, NamedTuple

import pytest

from findings.finding import Severity
from testing.builders import finding_texts
from testing.documents import Document
from translation.model.dimensions import AMOUNT_FIX, PERCENTAGE_FIX
from translation.reading.claim_blind_objects import MAX_VALUES, find_unseen_claims

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
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
    Case(
        "a quota of HAMi's scheduler",
        of_kind("ResourceQuota", hard={f"limits.{MEMORY}": "4000"}),
        "spec.hard",
    ),
    Case("a quota on CPU", of_kind("ResourceQuota", hard={"requests.cpu": "4", "pods": "9"})),
    Case(
        "a quota on a key and on the class",
        of_kind("ResourceQuota", hard={f"requests.{GPU}": "4", CLASS: "4"}),
    ),
    Case(
        "a quota on memory and on the class, of which it counts the devices only",
        of_kind("ResourceQuota", hard={f"requests.{MEMORY}": "4000", CLASS: "4"}),
        "spec.hard",
    ),
    Case(
        "a quota on a key and on the implicit name of the class, which counts claims",
        of_kind("ResourceQuota", hard={f"requests.{GPU}": "4", f"requests.{IMPLICIT}": "4"}),
    ),
    Case(
        "a quota with a scope, which does not",
        of_kind("ResourceQuota", hard={f"requests.{IMPLICIT}": "4"}, scopes=["NotTerminating"]),
        "spec.hard",
    ),
    Case(
        "a LimitRange on the implicit name",
        of_kind("LimitRange", limits=[{"type": "Container", "max": {IMPLICIT: "1"}}]),
        "spec.limits[0].max",
    ),
    Case(
        "a policy on the implicit name",
        policy("ValidatingAdmissionPolicy", f'!("{IMPLICIT}" in x)'),
        "spec.validations[0].expression",
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


def foreign(api_version: str, kind: str, **spec: Any) -> Document:
    return {"apiVersion": api_version, **of_kind(kind, **spec)}


FOREIGN = (
    Case(
        "an ElasticQuota",
        foreign("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", max={MEMORY: "20480"}),
        "spec.max",
    ),
    Case(
        "a profile of ElasticQuotas",
        foreign(
            "quota.koordinator.sh/v1alpha1",
            "ElasticQuotaProfile",
            resourceKeys=["koordinator.sh/gpu-memory"],
        ),
        "spec.resourceKeys[0]",
    ),
    Case(
        "a quota of tensor-fusion, in words of its own",
        foreign("tensor-fusion.ai/v1", "GPUResourceQuota", total={"requests": {"vram": "20Gi"}}),
        "spec.total.requests",
    ),
    Case(
        "a queue of Volcano",
        foreign("scheduling.volcano.sh/v1beta1", "Queue", capability={GPU: 4}),
        "spec.capability",
    ),
    Case("one on CPU", foreign("scheduling.volcano.sh/v1beta1", "Queue", capability={"cpu": 4})),
    Case(
        "a queue of KAI",
        foreign("scheduling.run.ai/v2", "Queue", resources={"gpu": {"quota": 4}}),
        "spec.resources",
    ),
    Case("a queue of somebody else", foreign("a.example/v1", "Queue", capability={GPU: 4})),
)


@pytest.mark.parametrize("case", FOREIGN, ids=lambda case: case.name)
def test_quotas_and_queues_of_other_schedulers_see_no_claims(case: Case) -> None:
    findings = list(find_unseen_claims(case.document))

    assert [str(finding.path) for finding in findings] == [case.path] * bool(case.path)
    assert all("scheduler keeps are counted as before" in finding.fix for finding in findings)


@pytest.mark.parametrize(
    ("document", "fix"),
    [
        (
            of_kind("ResourceQuota", hard={f"requests.{GPU}": "4"}),
            "count DEVICECLASS.deviceclass.resource.k8s.io/devices, too",
        ),
        (of_kind("ResourceQuota", hard={f"requests.{MEMORY}": "4"}), AMOUNT_FIX),
        (
            of_kind("ResourceQuota", hard={f"requests.{MEMORY}": "4", f"requests.{GPU}": "4"}),
            f"count DEVICECLASS.deviceclass.resource.k8s.io/devices, too; {AMOUNT_FIX}",
        ),
        (
            of_kind(
                "ResourceQuota",
                hard={f"requests.{MEMORY}": "4", f"requests.{MEMORY}-percentage": "400"},
            ),
            f"{AMOUNT_FIX}; {PERCENTAGE_FIX}",
        ),
        (
            of_kind("LimitRange", limits=[{"type": "Container", "max": {MEMORY: "9k"}}]),
            "limit claims by a DeviceQuota, which has perRequest and perDevice",
        ),
        (
            FOREIGN[0].document,
            (
                "pods that Koordinator's scheduler keeps are counted as before; limit claims by a DeviceQuota "
                "(see drawbridge quota convert), or by Kueue"
            ),
        ),
    ],
    ids=["devices", "memory", "both", "a percentage", "LimitRange", "ElasticQuota"],
)
def test_a_number_of_devices_is_no_cure_for_a_limit_of_memory(document: Document, fix: str) -> None:
    """The count of a class took the warning away, and three pods of 70000 MiB passed a quota of 30000."""
    assert [finding.fix for finding in find_unseen_claims(document)] == [fix]
