"""Live pods with device keys that nothing translates, counted by the family of the keys.

Such a pod may be served by a device plugin as ever, so it gets no event; the audit counts it in a
metric, and logs each family with what to do.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from controllers.audit.report import FindingKey
from findings.finding import Code, Severity
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.urls import PODS
from kube.runtime.informers import InformerFactory
from translation.model.device_families import UNKNOWN
from translation.model.intents import Vocabulary
from translation.reading.untranslated_keys import find_untranslated_keys

LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The template controller's selector, so that one informer serves both."""
MAX_KEYS: Final = 8
"""Keys of a pod, and of a family in a log line."""
KIND: Final = "Pod"


class FamilyKeys(NamedTuple):
    """The keys of one device family in a pod."""

    owner: str
    advice: str
    keys: tuple[str, ...]


class FamilySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that use keys of one device family.

    Attributes:
        keys: The first of them, sorted.
    """

    owner: str
    advice: str
    keys: tuple[str, ...]
    pods: int


class UntranslatedPods:
    """The live pods with keys that no vocabulary handled when they were created or changed."""

    def __init__(
        self,
        informers: InformerFactory,
        vocabularies: Callable[[], Mapping[str, Vocabulary]],
        kept_names: Collection[str] = (),
    ) -> None:
        """Subscribe to pods; those without such keys are not kept.

        Args:
            informers: The informers, not run yet.
            vocabularies: Returns the vocabularies, extended by the resource names in the profiles
                in force.
            kept_names: The vocabularies and resource names that stay with their device plugin.
        """
        self._vocabularies: Final = vocabularies
        self._pods = informers.subscribe(
            PODS,
            lambda raw: project_family_keys(raw, vocabularies(), kept_names),
            field_selector=LIVE_PODS,
        )

    @property
    def vocabularies(self) -> Mapping[str, Vocabulary]:
        """The vocabularies, extended by the resource names in the profiles in force."""
        return self._vocabularies()

    def summarize(self, extended_resources: Mapping[str, str]) -> tuple[FamilySummary, ...]:
        """Return the families in use, by owner.

        Args:
            extended_resources: Resource name to the class that maps it; Kubernetes allocates these.
        """
        pods: Counter[tuple[str, str]] = Counter()
        keys: dict[tuple[str, str], set[str]] = {}
        for families in self._pods.store.values():
            for family in families:
                unmapped_keys = [key for key in family.keys if key not in extended_resources]
                if unmapped_keys:
                    pods[family.owner, family.advice] += 1
                    keys.setdefault((family.owner, family.advice), set()).update(unmapped_keys)
        return tuple(
            FamilySummary(
                owner=owner,
                advice=advice,
                keys=tuple(sorted(keys[owner, advice])[:MAX_KEYS]),
                pods=number,
            )
            for (owner, advice), number in sorted(pods.items())
        )


def project_family_keys(
    raw: bytes, vocabularies: Mapping[str, Vocabulary], kept_names: Collection[str] = ()
) -> tuple[FamilyKeys, ...] | None:
    """Project a pod to its device keys that no vocabulary handles; None without such keys.

    Args:
        raw: The pod as JSON; to decode it takes less time than to search it for each of the domains.
        vocabularies: Extended by the resource names in profiles.
        kept_names: The vocabularies and resource names that stay with their device plugin.
    """
    return tuple(_family_keys(decode(raw, Pod), vocabularies, kept_names)) or None


def _family_keys(
    pod: Pod, vocabularies: Mapping[str, Vocabulary], kept_names: Collection[str]
) -> Iterator[FamilyKeys]:
    for family, paths in find_untranslated_keys(pod, vocabularies, kept_names=kept_names).items():
        if family is UNKNOWN:
            continue  # Such a name is one of a device by its words alone.
        # Replicas have the same keys.
        keys = tuple(sys.intern(key) for key in sorted(paths)[:MAX_KEYS])
        yield FamilyKeys(family.owner, family.advice, keys)


def count_findings(families: tuple[FamilySummary, ...]) -> Mapping[FindingKey, int]:
    """Return the findings about pods, one for each pod and family."""
    number = sum(family.pods for family in families)
    key = (KIND, Severity.INFO.value, Code.UNTRANSLATED_DEVICE_KEY.value)
    return {key: number} if number else {}
