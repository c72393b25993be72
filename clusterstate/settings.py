"""Settings for the uses of the cluster's state: translation and validation.

Webhook, controllers and command line share them, so that they cannot disagree.
"""

from collections.abc import Mapping
from typing import Literal

from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.feature_gates import Features, features_of
from allocator.model.scheduler_support import SchedulerSupport
from findings.text import quote_text
from kube.names import SCHEDULER_NAME
from process.model.durations import PositiveDuration
from process.model.settings import Name, Positive, Section
from rules.feasibility.enforcement import Enforcement as VerdictEnforcement
from rules.feasibility.enforcement import EnforcementSettings
from rules.model.formats import A_LABEL_KEY, is_label_key

Enforcement = Literal["deny", "warn", "off"]


class ValidationSettings(Section, frozen=True, kw_only=True):
    """Settings of the validation of DRA objects and of the objects that use them."""

    enforcement: Enforcement = "deny"
    """The enforcement of verdicts that the inventory can never satisfy a claim: `deny`, `warn` or
    `off`. A namespace overrides it with its label. `deny`: a claim that waits for ever is found too
    late, and a verdict denies only if the inventory is proof."""

    drivers: Mapping[str, Enforcement] = {}
    """Driver to what is done at most about verdicts on its devices, for those whose slices are no
    proof."""

    inventory_config_map: Name = "drawbridge-inventory"
    """The ConfigMap, in `namespace`, that keeps the largest inventory ever seen, and in which people
    declare what there could be."""

    timeout: PositiveDuration = PositiveDuration(1.5)
    """A review that is not validated by then is answered without the inventory, with a warning. Well
    below the webhook's timeout of 5 s, after which nobody would be told anything. Not for pods that
    are routed, which need an answer."""

    max_queued: Positive = 64
    """Reviews that wait for their turn; more are answered without the inventory at once."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster's scheduler sets otherwise than Kubernetes 1.37 does, by
    upstream's names: `DRADeviceCompatibilityGroups: true`."""

    uniform_config_drivers: tuple[str, ...] = tuple(sorted(UNIFORM_CONFIG_DRIVERS))
    """Drivers that reject a pod if the sharing configuration of its device contradicts that of
    a co-tenant."""

    bridge_scheduler: str = SCHEDULER_NAME
    """schedulerName of the bridge, which pods with claims of owned drivers get. It evaluates
    DeviceCompatibilityPolicies."""

    bridge_taint: str = ""
    """Key of the taint that keeps nodes for the bridge, where it is a second scheduler; pods that get its
    schedulerName get a toleration of it. Empty: none."""

    adopt_gangs: bool = True
    """Whether gangs of Koordinator, Volcano, the coscheduling plugin and KAI become PodGroups of Kubernetes where
    their pods go to the bridge: the webhook sets `spec.schedulingGroup`, and the controllers create the PodGroup.
    Only where the API server has PodGroups; elsewhere a warning says that the pods are placed one by one."""

    policy_aware_schedulers: tuple[str, ...] = ()
    """Names of schedulers that evaluate DeviceCompatibilityPolicies. Empty: kube-scheduler ignores
    them, so policies are no reason why a pod does not fit now, and their status says that nothing
    enforces them."""

    def __post_init__(self) -> None:
        """Refuse gates that allocation does not depend on, and a taint that no node can have."""
        features_of(self.feature_gates)
        if self.bridge_taint and not is_label_key(self.bridge_taint):
            raise ValueError(f"bridgeTaint {quote_text(self.bridge_taint)} is not {A_LABEL_KEY}")

    def features(self) -> Features:
        """Return the gates that are in force."""
        return features_of(self.feature_gates)

    def enforcement_settings(self) -> EnforcementSettings:
        """Return the enforcement of verdicts about the inventory, for rules."""
        return EnforcementSettings(
            cluster=VerdictEnforcement(self.enforcement),
            drivers={name: VerdictEnforcement(most) for name, most in self.drivers.items()},
        )

    def scheduler_support(self) -> SchedulerSupport:
        """Return the features that the schedulers of the cluster evaluate."""
        return SchedulerSupport(
            policy_aware=frozenset(self.policy_aware_schedulers),
            compatibility_groups=self.features().compatibility_groups,
        )
