"""The cluster state and the operator's options that a translation depends on.

Both are immutable values, so a review makes no calls.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from kube.api.core import ResourceQuota
from kube.api.network_attachments import RESOURCE_NAME, NetworkAttachmentDefinition
from kube.api.policy import DeviceCompatibilityPolicy
from kube.collections.latest import keep_latest
from kube.names import (
    DEFAULT_SCHEDULER_NAME,
    NAMESPACE,
    SCHEDULER_NAME,
    TRANSLATE_LABEL,
    TRANSLATE_SELECTED,
)
from quotas.resource_quotas.scopes import Quota
from translation.cluster.node_taints import NodeTaints
from translation.model.choices import Choices, InitContainers
from translation.model.intents import DeviceKind, Vocabulary
from translation.model.limit_ranges import LimitRangeSummary
from translation.profiles.device_facts import Facts
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import names_for, resource_profiles
from translation.reading import arbiter
from translation.reading.foreign_quotas import ForeignQuotas
from translation.reading.kept_keys import without_names
from translation.reading.workload_profiles import ProfileSummary
from translation.vocabularies.nvidia import is_replica_name
from translation.vocabularies.resources import NAME as RESOURCES

DEFAULT_PROFILES: Final = {
    "hami": "hami-core-gpu.project-hami.io",
    "nvidia": "gpu.nvidia.com",
    "koordinator": "hami-core-gpu.project-hami.io",
    "volcano": "hami-core-gpu.project-hami.io",
    "aliyun": "hami-core-gpu.project-hami.io",
    "tencent": "hami-core-gpu.project-hami.io",
    "volcengine": "hami-core-gpu.project-hami.io",
    "kai": "hami-core-gpu.project-hami.io",
    "tensorfusion": "hami-core-gpu.project-hami.io",
    "ascend": "ascend.project-hami.io",
    "hygon": "dra.hygon.com",
    "rdma": "dra.net",
    "sriov": "sriovnetwork.k8snetworkplumbingwg.io",
}


class ClaimUnawareComponent(StrEnum):
    """A component that reads pods and may ignore their claims; the value is its name in settings."""

    CLUSTER_AUTOSCALER = "clusterAutoscaler"
    KARPENTER = "karpenter"
    KUEUE = "kueue"


class TemplateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a ResourceClaimTemplate that preflight checks read.

    Attributes:
        digest: The `spec_digest` of its content.
        classes: The DeviceClasses that it requests.
    """

    digest: str
    classes: frozenset[str] = frozenset()


class NetworkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a NetworkAttachmentDefinition that translations read.

    Attributes:
        config: Its CNI configuration, as text.
        resource: The resource name of its devices; empty for none.
    """

    config: str = ""
    resource: str = ""


def summarize_network(definition: NetworkAttachmentDefinition) -> NetworkSummary:
    """Return the fields of a definition that translations read."""
    annotations = definition.metadata.annotations or {}
    return NetworkSummary(
        config=definition.spec.config, resource=annotations.get(RESOURCE_NAME, "")
    )


class WideMapping(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource name that a DeviceClass maps, and serves with other devices than the name means.

    Attributes:
        reason: The devices that the class gives beyond the name's, for a sentence about the class.
    """

    resource: str
    device_class: str
    reason: str


class TranslationSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable snapshot of the cluster state that translations and preflight checks read.

    Attributes:
        profiles: Driver name to profile.
        profile_versions: Content hash to a version of a profile that is kept for the pods that name
            it.
        facts: Driver name to device kind to the facts of its published devices.
        publishes: Drivers of profiles that have ResourceSlices; None when no slices are known.
        once_published: DeviceClass name to the drivers that ever published devices of it, as the
            high-water mark says.
        classes: Names of the DeviceClasses; None when no cluster state is known.
        extended_resources: Resource name to the DeviceClass that maps it.
        wide_mappings: The names of these whose class gives other devices, too; see
            `admission.native_mappings`.
        class_drivers: DeviceClass name to the drivers that its selectors name; none where they name
            none, so that it may select devices of every driver.
        class_configs: DeviceClass name to the drivers that it has a configuration for.
        templates: (namespace, name) to the summary of a ResourceClaimTemplate.
        quotas: Namespace to ResourceQuota name to quota.
        limit_ranges: Namespace to LimitRange name to its summary.
        foreign_quotas: Namespace to the quotas of other schedulers that limit it.
        namespaces: Namespace to its labels.
        claim_unaware_components: Installed component to the DeviceClasses whose claims it counts.
        policies: Driver name to the DeviceCompatibilityPolicy in force.
        owned_drivers: Drivers whose devices the bridge allocates; pods with claims of no others go to
            its scheduler.
        bridge_scheduler: schedulerName of the bridge.
        networks: (namespace, name) to the summary of a NetworkAttachmentDefinition.
        workload_profiles: (namespace, name) to the summary of a WorkloadProfile of tensor-fusion.
        node_taints: The taints of nodes; None where pods come from the API server, which adds the
            tolerations of their keys itself.
        consumable_capacity: The feature gate DRAConsumableCapacity is on, so that claims can request
            parts of devices.
        quota_usage: Namespace to the ResourceQuotas on devices by name, with their use. It changes with
            every pod, so it is a live view, and no translation reads it.
    """

    profiles: Mapping[str, Profile]
    profile_versions: Mapping[str, Profile] = {}
    facts: Mapping[str, Mapping[DeviceKind, Facts]] = {}
    publishes: frozenset[str] | None = None
    once_published: Mapping[str, frozenset[str]] = {}
    classes: frozenset[str] | None = None
    extended_resources: Mapping[str, str] = {}
    wide_mappings: Mapping[str, WideMapping] = {}
    class_drivers: Mapping[str, frozenset[str]] = {}
    class_configs: Mapping[str, frozenset[str]] = {}
    templates: Mapping[tuple[str, str], TemplateSummary] = {}
    quotas: Mapping[str, Mapping[str, Quota]] = {}
    limit_ranges: Mapping[str, Mapping[str, LimitRangeSummary]] = {}
    foreign_quotas: ForeignQuotas = {}
    namespaces: Mapping[str, Mapping[str, str]] = {}
    claim_unaware_components: Mapping[ClaimUnawareComponent, frozenset[str]] = {}
    policies: Mapping[str, DeviceCompatibilityPolicy] = {}
    owned_drivers: frozenset[str] = frozenset()
    bridge_scheduler: str = SCHEDULER_NAME
    networks: Mapping[tuple[str, str], NetworkSummary] = {}
    workload_profiles: Mapping[tuple[str, str], ProfileSummary] = {}
    node_taints: NodeTaints | None = None
    consumable_capacity: bool = True
    quota_usage: Mapping[str, Mapping[str, ResourceQuota]] = {}

    def is_opted_in(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return True if labels ask for the translation of a pod.

        Args:
            namespace: Its namespace, whose label decides, or leaves it to the pod.
            labels: The pod's labels.
        """
        label = self._translate_label(namespace)
        return (labels.get(TRANSLATE_LABEL) if label == TRANSLATE_SELECTED else label) == "true"

    def is_selective(self, namespace: str) -> bool:
        """Return True if a namespace takes part with the pods that have the label themselves."""
        return self._translate_label(namespace) == TRANSLATE_SELECTED

    def is_taking_part(self, namespace: str) -> bool:
        """Return True if the label of a namespace lets any pod of it be translated in mode OptIn."""
        return self._translate_label(namespace) in {"true", TRANSLATE_SELECTED}

    def _translate_label(self, namespace: str) -> str | None:
        return self.namespaces.get(namespace, {}).get(TRANSLATE_LABEL)


class Mode(StrEnum):
    """The pods that are translated; the value is its name in settings."""

    OPT_OUT = "OptOut"
    """The pods of every namespace without the label `drawbridge.internal/translate: "false"`; with
    `selected` those of its pods that have the label `"true"`, as in every mode."""
    OPT_IN = "OptIn"
    """The pods of namespaces with the label `drawbridge.internal/translate: "true"`."""
    SHADOW = "Shadow"
    """No pods: those of OptOut are evaluated, and the result is only reported."""


class NativePolicy(StrEnum):
    """The pods that Kubernetes serves without claims of a translation, if a DeviceClass maps their keys."""

    EXACT = "exact"
    """The pods whose classes give exactly the devices that the keys mean."""
    MAPPED = "mapped"
    """All of them, even if a class gives other devices than a key means."""
    TRANSLATE = "translate"
    """No pods: every pod gets claims, which device taints evict, and autoscalers and queues may
    count."""


class TolerationPolicy(StrEnum):
    """The pods that get tolerations of the taints that have the names of their removed keys."""

    DETECTED = "detected"
    """The pods of manifests, for a cluster whose live pods show that its API server adds them."""
    ALWAYS = "always"
    """All of them."""
    NEVER = "never"
    """None."""


class QuotaPolicy(StrEnum):
    """The reaction to a ResourceQuota that counts a key removed by the translation."""

    DENY = "deny"
    WARN = "warn"


KUBE_SYSTEM: Final = "kube-system"


