"""`POST /route`: the scheduler of pods with claims, once the owned drivers are known."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from admission.group_routing import Groups
from admission.pods import Answer
from admission.webhook_configuration import ROUTE_PATH
from allocator.declarations.pod_group import PodGroup
from kube.api.meta import convert
from kube.api.resource import DeviceClaim
from kube.errors import KubeError
from kube.names import GROUP_SCHEDULER_ANNOTATION, SCHEDULER_NAME
from rules.context.context import Context
from testing.builders import NAMESPACE, admit, gpus, pod, translation_snapshot
from testing.documents import EXAMPLE, Document, exactly
from testing.fake_api_server import until
from testing.rule_contexts import named_class
from testing.webhook_endpoint import (
    FixedClaims,
    FixedEvaluator,
    FixedGroups,
    StartEndpoint,
    WebhookEndpoint,
    apply_patch,
    review,
)
from webhook.route import MAX_WAITING_OF_NAMESPACE

GPU = "gpu.nvidia.com"
CLASSES = {name: named_class(name, f"device.driver == '{name}'") for name in (EXAMPLE, GPU)}
CLAIM = convert({"requests": [exactly(deviceClassName=EXAMPLE)]}, DeviceClaim)
OWNED: dict[str, Any] = {
    "classes": CLASSES,
    "templates": {(NAMESPACE, "gpu"): CLAIM},
    "owned_drivers": frozenset({EXAMPLE, GPU}),
}


def with_claim(template: str = "gpu") -> Document:
    pod_document = pod({"name": "main"})
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {**pod_document, "spec": {**pod_document["spec"], "resourceClaims": claims}}


async def route(endpoint: WebhookEndpoint, document: Document) -> tuple[int, Document]:
    answer = await endpoint.client.post(ROUTE_PATH, json=review(document))
    return answer.status, (await answer.json())["response"] if answer.status == 200 else {}


def scheduler(document: Document, response: Document) -> str:
    return str(apply_patch(document, response)["spec"].get("schedulerName", ""))


async def test_a_pod_of_an_owned_driver_gets_the_scheduler(start: StartEndpoint) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **OWNED))
    document = with_claim()

    status, response = await route(endpoint, document)

    assert (status, response["allowed"]) == (200, True)
    assert scheduler(document, response) == SCHEDULER_NAME
    labels = {"kind": "Pod", "operation": "CREATE", "decision": "routed"}
    assert endpoint.sample("drawbridge_reviews_total", **labels) == 1


async def test_a_translated_pod_is_routed_by_what_its_record_derives(start: StartEndpoint) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **OWNED))
    legacy = pod(gpus(1, memory=1000))
    document, _ = admit(legacy)

    status, response = await route(endpoint, document)

    assert (status, scheduler(document, response)) == (200, SCHEDULER_NAME)


async def test_nothing_is_routed_where_nothing_is_owned(start: StartEndpoint) -> None:
    context = {**OWNED, "owned_drivers": frozenset[str]()}
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **context))

    status, response = await route(endpoint, with_claim())

    assert (status, response["allowed"], "patch" in response) == (200, True, False)


@pytest.mark.parametrize("problem", [{"knows_ownership": False}, {"times_out": True}])
async def test_without_an_answer_the_creation_is_postponed(
    start: StartEndpoint, problem: dict[str, bool]
) -> None:
    """An admitted pod could not be given its scheduler later, and a failed call quotes the path."""
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **problem, **OWNED))

    status, response = await route(endpoint, with_claim())

    assert (status, response["allowed"]) == (200, False)
    assert response["status"]["code"] == 429
    assert response["status"]["details"]["retryAfterSeconds"] == 1


async def test_pods_whose_templates_never_come_keep_no_others_waiting(start: StartEndpoint) -> None:
    """More of them than reviews may be in flight, each for as long as one waits for its template."""
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **OWNED),
        retries_s=(60.0,),
        max_in_flight=MAX_WAITING_OF_NAMESPACE + 2,
    )
    in_flight = "controller_runtime_webhook_requests_in_flight"
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(route(endpoint, with_claim("never")))
            for _ in range(MAX_WAITING_OF_NAMESPACE)
        ]
        await until(lambda: endpoint.sample(in_flight, webhook=ROUTE_PATH) == len(waiting))

        # Its author is answered at once, and so is everybody else.
        for template, expected in (("never", ""), ("gpu", SCHEDULER_NAME)):
            document = with_claim(template)
            status, response = await route(endpoint, document)
            assert (status, scheduler(document, response)) == (200, expected)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()


async def test_no_pod_loses_its_scheduler_for_others_that_wait(start: StartEndpoint) -> None:
    """One created right after its claim, while eight others waited, stayed with kube-scheduler, and pending for ever."""
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **OWNED),
        claims=FixedClaims("new"),
        retries_s=(60.0,),
        max_in_flight=MAX_WAITING_OF_NAMESPACE + 2,
    )
    in_flight = "controller_runtime_webhook_requests_in_flight"
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(route(endpoint, with_claim("new")))
            for _ in range(MAX_WAITING_OF_NAMESPACE)
        ]
        await until(lambda: endpoint.sample(in_flight, webhook=ROUTE_PATH) == len(waiting))

        _, response = await route(endpoint, with_claim("new"))

        assert (response["allowed"], response["status"]["code"]) == (False, 429)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()


@pytest.mark.parametrize(
    "claims",
    [FixedClaims("late"), FixedClaims(error=KubeError("no answer"))],
    ids=["the API server has it", "the API server does not answer"],
)
async def test_a_pod_is_postponed_while_the_caches_may_be_behind(
    start: StartEndpoint, claims: FixedClaims
) -> None:
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **OWNED), claims=claims, retries_s=()
    )

    _, response = await route(endpoint, with_claim("late"))

    assert (response["allowed"], response["status"]["code"]) == (False, 429)
    assert response["status"]["details"]["retryAfterSeconds"] == 1


class LateEvaluator(FixedEvaluator):
    """Knows the template only after some evaluations."""

    def __init__(self, evaluations: int) -> None:
        super().__init__(translation_snapshot, **OWNED)
        self.left = evaluations

    async def evaluate(self, rules: Callable[[Context], Answer], **_: object) -> Answer:
        self.left -= 1
        templates = {} if self.left > 0 else OWNED["templates"]
        return rules(Context(**{**OWNED, "templates": templates}))


@pytest.mark.parametrize(("evaluations", "expected"), [(2, SCHEDULER_NAME), (9, "")])
async def test_a_template_that_comes_a_moment_later_is_waited_for(
    start: StartEndpoint, evaluations: int, expected: str
) -> None:
    endpoint = await start(rules=LateEvaluator(evaluations))
    document = with_claim()

    status, response = await route(endpoint, document)

    assert (status, scheduler(document, response)) == (200, expected)
    assert bool(response.get("warnings")) == (expected == "")


async def test_a_pod_without_claims_follows_its_group(start: StartEndpoint) -> None:
    metadata = {"name": "training", "annotations": {GROUP_SCHEDULER_ANNOTATION: SCHEDULER_NAME}}
    group = convert({"metadata": metadata}, PodGroup)
    groups = Groups(by_name={(NAMESPACE, "training"): group}, is_served=True)
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **OWNED), groups=FixedGroups(groups)
    )
    document = in_group("training")

    status, response = await route(endpoint, document)

    assert (status, scheduler(document, response)) == (200, SCHEDULER_NAME)


async def test_a_pod_group_that_comes_a_moment_later_is_waited_for(start: StartEndpoint) -> None:
    groups = LaterGroups()
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **OWNED), groups=groups)
    document = in_group("training")

    status, response = await route(endpoint, document)

    assert (status, scheduler(document, response)) == (200, SCHEDULER_NAME)
    assert groups.calls == 3


async def test_a_group_that_never_comes_is_denied_with_what_to_do(start: StartEndpoint) -> None:
    groups = FixedGroups(Groups(is_served=True))
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **OWNED), groups=groups)

    _, response = await route(endpoint, in_group("training"))

    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert "create it before its pods" in response["status"]["message"]


async def test_before_pod_groups_are_known_the_creation_is_postponed(start: StartEndpoint) -> None:
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **OWNED), groups=FixedGroups(None)
    )

    _, response = await route(endpoint, with_claim())

    assert (response["allowed"], response["status"]["code"]) == (False, 429)


def in_group(name: str) -> Document:
    document = pod({"name": "main"})
    return {**document, "spec": {**document["spec"], "schedulingGroup": {"podGroupName": name}}}


class LaterGroups:
    """A PodGroup that is there from the third look on."""

    def __init__(self) -> None:
        self.calls = 0

    def groups(self) -> Groups:
        self.calls += 1
        if self.calls < 3:
            return Groups(is_served=True)
        annotations = {GROUP_SCHEDULER_ANNOTATION: SCHEDULER_NAME}
        group = convert({"metadata": {"annotations": annotations}}, PodGroup)
        return Groups(by_name={(NAMESPACE, "training"): group}, is_served=True)
