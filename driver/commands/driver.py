"""The driver of one node, put together."""

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from driver.discovery.declared_file import DeclaredFile
from driver.discovery.nvml_gpus import NvmlGpus
from driver.discovery.source import DeviceSource
from driver.discovery.sysfs_cpus import SysfsCpus
from driver.discovery.sysfs_nics import SysfsNics
from driver.faults.fault_files import FaultFiles
from driver.faults.prepare_failures import PrepareFailures
from driver.faults.source import FaultSource
from driver.kubelet.connection import KubeletConnection
from driver.kubelet.health import Health
from driver.kubelet.plugin import Plugin
from driver.kubelet.sockets import sockets
from driver.model.health import Recovery
from driver.model.inventory import Inventory
from driver.model.settings import DriverSettings, Settings
from driver.model.steps import StepHook, ignore_step
from driver.node.cdi_folder import CdiFolder
from driver.node.checkpoint_file import CheckpointFile
from driver.node.files import make_folder
from driver.node.health_file import HealthFile
from driver.node.vendor_specs import vendor_devices
from driver.plan.gpus import VENDOR_KIND
from driver.plan.slices import Publication
from driver.prepare.current import CurrentNode
from driver.prepare.metrics import DriverMetrics, PreparedCollector
from driver.prepare.preparer import Preparer
from driver.prepare.recovery import StateRecovery
from driver.publish.combined_source import CombinedSource
from driver.publish.device_status import DeviceStatus
from driver.publish.health_watch import HealthWatch
from driver.publish.publisher import Publisher
from driver.publish.sweep import ClaimSweep
from kube.api.meta import decode
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.urls import DEVICE_COMPATIBILITY_POLICIES
from kube.client.client import Client
from kube.errors import ConfigError, KubeError
from kube.logs import get_logger
from kube.runtime.informers import InformerFactory
from kube.runtime.stores import Key
from process.running.command import Process
from process.running.signals import run_forever, run_until_signal
from process.serving.metrics import CacheCollector, process_registry
from process.serving.probes import ProbeServer

LOCK: Final = "lock"
PUBLISHER_LOCK: Final = "publisher.lock"
PRIVATE_UMASK: Final = 0o077

log = get_logger()


async def drive(process: Process[Settings], at_step: StepHook = ignore_step) -> None:
    """Serve the kubelet and publish the devices of the node, until a signal comes.

    Args:
        at_step: Called after each step of preparing and unpreparing.

    Raises:
        ConfigError: The settings or the first inventory make no sense.
    """
    os.umask(PRIVATE_UMASK)
    settings = process.settings.driver
    if not settings.node_name:
        raise ConfigError("driver.nodeName: is empty; set DRAWBRIDGE_NODE_NAME to the node's name")
    sources = _Sources(settings)
    inventory = sources.devices.discover()
    async with await process.client() as client:
        await _Driver(process, client, sources, inventory, at_step).run()


class _Sources:
    """The sources of devices and of their faults that the settings name.

    Attributes:
        devices: All sources of devices as one.
        faults: All sources of faults.
    """

    def __init__(self, settings: DriverSettings) -> None:
        inventory_file = DeclaredFile(
            Path(settings.inventory),
            settings.node_name,
            period_s=settings.inventory_reload_period,
        )
        devices: list[DeviceSource] = [inventory_file]
        faults: list[FaultSource] = [FaultFiles(settings.faults)]
        if "nics" in settings.discover:
            nics = SysfsNics(
                Path(settings.sysfs), Path(settings.dev), period_s=settings.discovery_period
            )
            devices.append(nics)
            faults.append(nics)
        if "gpus" in settings.discover:
            gpus = _gpus(settings)
            devices.append(gpus)
            faults.append(gpus)
        if "cpus" in settings.discover:
            cpus = SysfsCpus(
                Path(settings.sysfs),
                reserved_cpus=settings.reserved_cpus,
                period_s=settings.discovery_period,
            )
            devices.append(cpus)
        self.devices = CombinedSource(devices)
        self.faults = tuple(faults)


def _gpus(settings: DriverSettings) -> NvmlGpus:
    folders = [Path(folder) for folder in settings.vendor_specs]
    return NvmlGpus(
        importlib.import_module("pynvml"),  # It takes some megabytes.
        sysfs=Path(settings.sysfs),
        dev=Path(settings.dev),
        proc=Path(settings.proc),
        vendor_devices=lambda: vendor_devices(folders, VENDOR_KIND),
        is_shared=settings.share_gpus,
        period_s=settings.discovery_period,
    )


