"""Facts that only a running cluster tells before an upgrade: metrics, settings, kept profiles.

Read-only.
"""

import msgspec

from cli.reading.live import absence_note, find_namespace
from cli.reading.settings import CONFIG_MAP, config_map_text, names_mode, settings_in_config_map
from kube.api.urls import CONFIG_MAPS
from kube.client.client import Client
from kube.errors import ConfigError, Forbidden, KubeError, NotFound
from migration.upgrade.model import UpgradeFacts
from process.profiles.published_profiles import project_published
from process.profiles.translation import TranslationSettings
from translation.cluster.snapshot import Mode


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
        raw = await _config_map(client, namespace.name, CONFIG_MAP, unreadable)
        is_known = not unreadable and not namespace.doubt
        is_named = raw is not None and names_mode(config_map_text(raw))
        if raw is None and not unreadable:
            note = absence_note(namespace)
        if raw is not None:
            try:
                profiles = settings_in_config_map(raw).translation.profiles_config_map
            except ConfigError as error:
                problem = str(error)
        raw = await _config_map(client, namespace.name, profiles, unreadable)
        try:
            metrics = await client.metrics()
        except KubeError:
            unreadable.append("metrics")
    facts = UpgradeFacts(
        metrics=metrics,
        settings_problem=problem,
        relies_on_default_mode=is_known and namespace.mode is Mode.OPT_OUT and not is_named,
        kept_versions=project_published(raw).versions if raw is not None else {},
        unreadable=tuple(unreadable),
    )
    return facts, note


async def _config_map(
    client: Client, namespace: str, name: str, unreadable: list[str]
) -> bytes | None:
    try:
        raw = await client.get(CONFIG_MAPS, name, msgspec.Raw, namespace=namespace)
    except NotFound:
        return None
    except Forbidden:
        unreadable.append(f"ConfigMap {name}")
        return None
    return bytes(raw)
