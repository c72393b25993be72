"""Facts that only a running cluster tells before an upgrade: metrics, settings, kept profiles.

Read-only.
"""

import msgspec

from cli.reading.settings import CONFIG_MAP, settings_in_config_map
from kube.api.urls import CONFIG_MAPS
from kube.client.client import Client
from kube.errors import ConfigError, Forbidden, KubeError, NotFound
from kube.names import NAMESPACE
from migration.upgrade.model import UpgradeFacts
from process.profiles.published_profiles import project_published
from process.profiles.translation import TranslationSettings


async def read_upgrade_facts(kubeconfig: str | None, context: str | None) -> UpgradeFacts:
    """Read the facts of a cluster.

    Raises:
        KubeError: The API server does not answer.
    """
    unreadable: list[str] = []
    metrics, problem, profiles = "", "", TranslationSettings().profiles_config_map
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        raw = await _config_map(client, CONFIG_MAP, unreadable)
        if raw is not None:
            try:
                profiles = settings_in_config_map(raw).translation.profiles_config_map
            except ConfigError as error:
                problem = str(error)
        raw = await _config_map(client, profiles, unreadable)
        try:
            metrics = await client.metrics()
        except KubeError:
            unreadable.append("metrics")
    return UpgradeFacts(
        metrics=metrics,
        settings_problem=problem,
        kept_versions=project_published(raw).versions if raw is not None else {},
        unreadable=tuple(unreadable),
    )


async def _config_map(client: Client, name: str, unreadable: list[str]) -> bytes | None:
    try:
        raw = await client.get(CONFIG_MAPS, name, msgspec.Raw, namespace=NAMESPACE)
    except NotFound:
        return None
    except Forbidden:
        unreadable.append(f"ConfigMap {name}")
        return None
    return bytes(raw)
