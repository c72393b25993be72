"""A denial names the values for the keys of the pod; with them it fits."""

from collections.abc import Callable

import pytest

from admission.objects import recorded_claims, recorded_translation, translation_of, validate_object
from admission.pods import Answer
from admission.workloads import Workload, workload_target
from kube.api.meta import ObjectMeta
from rules.context.context import Context
from rules.engine.engine import Target
from testing import builders
from testing.builders import NAMESPACE, admit, gpus, pod, pod_view
from testing.documents import Document
from testing.hami_cluster import SNAPSHOT, context_fields


def context() -> Context:
    return Context(**context_fields(), applied_together=True)


def answer_of_pod(document: Document) -> Answer:
    translated, _ = admit(document, SNAPSHOT)
    target = Target(view=pod_view(translated), raw=translated, namespace=NAMESPACE)
    return validate_object(
        target,
        context(),
        recorded_claims(target, SNAPSHOT),
        recorded_translation(target, SNAPSHOT),
    )


def answer_of_workload(document: Document) -> Answer:
    outcome = builders.translation_of(document, SNAPSHOT)
    workload = Workload(
        metadata=ObjectMeta(name="train"),
        path=("spec", "template"),
        template=document,
        pod=pod_view(document),
        kind_name="Deployment",
    )
    target = workload_target(workload, NAMESPACE, outcome.claims, is_new=True)
    translation = translation_of(outcome.record, workload.pod, SNAPSHOT)
    return validate_object(target, context(), outcome.claims, translation)


def fixes(answer: Answer) -> list[str]:
    return [finding.fix for finding in answer.findings if finding.is_error]


@pytest.mark.parametrize("answer", [answer_of_pod, answer_of_workload])
def test_a_denial_has_the_value_to_write(answer: Callable[[Document], Answer]) -> None:
    denied, admitted = answer(pod(gpus(1, mem=200000))), answer(pod(gpus(1, mem=81920)))

    assert ["write nvidia.com/gpumem: 81920 to fit node node-1"] == fixes(denied)
    assert [] == fixes(admitted)


@pytest.mark.parametrize("answer", [answer_of_pod, answer_of_workload])
def test_too_many_devices_are_a_number_to_write(answer: Callable[[Document], Answer]) -> None:
    denied, admitted = answer(pod(gpus(3, mem=1000))), answer(pod(gpus(2, mem=1000)))

    assert ["write nvidia.com/gpu: 2 to fit node node-1"] == fixes(denied)
    assert [] == fixes(admitted)


@pytest.mark.parametrize("answer", [answer_of_pod, answer_of_workload])
def test_what_an_init_container_raises_is_its_own_value_to_write(
    answer: Callable[[Document], Answer],
) -> None:
    denied, admitted = (
        answer(pod(gpus(1, mem=50000), init=[gpus(1, mem=amount, name="first")]))
        for amount in (90000, 81920)
    )

    assert ["write nvidia.com/gpumem: 81920 in container first to fit node node-1"] == fixes(denied)
    for finding in denied.findings:
        if finding.is_error:
            assert str(finding.path).endswith(
                "spec.initContainers[0].resources.limits[nvidia.com/gpumem]"
            )
    assert [] == fixes(admitted)


@pytest.mark.parametrize("answer", [answer_of_pod, answer_of_workload])
def test_what_another_container_leaves_is_the_value_to_write(
    answer: Callable[[Document], Answer],
) -> None:
    """The node has one GPU of 80Gi and one of 40Gi, so both containers use both."""
    denied, admitted = (
        answer(pod(gpus(2, mem=30000, name="a"), gpus(2, mem=amount, name="b")))
        for amount in (30000, 10960)
    )

    first, other = (f"write nvidia.com/gpumem: 10960 in container {name}" for name in "ab")
    assert [f"{first} to fit node node-1, or {other} to fit node node-1"] == fixes(denied)
    assert [] == fixes(admitted)
