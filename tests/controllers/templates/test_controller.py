"""The controller of templates against an API server: speed, healing, poison, forgery, collection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from controllers.model.settings import ControllerSettings
from controllers.model.template_documents import template_document
from controllers.templates.controller import MAX_WRITES, WORKERS, TemplateController
from kube.api.urls import (
    EVENTS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    WORKLOADS,
)
from kube.names import MANAGED_LABEL, SIGNATURE_ANNOTATION, SIGNING_SECRET
from kube.names import NAMESPACE as OUR_NAMESPACE
from process.certificates.signing import SigningKeyCache, SigningSettings
from process.model.durations import PositiveDuration
from testing.builders import NAMESPACE, gpus, profiles
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from testing.signing import KEY, NOW, signing_secret
from testing.translated_pods import CLAIM, claim_document, translated
from translation.record.signature import SigningKey

FAST: Final = ControllerSettings(
    template_unused_period=PositiveDuration(0.05),
    template_collect_period=PositiveDuration(0.02),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
SLOW_COLLECTION: Final = msgspec.structs.replace(
    FAST, template_unused_period=PositiveDuration(600.0)
)
GOOD: Final[Document] = msgspec.json.decode(
    msgspec.json.encode(template_document(NAMESPACE, CLAIM))
)
DEPLOYMENTS: Final = WORKLOADS[1]


@asynccontextmanager
async def controlled(
    server: FakeApiServer, settings: ControllerSettings = SLOW_COLLECTION
) -> AsyncIterator[TemplateController]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        controller = TemplateController(
            client,
            informers,
            recorder,
            settings,
            profiles(),
            signing_keys=SigningKeyCache(informers, OUR_NAMESPACE, SigningSettings()),
        )
        async with running(
            informers.run, recorder.run, *(loop.run for loop in controller.controllers)
        ):
            yield controller


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        api_server.put(SECRETS, signing_secret())
        yield api_server


def live(name: str = "train", **fields: Any) -> Document:
    document = translated(gpus(1))
    document["metadata"] |= {"name": name, "uid": f"uid-{name}", **fields}
    return document


def poisoned() -> Document:
    spec: Document = msgspec.json.decode(msgspec.json.encode(CLAIM.spec))
    spec["spec"]["devices"]["requests"][0]["exactly"]["count"] = 8
    return {**GOOD, "metadata": {"name": CLAIM.template, "namespace": NAMESPACE}, "spec": spec}


def template(server: FakeApiServer) -> Document | None:
    return server.find(RESOURCE_CLAIM_TEMPLATES, CLAIM.template, NAMESPACE)


def is_good(server: FakeApiServer) -> bool:
    template_ = template(server)
    return template_ is not None and template_["spec"] == GOOD["spec"]


def reasons(server: FakeApiServer) -> list[str]:
    return [event["reason"] for event in server.objects(EVENTS)]


def posts(server: FakeApiServer) -> int:
    return sum(
        call.method == "POST" and call.path.endswith("resourceclaimtemplates")
        for call in server.calls
    )


async def settled() -> None:
    """Give loops the time for actions that they should not take."""
    await asyncio.sleep(0.15)


async def test_a_persisted_pod_gets_its_template(server: FakeApiServer) -> None:
    async with controlled(server):
        await until(lambda: server.watching == 4)
        server.put(PODS, live())

        await until(lambda: is_good(server))

    labels = (template(server) or {})["metadata"]["labels"]
    assert MANAGED_LABEL in labels


async def test_a_template_that_is_deleted_before_its_creation_is_answered_is_created_again(
    server: FakeApiServer,
) -> None:
    other = translated(gpus(2))
    other["metadata"] |= {"name": "other", "uid": "uid-other"}
    (other_entry,) = other["spec"]["resourceClaims"]
    other_template = other_entry["resourceClaimTemplateName"]
    answered = server.delay(lambda call: call.method == "POST")
    async with controlled(server):
        server.put(PODS, live())
        await until(lambda: template(server) is not None)
        server.remove(RESOURCE_CLAIM_TEMPLATES, CLAIM.template, NAMESPACE)
        # What comes later in the same watch is acted upon, so the deletion has been seen.
        altered = poisoned()
        altered["metadata"] = {"name": other_template, "namespace": NAMESPACE, "uid": "altered"}
        server.put(RESOURCE_CLAIM_TEMPLATES, altered)
        server.put(PODS, other)
        await until(lambda: server.counts["DELETE"] == 1)
        answered.set()

        await until(lambda: is_good(server))


@pytest.mark.parametrize("is_late", [False, True], ids=["before the list", "after the list"])
async def test_a_template_that_is_deleted_while_nothing_is_watched_is_created_again(
    server: FakeApiServer, is_late: bool
) -> None:
    """The creation is answered before or after a list without the template."""
    is_watched = [True]
    answered = server.delay(lambda call: call.method == "POST")
    server.fail(
        503,
        times=10**6,
        matches=lambda call: (
            call.is_watch and call.path.endswith("templates") and not is_watched[0]
        ),
    )
    async with controlled(server):
        await until(lambda: server.watching == 4)
        is_watched[0] = False
        server.end_watches()
        await until(lambda: server.watching == 3)
        server.put(PODS, live())
        await until(lambda: is_good(server))
        if not is_late:
            answered.set()
            await settled()
        server.remove(RESOURCE_CLAIM_TEMPLATES, CLAIM.template, NAMESPACE)
        server.expire()
        is_watched[0] = True
        await until(lambda: server.watching == 4)
        answered.set()

        await until(lambda: is_good(server))


async def test_fifty_replicas_cost_one_write(server: FakeApiServer) -> None:
    async with controlled(server):
        await until(lambda: server.watching == 4)
        for number in range(50):
            server.put(PODS, live(f"train-{number}"))
        await until(lambda: is_good(server))
        await settled()

    assert posts(server) == 1


async def test_pods_that_were_there_before_us_are_served(server: FakeApiServer) -> None:
    server.put(PODS, live())

    async with controlled(server):
        await until(lambda: is_good(server))


async def test_a_deleted_template_is_made_again(server: FakeApiServer) -> None:
    server.put(PODS, live())
    async with controlled(server):
        await until(lambda: is_good(server))
        server.remove(RESOURCE_CLAIM_TEMPLATES, CLAIM.template, NAMESPACE)

        await until(lambda: posts(server) == 2 and is_good(server))


@pytest.mark.parametrize("first", ["template", "pod"])
async def test_a_poisoned_template_is_replaced(first: str, server: FakeApiServer) -> None:
    async with controlled(server):
        await until(lambda: server.watching == 4)
        if first == "pod":
            server.put(PODS, live())
            await until(lambda: is_good(server))
            server.put(RESOURCE_CLAIM_TEMPLATES, poisoned())
        else:
            server.put(RESOURCE_CLAIM_TEMPLATES, poisoned())
            server.put(PODS, live())

        await until(lambda: is_good(server) and bool(reasons(server)))

    assert reasons(server) == ["ResourceClaimTemplateReplaced"]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_free_claim_of_a_poisoned_template_is_deleted(
    lost: bool, server: FakeApiServer
) -> None:
    """With an event, also after the loss of the answer to the deletion."""
    bad = claim_document()
    bad["metadata"] |= {"ownerReferences": [{"uid": "uid-train", "controller": True}]}
    bad["spec"] = poisoned()["spec"]["spec"]
    pod = live()
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "train-gpu-x"}]
    server.put(RESOURCE_CLAIM_TEMPLATES, poisoned())
    server.put(RESOURCE_CLAIMS, bad)
    server.put(PODS, pod)

    if lost:
        server.delay(lambda call: call.method == "DELETE" and "/resourceclaims/" in call.path)

    async with controlled(server):
        await until(lambda: not server.objects(RESOURCE_CLAIMS) and len(reasons(server)) == 2)

    assert is_good(server)
    assert reasons(server) == ["ResourceClaimTemplateReplaced", "ResourceClaimReplaced"]


async def test_an_allocated_claim_is_left_alone(server: FakeApiServer) -> None:
    bad = claim_document(allocation={"devices": {}})
    bad["metadata"] |= {"ownerReferences": [{"uid": "uid-train", "controller": True}]}
    bad["spec"] = poisoned()["spec"]["spec"]
    pod = live()
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "train-gpu-x"}]
    server.put(RESOURCE_CLAIMS, bad)
    server.put(PODS, pod)

    async with controlled(server):
        await until(lambda: is_good(server))
        await settled()

    assert len(server.objects(RESOURCE_CLAIMS)) == 1


async def test_a_forged_annotation_makes_nothing_and_is_reported_once(
    server: FakeApiServer,
) -> None:
    live_pod = live()
    live_pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "mine"}]

    async with controlled(server):
        server.put(PODS, live_pod)
        await until(lambda: bool(reasons(server)))
        server.put(PODS, {**live_pod, "status": {"phase": "Running"}})
        await settled()

    assert reasons(server) == ["TranslationNotSigned"]
    assert not server.objects(RESOURCE_CLAIM_TEMPLATES)


async def test_an_annotation_that_changes_all_the_time_is_reported_once(
    server: FakeApiServer,
) -> None:
    async with controlled(server):
        for number in range(100):
            pod = live()
            pod["metadata"]["annotations"]["drawbridge.internal/request"] = f"invented {number}"
            server.put(PODS, pod)
            await asyncio.sleep(0.001)
        await until(lambda: bool(reasons(server)))
        await settled()

    assert reasons(server) == ["TranslationNotSigned"]


async def test_a_pod_from_before_signatures_is_left_alone_where_its_template_exists(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIM_TEMPLATES, GOOD)
    old = live()
    del old["metadata"]["annotations"][SIGNATURE_ANNOTATION]

    async with controlled(server):
        server.put(PODS, old)
        await settled()

    assert reasons(server) == []


async def test_a_poisoned_template_of_an_unsigned_pod_is_not_ours_to_delete(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIM_TEMPLATES, poisoned())
    live_pod = live()
    del live_pod["metadata"]["annotations"][SIGNATURE_ANNOTATION]

    async with controlled(server):
        server.put(PODS, live_pod)
        await settled()

    assert template(server) is not None
    assert not is_good(server)


async def test_pods_wait_for_the_first_signing_key(server: FakeApiServer) -> None:
    server.remove(SECRETS, SIGNING_SECRET, OUR_NAMESPACE)

    async with controlled(server):
        server.put(PODS, live())
        await settled()
        assert reasons(server) == []
        server.put(SECRETS, signing_secret())

        await until(lambda: is_good(server))


async def test_a_key_that_arrives_after_its_first_signature_is_no_event(
    server: FakeApiServer,
) -> None:
    other = SigningKey(id="fedcba98", created=NOW, secret=b"o" * 32)
    server.put(SECRETS, signing_secret(other))

    async with controlled(server):
        server.put(PODS, live())
        await settled()
        server.put(SECRETS, signing_secret(other, KEY))

        await until(lambda: is_good(server))

    assert reasons(server) == []


async def test_a_restart_tells_nothing_twice(server: FakeApiServer) -> None:
    live_pod = live()
    live_pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "mine"}]
    server.put(PODS, live_pod)

    for _ in range(2):
        async with controlled(server):
            await until(lambda: bool(reasons(server)))
            await settled()

    assert len(reasons(server)) == 1


async def test_trouble_is_tried_again_and_again_but_not_in_a_hot_loop(
    server: FakeApiServer,
) -> None:
    server.fail(403, times=10_000, matches=lambda call: call.method == "POST")
    for number in range(3):
        server.put(PODS, live(f"train-{number}"))

    async with controlled(server):
        await asyncio.sleep(0.5)
        # Each of three pods at most after 0.02, 0.04 and then each 0.05 seconds.
        assert posts(server) <= 3 * 12
        await until(lambda: posts(server) >= 6)


async def test_what_the_api_server_alters_is_not_made_again_and_again(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = server._create

    def altering(target: Any, call: Any) -> Document:
        if target.collection[2] == "resourceclaimtemplates":
            call.body["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
        return create(target, call)

    monkeypatch.setattr(server, "_create", altering)
    server.put(PODS, live())

    async with controlled(server):
        await until(lambda: template(server) is not None)
        await settled()

    assert posts(server) == 1


# --- collection -----------------------------------------------------------------------------------


async def test_a_template_goes_some_time_after_its_last_pod(server: FakeApiServer) -> None:
    server.put(PODS, live())
    async with controlled(server, FAST):
        await until(lambda: is_good(server))
        await settled()
        assert is_good(server)
        server.remove(PODS, "train", NAMESPACE)

        await until(lambda: template(server) is None)


async def test_a_template_that_we_did_not_make_stays(server: FakeApiServer) -> None:
    printed = {**GOOD, "metadata": {"name": CLAIM.template, "namespace": NAMESPACE}}
    server.put(RESOURCE_CLAIM_TEMPLATES, printed)

    async with controlled(server, FAST):
        await settled()

    assert is_good(server)


async def test_a_template_that_a_workload_names_stays(server: FakeApiServer) -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": CLAIM.template}
    server.put(RESOURCE_CLAIM_TEMPLATES, dict(GOOD))
    server.put(
        DEPLOYMENTS,
        {
            "metadata": {"name": "d", "namespace": NAMESPACE},
            "spec": {"template": {"spec": {"resourceClaims": [entry]}}},
        },
    )

    async with controlled(server, FAST):
        await settled()
        assert is_good(server)
        server.remove(DEPLOYMENTS, "d", NAMESPACE)

        await until(lambda: template(server) is None)


async def test_a_pod_with_many_templates_lets_others_have_their_turn(server: FakeApiServer) -> None:
    """Eight of them kept all workers busy until each had all of its templates."""
    many = 24
    for number in range(WORKERS):
        containers = [
            gpus(1, name=f"c{index}", mem=1000 * (number + 1) + index) for index in range(many)
        ]
        document = translated(*containers)
        document["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}"}
        server.put(PODS, document)
    server.put(PODS, live("train"))

    async with controlled(server):
        await until(lambda: posts(server) == WORKERS * many + 1)

    names = [
        call.body["metadata"]["name"]
        for call in server.calls
        if call.method == "POST" and call.path.endswith("resourceclaimtemplates")
    ]
    assert names.index(CLAIM.template) <= WORKERS * MAX_WRITES


async def test_a_label_of_a_template_concerns_none_of_its_pods(server: FakeApiServer) -> None:
    """With thousands of them, a few such writes in a second took all of the controllers' time."""
    replicas = 50
    for number in range(replicas):
        server.put(PODS, live(f"train-{number}"))
    other = translated(gpus(2))
    other["metadata"] |= {"name": "other", "uid": "uid-other"}
    server.put(PODS, other)
    async with controlled(server) as controller:
        await until(lambda: posts(server) == 2)
        await settled()
        queue = controller.controllers[0].queue
        before = queue.added

        labelled = template(server) or {}
        labelled["metadata"]["labels"]["a"] = "b"
        server.put(RESOURCE_CLAIM_TEMPLATES, labelled)
        # What comes later in the same watch is acted upon, so the label has been seen.
        name = other["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
        server.remove(RESOURCE_CLAIM_TEMPLATES, name, NAMESPACE)
        await until(lambda: posts(server) == 3)

        assert queue.added - before < replicas
