"""Facts that only a running cluster tells before an upgrade: metrics, settings, overlays, kept profiles.

Read-only.
"""

from typing import Final

import msgspec

from answers.model.snapshot_kinds import KINDS
from cli.reading.live import InstalledNamespace, absence_note, find_namespace
from cli.reading.settings import CONFIG_MAP, settings_in_config_map
from kube.api.core import Pod
from kube.api.meta import ApiStruct, decode
from kube.api.urls import CONFIG_MAPS
from kube.client.client import Client
from kube.errors import ConfigError, Forbidden, KubeError, NotFound
from kube.names import NAMESPACE, SERVICE
from migration.upgrade.model import UpgradeFacts
from process.profiles.published_profiles import project_published
from process.profiles.translation import TranslationSettings
from translation.cluster.snapshot import Mode

_RESOURCES: Final = {"ConfigMap": CONFIG_MAPS, "Deployment": KINDS["Deployment"]}
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_INJECTED: Final = "cert-manager.io/inject-ca-from"
"""The annotation of webhook configurations that the overlay cert-manager sets."""
_CLIENT_AUTHORITY: Final = "DRAWBRIDGE_CLIENT_CA"
"""The environment variable of the webhook that the overlay client-certificates sets."""


class _DeploymentSpec(ApiStruct, frozen=True, kw_only=True):
    template: Pod = Pod()


class _Deployment(ApiStruct, frozen=True, kw_only=True):
    spec: _DeploymentSpec = _DeploymentSpec()


async def read_upgrade_facts(
    kubeconfig: str | None, context: str | None
) -> tuple[UpgradeFacts, str]:
    """Read the facts of a cluster, with a note on default settings for lack of a ConfigMap, else empty.

    Raises:
        KubeError: The API server does not answer.
    """
    unreadable: list[str] = []
    metrics, problem, profiles, note = "", "", TranslationSettings().profiles_config_map, ""
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        namespace = await find_namespace(client)
        raw = await _find(client, "ConfigMap", namespace.name, CONFIG_MAP, unreadable)
        if raw is None and not unreadable:
            note = absence_note(namespace)
        if raw is not None:
            try:
                profiles = settings_in_config_map(raw).translation.profiles_config_map
            except ConfigError as error:
                problem = str(error)
        raw = await _find(client, "ConfigMap", namespace.name, profiles, unreadable)
        overlays = await _opt_out_overlays(client, namespace, unreadable)
        try:
            metrics = await client.metrics()
        except KubeError:
            unreadable.append("metrics")
    facts = UpgradeFacts(
        metrics=metrics,
        settings_problem=problem,
        opt_out_overlays=overlays,
        kept_versions=project_published(raw).versions if raw is not None else {},
        unreadable=tuple(unreadable),
    )
    return facts, note


async def _opt_out_overlays(
    client: Client, namespace: InstalledNamespace, unreadable: list[str]
) -> tuple[str, ...]:
    """Return the overlays with marks in an `OptOut` installation that are `OptIn` in this version."""
    # The chart makes the same marks, and has the mode in its values.
    labels = namespace.metadata.get("labels") or {}
    if namespace.mode is not Mode.OPT_OUT or labels.get(_MANAGED_BY) == "Helm":
        return ()
    overlays: list[str] = []
    if _INJECTED in (namespace.metadata.get("annotations") or {}):
        overlays.append("cert-manager")
    raw = await _find(client, "Deployment", namespace.name, SERVICE, unreadable)
    containers = decode(raw, _Deployment).spec.template.spec.containers if raw is not None else ()
    if any(
        variable.name == _CLIENT_AUTHORITY
        for container in containers or ()
        for variable in container.env or ()
    ):
        overlays.append("client-certificates")
    if namespace.name != NAMESPACE:
        overlays.append("own-namespace")
    return tuple(overlays)


async def _find(
    client: Client, kind: str, namespace: str, name: str, unreadable: list[str]
) -> bytes | None:
    try:
        raw = await client.get(_RESOURCES[kind], name, msgspec.Raw, namespace=namespace)
    except NotFound:
        return None
    except Forbidden:
        unreadable.append(f"{kind} {name}")
        return None
    return bytes(raw)
