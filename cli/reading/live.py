"""The state of a running cluster, as objects, for `--live`. Read-only."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from admission.webhook_configuration import PODS_WEBHOOK
from allocator.declarations import pod_group
from answers.model.kinds import STATE_KINDS
from answers.model.pod_owners import FAILED_CLAIM, FAILED_CREATE, FailedCreation
from answers.model.unread import UnreadKind
from cli.reading.live_snapshot import may_have_group
from cli.reading.settings import CONFIG_MAP, SharedSettings, settings_in_config_map
from clusterstate.published_gates import project_gates
from kube.api.meta import ApiStruct, decode_document, decode_pruned
from kube.api.urls import (
    ALL_POD_GROUPS,
    ALLOCATOR_OWNERSHIPS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    DEVICE_QUOTAS,
    DEVICE_TRANSLATION_PROFILES,
    EVENTS,
    LIMIT_RANGES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACE_QUOTA_RESOURCES,
    NAMESPACES,
    NETWORK_ATTACHMENTS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    WORKLOAD_PROFILES,
    Resource,
)
from kube.client.client import Client
from kube.errors import ConfigError, Forbidden, NotFound
from kube.manifests.source import SourceObject, ViewedObject
from kube.names import CONFIGURATION, NAMESPACE, TRANSLATE_LABEL
from migration.settings_import.legacy_documents import LegacyDocument, texts_of
from translation.cluster.snapshot import Mode


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A kind to list; the items of a list do not name theirs."""

    kind: str
    resource: Resource

    @property
    def api_version(self) -> str:
        """`apiVersion` as objects write it."""
        group = f"{self.resource.group}/" if self.resource.group else ""
        return f"{group}{self.resource.version}"

    def object(self, raw: bytes) -> SourceObject:
        """Return one item as an object that Python functions may follow to every level."""
        head = {"apiVersion": self.api_version, "kind": self.kind}
        document = head | decode_document(raw)
        return SourceObject(document=document, source=_SOURCE, line=0)

    def view(self, raw: bytes) -> ViewedObject:
        """Return one item as a view; the API server has checked its types."""
        value = decode_pruned(raw, STATE_KINDS[self.api_version, self.kind])
        if isinstance(value, pod_group.PodGroup):
            value = msgspec.structs.replace(value, api_version=self.api_version)
        return ViewedObject(
            api_version=self.api_version, kind=self.kind, value=value, source=_SOURCE
        )


_SOURCE: Final = "the cluster"


_DEVICE_QUOTA: Final = _Listed(kind="DeviceQuota", resource=DEVICE_QUOTAS)
_CLUSTER: Final = (
    _Listed(kind="DeviceClass", resource=DEVICE_CLASSES),
    _Listed(kind="ResourceSlice", resource=RESOURCE_SLICES),
    _Listed(kind="DeviceTranslationProfile", resource=DEVICE_TRANSLATION_PROFILES),
    _DEVICE_QUOTA,
)
_RESOURCE_QUOTA: Final = _Listed(kind="ResourceQuota", resource=RESOURCE_QUOTAS)
_NAMESPACED: Final = (
    _Listed(kind="ResourceClaimTemplate", resource=RESOURCE_CLAIM_TEMPLATES),
    _RESOURCE_QUOTA,
    _Listed(kind="LimitRange", resource=LIMIT_RANGES),
    _Listed(kind="NetworkAttachmentDefinition", resource=NETWORK_ATTACHMENTS),
    _Listed(kind="WorkloadProfile", resource=WORKLOAD_PROFILES),
)
_FOREIGN_QUOTAS: Final = tuple(
    _Listed(kind=kind, resource=resource)
    for (_, kind), resource in NAMESPACE_QUOTA_RESOURCES.items()
)
_NAMESPACE: Final = _Listed(kind="Namespace", resource=NAMESPACES)
_ALLOCATION: Final = (
    _Listed(kind="Node", resource=Resource(version="v1", plural="nodes", namespaced=False)),
    _Listed(kind="PriorityClass", resource=PRIORITY_CLASSES),
    _Listed(kind="Pod", resource=PODS),
    _Listed(kind="ResourceClaim", resource=RESOURCE_CLAIMS),
    _Listed(kind="ResourceClaimTemplate", resource=RESOURCE_CLAIM_TEMPLATES),
    _Listed(
        kind="DeviceTaintRule",
        resource=Resource(
            group=RESOURCE_CLAIMS.group, version="v1", plural="devicetaintrules", namespaced=False
        ),
    ),
    _Listed(kind="DeviceCompatibilityPolicy", resource=DEVICE_COMPATIBILITY_POLICIES),
    _Listed(kind="AllocatorOwnership", resource=ALLOCATOR_OWNERSHIPS),
    *(_Listed(kind=pod_group.KIND, resource=resource) for resource in ALL_POD_GROUPS),
)


