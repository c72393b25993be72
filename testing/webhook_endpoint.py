"""An HTTPS endpoint with the handlers of the webhook, for tests: a client, metrics, rules."""

from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
from aiohttp import ClientSession, TCPConnector
from prometheus_client import CollectorRegistry

from admission.group_routing import Groups
from admission.pods import Answer
from admission.routing import Bridge
from admission.webhook_configuration import (
    MUTATE_PATH,
    ROUTE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
)
from certs.authority import Authority
from certs.serving import Listener, client_tls_context, issue_serving_certificate
from kube.api.core import PodResourceClaim
from kube.api.workloads import VALIDATED_KINDS
from kube.errors import KubeError
from kube.names import SCHEDULER_NAME
from process.model.durations import PositiveDuration
from rules.context.context import Context
from testing.builders import NAMESPACE, gpus, pod, translation_snapshot
from testing.documents import Document
from testing.fake_api_server import running
from testing.review_runner import UNLIMITED_S, review_runner
from testing.signing import fixed_signing
from testing.webhook_paths import fixed_path
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from webhook.endpoint import Endpoint, Handler
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReviewHandler
from webhook.route import ClaimFinder, GroupSource, RoutingReviewHandler
from webhook.settings import WebhookSettings
from webhook.validate import ObjectReviewHandler, WorkloadReviewHandler

SETTINGS: Final = WebhookSettings(
    bind_address="127.0.0.1",
    port=0,
    max_body_bytes=64 * 1024,
    read_timeout=PositiveDuration(0.2),
    max_in_flight=2,
    user_cpu_burst=PositiveDuration(UNLIMITED_S),
    shutdown_grace_period=PositiveDuration(0.1),
)
JSON: Final = {"Content-Type": "application/json"}
_DEFAULT_OPTIONS: Final = TranslationOptions()

NOW: Final = datetime.now(UTC)  # noqa: TID251  TLS compares with the real clock.
LEAF: Final = issue_serving_certificate(
    Authority.create("test", now=NOW, life=timedelta(days=1)),
    ["127.0.0.1"],
    now=NOW,
    life=timedelta(days=1),
)


class WebhookEndpoint(NamedTuple):
    """An endpoint, a client of it, and its metrics."""

    client: ClientSession
    registry: CollectorRegistry
    endpoint: Endpoint

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


class FixedEvaluator:
    """Evaluates rules in a given context, or times out.

    Attributes:
        tenants: The tenants that it was asked for.
    """

    def __init__(
        self,
        snapshot: Callable[[], TranslationSnapshot],
        *,
        times_out: bool = False,
        knows_ownership: bool = True,
        took_s: float = 0.0,
        **context: Any,
    ) -> None:
        self.tenants: list[str] = []
        self.knows_ownership = knows_ownership
        self._took_s = took_s
        self._snapshot = snapshot
        self._times_out = times_out
        self._context = context

    async def evaluate(
        self,
        rules: Callable[[Context], Answer],
        *,
        tenant: str,
        charge: Callable[[float], None],
        timeout_s: float | None = None,
    ) -> Answer:
        self.tenants.append(tenant)
        charge(self._took_s)
        if self._times_out or (timeout_s is not None and timeout_s <= 0):
            raise TimeoutError
        return rules(Context(namespaces=self._snapshot().namespaces, **self._context))

    async def evaluate_without_inventory(
        self,
        rules: Callable[[Context], Answer],
        *,
        tenant: str,
        charge: Callable[[float], None],
    ) -> Answer:
        self.tenants.append(tenant)
        return rules(Context(namespaces=self._snapshot().namespaces))


class FixedGroups:
    """PodGroups that do not change; None for those that are not known yet."""

    def __init__(self, groups: Groups | None) -> None:
        self._groups = groups

    def groups(self) -> Groups | None:
        return self._groups


class FixedClaims:
    """Names of claims and templates that the API server has, and that no cache has yet."""

    def __init__(self, *names: str, error: KubeError | None = None) -> None:
        self._names = names
        self._error = error

    async def has_any(self, _: str, entries: Iterable[PodResourceClaim]) -> bool:
        if self._error is not None:
            raise self._error
        return any(
            name in self._names
            for entry in entries
            for name in (entry.resource_claim_name, entry.resource_claim_template_name)
        )


