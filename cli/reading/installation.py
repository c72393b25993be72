"""Drawbridge itself in a running cluster: its deployed parts and the objects it wrote. Read-only.

No Secret is read. Resources that the user may not read are named.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from allocator.model.gate_metrics import parse_gates
from answers.model.profiles import stored_profiles_in_force
from answers.model.translation_snapshot import find_wide_mappings
from cli.reading.component_pods import read_component_pods, troubles_of
from cli.reading.live import live_settings, service_namespace, webhooks_in
from cli.reading.settings import SharedSettings
from cli.reading.wave_cluster import ConfigMapData
from clusterstate.wave_record import WAVE_RECORD
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.meta import ApiStruct, ObjectMeta, decode_pruned
from kube.api.ownership import AllocatorOwnership, not_serving, owned_drivers
from kube.api.policy import Condition, DeviceCompatibilityPolicy
from kube.api.resource import DeviceClass, ResourceSlice
from kube.api.translation_profile import DeviceTranslationProfile
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    DEVICE_QUOTAS,
    DEVICE_TRANSLATION_PROFILES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    WEBHOOK_CONFIGURATIONS,
    Resource,
)
from kube.client.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.names import (
    BRIDGE_LEASE,
    CONFIGURATION,
    MANAGED_LABEL,
    NAME,
    NAMESPACE,
    REQUEST_ANNOTATION,
    TRANSLATE_LABEL,
)
from kube.runtime.leader import LEASES, Lease, LeaseSpec
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import WideMapping

CONTROLLER_LEASE: Final = f"{NAME}-controller"
CERTIFICATES_LEASE: Final = f"{NAME}-certificates"
LEASE_NAMES: Final = (CONTROLLER_LEASE, CERTIFICATES_LEASE, BRIDGE_LEASE)
CONFIGURATION_KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
_OURS: Final = f"app.kubernetes.io/name={NAME}"
_APPS: Final = {
    "Deployment": Resource(group="apps", version="v1", plural="deployments"),
    "DaemonSet": Resource(group="apps", version="v1", plural="daemonsets"),
}

T = TypeVar("T")


class _Container(ApiStruct, frozen=True, kw_only=True):
    image: str = ""


class _PodSpec(ApiStruct, frozen=True, kw_only=True):
    containers: tuple[_Container, ...] | None = None


class _Template(ApiStruct, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    replicas: int = 1
    template: _Template = _Template()


class _WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    observed_generation: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0


class _Workload(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment or DaemonSet of Drawbridge.

    Attributes:
        component: Its label `app.kubernetes.io/component`.
        desired: The number of replicas that it is to have.
        ready: The number of replicas that are ready.
        updated: The number of replicas of its present template; 0 while its controller has not
            seen it.
        images: The images of its containers.
        troubles: The reasons why its pods are not ready, in sentences; empty where they may not
            be read.
    """

    component: str
    kind: str
    namespace: str
    name: str
    desired: int
    ready: int
    updated: int
    images: tuple[str, ...]
    troubles: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if it has all replicas of its present template."""
        return self.ready >= self.desired and self.updated >= self.desired


class TranslatedPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The live pods that carry a translation record.

    Attributes:
        total: All of them.
        without_template: `namespace/name` of those that wait for a ResourceClaimTemplate.
        without_claim: `namespace/name` of those whose templates exist, and that wait for a claim.
    """

    total: int = 0
    without_template: tuple[str, ...] = ()
    without_claim: tuple[str, ...] = ()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a cluster tells about Drawbridge.

    Attributes:
        namespace: The namespace in which it is installed, or would be.
        kubernetes: Version of the API server.
        read_at: The time of reading by the API server's clock; None if it does not tell.
        gates: Upstream name of a feature gate to whether it is on; empty if nobody may know.
        components: Its Deployments and DaemonSets, of all namespaces.
        configurations: Kind to the stored webhook configuration; None if it does not exist.
        leases: Name to the Lease of a component that stands for leader.
        settings: The settings of its processes.
        opted: Namespace to its label `drawbridge.internal/translate`.
        pods: The live pods that carry a translation record.
        slices: All ResourceSlices.
        wide_mappings: DeviceClasses that map a resource name, and give other devices than it means.
        owned: Drivers that the bridge owns.
        not_serving: The condition by which the bridge reports the reason for allocating nothing;
            None if it allocates, or reports nothing.
        migration: The data of the ConfigMap of `drawbridge wave`; None without one.
        unreadable: The resources that the user may not read.
    """

    namespace: str = NAMESPACE
    kubernetes: str = ""
    read_at: datetime | None = None
    gates: Mapping[str, bool] = {}
    components: tuple[Component, ...] = ()
    configurations: Mapping[str, Mapping[str, Any] | None] = {}
    leases: Mapping[str, LeaseSpec] = {}
    settings: SharedSettings = SharedSettings()
    opted: Mapping[str, str] = {}
    pods: TranslatedPods = TranslatedPods()
    slices: tuple[ResourceSlice, ...] = ()
    wide_mappings: tuple[WideMapping, ...] = ()
    policies: tuple[DeviceCompatibilityPolicy, ...] = ()
    quotas: tuple[DeviceQuota, ...] = ()
    profiles: tuple[DeviceTranslationProfile, ...] = ()
    owned: tuple[str, ...] = ()
    not_serving: Condition | None = None
    migration: Mapping[str, str] | None = None
    unreadable: tuple[str, ...] = ()


class _Reader:
    """A reader of objects that remembers the resources that may not be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unreadable: list[str] = []

    async def list(
        self, resource: Resource, kind: type[T], *, labels: str = "", fields: str = ""
    ) -> list[T]:
        """Return the objects of all namespaces; none of a kind that the cluster does not have."""
        objects: list[T] = []
        try:
            async for page in self._client.pages(
                resource, label_selector=labels, field_selector=fields
            ):
                objects += [decode_pruned(bytes(raw), kind) for raw in page.items]
        except NotFound:
            return []
        except Forbidden:
            self.unreadable.append(resource.plural)
        return objects

    async def get(
        self, resource: Resource, name: str, kind: type[T], *, namespace: str = ""
    ) -> T | None:
        """Return an object; None if it does not exist or may not be read."""
        try:
            return await self._client.get(resource, name, kind, namespace=namespace)
        except NotFound:
            return None
        except Forbidden:
            self.unreadable.append(resource.plural)
            return None


