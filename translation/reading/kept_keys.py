"""The keys that a cluster leaves to their device plugin, as the setting `translation.keep` says. Pure."""

from collections.abc import Collection, Iterator

import msgspec

from translation.model.intents import Vocabulary
from translation.reading.arbiter import VOCABULARIES


def is_kept(key: str, kept_names: Collection[str]) -> bool:
    """Return True if a resource name, or its vocabulary, is among names that stay.

    >>> is_kept("rdma/hca", {"rdma"}), is_kept("nvidia.com/gpu", {"rdma"})
    (True, False)
    """
    return bool(kept_name(key, kept_names))


def kept_name(key: str, kept_names: Collection[str]) -> str:
    """Return the kept name of a resource name: its own, or that of its vocabulary; empty if it does not stay.

    >>> kept_name("rdma/hca", {"rdma"}), kept_name("nvidia.com/gpu", {"rdma"})
    ('rdma', '')
    """
    if key in kept_names:
        return key
    names = (name for name in kept_names if name in VOCABULARIES)
    return next((name for name in names if VOCABULARIES[name].handles(key)), "")


def find_kept(names: Collection[str], kept_names: Collection[str]) -> Iterator[str]:
    """Yield those of some resource names that stay."""
    return (name for name in names if is_kept(name, kept_names)) if kept_names else iter(())


def without_names(vocabulary: Vocabulary, names: Collection[str]) -> Vocabulary:
    """Return a vocabulary without some resource names of its own."""
    own_names = [name for name in names if vocabulary.handles(name)]
    if not own_names:
        return vocabulary
    return msgspec.structs.replace(
        vocabulary,
        keys=tuple(key for key in vocabulary.keys if key not in own_names),
        ceded=(*vocabulary.ceded, *own_names),
    )