async def cluster_state(
    client: Client, namespaces: Collection[str]
) -> tuple[list[SourceObject], list[UnreadKind]]:
    """Return the objects that a translation may depend on, and the kinds that are forbidden.

    Args:
        namespaces: The namespaces of the manifests; no other is read.

    Raises:
        KubeError: The API server does not answer.
    """
    objects: list[SourceObject] = []
    unread: list[UnreadKind] = []
    places = [(kind_listed, "") for kind_listed in _CLUSTER]
    places += [
        (kind_listed, namespace) for namespace in sorted(namespaces) for kind_listed in _NAMESPACED
    ]
    for kind_listed, namespace in places:
        try:
            async for page in client.pages(kind_listed.resource, namespace=namespace):
                objects += [kind_listed.object(bytes(raw)) for raw in page.items]
        except NotFound:
            continue  # The cluster does not have this kind.
        except Forbidden as refusal:
            unread.append(UnreadKind(kind_listed.resource.plural, str(refusal), namespace))
    has_quotas = any(entry.kind == _DEVICE_QUOTA.kind for entry in objects)
    labels, refused = await _namespaces(client, namespaces, reads_all=has_quotas)
    objects += labels
    unread += refused
    for kind_listed in _FOREIGN_QUOTAS if namespaces else ():
        quotas, refused = await _foreign_quotas(client, kind_listed, namespaces)
        objects += quotas
        unread += refused
    return objects, unread


async def _namespaces(
    client: Client, names: Collection[str], *, reads_all: bool
) -> tuple[list[SourceObject], list[UnreadKind]]:
    """Return namespaces; their labels decide on the translation of pods, and select tenants.

    Args:
        reads_all: Read also those that no manifest is in: their claims count for a tenant, too.
    """
    objects: list[SourceObject] = []
    unread: list[UnreadKind] = []
    if reads_all:
        try:
            async for page in client.pages(NAMESPACES):
                objects += [_NAMESPACE.object(bytes(raw)) for raw in page.items]
        except Forbidden as refusal:
            unread.append(UnreadKind(NAMESPACES.plural, str(refusal)))
        else:
            return objects, unread
    for name in sorted(names):
        try:
            raw = await client.get(NAMESPACES, name, msgspec.Raw)
        except NotFound:
            continue  # It may be created together with the objects.
        except Forbidden as refusal:
            unread.append(UnreadKind("labels", str(refusal), name))
        else:
            objects.append(_NAMESPACE.object(bytes(raw)))
    return objects, unread


async def _foreign_quotas(
    client: Client, kind_listed: _Listed, namespaces: Collection[str]
) -> tuple[list[SourceObject], list[UnreadKind]]:
    """Return the quotas of another scheduler of all namespaces, else those of the manifests' own.

    One of another namespace may name these. Where the API server has no such kind it refuses to list it
    all the same, to whoever has no right to.
    """
    objects: list[SourceObject] = []
    unread: list[UnreadKind] = []
    resource = kind_listed.resource
    for place in ("", *sorted(namespaces)):
        try:
            async for page in client.pages(resource, namespace=place):
                objects += [kind_listed.object(bytes(raw)) for raw in page.items]
        except NotFound:
            return [], []
        except Forbidden as refusal:
            if not place and not await may_have_group(client, resource.group):
                return [], []
            if place:
                unread.append(UnreadKind(resource.plural, str(refusal), place))
            continue
        if not place:
            break
    return objects, unread


async def allocation_state(client: Client) -> tuple[list[ViewedObject], list[UnreadKind]]:
    """Return the objects of all namespaces that allocation depends on beside `cluster_state`, and the forbidden kinds.

    Raises:
        KubeError: The API server does not answer.
    """
    objects: list[ViewedObject] = []
    unread: list[UnreadKind] = []
    for kind_listed in _ALLOCATION:
        try:
            async for page in client.pages(kind_listed.resource):
                objects += [kind_listed.view(bytes(raw)) for raw in page.items]
        except NotFound:
            continue  # The cluster does not have this kind.
        except Forbidden as refusal:
            # A group that the cluster does not serve is refused as well.
            resource = kind_listed.resource
            if kind_listed.kind != pod_group.KIND or await may_have_group(client, resource.group):
                unread.append(UnreadKind(resource.plural, str(refusal)))
    return objects, unread