class _Driver:
    """The parts of the driver, and their connections."""

    def __init__(
        self,
        process: Process[Settings],
        client: Client,
        sources: _Sources,
        inventory: Inventory,
        at_step: StepHook,
    ) -> None:
        settings = process.settings.driver
        publication = Publication(
            driver=settings.name,
            node=settings.node_name,
            node_uid="",
            groups=settings.compatibility_groups,
        )
        for folder in (settings.state, settings.faults, settings.plugins, settings.registry):
            make_folder(folder)
        boot_id = read_boot_id(settings)
        registry = process_registry()
        self._client = client
        self._settings = settings
        self._now = process.now
        self._source = sources.devices
        self._metrics = DriverMetrics(registry)
        self._current = CurrentNode(publication)
        self._current.set_inventory(inventory)
        self._informers = InformerFactory(client)
        registry.register(CacheCollector(self._informers))
        self._policies = self._informers.subscribe(
            DEVICE_COMPATIBILITY_POLICIES, project_policy, handlers=(self._policy_changed,)
        )
        checkpoint = CheckpointFile(settings.state, boot_id, at_step)
        registry.register(PreparedCollector(checkpoint.load, settings.node_name))
        self._publisher = self._build_publisher(publication, checkpoint)
        self._preparer = self._build_preparer(checkpoint, boot_id, at_step)
        self._recovery = StateRecovery(self._preparer.recover)
        self._sweep = ClaimSweep(
            client,
            self._current,
            checkpoint,
            self._preparer,
            period_s=settings.claim_check_period,
        )
        self._status = DeviceStatus(client, settings.name, process.clock(client))
        failures = PrepareFailures()
        self._health_watch = self._build_health_watch((*sources.faults, failures), boot_id)
        self._kubelet = self._build_connection(failures)
        self._probes = ProbeServer(settings, self._checks(), registry)

    def _build_publisher(self, publication: Publication, checkpoint: CheckpointFile) -> Publisher:
        return Publisher(
            self._client,
            self._informers,
            self._current,
            checkpoint,
            self._metrics,
            publication=publication,
            lock=self._settings.state / PUBLISHER_LOCK,
            effects=self._settings.fault_effects,
        )

    def _build_preparer(
        self, checkpoint: CheckpointFile, boot_id: str, at_step: StepHook
    ) -> Preparer:
        settings = self._settings
        return Preparer(
            self._client,
            self._current,
            checkpoint,
            CdiFolder(Path(settings.cdi_directory), settings.name, at_step),
            boot_id=boot_id,
            lock=settings.state / LOCK,
            lock_timeout_s=settings.lock_timeout,
            at_step=at_step,
        )

    def _build_health_watch(self, faults: Sequence[FaultSource], boot_id: str) -> HealthWatch:
        settings = self._settings
        return HealthWatch(
            self._current,
            faults,
            Recovery(
                first_s=settings.recovery_period,
                max_s=max(settings.recovery_period, settings.max_recovery_period),
            ),
            settings.fault_effects,
            file=HealthFile(settings.state, boot_id),
            now=self._now,
        )

    def _build_connection(self, failures: PrepareFailures) -> KubeletConnection:
        """Build the services that the kubelet calls, and the sockets for them."""
        settings = self._settings
        plugin = Plugin(
            settings.name,
            self._preparer,
            self._metrics,
            on_prepared=self._status.add,
            failures=failures,
        )
        health = Health(self._current, self._now, settings.fault_effects)
        return KubeletConnection(
            settings.name,
            sockets(settings.name, settings.pod_uid, settings.registry, settings.plugins),
            (plugin.service(), health.service()),
            on_settled=self._read_policies,
            ending=health.end,
        )

    async def run(self) -> None:
        """Run until a signal comes."""
        await run_until_signal([self._probes.run, self._serve])

    async def _serve(self) -> None:
        """Serve the kubelet once the set of prepared claims is known."""
        await self._recovery.run()
        loops = (
            self._informers.run,
            self._publisher.run,
            self._kubelet.run,
            self._sweep.run,
            self._status.run,
            self._health_watch.run,
            self._discover,
            self._index_devices,
        )
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(run_forever(loop))

    def _checks(self) -> Mapping[str, Callable[[], str]]:
        return {
            "state": self._recovery.check,
            "kubelet": self._kubelet.problem,
            "slices": self._publisher.problem,
        }

    async def _discover(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run(self._current.set_inventory))
            group.create_task(self._show_problem())

    async def _index_devices(self) -> None:
        """Index the devices after each change, so that no call of the kubelet has to wait for it."""
        devices_changed = asyncio.Event()
        self._current.on_change(devices_changed.set)
        while True:
            devices_changed.clear()
            await asyncio.to_thread(self._current.state().index_devices)
            await devices_changed.wait()

    async def _show_problem(self) -> None:
        while True:
            self._metrics.show_inventory_problem(self._source.problem())
            await asyncio.sleep(1.0)

    async def _read_policies(self) -> None:
        """Read the policies once, so that the first claim is compared with them."""
        try:
            policies = await self._client.list(
                DEVICE_COMPATIBILITY_POLICIES, DeviceCompatibilityPolicy
            )
        except KubeError as error:  # A cluster need not have the kind.
            log.info("policies.not_read", error=str(error))
        else:
            self._current.set_policies(policies.items)

    def _policy_changed(
        self,
        _key: Key,
        _old: DeviceCompatibilityPolicy | None,
        _new: DeviceCompatibilityPolicy | None,
    ) -> None:
        self._current.set_policies(self._policies.store.values())


def project_policy(raw: bytes) -> DeviceCompatibilityPolicy:
    """Return a policy as it is compiled."""
    return decode(raw, DeviceCompatibilityPolicy)


def read_boot_id(settings: DriverSettings) -> str:
    """Return the identifier of this boot of the node.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return Path(settings.boot_id_file).read_text().strip()
    except OSError as error:
        raise ConfigError(f"{settings.boot_id_file}: {error.strerror}") from error
