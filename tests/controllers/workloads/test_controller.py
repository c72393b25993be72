"""The controller of workloads against an API server: templates are there before any pod."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from clusterstate.snapshot_cache import SnapshotCache
from controllers.__main__ import Lasting, build_parts
from controllers.model.settings import VARIABLES, ControllerSettings, Settings
from controllers.model.stored_objects import key_texts
from controllers.workloads import controller as workloads
from controllers.workloads.requested import template_digest
from kube.api.urls import NAMESPACES, RESOURCE_CLAIM_TEMPLATES, WORKLOADS
from kube.names import MANAGED_LABEL, TRANSLATE_LABEL
from process.model.settings import parse_settings
from process.running.command import Process
from process.selectors.engine import WorkerEngine
from testing.builders import container, gpus, pod, profiles, translation_of
from testing.builders import workload as make_workload
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from translation.cluster.snapshot import ClaimUnawareComponent, TranslationOptions
from translation.reading.arbiter import VOCABULARIES

RESOURCES: Final = {resource.plural: resource for resource in WORKLOADS}
DEPLOYMENTS: Final = RESOURCES["deployments"]
NAMESPACE: Final = "team"
SHARE: Final = pod(gpus(1, mem=1000))
TEXTS: Final = key_texts(VOCABULARIES.values())


def workload(name: str, template: Document, kind: str = "Deployment", **metadata: Any) -> Document:
    fields = {"name": name, "namespace": NAMESPACE, "uid": f"u-{name}"} | metadata
    return make_workload(template, kind, **fields)


def template_names(document: Document) -> set[str]:
    """The templates that the webhook gives a pod."""
    return {claim.template for claim in translation_of(document).claims}


def created(server: FakeApiServer) -> set[str]:
    return {template["metadata"]["name"] for template in server.objects(RESOURCE_CLAIM_TEMPLATES)}


@asynccontextmanager
async def controlling(server: FakeApiServer) -> AsyncIterator[None]:
    async with server.client() as client:
        informers = quick_informers(client)
        snapshots = SnapshotCache(
            informers, profiles(), claim_aware=frozenset(ClaimUnawareComponent)
        )
        parts = workloads.WorkloadController(
            client,
            informers,
            snapshots,
            ControllerSettings(),
            options=TranslationOptions(),
            vocabularies=lambda: VOCABULARIES,
        )
        (controller,) = parts.controllers
        async with running(informers.run, controller.run):
            yield


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server_:
        server_.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        yield server_


async def test_a_workload_has_the_templates_of_its_pods(server: FakeApiServer) -> None:
    server.put(DEPLOYMENTS, workload("before", SHARE))

    async with controlling(server):
        await until(lambda: created(server) == template_names(SHARE))
        server.put(RESOURCES["cronjobs"], workload("late", pod(gpus(2)), "CronJob"))
        await until(lambda: template_names(pod(gpus(2))) < created(server))

    (share,) = [
        template
        for template in server.objects(RESOURCE_CLAIM_TEMPLATES)
        if template["metadata"]["name"] in template_names(SHARE)
    ]
    assert share["metadata"]["labels"][MANAGED_LABEL] == "true"
    wanted = msgspec.json.encode(translation_of(SHARE).claims[0].spec)
    assert share["spec"] == msgspec.json.decode(wanted)


async def test_other_amounts_have_another_template(server: FakeApiServer) -> None:
    server.put(DEPLOYMENTS, workload("train", SHARE))
    larger = pod(gpus(1, mem=2000))

    async with controlling(server):
        await until(lambda: created(server) == template_names(SHARE))
        server.put(DEPLOYMENTS, workload("train", larger))
        await until(lambda: template_names(larger) < created(server))


@pytest.mark.parametrize(
    "document",
    [
        workload("plain", pod(container("main", {}))),
        workload("out", pod(gpus(1), labels={TRANSLATE_LABEL: "false"})),
        workload("bad", pod(gpus("500m"))),
        workload("odd", pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": []}}})),
        workload(
            "owned",
            SHARE,
            ownerReferences=[
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Job",
                    "name": "top",
                    "uid": "u-9",
                    "controller": True,
                }
            ],
        ),
    ],
    ids=lambda document: document["metadata"]["name"],
)
async def test_workloads_without_translated_pods_of_their_own_have_none(
    server: FakeApiServer, document: Document
) -> None:
    server.put(DEPLOYMENTS, document)

    async with controlling(server):
        # What comes after it is done, and so is what came before.
        server.put(DEPLOYMENTS, workload("train", SHARE))
        await until(lambda: bool(created(server)))

    assert created(server) == template_names(SHARE)


async def test_a_namespace_has_no_more_templates_than_the_limit(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "MAX_TEMPLATES", 2)
    for count in range(1, 6):
        server.put(DEPLOYMENTS, workload(f"train-{count}", pod(gpus(1, mem=count))))
    other = {"metadata": {"name": "other"}}
    server.put(NAMESPACES, other)

    async with controlling(server):
        await until(lambda: len(created(server)) == 2)
        # Another namespace is not concerned.
        elsewhere = make_workload(SHARE, name="z", namespace="other", uid="u-z")
        server.put(DEPLOYMENTS, elsewhere)
        await until(lambda: len(created(server)) == 3)


async def test_a_template_that_may_not_be_created_is_left_to_the_pods(
    server: FakeApiServer,
) -> None:
    server.fail(403, matches=lambda call: call.method == "POST")
    server.put(DEPLOYMENTS, workload("first", SHARE))

    async with controlling(server):
        await until(lambda: server.counts["POST"] == 1)
        server.put(DEPLOYMENTS, workload("second", pod(gpus(2))))
        await until(lambda: bool(created(server)))
        await asyncio.sleep(0)

    assert created(server) == template_names(pod(gpus(2)))


def test_a_status_changes_no_digest() -> None:
    kind = ("apps/v1", "Deployment")
    stored = workload("train", SHARE)
    scaled = {**stored, "spec": {**stored["spec"], "replicas": 3}, "status": {"replicas": 3}}
    texts = [msgspec.json.encode(document) for document in (stored, scaled)]

    digests = {template_digest(text, kind, TEXTS) for text in texts}

    assert len(digests) == 1
    assert None not in digests


@pytest.mark.parametrize(
    "text", [b"", b"nvidia.com/gpu", b'{"spec": "nvidia.com/gpu"}', b"[" * 9999]
)
def test_broken_objects_have_none(text: bytes) -> None:
    template_digest(text, ("apps/v1", "Deployment"), TEXTS)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(0, "", id="off by default"),
        pytest.param(0, "controllers: {templatesOfWorkloads: false}", id="off"),
        pytest.param(1, "controllers: {templatesOfWorkloads: true}", id="on"),
        pytest.param(
            *(1, "{controllers: {templatesOfWorkloads: true}, translation: {mode: OptIn}}"),
            id="on where namespaces opt in",
        ),
        pytest.param(
            *(0, "{controllers: {templatesOfWorkloads: true}, translation: {mode: Shadow}}"),
            id="on where no pod is translated",
        ),
    ],
)
async def test_a_setting_says_whether_it_works(
    server: FakeApiServer, number: int, text: str
) -> None:
    settings = parse_settings(text, "settings.yaml", {}, kind=Settings, variables=VARIABLES)
    files = settings.translation.load_profiles()
    async with server.client() as client:
        lasting = Lasting(
            process=Process(settings=settings, kubeconfig=None, identity="a"),
            client=client,
            files=files,
            options=settings.translation.checked_options(files, others_may_come=True),
            engine=WorkerEngine(),
            count_event=lambda _: None,
            builds=(),
        )

        work = workloads.controller(build_parts(lasting, "a"))

    assert number == len(work.controllers) == len(work.loops)
