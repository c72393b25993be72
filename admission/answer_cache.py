"""A cache of answers to creations of pods: the replicas of a workload differ in their names only.

A rollout creates hundreds of such pods. An answer is a pure function of the pod, the snapshot and the
options, so evicting is always correct. Fields that no answer may depend on are removed from the pod
before it is computed. Templates come and go with every workload, so an answer is valid for as long as
those that it was computed from stay the same; any other change of the snapshot clears the cache.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from admission.signing import UnsignedAnswer
from kube.collections.sized_cache import SizedCache
from translation.cluster.snapshot import TemplateSummary, TranslationOptions, TranslationSnapshot

CAPACITY: Final = 512
MAX_KEY_BYTES: Final = 16 * 1024
"""Larger pods are not cached."""
MAX_BYTES: Final = 8 * 2**20
"""Pods and specs of claims, as JSON; as objects they take several times as much."""
IGNORED_METADATA: Final = frozenset({"name", "managedFields"})
"""Fields of a pod's metadata that its answer does not depend on."""

TemplateName = tuple[str, str]
"""Namespace and name."""


class AnswerCache:
    """Answers, not signed yet; the least recently used is evicted first."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._entries: SizedCache[bytes, _Entry] = SizedCache(
            max_entries=capacity, max_bytes=MAX_BYTES
        )
        self._snapshot: TranslationSnapshot | None = None
        self._options: TranslationOptions | None = None

    def find_or_compute(
        self,
        document: Mapping[str, Any],
        *,
        namespace: str,
        snapshot: TranslationSnapshot,
        options: TranslationOptions,
        compute: Callable[[TranslationSnapshot], UnsignedAnswer],
    ) -> UnsignedAnswer:
        """Return the cached answer for a pod, or compute it.

        Args:
            document: The pod as parsed, `without_identity`.
            compute: A pure function of the document and the other arguments, with the snapshot that
                it has to read.
        """
        if snapshot is not self._snapshot or options is not self._options:
            self._entries.clear()
            self._snapshot, self._options = snapshot, options
        try:
            key = msgspec.msgpack.encode((namespace, document))
        except OverflowError:  # A number that no field of a pod can hold.
            return compute(snapshot)
        digest = sha256(key).digest()
        entry = self._entries.get(digest)
        if entry is not None and entry.is_valid(snapshot.templates):
            return entry.unsigned
        templates = _ReadTemplates(snapshot.templates)
        unsigned_answer = compute(msgspec.structs.replace(snapshot, templates=templates))
        if len(key) <= MAX_KEY_BYTES:
            size = len(key) + sum(claim.size for claim in unsigned_answer.answer.claims)
            entry = _Entry(unsigned=unsigned_answer, templates=templates.was_read)
            self._entries.put(digest, entry, size=size)
        return unsigned_answer


def without_identity(document: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without the metadata that distinguishes it from other replicas; not changed."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document
    shared_metadata = {key: value for key, value in metadata.items() if key not in IGNORED_METADATA}
    return {**document, "metadata": shared_metadata}


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and the templates that it was computed from; None for one that did not exist."""

    unsigned: UnsignedAnswer
    templates: Mapping[TemplateName, TemplateSummary | None]

    def is_valid(self, templates: Mapping[TemplateName, TemplateSummary]) -> bool:
        """Return True if the answer would be computed from the same templates again."""
        return all(templates.get(name) == summary for name, summary in self.templates.items())


class _ReadTemplates(Mapping[TemplateName, TemplateSummary]):
    """Templates that note the reads of them.

    Attributes:
        was_read: The template returned for each name.
    """

    def __init__(self, templates: Mapping[TemplateName, TemplateSummary]) -> None:
        self._templates = templates
        self.was_read: dict[TemplateName, TemplateSummary | None] = {}

    def __getitem__(self, name: TemplateName) -> TemplateSummary:
        summary = self.was_read[name] = self._templates.get(name)
        if summary is None:
            raise KeyError(name)
        return summary

    def __iter__(self) -> Iterator[TemplateName]:
        raise TypeError("an answer that reads all templates cannot be cached")

    def __len__(self) -> int:
        raise TypeError("an answer that counts templates cannot be cached")