async def read_installation(client: Client, namespace: str | None = None) -> Installation:
    """Read the facts that a cluster tells about Drawbridge.

    Args:
        client: The cluster's client.
        namespace: The namespace in which it is installed; None to find out.

    Raises:
        ConfigError: The settings of the cluster make no sense.
        KubeError: The API server does not answer.
    """
    reader = _Reader(client)
    components = [
        _component(kind, workload)
        for kind, resource in _APPS.items()
        for workload in await reader.list(resource, _Workload, labels=_OURS)
    ]
    configurations = {
        kind: await reader.get(resource, CONFIGURATION, dict[str, Any])
        for kind, resource in zip(CONFIGURATION_KINDS, WEBHOOK_CONFIGURATIONS, strict=True)
    }
    home = namespace or _namespace(components, configurations.values())
    leases = {
        name: lease.spec
        for name in LEASE_NAMES
        if (lease := await reader.get(LEASES, name, Lease, namespace=home)) is not None
    }
    live = await live_settings(client, home)
    settings = live.settings
    reader.unreadable += [] if live.is_readable else ["configmaps"]
    ownerships = await reader.list(ALLOCATOR_OWNERSHIPS, AllocatorOwnership)
    slices = tuple(await reader.list(RESOURCE_SLICES, ResourceSlice))
    profiles = tuple(await reader.list(DEVICE_TRANSLATION_PROFILES, DeviceTranslationProfile))
    record = await reader.get(CONFIG_MAPS, WAVE_RECORD, ConfigMapData, namespace=home)
    return Installation(
        namespace=home,
        migration=None if record is None else record.data or {},
        kubernetes=await client.version(),
        gates={**settings.validation.feature_gates, **await _gates(client)},
        components=tuple([await _with_troubles(client, component) for component in components]),
        configurations=configurations,
        leases=leases,
        settings=settings,
        opted=await _opted(reader),
        pods=await _translated_pods(reader),
        slices=slices,
        wide_mappings=find_wide_mappings(
            await reader.list(DEVICE_CLASSES, DeviceClass),
            slices,
            settings.translation.options(home),
            stored_profiles_in_force(load_profiles(), profiles).profiles,
        ),
        policies=tuple(await reader.list(DEVICE_COMPATIBILITY_POLICIES, DeviceCompatibilityPolicy)),
        quotas=tuple(await reader.list(DEVICE_QUOTAS, DeviceQuota)),
        profiles=profiles,
        owned=tuple(sorted(owned_drivers(ownerships))),
        not_serving=not_serving(ownerships),
        unreadable=tuple(dict.fromkeys(reader.unreadable)),
        read_at=client.server_time,
    )


