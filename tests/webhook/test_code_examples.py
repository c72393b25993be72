"""The examples of `drawbridge explain` for codes that only the webhook reports: it does, for a dry run."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from admission.webhook_configuration import (
    MUTATE_PATH,
    ROUTE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
)
from cli.verbs.explain.explanation import Example, explanations
from clusterstate.pod_groups import PodGroupCache
from process.model.settings import parse_settings
from process.selectors.engine import WorkerEngine
from testing.documents import Document
from testing.example_objects import documents_of, resource_of, store
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.webhook_endpoint import StartEndpoint, WebhookEndpoint, review
from tools.webhook_examples import WEBHOOK_EXAMPLES
from webhook.__main__ import build_caches
from webhook.settings import Settings

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = {
    code: entry.example
    for code, entry in explanations().items()
    if entry.example is not None and entry.example.component == "webhook"
}
PATHS: Final = {
    "Deployment": (VALIDATE_WORKLOADS_PATH,),
    "DeviceCompatibilityPolicy": (VALIDATE_OBJECTS_PATH,),
    "Pod": (MUTATE_PATH, ROUTE_PATH),
}
"""Kind to the paths that the webhook configurations send it to, in their order."""


@asynccontextmanager
async def webhook_of(
    example: Example, beside: Iterable[Document], start: StartEndpoint
) -> AsyncIterator[WebhookEndpoint]:
    """Start the webhook with the settings of an example, in a cluster with the other objects."""
    settings = parse_settings(example.settings, "settings.yaml", {}, kind=Settings, variables={})
    async with FakeApiServer() as server, server.client() as client:
        if example.snapshot:
            store(server, documents_of((ROOT / example.snapshot).read_text()))
        store(server, beside)
        informers, engine = quick_informers(client), WorkerEngine()
        caches = build_caches(settings, informers, engine)
        groups = PodGroupCache(informers, adopts=settings.validation.adopt_gangs)
        loops = (engine.run, informers.run, caches.evaluator.run, caches.mappings.run)
        async with running(*loops):
            await caches.snapshots.wait_synced()
            await caches.profiles.wait_first()
            await caches.evaluator.wait_ready()
            await until(lambda: caches.evaluator.knows_ownership and groups.groups() is not None)
            yield await start(
                snapshot=caches.snapshots.snapshot,
                rules=caches.evaluator,
                options=settings.translation.checked_options({}, others_may_come=True),
                groups=groups,
            )


async def texts_of(endpoint: WebhookEndpoint, document: Document) -> list[str]:
    """The warnings and the denial that kubectl prints when the object is created as a dry run."""
    group, _, version = document["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": document["kind"]}
    resource = {"group": group, "version": version, "resource": resource_of(document).plural}
    texts: list[str] = []
    for path in PATHS[document["kind"]]:
        body = review(
            document, kind=kind, resource=resource, namespace="default", name="main", dryRun=True
        )
        answer = await endpoint.client.post(path, json=body)
        response: dict[str, Any] = (await answer.json())["response"]
        texts += (f"Warning: {text}" for text in response.get("warnings") or ())
        if not response["allowed"]:
            return [*texts, response["status"]["message"]]
    return texts


@pytest.mark.parametrize("code", EXAMPLES)
async def test_the_webhook_reports_the_code(code: str, start: StartEndpoint) -> None:
    example = EXAMPLES[code]
    *beside, document = documents_of(example.manifest)

    async with webhook_of(example, beside, start) as endpoint:
        texts = await texts_of(endpoint, document)

    codes = {code for text in texts for code in re.findall(r"drawbridge\[(\w+)\]: ", text)}
    assert codes == {code, *WEBHOOK_EXAMPLES[code].also}
    assert example.answer == next(text for text in texts if f"[{code}]: " in text)
