"""Pods with so much in them that other reviews would wait: refused before they are looked at."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from admission.objects import validate_object
from admission.pod_sizes import MAX_ALL_CONTAINERS, MAX_AMOUNTS, MAX_ANNOTATIONS, MAX_CLAIMS
from admission.pods import MAX_FINDINGS, UNTOUCHED, Decision, admit_created, first_findings
from findings.field_path import FieldPath
from findings.finding import Code, error, info
from rules.context.context import Context
from rules.engine.engine import Target
from testing.builders import (
    NAMESPACE,
    admit,
    admit_update,
    container,
    finding_texts,
    gpus,
    limits,
    pod,
    pod_view,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import Outcome
from translation.record.record import MAX_CONTAINERS


class Large(NamedTuple):
    """A pod of some size.

    Attributes:
        most: The largest that is still read.
    """

    name: str
    make: Callable[[int], Document]
    most: int
    path: str = "spec"


def with_claims(count: int) -> Document:
    return pod(gpus(1), resourceClaims=[{"name": str(number)} for number in range(count)])


def with_containers(count: int) -> Document:
    return pod(gpus(1), *(container(f"c{number}") for number in range(count - 1)))


def with_uses(count: int) -> Document:
    uses = [{"name": str(number)} for number in range(count)]
    return pod(container(resources={"limits": limits(1), "claims": uses}))


def with_keys(count: int) -> Document:
    names = [f"nvidia.com/mig-{number}g.5gb" for number in range(count)]
    return pod(container(resources={"limits": dict.fromkeys(names, "1")}))


def with_other_amounts(count: int) -> Document:
    names = [f"nvidai.com/{number}" for number in range(count - 2)]
    return pod(gpus(1), container("other", resources={"limits": dict.fromkeys(names, "1")}))


PODS = (
    Large(
        "containers that ask for devices",
        lambda count: pod(*(gpus(0, name=str(number)) for number in range(count))),
        MAX_CONTAINERS,
    ),
    Large(
        "init containers that ask for devices",
        lambda count: pod(init=[gpus(0, name=str(number)) for number in range(count)]),
        MAX_CONTAINERS,
    ),
    Large("keys of one container", with_keys, MAX_AMOUNTS),
    Large("amounts of a container without devices", with_other_amounts, MAX_AMOUNTS),
    Large("containers", with_containers, MAX_ALL_CONTAINERS),
    Large("claims", with_claims, MAX_CLAIMS),
    Large("uses of claims", with_uses, MAX_CLAIMS),
    Large(
        "a long annotation",
        lambda count: pod(gpus(1), annotations={"nvidia.com/use-gputype": "a" * count}),
        MAX_ANNOTATIONS,
        "metadata.annotations",
    ),
)


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_what_is_beyond_the_limit_is_refused(case: Large) -> None:
    _, answer = admit(case.make(case.most + 1))

    assert finding_texts(answer.findings) == [f"error tooLarge {case.path}"]


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_what_is_within_the_limit_is_read(case: Large) -> None:
    _, answer = admit(case.make(case.most))

    assert not any("tooLarge" in finding_text for finding_text in finding_texts(answer.findings))


def test_many_containers_without_devices_are_no_matter() -> None:
    _, answer = admit(pod(*(container(str(number)) for number in range(MAX_CONTAINERS + 1))))

    assert answer.decision is Decision.UNTOUCHED


@pytest.mark.parametrize(
    "container_",
    [
        container(),
        container(resources={"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}}),
    ],
    ids=["without devices", "with the implicit name of a class"],
)
def test_more_containers_than_a_node_can_run_are_not_translated(container_: Document) -> None:
    """Annotations may request devices without a key, so the webhook is called."""
    document = pod(
        *([container_] * (MAX_ALL_CONTAINERS + 1)), annotations={"gpu-fraction": "0.5"},
        schedulerName="kai-scheduler",
    )  # fmt: skip

    def translate(*_: object, **__: object) -> Outcome:
        raise AssertionError("the pod was translated")

    answer = admit_created(
        document,
        pod_view(document),
        namespace=NAMESPACE,
        snapshot=translation_snapshot(),
        options=TranslationOptions(),
        translator=translate,
    )

    assert answer == UNTOUCHED


def test_an_update_is_bounded_as_well() -> None:
    live, _ = admit(pod(gpus(1)))
    more = [gpus(1, name=str(number)) for number in range(MAX_CONTAINERS)]
    large = {**live, "spec": {**live["spec"], "containers": [gpus(1), *more]}}

    _, answer = admit_update(large, live)

    assert finding_texts(answer.findings) == ["error tooLarge spec"]


def test_misspelt_keys_of_a_pod_that_is_too_large_are_not_looked_for() -> None:
    document = pod(*(container(str(number), {"nvidia.com/gpumm": 1}) for number in range(2000)))

    assert admit(document)[1] == UNTOUCHED


def test_labels_of_a_node_selector_are_looked_at_by_tens() -> None:
    selector = {f"nvidia.com/gpu.{number}": "x" for number in range(1000)}

    _, answer = admit(pod(gpus(1), nodeSelector=selector))

    assert answer.decision is Decision.TRANSLATED
    assert len(answer.findings) < MAX_FINDINGS


def test_of_many_findings_the_errors_are_kept() -> None:
    remarks = [info(Code.GPU_DISCOVERY_NODE_LABEL, FieldPath.of("spec"), "")] * MAX_FINDINGS
    fault = error(Code.NEGATIVE, FieldPath.of("spec"), "")

    assert first_findings(remarks, [fault]) == (fault, *remarks[1:])
    assert first_findings([fault], remarks[1:]) == (fault, *remarks[1:])


def test_rules_validate_no_pod_that_is_too_large() -> None:
    claims = [{"name": str(n), "resourceClaimName": "a"} for n in range(MAX_CLAIMS + 1)]
    view = pod_view(pod(container(), resourceClaims=claims))

    answer = validate_object(Target(view=view, namespace=NAMESPACE), Context())

    assert answer.decision is Decision.VALIDATED
    assert finding_texts(answer.findings) == ["warning notEvaluated spec"]