async def _gates(client: Client) -> Mapping[str, bool]:
    try:
        return parse_gates(await client.metrics())
    except KubeError:
        return {}  # Most users may not read them.


def _component(kind: str, workload: _Workload) -> Component:
    status, metadata = workload.status, workload.metadata
    is_seen = status.observed_generation >= metadata.generation
    is_daemon = kind == "DaemonSet"
    updated = status.updated_number_scheduled if is_daemon else status.updated_replicas
    return Component(
        component=(metadata.labels or {}).get(COMPONENT_LABEL, ""),
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        desired=status.desired_number_scheduled if is_daemon else workload.spec.replicas,
        ready=status.number_ready if is_daemon else status.ready_replicas,
        updated=updated if is_seen else 0,
        images=tuple(container.image for container in workload.spec.template.spec.containers or ()),
    )


async def _with_troubles(client: Client, component: Component) -> Component:
    """Return a component with the reasons that pods are not ready, if some of them are missing."""
    if component.is_whole or not component.component:
        return component
    labels = f"{_OURS},{COMPONENT_LABEL}={component.component}"
    pods = await read_component_pods(client, component.namespace, labels)
    return msgspec.structs.replace(component, troubles=troubles_of(pods))


def _namespace(
    components: Iterable[Component], configurations: Iterable[Mapping[str, Any] | None]
) -> str:
    """Return the namespace of the webhook, of the Service that is called or of its Deployment."""
    for name in map(service_namespace, configurations):
        if name:
            return name
    return next(
        (entry.namespace for entry in components if entry.component == "webhook"), NAMESPACE
    )


class _NamespaceHead(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


async def _opted(reader: _Reader) -> Mapping[str, str]:
    namespaces = await reader.list(NAMESPACES, _NamespaceHead, labels=TRANSLATE_LABEL)
    return {
        namespace.metadata.name: (namespace.metadata.labels or {}).get(TRANSLATE_LABEL, "")
        for namespace in namespaces
    }


async def _translated_pods(reader: _Reader) -> TranslatedPods:
    """Return the translated pods, and those of them that wait for their controllers."""
    pods = [
        pod
        for pod in await reader.list(PODS, Pod, fields=LIVE_PODS)
        if REQUEST_ANNOTATION in (pod.metadata.annotations or {})
    ]
    if not pods:
        return TranslatedPods()
    templates = {
        (template.metadata.namespace, template.metadata.name)
        for template in await reader.list(
            RESOURCE_CLAIM_TEMPLATES, _NamespaceHead, labels=MANAGED_LABEL
        )
    }
    without_template: list[str] = []
    without_claim: list[str] = []
    for pod in pods:
        missing = _missing_claims(pod)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if any((pod.metadata.namespace, template) not in templates for template in missing):
            without_template.append(name)
        elif missing:
            without_claim.append(name)
    return TranslatedPods(
        total=len(pods),
        without_template=tuple(sorted(without_template)),
        without_claim=tuple(sorted(without_claim)),
    )


def _missing_claims(pod: Pod) -> list[str]:
    """Return the names of the claim templates without a claim for the pod yet."""
    statuses = (pod.status.resource_claim_statuses or ()) if pod.status is not None else ()
    claim_names = {status.name for status in statuses}
    return [
        claim.resource_claim_template_name
        for claim in pod.spec.resource_claims or ()
        if claim.resource_claim_template_name and claim.name not in claim_names
    ]


def webhooks_of(installation: Installation) -> list[Mapping[str, Any]]:
    """Return the webhooks of both configurations."""
    return [
        webhook
        for configuration in installation.configurations.values()
        for webhook in webhooks_in(configuration)
    ]
