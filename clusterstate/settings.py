"""Settings of what the cluster's state is used for: translation and validation.

Webhook, controllers and command line share them, so that they cannot disagree.
"""

from collections.abc import Mapping
from typing import Literal

from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.feature_gates import Features, features_of
from allocator.model.scheduler_support import SchedulerSupport
from kube.errors import ConfigError
from process.durations import PositiveDuration
from process.settings import Name, Positive, Section
from translation import arbiter
from translation.choices import Choices, Exclusivity, InitContainers
from translation.profiles.profile import Profile
from translation.snapshot import (
    DEFAULT_PROFILES,
    ClaimUnawareComponent,
    QuotaPolicy,
    TranslationOptions,
    split_profiles,
    vocabularies_in_force,
)
from translation.vocabularies import nvidia

Enforcement = Literal["deny", "warn", "off"]


class TranslationSettings(Section, frozen=True, kw_only=True):
    """Settings of the translation of pods."""

    profiles_directory: str | None = None
    """Driver profiles of this cluster, as files; a profile of a shipped driver replaces it.
    None: the shipped ones only. DRAWBRIDGE_PROFILES sets it too."""

    profiles: Mapping[str, str] = {}
    """Vocabulary, or resource name, to the driver that serves it, whatever exists: `hami`, or
    `nvidia.com/gpu`, which precedes. Empty: the driver of the project that a vocabulary comes from,
    and for GPUs the first in docs/vocabularies.md that has devices."""

    vocabularies: tuple[str, ...] = tuple(arbiter.VOCABULARIES)
    """The vocabularies whose keys are translated. The keys of others have no effect, as without us, and
    their pods do not depend on the webhook: apply the webhook configuration that
    `python -m webhook --print-configuration` prints. All of them, since a key that nobody uses costs
    nothing."""

    default_gpu_owner: str = "nvidia"
    """The vocabulary that owns `nvidia.com/gpu` where nothing else in the pod says. `nvidia`, since
    the key is the device plugin's; clusters that ran HAMi everywhere want `hami`."""

    adopt_schedulers: Mapping[str, str] = {}
    """Foreign schedulerName to the scheduler that gets its translated pods; the same name keeps
    them there. Empty: whether a foreign scheduler understands claims is not ours to guess."""

    quota: QuotaPolicy = QuotaPolicy.DENY
    """`deny` or `warn`, where a ResourceQuota counts a key that a translation takes away. `deny`:
    a quota that silently stops counting is worse than a refused pod."""

    claim_aware_components: tuple[ClaimUnawareComponent, ...] = ()
    """Which of `clusterAutoscaler`, `karpenter` and `kueue` see claims in this cluster; nothing looks
    for them then, and nobody is warned. Empty: as installed, none of them does."""

    exclusivity: Exclusivity = Exclusivity.POLICIES
    """Which shares become whole devices: `always`, `policies` (HAMi's `mutex`, Koordinator's
    `DeviceLevel`) or `never`. `policies`: their users say that they want a device of their own; all
    cores with a part of the memory could mean only that."""

    init_containers: InitContainers = InitContainers.LARGEST
    """The devices of an init container that needs more than every app container: `largest`, those
    of an app container with the larger amounts of both, or `separate`, its own. `largest`: the pod
    reserves as much as in the legacy system, so it fits where it fitted."""

    def options(self) -> TranslationOptions:
        """Return the same, as the translation takes it."""
        by_vocabulary, by_key = split_profiles(self.profiles)
        return TranslationOptions(
            profiles={**DEFAULT_PROFILES, **by_vocabulary},
            fixed=frozenset(by_vocabulary),
            drivers=by_key,
            default_gpu_owner=self.default_gpu_owner,
            adopt_schedulers=self.adopt_schedulers,
            quota=self.quota,
            claim_aware_components=frozenset(self.claim_aware_components),
            vocabularies=frozenset(self.vocabularies),
            choices=Choices(exclusivity=self.exclusivity, init_containers=self.init_containers),
        )

    def checked_options(self, profiles: Mapping[str, Profile]) -> TranslationOptions:
        """Return how to translate, once it is known to make sense with the profiles that there are.

        Raises:
            ConfigError: A vocabulary or a driver is not known.
        """
        options = self.options()
        known = ", ".join(sorted(arbiter.VOCABULARIES))
        for vocabulary in sorted(options.vocabularies - arbiter.VOCABULARIES.keys()):
            raise ConfigError(
                f"translation.vocabularies: no vocabulary {vocabulary}; known are {known}"
            )
        for vocabulary in sorted(options.profiles.keys() - arbiter.VOCABULARIES.keys()):
            raise ConfigError(
                f"translation.profiles: no vocabulary {vocabulary}; known are {known}"
            )
        handlers = vocabularies_in_force(options, profiles).values()
        for key in sorted(options.drivers):
            if not any(handler.handles(key) for handler in handlers):
                raise ConfigError(
                    f"translation.profiles: no vocabulary has {key}; list it under resources in a "
                    "profile"
                )
        for name, driver in (*options.profiles.items(), *options.drivers.items()):
            if driver not in profiles:
                raise ConfigError(
                    f"translation.profiles.{name}: no profile {driver}; known are "
                    f"{', '.join(sorted(profiles))}"
                )
        owners = {name for name, one in arbiter.VOCABULARIES.items() if one.handles(nvidia.GPU)}
        chosen = owners & options.vocabularies
        if options.default_gpu_owner not in (chosen or owners):
            raise ConfigError(
                f"translation.defaultGpuOwner: {options.default_gpu_owner} cannot own {nvidia.GPU}; "
                f"{', '.join(sorted(chosen or owners))} can"
            )
        return options