@asynccontextmanager
async def endpoints() -> AsyncIterator[Callable[..., Awaitable[WebhookEndpoint]]]:
    """Yield a function that starts an endpoint; all are stopped in the end."""
    async with AsyncExitStack() as stack:

        async def make(
            snapshot: Callable[[], TranslationSnapshot] = translation_snapshot,
            rules: FixedEvaluator | None = None,
            retries_s: Sequence[float] = (0.0, 0.0),
            options: TranslationOptions = _DEFAULT_OPTIONS,
            handlers: Mapping[str, Handler] = MappingProxyType({}),
            *,
            groups: GroupSource = FixedGroups(Groups()),  # noqa: B008 - it does not change
            claims: ClaimFinder = FixedClaims(),  # noqa: B008 - it does not change
            **settings: Any,
        ) -> WebhookEndpoint:
            registry = CollectorRegistry()
            rules = rules or FixedEvaluator(snapshot)
            metrics = WebhookMetrics(registry)
            settings_ = msgspec.structs.replace(SETTINGS, **settings)
            runner = review_runner(
                metrics,
                fraction=settings_.user_cpu_fraction,
                burst_s=settings_.user_cpu_burst,
            )
            pods = PodReviewHandler(
                snapshot, options, metrics, runner, signing=fixed_signing, evaluator=rules
            )
            workloads = WorkloadReviewHandler(snapshot, rules, options, metrics, runner)
            objects = ObjectReviewHandler(rules, snapshot, metrics, runner, options=options)
            routing = RoutingReviewHandler(
                rules,
                snapshot,
                metrics,
                runner,
                bridge=Bridge(SCHEDULER_NAME),
                groups=groups,
                claims=claims,
                retries_s=retries_s,
            )
            reviews = {
                MUTATE_PATH: pods.handle,
                ROUTE_PATH: routing.handle,
                VALIDATE_WORKLOADS_PATH: workloads.handle,
                VALIDATE_OBJECTS_PATH: objects.handle,
                **handlers,
            }
            endpoint = Endpoint(
                settings_, reviews, metrics, find_path=fixed_path, chance=lambda: 0.5
            )
            await endpoint.start(Listener(LEAF).context)
            await stack.enter_async_context(running(endpoint.run))
            stack.push_async_callback(endpoint.stop)
            client = ClientSession(
                f"https://127.0.0.1:{endpoint.port}",
                connector=TCPConnector(ssl=client_tls_context(LEAF.authority)),
            )
            await stack.enter_async_context(client)
            return WebhookEndpoint(client, registry, endpoint)

        yield make


StartEndpoint = Callable[..., Awaitable[WebhookEndpoint]]


def review(document: object, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview as the API server sends it."""
    fields = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": NAMESPACE,
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": "jane"},
        "object": document,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": fields | request,
    }


async def mutate_pod(
    endpoint: WebhookEndpoint, document: object, old: object = None, **request: Any
) -> Document:
    """Return the response to a review of a pod."""
    answer = await endpoint.client.post(MUTATE_PATH, json=review(document, old, **request))
    assert answer.status == 200, await answer.text()
    assert answer.content_type == "application/json"
    body: Document = await answer.json()
    assert body["response"]["uid"] == "u-1"
    response: Document = body["response"]
    return response


def apply_patch(document: Document, response: Document) -> Document:
    """Return the pod as the API server patches it."""
    if "patch" not in response:
        assert "patchType" not in response
        return document
    assert response["patchType"] == "JSONPatch"
    result: Document = jsonpatch.apply_patch(document, b64decode(response["patch"]))
    return result


class Call(NamedTuple):
    name: str
    body: bytes
    status: int
    headers: Document = JSON


def encode(document: object) -> bytes:
    return msgspec.json.encode(document)


def with_request(body: Document, **request: Any) -> Document:
    """Return a review with other fields in its request."""
    return {**body, "request": {**body["request"], **request}}


REVIEW: Final = review(pod(gpus(1)))


RESOURCES: Final = {
    kind: (version, resource) for (version, kind), resource in VALIDATED_KINDS.items()
}


def workload_review(document: Document, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview of a workload as the API server sends it."""
    kind = document["kind"]
    api_version, resource = RESOURCES[kind]
    group, version = api_version.split("/")
    group_version = {"group": group, "version": version}
    about = {
        "kind": {**group_version, "kind": kind},
        "resource": {**group_version, "resource": resource},
    }
    return review(document, old, **about, name="train", **request)


async def validate_workload(
    endpoint: WebhookEndpoint, document: Document, old: object = None, **request: Any
) -> Document:
    """Return the response to a review of a workload."""
    body = workload_review(document, old, **request)
    answer = await endpoint.client.post(VALIDATE_WORKLOADS_PATH, json=body)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    assert response["uid"] == "u-1"
    assert not {"patch", "patchType"} & response.keys()
    return response
