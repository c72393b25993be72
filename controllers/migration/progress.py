"""The progress of `drawbridge wave` in a plan, from the ConfigMap with its position."""

from collections.abc import Mapping

from clusterstate.wave_record import WAVE_RECORD, WaveRecord, parse_record
from controllers.migration.metrics import MigrationMetrics
from controllers.model.parts import Parts
from kube.api.meta import ApiStruct, decode
from kube.api.urls import CONFIG_MAPS
from kube.errors import ConfigError
from kube.runtime.informers import InformerFactory
from process.running.leader_election import Work


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: Mapping[str, str] | None = None


def project_wave_record(raw: bytes) -> WaveRecord | None:
    """Project the ConfigMap to the position; None if its data are none."""
    try:
        return parse_record(decode(raw, _ConfigMap).data or {})
    except ConfigError:
        return None


def follow_waves(informers: InformerFactory, namespace: str, metrics: MigrationMetrics) -> None:
    """Show every position that the ConfigMap of a namespace gets. Nothing waits for it."""

    def show(_key: object, _old: WaveRecord | None, new: WaveRecord | None) -> None:
        metrics.show(new)

    informers.subscribe(
        CONFIG_MAPS,
        project_wave_record,
        namespace=namespace,
        field_selector=f"metadata.name={WAVE_RECORD}",
        handlers=[show],
    )


def controller(parts: Parts, metrics: MigrationMetrics) -> Work:
    """Follow the waves of a migration; this takes no controller."""
    follow_waves(parts.informers, parts.settings.namespace, metrics)
    return Work()