class _Regarding(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Series(ApiStruct, frozen=True, kw_only=True):
    last_observed_time: str = ""


class _Event(ApiStruct, frozen=True, kw_only=True):
    """The parts of an event that are read; those of most controllers have the deprecated time."""

    reason: str = ""
    note: str = ""
    regarding: _Regarding = _Regarding()
    series: _Series | None = None
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None

    @property
    def last(self) -> str:
        last = self.series.last_observed_time if self.series is not None else ""
        return last or self.deprecated_last_timestamp or self.event_time or ""


async def creation_state(
    client: Client, namespace: str
) -> tuple[list[ViewedObject], list[FailedCreation], list[UnreadKind]]:
    """Return the ResourceQuotas of a namespace, its pods that could not be created, and the forbidden kinds.

    Raises:
        KubeError: The API server does not answer.
    """
    quotas: list[ViewedObject] = []
    unread: list[UnreadKind] = []
    try:
        async for page in client.pages(RESOURCE_QUOTAS, namespace=namespace):
            quotas += [_RESOURCE_QUOTA.view(bytes(raw)) for raw in page.items]
    except Forbidden as refusal:
        unread.append(UnreadKind(RESOURCE_QUOTAS.plural, str(refusal), namespace))
    # Of each object that makes pods the last failure; events last for an hour.
    failures: dict[tuple[str, str], FailedCreation] = {}
    try:
        async for page in client.pages(EVENTS, namespace=namespace, field_selector="type=Warning"):
            for raw in page.items:
                event = decode_pruned(bytes(raw), _Event)
                key = event.regarding.kind, event.regarding.name
                if event.reason.startswith((FAILED_CREATE, FAILED_CLAIM)) and (
                    key not in failures or failures[key].last <= event.last
                ):
                    failures[key] = FailedCreation(
                        kind=key[0], name=key[1], note=event.note, last=event.last
                    )
    except Forbidden as refusal:
        unread.append(UnreadKind(EVENTS.plural, str(refusal), namespace))
    return quotas, list(failures.values()), unread


class LiveSettings(NamedTuple):
    """The settings of a cluster's processes, with the feature gates of its controllers.

    Attributes:
        is_readable: False if these are defaults, since the user may not read them or they make no sense.
    """

    settings: SharedSettings
    notes: Sequence[str] = ()
    is_readable: bool = True


class InstalledNamespace(NamedTuple):
    """The namespace of the cluster's webhook, or the default without a known Service.

    Attributes:
        has_configuration: The cluster has a webhook configuration, or has one that may not be read.
        doubt: The reason that it may be another one, as a clause; empty if there is none.
        mode: The mode that the webhook for pods is configured for; None without one.
        metadata: The metadata of the webhook configuration; empty without one.
    """

    name: str
    has_configuration: bool
    doubt: str = ""
    mode: Mode | None = None
    metadata: Mapping[str, Any] = {}


async def find_namespace(client: Client) -> InstalledNamespace:
    """Return the namespace of the webhook's Service.

    Raises:
        KubeError: The API server does not answer.
    """
    resource = MUTATING_WEBHOOK_CONFIGURATIONS
    try:
        configuration = await client.get(resource, CONFIGURATION, dict[str, Any])
    except NotFound:
        return InstalledNamespace(NAMESPACE, has_configuration=False)
    except Forbidden as refusal:
        doubt = f"that Drawbridge is installed there is a guess, since {refusal}"
        return InstalledNamespace(NAMESPACE, has_configuration=True, doubt=doubt)
    name, doubt = service_namespace(configuration), ""
    if not name:
        name = NAMESPACE
        doubt = (
            f"that Drawbridge is installed there is a guess, since {CONFIGURATION} names no Service"
        )
    return InstalledNamespace(
        name,
        has_configuration=True,
        doubt=doubt,
        mode=configured_mode(webhooks_in(configuration)),
        metadata=configuration["metadata"],
    )


def service_namespace(configuration: Mapping[str, Any] | None) -> str:
    """Return the namespace of the Service in a webhook configuration; empty without one."""
    for webhook in webhooks_in(configuration):
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        if service.get("namespace"):
            return str(service["namespace"])
    return ""


def webhooks_in(configuration: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the webhooks of a configuration."""
    return [
        webhook
        for webhook in (configuration or {}).get("webhooks") or ()
        if isinstance(webhook, Mapping)
    ]


def configured_mode(webhooks: Iterable[Mapping[str, Any]]) -> Mode | None:
    """Return the mode that the webhook for pods is configured for; None without one."""
    for webhook in webhooks:
        if webhook.get("name") == PODS_WEBHOOK:
            if webhook.get("failurePolicy") == "Ignore":
                return Mode.SHADOW
            selector = webhook.get("namespaceSelector") or {}
            is_opt_in = any(
                entry.get("key") == TRANSLATE_LABEL and entry.get("operator") == "In"
                for entry in selector.get("matchExpressions") or ()
            )
            return Mode.OPT_IN if is_opt_in else Mode.OPT_OUT
    return None


def absence_note(namespace: InstalledNamespace) -> str:
    """Return a note on default settings for lack of a ConfigMap; empty if none is expected."""
    # Manifests of the default mode have no ConfigMap; those of other modes name theirs in one.
    has_default_mode = namespace.mode is SharedSettings().translation.mode
    if not namespace.has_configuration or has_default_mode:
        return ""
    doubt = f" ({namespace.doubt})" if namespace.doubt else ""
    return (
        f"there is no ConfigMap {CONFIG_MAP} in namespace {namespace.name}{doubt}, and default settings "
        "are used; name others with --settings FILE"
    )


async def find_settings(client: Client) -> LiveSettings:
    """Return the settings in the namespace of the webhook.

    Raises:
        ConfigError: The settings make no sense.
        KubeError: The API server does not answer.
    """
    return await _installed_settings(client, await find_namespace(client))


async def find_settings_or_defaults(client: Client) -> LiveSettings:
    """As `find_settings`, with defaults and a note if the settings make no sense to this version.

    Raises:
        KubeError: The API server does not answer.
    """
    namespace = await find_namespace(client)
    try:
        return await _installed_settings(client, namespace)
    except ConfigError as error:
        note = f"the cluster's settings make no sense here, and defaults are used: {error}"
        settings = await _completed(client, namespace.name, SharedSettings())
        note = f"{note}; name others with --settings FILE"
        return LiveSettings(settings, [note], is_readable=False)


async def _installed_settings(client: Client, namespace: InstalledNamespace) -> LiveSettings:
    try:
        return await _settings_in(client, namespace.name)
    except NotFound:
        note = absence_note(namespace)
        settings = await _completed(client, namespace.name, SharedSettings())
        return LiveSettings(settings, [note] if note else [])


async def live_settings(client: Client, namespace: str) -> LiveSettings:
    """Return the settings in a namespace; without a ConfigMap they are defaults.

    Raises:
        ConfigError: The settings make no sense.
        KubeError: The API server does not answer.
    """
    try:
        return await _settings_in(client, namespace)
    except NotFound:
        return LiveSettings(await _completed(client, namespace, SharedSettings()))


async def _settings_in(client: Client, namespace: str) -> LiveSettings:
    """Return the settings in a namespace.

    Raises:
        NotFound: There is no ConfigMap.
        ConfigError: The settings make no sense.
        KubeError: The API server does not answer.
    """
    settings, notes = SharedSettings(), list[str]()
    try:
        raw = await client.get(CONFIG_MAPS, CONFIG_MAP, msgspec.Raw, namespace=namespace)
        settings = settings_in_config_map(bytes(raw))
    except Forbidden as refusal:
        note = f"the cluster's settings cannot be read, and defaults are used: {refusal}"
        notes.append(f"{note}; name them with --settings FILE")
    return LiveSettings(await _completed(client, namespace, settings), notes, not notes)


async def _completed(client: Client, namespace: str, settings: SharedSettings) -> SharedSettings:
    """Return settings with the namespace and the published feature gates of the controllers."""
    settings = msgspec.structs.replace(settings, namespace=namespace)
    validation = settings.validation
    try:
        raw = await client.get(
            CONFIG_MAPS, validation.inventory_config_map, msgspec.Raw, namespace=namespace
        )
        gates = {**validation.feature_gates, **project_gates(bytes(raw))}
    except (NotFound, Forbidden):
        return settings  # Nobody has found them out, or only the webhook may know.
    validation = msgspec.structs.replace(validation, feature_gates=gates)
    return msgspec.structs.replace(settings, validation=validation)


async def legacy_settings(client: Client) -> list[LegacyDocument]:
    """Return the texts of settings in the ConfigMaps of all namespaces.

    Raises:
        KubeError: They cannot be read.
    """
    documents: list[LegacyDocument] = []
    async for page in client.pages(CONFIG_MAPS):
        for raw in page.items:
            documents += texts_of(decode_pruned(bytes(raw), dict[str, Any]))
    return documents
