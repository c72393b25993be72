"""Pods that come without our annotation: the outcome, and the fields that they keep."""

from typing import NamedTuple

import pytest

from admission.pods import Decision
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    NAMESPACE,
    admit,
    container,
    finding_codes,
    finding_texts,
    gpus,
    pod,
    translation_of,
    translation_snapshot,
    with_changes,
)
from testing.documents import Document
from translation.cluster.snapshot import TemplateSummary, TranslationSnapshot


class Case(NamedTuple):
    name: str
    pod: Document
    want: Decision
    expected_warnings: tuple[str, ...] = ()


CASES = (
    Case("nothing is asked", pod(container()), Decision.UNTOUCHED),
    Case("a GPU is asked", pod(gpus(1)), Decision.TRANSLATED),
    Case("half a GPU is asked", pod(gpus("500m")), Decision.REFUSED, ("error notAnInteger",)),
    Case(
        "a foreign scheduler",
        pod(gpus(1), schedulerName="x"),
        Decision.UNTOUCHED,
        ("warning foreignScheduler",),
    ),
    Case(
        "zero GPUs with companions are stripped",
        pod(gpus(0, mem=1)),
        Decision.TRANSLATED,
        ("warning noDeviceRequested",),
    ),
    Case(
        "a lossy step is warned",
        pod(gpus(cores=150)),
        Decision.TRANSLATED,
        ("warning clamped",),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decision(case: Case) -> None:
    after, answer = admit(case.pod)

    assert case.want == answer.decision
    assert case.expected_warnings == tuple(finding_codes(answer.findings))
    assert answer.allowed is (case.want is not Decision.REFUSED)
    assert (after != case.pod) is (case.want is Decision.TRANSLATED)


def test_the_whole_pod() -> None:
    before = pod(
        gpus(1, mem=3000, cores=30, cpu=2), init=(container("init"),), annotations={"a": "b"}
    )

    after, answer = admit(before)

    (claim,) = answer.claims
    text = after["metadata"]["annotations"].pop(REQUEST_ANNOTATION)
    assert text.startswith('{"containers":')
    assert after == pod(
        container(
            resources={
                "limits": {"cpu": "2"},
                "requests": {"cpu": "2"},
                "claims": [{"name": "gpu-main", "request": "gpu"}],
            }
        ),
        init=(container("init"),),
        annotations={"a": "b"},
        resourceClaims=[{"name": "gpu-main", "resourceClaimTemplateName": claim.template}],
    )


def test_what_we_do_not_model_survives() -> None:
    before = with_changes(pod(gpus(1)), spec__newField={"deep": [1, None]}, status={})

    after, _ = admit(before)

    assert (before["spec"]["newField"], {}) == (after["spec"]["newField"], after["status"])


def test_ephemeral_containers_are_not_ours() -> None:
    before = pod(gpus(1), ephemeralContainers=[container("debug")])

    after, _ = admit(before)

    assert before["spec"]["ephemeralContainers"] == after["spec"]["ephemeralContainers"]


NAMELESS = (
    {"generateName": "train-"},
    {"name": "x" * 63},
    {"generateName": "x" * 58, "namespace": "a-b"},
)


@pytest.mark.parametrize("metadata", NAMELESS, ids=str)
def test_the_name_of_the_pod_does_not_matter(metadata: Document) -> None:
    _, named = admit(pod(gpus(1, mem=1)))

    _, answer = admit(with_changes(pod(gpus(1, mem=1)), metadata=metadata))

    assert named.claims == answer.claims


def test_a_pod_that_lost_its_metadata_is_still_translated() -> None:
    after, _ = admit(with_changes(pod(gpus(1)), metadata=None))

    assert list(after["metadata"]["annotations"]) == [REQUEST_ANNOTATION]


def with_template(digest: str | None = None, namespace: str = NAMESPACE) -> TranslationSnapshot:
    (claim,) = translation_of(pod(gpus(1))).claims
    return translation_snapshot(
        templates={(namespace, claim.template): TemplateSummary(digest=digest or claim.digest)}
    )


def test_a_template_with_our_content_is_ours() -> None:
    _, answer = admit(pod(gpus(1)), with_template())

    assert answer.decision == Decision.TRANSLATED


def test_a_template_with_other_content_refuses_the_pod() -> None:
    _, answer = admit(pod(gpus(1)), with_template("poisoned"))

    assert answer.decision == Decision.REFUSED
    assert finding_texts(answer.findings) == ["error templateConflict spec.resourceClaims"]


@pytest.mark.parametrize(
    ("name", "classes", "want"),
    [
        ("mine", {"gpu.nvidia.com"}, ["warning duplicateClaim spec.resourceClaims[0]"]),
        ("mine", {"mig.nvidia.com"}, ["warning duplicateClaim spec.resourceClaims[0]"]),
        ("mine", {"nics.example"}, []),
        ("unknown", {"gpu.nvidia.com"}, []),
    ],
    ids=["the same class", "another class of the driver", "another driver", "not known"],
)
def test_a_claim_of_the_pods_own_beside_keys_for_the_same_driver_is_warned_about(
    name: str, classes: set[str], want: list[str]
) -> None:
    own = TemplateSummary(digest="a", classes=frozenset(classes))
    claimed = [{"name": "own", "resourceClaimTemplateName": name}]

    _, answer = admit(
        pod(gpus(1), resourceClaims=claimed),
        translation_snapshot(templates={(NAMESPACE, "mine"): own}),
    )

    assert (Decision.TRANSLATED, want) == (answer.decision, finding_texts(answer.findings))


def test_a_template_with_other_content_refuses_a_translated_pod() -> None:
    after, _ = admit(pod(gpus(1)))

    _, answer = admit(after, with_template("poisoned"))

    assert answer.decision == Decision.REFUSED


def test_a_template_of_another_namespace_does_not_matter() -> None:
    _, answer = admit(pod(gpus(1)), with_template("poisoned", "team-b"))

    assert answer.decision == Decision.TRANSLATED
