"""The webhook of a running cluster, and pods that are created as dry runs, so that nothing is stored."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from answers.model.snapshot_kinds import KINDS
from cli.reading.live import live_settings
from kube.api.core import Pod, ResourceQuota
from kube.api.meta import ApiStruct, ObjectMeta, convert
from kube.api.urls import (
    ENDPOINT_SLICES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
)
from kube.client.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.names import CONFIGURATION, NAMESPACE, TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.plan.model.plan import PlannedWorkload, Wave
from migration.trial.model import Trial, TrialPod, WebhookFacts, pods_webhook
from migration.trial.pods import (
    exhausted_line,
    has_share,
    is_translated,
    make_trial_pod,
    trial_workloads,
)

_OPTED_IN: Final = frozenset({"true", TRANSLATE_SELECTED})
_SERVICE_LABEL: Final = "kubernetes.io/service-name"


class _Conditions(ApiStruct, frozen=True, kw_only=True):
    ready: bool | None = None


class _Endpoint(ApiStruct, frozen=True, kw_only=True):
    addresses: tuple[str, ...] | None = None
    conditions: _Conditions = _Conditions()


class _EndpointSlice(ApiStruct, frozen=True, kw_only=True):
    """The endpoints of a discovery.k8s.io/v1 EndpointSlice."""

    endpoints: tuple[_Endpoint, ...] | None = None


class _Head(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


async def read_webhook(client: Client, waves: Iterable[Wave]) -> WebhookFacts:
    """Return the webhook of a cluster, and its answers about the namespaces of waves that are opted in.

    Args:
        client: The cluster's client.
        waves: The waves whose namespaces are looked at; none for the webhook alone.

    Raises:
        ConfigError: The settings of the cluster make no sense.
        KubeError: The API server does not answer.
    """
    planned = tuple(waves)
    unreadable: set[str] = set()
    configuration: Mapping[str, Any] | None = None
    try:
        configuration = await client.get(
            MUTATING_WEBHOOK_CONFIGURATIONS, CONFIGURATION, dict[str, Any]
        )
    except NotFound:
        pass
    except Forbidden:
        unreadable.add(MUTATING_WEBHOOK_CONFIGURATIONS.plural)
    webhook = pods_webhook(configuration) if configuration is not None else None
    service = webhook.client_config.service if webhook is not None else None
    endpoints = None
    if service is not None:
        try:
            endpoints = await _ready_endpoints(client, service.namespace, service.name)
        except Forbidden:
            endpoints = 0
            unreadable.add(ENDPOINT_SLICES.plural)
    live = await live_settings(client, service.namespace if service else NAMESPACE)
    opted_in = (name for wave in planned for name in wave.opted_in)
    namespaces = {name: await _labels(client, name) for name in dict.fromkeys(opted_in)}
    of_kai = {name for wave in planned for name in wave.kai_namespaces}
    trials: list[Trial] = []
    untried: dict[str, str] = {}
    for namespace, workloads in trial_workloads(planned).items():
        opt_in = (namespaces.get(namespace) or {}).get(TRANSLATE_LABEL, "")
        if opt_in not in _OPTED_IN:
            continue
        pod, reasons = await _trial_pod(
            client, workloads, opt_in, prefers_share=namespace in of_kai
        )
        if pod is not None:
            trials.append(await _try(client, namespace, pod))
        else:
            untried |= reasons
    return WebhookFacts(
        has_configuration=configuration is not None,
        webhook=webhook,
        mode=live.settings.translation.mode.value if live.is_readable else "",
        endpoints=endpoints,
        namespaces={name: labels for name, labels in namespaces.items() if labels is not None},
        trials=tuple(trials),
        untried=untried,
        unreadable=frozenset(unreadable),
    )


async def _ready_endpoints(client: Client, namespace: str, service: str) -> int:
    slices = await client.list(
        ENDPOINT_SLICES,
        _EndpointSlice,
        namespace=namespace,
        label_selector=f"{_SERVICE_LABEL}={service}",
    )
    # Without the condition an endpoint is to be taken as ready.
    return sum(
        bool(endpoint.addresses) and endpoint.conditions.ready is not False
        for entry in slices.items
        for endpoint in entry.endpoints or ()
    )


async def _labels(client: Client, namespace: str) -> Mapping[str, str] | None:
    """Return the labels of a namespace; None if it does not exist or may not be read."""
    try:
        head = await client.get(NAMESPACES, namespace, _Head)
    except (NotFound, Forbidden):
        return None
    return head.metadata.labels or {}


async def _trial_pod(
    client: Client, workloads: Iterable[PlannedWorkload], opt_in: str, *, prefers_share: bool
) -> tuple[TrialPod | None, Mapping[str, str]]:
    """Return a pod of the first workload that one can be made from, or the reason of the first of them.

    Args:
        client: The cluster's client.
        workloads: The workloads of a namespace, in the order of their trials.
        opt_in: The label of the namespace.
        prefers_share: The first workload with a share of KAI, and with pods that ran, goes before the others: the
            webhook of KAI changes no other pods.
    """
    first: TrialPod | None = None
    reasons: dict[str, str] = {}
    for workload in workloads:
        kind, namespace, name = workload.object.split("/", 2)
        resource = KINDS.get(kind)
        if resource is None:
            reasons[workload.object] = f"nothing here knows the pod template of a {kind}"
            continue
        try:
            document = await client.get(resource, name, dict[str, Any], namespace=namespace)
        except NotFound:
            reasons[workload.object] = "it is gone"
            continue
        except Forbidden:
            reasons[workload.object] = f"{resource.plural} cannot be read"
            continue
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        pod = make_trial_pod(workload, {"apiVersion": version, **document}, opt_in)
        if not isinstance(pod, TrialPod):
            reasons[workload.object] = pod
            continue
        if not prefers_share or (has_share(pod) and not pod.has_waited):
            return pod, {}
        first = first or pod
    if first is not None:
        return first, {}
    return None, dict([next(iter(reasons.items()))] if reasons else [])


async def _try(client: Client, namespace: str, pod: TrialPod) -> Trial:
    """Create a pod as a dry run, and return the answer.

    Raises:
        KubeError: The API server does not answer.
    """
    try:
        created_pod = await client.create(
            PODS, pod.document, Pod, namespace=namespace, dry_run=True
        )
    except KubeError as error:
        if not error.status:
            raise
        exhausted = ""
        if isinstance(error, Forbidden):
            exhausted = await _exhausted(client, namespace, pod)
        return Trial(
            workload=pod.workload,
            rejection=str(error),
            exhausted=exhausted,
            # An error of the server, as of a webhook that does not answer, is about every pod.
            has_waited=pod.has_waited and error.status < HTTPStatus.INTERNAL_SERVER_ERROR,
        )
    return Trial(workload=pod.workload, has_claims=is_translated(created_pod))


async def _exhausted(client: Client, namespace: str, pod: TrialPod) -> str:
    """Return the used-up line of a ResourceQuota that may reject a pod; empty without one."""
    try:
        quotas = await client.list(RESOURCE_QUOTAS, ResourceQuota, namespace=namespace)
    except Forbidden:
        return ""
    return exhausted_line(quotas.items, convert(pod.document, Pod))
