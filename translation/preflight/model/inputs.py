"""The values that preconditions and preflight checks read.

A precondition sees the pod and the cluster, and may end the translation. A check sees the claims, too, and
returns findings; an error rejects the pod, because translating it would break a guarantee of the cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from findings.finding import Finding
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Variable, Vocabulary
from translation.profiles.profile import Profile
from translation.reading.legacy_pod import HAMI_OPT_OUT_LABELS, find_label
from translation.record.derive import Readings
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.nvidia import VOCABULARY as NVIDIA


class PodInput(msgspec.Struct, frozen=True, kw_only=True):
    """A pod before its keys are read, and all that decides about it.

    Attributes:
        namespace: The pod's namespace; at admission the pod's own field may be empty.
        passes_through: True if a pod stays as it is when Kubernetes itself can allocate its
            devices.
        network_findings: The findings about networks that do not become claims.
    """

    legacy: LegacyPod
    namespace: str
    snapshot: TranslationSnapshot
    options: TranslationOptions
    passes_through: bool = True
    network_findings: tuple[Finding, ...] = ()

    @property
    def opted_in(self) -> bool:
        """Return True if labels ask for the translation of the pod."""
        return self.snapshot.is_opted_in(self.namespace, self.legacy.labels)

    @property
    def default_gpu_owner(self) -> str:
        """The owner of `nvidia.com/gpu` in pods without a key for it.

        A label that keeps HAMi's webhook away from the pod leaves the key to the device plugin.
        """
        owner = self.options.default_gpu_owner
        namespace_labels = self.snapshot.namespaces.get(self.namespace, {})
        is_kept_from_hami = any(
            find_label(labels, HAMI_OPT_OUT_LABELS) is not None
            for labels in (self.legacy.labels, namespace_labels)
        )
        return NVIDIA.name if is_kept_from_hami and owner == HAMI.name else owner


class Stop(msgspec.Struct, frozen=True):
    """The end of a pod's translation before its keys are read.

    Attributes:
        findings: The reasons. The pod is refused if one of them is an error, and otherwise left as it is.
        is_readable: True if the keys can be read all the same, for the other errors of a refused pod.
    """

    findings: tuple[Finding, ...] = ()
    is_readable: bool = False


Precondition = Callable[[PodInput], Stop | None]
"""A condition that a pod has to meet, so that its keys are read; None where the pod meets it."""


class PreflightInput(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with the claims that replace its keys, and the cluster that they have to suit.

    Attributes:
        namespace: The pod's namespace.
        vocabularies: Vocabulary name to the vocabulary, of all that are in force.
        owners: The vocabularies that own keys of the pod, in the order that decides shared keys.
        readings: The intents of each owner.
        providers: Vocabulary name to the profile that serves it.
        claims: The claims that replace the keys.
        variables: The environment variables to add.
        scheduler: The scheduler of the translated pod; None where it is translated for no scheduler.
    """

    legacy: LegacyPod
    namespace: str
    snapshot: TranslationSnapshot
    options: TranslationOptions
    vocabularies: Mapping[str, Vocabulary] = {}
    owners: Sequence[Vocabulary] = ()
    readings: Readings = {}
    providers: Mapping[str, Profile] = {}
    claims: Sequence[Claim] = ()
    variables: Sequence[Variable] = ()
    scheduler: str | None = None


Check = Callable[[PreflightInput], Iterable[Finding]]
"""A comparison of a pod's claims with the cluster, or with the rest of the pod."""
