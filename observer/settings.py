"""Settings of the observer, `python -m observer`."""

from collections.abc import Mapping
from typing import Final

from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.feature_gates import Features, features_of
from allocator.model.scheduler_support import SchedulerSupport
from clusterstate.event_history import HistorySettings
from kube.collections.backoff import Backoff
from kube.names import SCHEDULER_NAME
from process.model.durations import PositiveDuration
from process.model.settings import Fraction, ProcessSettings, Rate, ServerSettings

ACTION: Final = "Observe"
"""The action of the events about pending pods."""


class ObserverSettings(ServerSettings, frozen=True, kw_only=True):
    """The observer."""

    initial_delay: PositiveDuration = PositiveDuration(2)
    """A pod that has waited for so long is explained. Most are scheduled in a moment, and drivers
    publish a pool slice by slice."""

    reevaluation_period: PositiveDuration = PositiveDuration(10)
    """The time between evaluations of one pod, if anything in the cluster changed meanwhile."""

    initial_event_interval: PositiveDuration = PositiveDuration(60)
    """The time before a pod gets a second, different explanation; then twice as long each time, up
    to `maxEventInterval`. A busy cluster has a new answer every few seconds."""

    max_event_interval: PositiveDuration = PositiveDuration(1800)
    """The longest time between different explanations. Events live for an hour."""

    numbers_event_interval: PositiveDuration = PositiveDuration(900)
    """The time before an explanation in which only numbers have changed."""

    reminder_interval: PositiveDuration = PositiveDuration(2700)
    """The time after which the event of a pod that is still pending for the same reason counts one
    more. API servers delete an event after an hour without that."""

    cpu_fraction: Fraction = 0.2
    """The fraction of one core for evaluating pods again. Each evaluation is followed by a pause,
    so that a cluster with many pending pods is answered later and not at a higher price."""

    new_pod_cpu_fraction: Fraction = 0.5
    """The fraction of one core for pods that were never evaluated, since their users wait for an
    answer."""

    events_per_second: Rate = 20.0
    """The maximum number of events per second; the others wait."""

    policy_aware_schedulers: tuple[str, ...] = ()
    """Names of schedulers that evaluate DeviceCompatibilityPolicies; their pods may wait because of
    one. kube-scheduler ignores policies. The bridge evaluates them, and need not be listed."""

    bridge_scheduler: str = SCHEDULER_NAME
    """schedulerName of the bridge, as in `validation.bridgeScheduler`."""

    silent_for_schedulers: tuple[str, ...] = (SCHEDULER_NAME,)
    """Names of schedulers that explain their pending pods themselves; nothing is said of those pods."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster's scheduler sets otherwise than Kubernetes 1.37 does, by
    upstream's names: `DRADeviceCompatibilityGroups: true`."""

    uniform_config_drivers: tuple[str, ...] = tuple(sorted(UNIFORM_CONFIG_DRIVERS))
    """Drivers that reject a pod if the sharing configuration of its device contradicts that of
    a co-tenant."""

    def __post_init__(self) -> None:
        """Refuse gates that allocation does not depend on."""
        features_of(self.feature_gates)

    def features(self) -> Features:
        """Return the gates that are in force."""
        return features_of(self.feature_gates)

    def scheduler_support(self) -> SchedulerSupport:
        """Return the features that the schedulers evaluate by configuration."""
        return SchedulerSupport(
            policy_aware=frozenset(self.policy_aware_schedulers),
            bridge_scheduler=self.bridge_scheduler,
        )

    def history(self) -> HistorySettings:
        """Return the delays before pods are explained, and before they get an event."""
        return HistorySettings(
            action=ACTION,
            initial_delay=self.initial_delay,
            reevaluation_period=self.reevaluation_period,
            reminder_interval=self.reminder_interval,
            numbers_event_interval=self.numbers_event_interval,
            backoff=Backoff(initial_s=self.initial_event_interval, max_s=self.max_event_interval),
        )


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of the observer."""

    observer: ObserverSettings = ObserverSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_BIND": "observer.bindAddress",
    "DRAWBRIDGE_PROBE_PORT": "observer.probePort",
    "DRAWBRIDGE_METRICS_PORT": "observer.metricsPort",
}
"""Environment variable to the field that it sets."""
