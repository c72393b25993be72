"""What is known of the cluster when a pod is looked at, and how the operator wants it looked at.

Both are frozen pictures: a review reads them and nothing else, so it needs no call to anybody.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from kube.api.policy import DeviceCompatibilityPolicy
from kube.product import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME
from webhook.intents import DeviceKind, Vocabulary
from webhook.inventory import Facts
from webhook.profile import Profile
from webhook.quotas import Quota
from webhook.vocabularies import arbiter

DEFAULT_PROFILES: Final = {
    "hami": "hami-core-gpu.project-hami.io",
    "nvidia": "gpu.nvidia.com",
    "koordinator": "hami-core-gpu.project-hami.io",
    "rdma": "dra.net",
    "sriov": "sriovnetwork.k8snetworkplumbingwg.io",
}


class Onlooker(StrEnum):
    """What looks at pods and may not see their claims; the value is its name in settings."""

    CLUSTER_AUTOSCALER = "clusterAutoscaler"
    KARPENTER = "karpenter"
    KUEUE = "kueue"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a ResourceClaimTemplate.

    Attributes:
        digest: Of its spec, in full.
        classes: The DeviceClasses that it asks for.
    """

    digest: str
    classes: frozenset[str] = frozenset()


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of the cluster.

    Attributes:
        profiles: Driver name to profile.
        facts: Driver name to what its published devices tell.
        classes: Names of the DeviceClasses; None when no cluster state is known.
        extended_resources: Resource name to the DeviceClass that maps it.
        templates: (namespace, name) to what is known of a ResourceClaimTemplate.
        quotas: Namespace to ResourceQuota name to what it counts.
        namespaces: Namespace to its labels.
        onlookers: Who is there, to the DeviceClasses whose claims it is known to count.
        policies: Driver name to the DeviceCompatibilityPolicy that counts for it.
    """

    profiles: Mapping[str, Profile]
    facts: Mapping[str, Mapping[DeviceKind, Facts]] = {}
    classes: frozenset[str] | None = None
    extended_resources: Mapping[str, str] = {}
    templates: Mapping[tuple[str, str], Template] = {}
    quotas: Mapping[str, Mapping[str, Quota]] = {}
    namespaces: Mapping[str, Mapping[str, str]] = {}
    onlookers: Mapping[Onlooker, frozenset[str]] = {}
    policies: Mapping[str, DeviceCompatibilityPolicy] = {}


class QuotaPolicy(StrEnum):
    """What to do where a ResourceQuota counts a key that a translation takes away."""

    DENY = "deny"
    WARN = "warn"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator wants pods translated.

    Attributes:
        profiles: Vocabulary name to the driver whose profile speaks for it.
        bare_gpu: The vocabulary that owns `nvidia.com/gpu` where nothing else in the pod says.
        adopt_schedulers: Foreign scheduler to the scheduler that gets its pods; the same name keeps
            them there, for schedulers that understand claims.
        quota: What to do about quotas that would stop counting.
        claims_seen_by: Onlookers that see claims here, so that nobody is warned of them.
    """

    profiles: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(DEFAULT_PROFILES))
    bare_gpu: str = "nvidia"
    adopt_schedulers: Mapping[str, str] = {}
    quota: QuotaPolicy = QuotaPolicy.DENY
    claims_seen_by: frozenset[Onlooker] = frozenset()

    def scheduler_for(self, name: str) -> str | None:
        """Return who schedules the translated pods of a scheduler; None leaves the pods alone."""
        if name in {"", DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME}:
            return name
        return self.adopt_schedulers.get(name)


def vocabularies(options: Options, profiles: Mapping[str, Profile]) -> Mapping[str, Vocabulary]:
    """Return the vocabularies, with the resource names that the profiles in force give them."""
    in_force = options.profiles.items()
    return _speaking(
        tuple((name, profiles[driver]) for name, driver in in_force if driver in profiles)
    )


@lru_cache(maxsize=16)
def _speaking(speakers: tuple[tuple[str, Profile], ...]) -> Mapping[str, Vocabulary]:
    # Asked for with every pod, and the same until a profile changes.
    return arbiter.speaking({name: profile.resource_names() for name, profile in speakers})