class ValidationSettings(Section, frozen=True, kw_only=True):
    """Settings of the validation of DRA objects and of the objects that use them."""

    enforcement: Enforcement = "deny"
    """What is done about what the inventory can never give: `deny`, `warn` or `off`. A namespace
    overrides it with its label. `deny`: a claim that waits for ever is found too late, and a verdict
    denies only where the inventory is proof."""

    drivers: Mapping[str, Enforcement] = {}
    """Driver to what is done at most about verdicts on its devices, for those whose slices are no
    proof."""

    inventory_config_map: Name = "drawbridge-inventory"
    """The ConfigMap, in `namespace`, that keeps the largest inventory ever seen, and in which people
    declare what there could be."""

    timeout: PositiveDuration = PositiveDuration(1.5)
    """A review that is not validated by then is answered without the inventory, with a warning. Well
    below the webhook's timeout of 5 s, after which nobody would be told anything."""

    max_queued: Positive = 64
    """Reviews that wait for their turn; more are answered without the inventory at once."""

    feature_gates: Mapping[str, bool] = {}
    """Gates of allocation that this cluster's scheduler sets otherwise than Kubernetes 1.37 does, by
    upstream's names: `DRADeviceCompatibilityGroups: true`."""

    uniform_config_drivers: tuple[str, ...] = tuple(sorted(UNIFORM_CONFIG_DRIVERS))
    """Drivers that reject a pod if the sharing configuration of its device contradicts that of
    another tenant."""

    policy_aware_schedulers: tuple[str, ...] = ()
    """Names of schedulers that evaluate DeviceCompatibilityPolicies. Empty: kube-scheduler ignores
    them, so policies are no reason why a pod does not fit now, and their status says that nothing
    enforces them."""

    def __post_init__(self) -> None:
        """Refuse gates that allocation does not depend on."""
        features_of(self.feature_gates)

    def features(self) -> Features:
        """Return the gates that are in force."""
        return features_of(self.feature_gates)

    def scheduler_support(self) -> SchedulerSupport:
        """Return what the schedulers of the cluster evaluate."""
        return SchedulerSupport(
            policy_aware=frozenset(self.policy_aware_schedulers),
            compatibility_groups=self.features().compatibility_groups,
        )
