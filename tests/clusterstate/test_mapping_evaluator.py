"""Mapped resource names are validated by classes and slices as these change, and not by reviews."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from clusterstate.evaluator import RuleEvaluator
from clusterstate.mapping_evaluator import MappingEvaluator
from clusterstate.settings import ValidationSettings
from clusterstate.snapshot_cache import SnapshotCache
from kube import names
from kube.api.urls import DEVICE_CLASSES, RESOURCE_SLICES
from testing.builders import driver_slice, mig_device, profiles
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from translation.cluster.snapshot import TranslationOptions

NVIDIA: Final = "gpu.nvidia.com"
MIG: Final = "nvidia.com/mig-3g.40gb"
ALL_MIG: Final = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


@asynccontextmanager
async def evaluating(server: FakeApiServer) -> AsyncIterator[SnapshotCache]:
    async with server.client() as client:
        informers = quick_informers(client)
        options = TranslationOptions()
        snapshots = SnapshotCache(informers, profiles(), options=options)
        evaluator = RuleEvaluator(informers, names.NAMESPACE, ValidationSettings())
        mappings = MappingEvaluator(evaluator, snapshots, options, pause_s=0)
        async with running(informers.run, evaluator.run, mappings.run):
            await snapshots.wait_synced()
            yield snapshots


def mig_class(name: str, *expressions: str) -> Document:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "metadata": {"name": name},
        "spec": {"extendedResourceName": MIG, "selectors": selectors},
    }


def mig_slice(*device_profiles: str) -> Document:
    devices = [mig_device(profile=profile) for profile in device_profiles]
    return msgspec.to_builtins(driver_slice(NVIDIA, *devices), enc_hook=str)  # type: ignore[no-any-return]


async def test_a_class_is_validated_by_its_text_before_the_devices_are_known(
    server: FakeApiServer,
) -> None:
    server.put(DEVICE_CLASSES, mig_class("mig-3g.40gb", ALL_MIG))
    async with server.client() as client:
        informers = quick_informers(client)
        snapshots = SnapshotCache(informers, profiles())
        async with running(informers.run):
            await snapshots.wait_synced()

            assert set(snapshots.snapshot().wide_mappings) == {MIG}

            of_profile = f"device.attributes['{NVIDIA}'].profile == '3g.40gb'"
            server.put(DEVICE_CLASSES, mig_class("mig-3g.40gb", ALL_MIG, of_profile))
            await until(lambda: not snapshots.snapshot().wide_mappings)


async def test_a_class_is_validated_again_when_devices_of_other_profiles_come_and_go(
    server: FakeApiServer,
) -> None:
    server.put(DEVICE_CLASSES, mig_class("large-mig", ALL_MIG))
    server.put(RESOURCE_SLICES, mig_slice("3g.40gb"))
    async with evaluating(server) as snapshots:
        await until(lambda: not snapshots.snapshot().wide_mappings)

        server.put(RESOURCE_SLICES, mig_slice("3g.40gb", "1g.5gb"))
        await until(lambda: MIG in snapshots.snapshot().wide_mappings)

        server.put(RESOURCE_SLICES, mig_slice("3g.40gb"))
        await until(lambda: not snapshots.snapshot().wide_mappings)
