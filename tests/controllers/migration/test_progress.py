"""The metrics of a migration follow the ConfigMap of `drawbridge wave`."""

import pytest
from prometheus_client import CollectorRegistry

from clusterstate.wave_record import WAVE_RECORD, Direction, StepState, WaveRecord, record_data
from controllers.migration.metrics import MigrationMetrics
from controllers.migration.progress import follow_waves
from kube.api.urls import CONFIG_MAPS
from kube.names import NAMESPACE
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

RECORD = WaveRecord(
    digest=f"sha256:{'0' * 64}",
    direction=Direction.NEXT,
    wave=3,
    step="drain",
    node="node-14",
    number=2,
    steps=9,
    reached=2,
    state=StepState.BEGUN,
    who="an operator",
    when="2026-11-24T00:00:00Z",
    waves=12,
    nodes=14,
    nodes_total=40,
    workloads=71,
    workloads_total=200,
)


def stored(data: dict[str, str]) -> dict[str, object]:
    return {"metadata": {"name": WAVE_RECORD, "namespace": NAMESPACE}, "data": data}


async def test_the_position_is_shown_until_it_is_gone() -> None:
    registry = CollectorRegistry()

    def value(part: str, state: str) -> float | None:
        return registry.get_sample_value(f"drawbridge_migration_{part}", {"state": state})

    async with FakeApiServer() as server, server.client() as client:
        informers = quick_informers(client)
        follow_waves(informers, NAMESPACE, MigrationMetrics(registry))
        async with running(informers.run):
            server.put(CONFIG_MAPS, stored(record_data(RECORD)))
            await until(lambda: value("waves", "done") == 3)
            assert value("waves", "all") == 12
            assert (value("nodes", "done"), value("nodes", "all")) == (14, 40)
            assert (value("workloads", "done"), value("workloads", "all")) == (71, 200)

            server.remove(CONFIG_MAPS, WAVE_RECORD, NAMESPACE)
            await until(lambda: value("waves", "all") is None)


@pytest.mark.parametrize(
    "change", [{"waves": "many"}, {"nodes": "-1"}, {"nodes": "9" * 40}, {"digest": "\x1b[2J"}]
)
async def test_what_is_no_position_shows_nothing(change: dict[str, str]) -> None:
    registry = CollectorRegistry()
    async with FakeApiServer() as server, server.client() as client:
        server.put(CONFIG_MAPS, stored(record_data(RECORD)))
        informers = quick_informers(client)
        follow_waves(informers, NAMESPACE, MigrationMetrics(registry))
        async with running(informers.run):
            await until(lambda: _waves(registry) == 12)
            server.put(CONFIG_MAPS, stored(record_data(RECORD) | change))
            await until(lambda: _waves(registry) is None)


def _waves(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("drawbridge_migration_waves", {"state": "all"})
