"""Settings of the driver, `python -m driver`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from driver.model.health import Effect
from driver.model.names import is_label_value, is_subdomain
from kube.names import GROUP
from process.model.durations import PositiveDuration
from process.model.settings import ProcessSettings, ServerSettings

DRIVER_NAME: Final = f"gpu.{GROUP}"
_MAX_DRIVER_NAME: Final = 63


class DriverSettings(ServerSettings, frozen=True, kw_only=True):
    """The driver of one node."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_DRIVER_NAME)] = DRIVER_NAME
    """The driver's name, in slices, claims and DeviceClasses. Two names on one node are two drivers."""

    node_name: str = ""
    """The node's name."""

    pod_uid: str = ""
    """The UID of the driver's own pod, so that two instances on a node have sockets of their own
    while one replaces the other."""

    inventory: str = "/etc/drawbridge/inventory"
    """The declared inventory: a file, or a folder with `<node>.yaml` or `default.yaml`."""

    inventory_reload_period: PositiveDuration = PositiveDuration(5)
    """The time between reads of the inventory. A mounted ConfigMap takes a minute to change anyway.
    """

    discover: tuple[Literal["cpus", "gpus", "nics"], ...] = ()
    """The devices to discover beside the declared ones: `gpus`, NVIDIA's by NVML, `nics`, the
    network controllers on the PCI bus, and `cpus`, CPUs and huge pages by NUMA node. A declared
    device hides a discovered one of the same name."""

    reserved_cpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    """CPUs of the first NUMA node that are not published, for the system."""

    share_gpus: bool = False
    """Allow several claims to share a discovered GPU, each with a part of its capacity."""

    discovery_period: PositiveDuration = PositiveDuration(30)
    """The time between reads of discovered devices."""

    sysfs: str = "/sys"
    """The mount point of the node's sysfs; in a pod without the host's network, not /sys."""

    dev: str = "/dev"
    """The mount point of the node's /dev. Containers do not get device nodes that are missing
    there."""

    proc: str = "/proc"
    """The mount point of the node's /proc, for the capabilities of MIG instances."""

    vendor_specs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    """Folders with CDI specs of NVIDIA's toolkit. Where they have a GPU, containers get it from there."""

    kubelet_directory: str = "/var/lib/kubelet"
    """The kubelet's `--root-dir`; sockets are in `plugins_registry` and `plugins` below it."""

    state_directory: str | None = None
    """The folder of checkpoint and lock; None for the driver's folder in the kubelet's `plugins`.
    It has to outlive the pod."""

    cdi_directory: str = "/var/run/cdi"
    """The folder from which the container runtime reads CDI specs that come and go."""

    boot_id_file: str = "/proc/sys/kernel/random/boot_id"
    """Tells boots of the node apart: after a reboot nothing is prepared."""

    compatibility_groups: bool = False
    """Publish the inventory's compatibility groups. Set it if the cluster runs with the feature
    gate DRADeviceCompatibilityGroups. The driver keeps to the groups in any case."""

    faults_directory: str | None = None
    """The folder in which other programs on the node report faults: one file per device, named like
    the device. Its first line is the kind of the fault, the rest a message. None for `faults` in
    the folder of the checkpoint."""

    fault_effects: Mapping[str, Effect] = {}
    """Kind of a fault to the effect of its taint, NoSchedule, NoExecute or None, where it is not the
    usual one: NoExecute for `lost`, None for `unmonitored`, NoSchedule for all others."""

    recovery_period: PositiveDuration = PositiveDuration(30)
    """The time that a device must be without a fault to be healthy again; doubled by each relapse.
    """

    max_recovery_period: PositiveDuration = PositiveDuration(600)
    """Bound of that time. A device that is healthy for as long again is as good as new."""

    claim_check_period: PositiveDuration = PositiveDuration(10)
    """The time between reads of one prepared claim, to find out whether the API server still holds
    it."""

    lock_timeout: PositiveDuration = PositiveDuration(10)
    """The time that a call of the kubelet waits for another one, of this or another instance. The
    kubelet gives up after 45 s."""

    def __post_init__(self) -> None:
        """Refuse a name that could not be a driver's."""
        if not is_subdomain(self.name):
            raise ValueError(f"name: {self.name!r} is no DNS subdomain")
        for kind in self.fault_effects:
            if not kind or not is_label_value(kind):
                raise ValueError(f"faultEffects: {kind!r} is no value of a label")

    @property
    def plugins(self) -> Path:
        """The driver's folder below the kubelet's."""
        return Path(self.kubelet_directory) / "plugins" / self.name

    @property
    def registry(self) -> Path:
        """The kubelet's folder of registration sockets."""
        return Path(self.kubelet_directory) / "plugins_registry"

    @property
    def state(self) -> Path:
        """Return the directory of checkpoint and lock."""
        return self.plugins if self.state_directory is None else Path(self.state_directory)

    @property
    def faults(self) -> Path:
        """Return the directory for reports of faults."""
        directory = self.faults_directory
        return self.state / "faults" if directory is None else Path(directory)


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of the driver."""

    driver: DriverSettings = DriverSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_BIND": "driver.bindAddress",
    "DRAWBRIDGE_PROBE_PORT": "driver.probePort",
    "DRAWBRIDGE_METRICS_PORT": "driver.metricsPort",
    "DRAWBRIDGE_NODE_NAME": "driver.nodeName",
    "DRAWBRIDGE_POD_UID": "driver.podUid",
    "DRAWBRIDGE_INVENTORY": "driver.inventory",
}
"""Environment variable to the field that it sets."""
