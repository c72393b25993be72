"""The changes to the document of a pod, step by step."""

from typing import Any, NamedTuple

import pytest

from kube.jsonpatch import Operation, apply
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    admit,
    container,
    gpus,
    limits,
    pod,
    pod_view,
    translation_of,
    with_changes,
)
from testing.documents import Document
from translation.pipeline.patch import restore_pod, strip_keys

ANNOTATION = "/metadata/annotations/drawbridge.internal~1request"


def steps(operations: tuple[Operation, ...]) -> list[str]:
    """Each operation as `op path`, the annotation's text and the claims apart."""
    return [f"{operation.op} {operation.path}" for operation in operations]


class Case(NamedTuple):
    name: str
    pod: Document
    want: list[str]


MAIN = "/spec/containers/0/resources"

CASES = (
    Case(
        "limits that held nothing else are removed",
        pod(gpus(1)),
        [
            f"remove {MAIN}/limits",
            f"remove {MAIN}/requests",
            f"add {MAIN}/claims",
            "add /spec/resourceClaims",
            "add /metadata/annotations",
        ],
    ),
    Case(
        "others stay",
        pod(gpus(1, cpu=1), annotations={"a": "b"}),
        [
            f"remove {MAIN}/limits/nvidia.com~1gpu",
            f"remove {MAIN}/requests/nvidia.com~1gpu",
            f"add {MAIN}/claims",
            "add /spec/resourceClaims",
            f"add {ANNOTATION}",
        ],
    ),
    Case(
        "claims that are there stay",
        pod(
            container(
                resources={"limits": limits(1), "claims": [{"name": "nic"}]},
            ),
            resourceClaims=[{"name": "nic", "resourceClaimName": "nic-1"}],
        ),
        [
            f"remove {MAIN}/limits",
            f"add {MAIN}/claims/-",
            "add /spec/resourceClaims/-",
            "add /metadata/annotations",
        ],
    ),
    Case(
        "null and empty are nothing",
        pod(
            container(resources={"limits": limits(1), "requests": None, "claims": None}),
            initContainers=None,
            resourceClaims=[],
        ),
        [
            f"remove {MAIN}/limits",
            f"add {MAIN}/claims",
            "add /spec/resourceClaims",
            "add /metadata/annotations",
        ],
    ),
    Case(
        "a variable goes to the end of those that are there",
        pod(gpus(mem=1, priority=1, fields={"env": [{"name": "A"}]})),
        [
            f"remove {MAIN}/limits",
            f"remove {MAIN}/requests",
            f"add {MAIN}/claims",
            "add /spec/containers/0/env/-",
            "add /spec/resourceClaims",
            "add /metadata/annotations",
        ],
    ),
    Case(
        "init containers come first",
        pod(gpus(1), init=(gpus(1, name="i"),)),
        [
            *(f"remove /spec/initContainers/0/resources/{part}" for part in ("limits", "requests")),
            *(f"remove {MAIN}/{part}" for part in ("limits", "requests")),
            "add /spec/initContainers/0/resources/claims",
            f"add {MAIN}/claims",
            "add /spec/resourceClaims",
            "add /metadata/annotations",
        ],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_translating(case: Case) -> None:
    _, answer = admit(case.pod)

    assert case.want == steps(answer.operations)


def labels(document: Document) -> list[str]:
    return [entry["name"] for entry in document["spec"]["resourceClaims"]]


def test_a_name_that_the_pod_uses_is_left_to_it() -> None:
    used = [{"name": "gpu", "resourceClaimName": "x"}, {"name": "gpu-2", "resourceClaimName": "y"}]

    after, _ = admit(pod(gpus(1), resourceClaims=used))

    assert labels(after) == ["gpu", "gpu-2", "gpu-3"]
    assert after["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "gpu-3", "request": "gpu"}
    ]


def test_a_long_name_that_the_pod_uses_stays_a_label() -> None:
    name = "x" * 59
    used = [{"name": f"gpu-{name}", "resourceClaimName": "x"}]

    after, _ = admit(pod(gpus(1, mem=1, name=name), resourceClaims=used))

    assert [f"gpu-{name}", f"gpu-{name[:57]}-2"] == labels(after)


def test_a_variable_that_the_pod_sets_stays_as_it_is() -> None:
    own = [{"name": "CUDA_TASK_PRIORITY", "value": "0"}]

    after, answer = admit(pod(gpus(mem=1, priority=1, fields={"env": own})))

    assert own == after["spec"]["containers"][0]["env"]
    assert "existingValueKept" in [finding.code for finding in answer.findings]


def test_stripping_takes_only_what_was_recorded() -> None:
    document = pod(gpus(1, mem=2), gpus(1, name="other"))

    after = apply(with_changes(document), strip_keys(document, {"main": {"nvidia.com/gpu"}}))

    assert [list(entry["resources"]["limits"]) for entry in after["spec"]["containers"]] == [
        ["nvidia.com/gpumem"],
        ["nvidia.com/gpu"],
    ]


UNDONE = (
    ("one container", pod(gpus(1))),
    ("other resources", pod(gpus(1, cpu=1, memory="1Gi"))),
    (
        "other claims",
        pod(
            container(resources={"limits": limits(1), "claims": [{"name": "nic"}]}),
            resourceClaims=[{"name": "nic", "resourceClaimName": "x"}],
        ),
    ),
    (
        "several containers",
        pod(gpus(1, mem=1), gpus(mem=2, name="b"), container("c"), init=(gpus(mem=1, name="i"),)),
    ),
    ("both vocabularies", pod(gpus(mem=1, mig_1g_5gb=1))),
)


@pytest.mark.parametrize(("name", "document"), UNDONE, ids=[name for name, _ in UNDONE])
def test_untranslating_gives_the_keys_back(name: str, document: Document) -> None:
    outcome = translation_of(document)
    after, _ = admit(document)
    recorded = {
        legacy_container.name: {k: str(v) for k, v in legacy_container.limits.items()}
        for legacy_container in outcome.record.containers
    }

    undone = apply(with_changes(after), restore_pod(after, outcome.claims, recorded))

    assert limits_of(document) == limits_of(undone)
    assert REQUEST_ANNOTATION not in pod_view(undone).annotations
    again, _ = admit(undone)
    assert after == again


def limits_of(document: Document) -> list[Any]:
    spec = document["spec"]
    every = [*spec.get("initContainers", ()), *spec["containers"]]
    return [(entry.get("resources") or {}).get("limits") for entry in every]
