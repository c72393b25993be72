"""Settings of the sidecar, `python -m sidecar`."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.feature_gates import Features, features_of
from allocator.strategies import registry
from allocator.strategies.pod_kinds import MAX_KINDS
from kube.errors import FieldError, QuantityError
from kube.names import BRIDGE_ACCOUNT, NAME, SCHEDULER_NAME
from kube.quantity import Quantity
from process.model.durations import PositiveDuration
from process.model.settings import (
    Name,
    Positive,
    ProcessSettings,
    Rate,
    Section,
    ServerSettings,
)
from process.running.leader_election import LeaderElectionSettings

MAX_SOCKET_PATH: Final = 107
"""Bytes; Linux has no longer ones."""

Driver = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class UsualPod(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of pods that usually come; amounts are quantities, such as `500m` and `20Gi`."""

    device_class: Name
    """The DeviceClass of its devices."""

    count: Positive = 1
    """The number of devices."""

    capacity: Mapping[str, str] = {}
    """The amounts that it requests of each device; empty for nothing."""

    cpu: str = "0"
    """The CPU that it requests."""

    memory: str = "0"
    """The memory that it requests."""

    weight: Positive = 1
    """Its share among all kinds, in any unit."""

    def __post_init__(self) -> None:
        """Refuse amounts that are none."""
        amounts = {"cpu": self.cpu, "memory": self.memory}
        amounts |= {f"capacity.{name}": value for name, value in self.capacity.items()}
        for name, value in amounts.items():
            try:
                is_negative = Quantity(value) < Quantity(0)
            except QuantityError as fault:
                raise ValueError(f"{name}: {fault}") from fault
            if is_negative:
                raise ValueError(f"{name}: {value} is below 0")


class SidecarElectionSettings(LeaderElectionSettings, frozen=True, kw_only=True):
    """The election of the sidecar that works."""

    resource_name: Name = BRIDGE_ACCOUNT
    """The name of the Lease in `namespace`. Leave it: fence, role and `drawbridge bridge` name this
    one."""

    retry_period: PositiveDuration = PositiveDuration(1)
    """The period between attempts to renew or to become leader. Half of what others take: after an
    orderly end it is most of the time for which no pod gets devices."""


class SidecarSettings(ServerSettings, frozen=True, kw_only=True):
    """The sidecar."""

    socket: Annotated[str, msgspec.Meta(min_length=1)] = f"/run/{NAME}/sidecar.sock"
    """The unix socket on which the scheduler plugin calls; both containers mount its folder."""

    drivers: tuple[Driver, ...] = ()
    """Drivers whose devices this scheduler gives beside those of the AllocatorOwnership `default`, in a
    cluster without a fence, which refuses the bridge every driver that is not in its text. Pods with them
    are not routed, and no other allocator may give them. Empty: that object alone decides who gives what."""

    bridge_scheduler: str = SCHEDULER_NAME
    """schedulerName of this scheduler's profile, as in `validation.bridgeScheduler`."""

    leader_election: SidecarElectionSettings = SidecarElectionSettings()
    """The election of the working replica."""

    write_timeout: PositiveDuration = PositiveDuration(5)
    """The timeout of one write, in the API server, too. A new leader waits for as long and a second
    before it begins, so that no write of the one before is under way; unless that one said that its
    last had ended."""

    write_deadline: PositiveDuration = PositiveDuration(20)
    """The time for allocating one claim, with all attempts, from its turn among `maxWritesInFlight`."""

    max_writes_in_flight: Positive = 16
    """Further writes wait. More make none faster, and hold up answers. The claims of one namespace get half
    of them at most, and namespaces take turns."""

    binding_timeout: PositiveDuration = PositiveDuration(600)
    """The time for the binding conditions of devices, as kube-scheduler has it; and the time that volumes of
    a pod may take while others of its group wait for it."""

    drift_check_period: PositiveDuration = PositiveDuration(600)
    """The period between two checks that the devices in use are counted correctly. One takes some
    10 microseconds per claim, in which no pod is answered."""

    scheduler_timeout: PositiveDuration = PositiveDuration(15)
    """Silence of the scheduler beside this process after which the Lease is given back: it hangs, or has
    ended. The first call may take twenty times as long. Several times the plugin's `heartbeat`."""

    held_back_timeout: PositiveDuration = PositiveDuration(300)
    """The time for which nobody gets the devices of a pod that was deleted by force, whose
    containers may run on, unless the driver says earlier that they are free."""

    held_back_per_namespace: Positive = 8
    """Devices of one driver that are held back of pods of one namespace, after which other pods of this
    namespace wait: whoever deletes pods by force keeps no more from others. At most a fourth of the
    driver's devices, and one at least; those of nodes that do not respond are not counted."""

    keep_for_group_after: PositiveDuration = PositiveDuration(600)
    """The wait of a group of pods until it keeps the devices that it can use: pods by themselves and
    groups that have waited for less get devices beside them only, unless they are more important."""

    own_claims_timeout: PositiveDuration = PositiveDuration(2)
    """The time for seeing the claims of a pod as the scheduler has seen them; then the attempt is
    repeated."""

    other_claims_timeout: PositiveDuration = PositiveDuration(0.5)
    """The time for seeing the newest claim that the scheduler has seen; then the answer does
    without."""

    default_strategy: str = registry.DEFAULT
    """The strategy where neither the pod nor a DeviceClass names one, nor the pool of the node has one."""

    usual_pods: tuple[UsualPod, ...] = ()
    """The kinds of pods that FragmentationAware, and the others in their two steps, keep room for, at most 64, each with
    `deviceClass`, `count`, `capacity`, `cpu`, `memory` and `weight`. Empty: they are learnt from the pods that come."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster sets otherwise than Kubernetes 1.37 does, by upstream's
    names: `DRADeviceCompatibilityGroups: true`."""

    uniform_config_drivers: tuple[str, ...] = tuple(sorted(UNIFORM_CONFIG_DRIVERS))
    """Drivers that reject a pod if the sharing configuration of its device contradicts that of
    a co-tenant. Such devices are not given together."""

    events_per_second: Rate = 20.0
    """The largest number of events per second; the others wait."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        features_of(self.feature_gates)
        strategy = registry.find_strategy(self.default_strategy, "defaultStrategy")
        if isinstance(strategy, FieldError):
            raise ValueError(f"{strategy.path}: {strategy.message}; use {strategy.fix}")  # noqa: TRY004
        if len(self.socket.encode()) > MAX_SOCKET_PATH:
            raise ValueError(f"socket: a path has at most {MAX_SOCKET_PATH} bytes")
        if self.write_deadline < self.write_timeout:
            raise ValueError("writeDeadline must not be below writeTimeout")
        if len(self.usual_pods) > MAX_KINDS:
            raise ValueError(f"usualPods: {len(self.usual_pods)} kinds; at most {MAX_KINDS} count")
        repeated_names = sorted({name for name in self.drivers if self.drivers.count(name) > 1})
        if repeated_names:
            raise ValueError(f"drivers: {', '.join(repeated_names)} is there twice")

    def features(self) -> Features:
        """Return the gates that are in force."""
        return features_of(self.feature_gates)


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The part of the file that the sidecar reads."""

    sidecar: SidecarSettings = SidecarSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_NAMESPACE": "namespace",
    "DRAWBRIDGE_BIND": "sidecar.bindAddress",
    "DRAWBRIDGE_PROBE_PORT": "sidecar.probePort",
    "DRAWBRIDGE_METRICS_PORT": "sidecar.metricsPort",
    "DRAWBRIDGE_SOCKET": "sidecar.socket",
}
"""Environment variable to the field that it sets."""