def exempt_namespaces(namespace: str = NAMESPACE, others: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the namespaces with pods that no API server sends to the webhook.

    So a cluster, and the webhook itself, can start while the webhook is down.

    Args:
        namespace: The namespace in which the webhook is installed.
        others: Further namespaces that an operator names.
    """
    return tuple(dict.fromkeys((KUBE_SYSTEM, namespace, *others)))


class TranslationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's options for the translation of pods.

    Attributes:
        mode: The pods that are translated.
        exempt_namespaces: Namespaces whose pods stay as they are, whatever their labels say: no API
            server sends them to the webhook.
        profiles: Vocabulary name to the driver that serves it, unless the pod is routed to another
            one; see `translation.cluster.routing`.
        fixed: Vocabularies whose driver serves all their keys, whatever exists.
        drivers: Resource name to the driver that serves it, whichever vocabulary owns it.
        default_gpu_owner: The vocabulary that owns `nvidia.com/gpu` where nothing in the pod
            decides it.
        adopt_schedulers: Foreign scheduler to the scheduler that gets its translated pods; the same
            name keeps the pods there, for schedulers that support claims.
        native: The pods that stay as they are where a DeviceClass maps their keys.
        quota: The reaction to quotas that would stop counting.
        tolerations: The pods that get tolerations for their removed keys.
        claim_aware_components: Components that are configured to count claims.
        vocabularies: The vocabularies whose keys are translated; the keys of others are unknown.
        kept: The vocabularies and resource names that stay with their device plugin, beside what is
            translated.
        renamed_keys: Resource name in pods to the name that it has in its vocabulary.
        choices: The choices between a legacy system's reservations and its limits.
        driver_option: The place where the reader of a finding, or an administrator, chooses another
            driver: a flag of the command line, or a setting of the webhook.
    """

    mode: Mode = Mode.OPT_OUT
    exempt_namespaces: tuple[str, ...] = exempt_namespaces()
    profiles: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(DEFAULT_PROFILES))
    fixed: frozenset[str] = frozenset()
    drivers: Mapping[str, str] = {}
    default_gpu_owner: str = "nvidia"
    adopt_schedulers: Mapping[str, str] = {}
    native: NativePolicy = NativePolicy.EXACT
    quota: QuotaPolicy = QuotaPolicy.DENY
    tolerations: TolerationPolicy = TolerationPolicy.DETECTED
    claim_aware_components: frozenset[ClaimUnawareComponent] = frozenset()
    vocabularies: frozenset[str] = frozenset(arbiter.VOCABULARIES)
    kept: frozenset[str] = frozenset()
    renamed_keys: Mapping[str, str] = {}
    choices: Choices = Choices(init_containers=InitContainers.LARGEST)
    driver_option: str = "Drawbridge's setting translation.profiles"

    @property
    def kept_replicas(self) -> frozenset[str]:
        """The resource names of replicas among those that stay, also such that a cluster has renamed."""
        names = {name: self.renamed_keys.get(name, name) for name in self.kept}
        return frozenset(name for name, meaning in names.items() if is_replica_name(meaning))

    @property
    def kept_nics(self) -> frozenset[str]:
        """The resource names of NICs among those that stay, with the names that they stand for.

        They are renamed ones, since their vocabularies have the others. A pod with the other name of such NICs
        would get a claim for what the device plugin gives to pods, too.
        """
        meanings = {name: self.renamed_keys.get(name, "") for name in self.kept}
        nics = {name: meaning for name, meaning in meanings.items() if arbiter.is_nic(meaning)}
        return frozenset((*nics, *nics.values()))

    def scheduler_for(
        self, name: str, bridge_scheduler: str, *, opted_in: bool = False
    ) -> str | None:
        """Return the scheduler for the translated pods of a scheduler; None for no translation.

        A scheduler that gets the pods of others supports claims, so it keeps its own.

        Args:
            bridge_scheduler: schedulerName of the bridge.
            opted_in: The namespace of the pod asks for translation by its label, whichever scheduler
                the pod names.
        """
        if name in {"", DEFAULT_SCHEDULER_NAME, bridge_scheduler}:
            return name
        if name in self.adopt_schedulers.values():
            return self.adopt_schedulers.get(name, name)
        return self.adopt_schedulers.get(name, DEFAULT_SCHEDULER_NAME if opted_in else None)


def split_profiles(chosen_drivers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Divide chosen drivers into those of vocabularies and those of resource names.

    >>> split_profiles({"hami": "a.example", "nvidia.com/gpu": "b.example"})
    ({'hami': 'a.example'}, {'nvidia.com/gpu': 'b.example'})
    """
    by_key = {name: driver for name, driver in chosen_drivers.items() if "/" in name}
    return {name: driver for name, driver in chosen_drivers.items() if name not in by_key}, by_key


@keep_latest
def vocabularies_in_force(
    options: TranslationOptions, profiles: Mapping[str, Profile]
) -> Mapping[str, Vocabulary]:
    """Return the chosen vocabularies, extended by the resource names in the profiles in force.

    Names of replicas, and renamed ones of NICs, that stay with their device plugin are of none.
    """
    in_force = options.profiles.items()
    serving = resource_profiles(profiles, options.profiles)
    return _extended(
        tuple(sorted(options.renamed_keys.items())),
        (
            *(
                (name, profiles[driver])
                for name, driver in in_force
                if driver in profiles and name != RESOURCES
            ),
            *((RESOURCES, profile) for profile in serving),
        ),
        options.vocabularies,
        tuple(sorted(options.kept_replicas | options.kept_nics)),
    )


@lru_cache(maxsize=16)
def _extended(
    renamed_keys: tuple[tuple[str, str], ...],
    providers: tuple[tuple[str, Profile], ...],
    chosen_names: frozenset[str],
    kept_names: tuple[str, ...],
) -> Mapping[str, Vocabulary]:
    # Called for every pod, and the same until a profile changes.
    extended = arbiter.extended_vocabularies(
        [(name, names_for(name, profile)) for name, profile in providers if name in chosen_names],
        dict(renamed_keys),
    )
    return {
        name: without_names(vocabulary, kept_names)
        for name, vocabulary in extended.items()
        if name in chosen_names
    }
