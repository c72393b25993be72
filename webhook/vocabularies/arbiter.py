"""Who owns a pod that speaks several vocabularies.

The decision is made per pod and recorded in its request annotation as an ordered list: a key
belongs to the first vocabulary of the list that speaks it. So the controller, which has nothing but
the annotation, splits the keys as the webhook did.

Bare `nvidia.com/gpu` and `mig-*` are the device plugin's. Beside a key or annotation that only HAMi
has, `nvidia.com/gpu` is HAMi's in the whole pod; `mig-*` stays the device plugin's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from webhook.intents import LegacyPod, Vocabulary
from webhook.vocabularies import hami, nvidia

VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    vocabulary.name: vocabulary for vocabulary in (hami.VOCABULARY, nvidia.VOCABULARY)
}
"""By name, in the order in which they are asked for a key that several speak."""


def is_device_key(key: str) -> bool:
    """Whether a resource name belongs to any vocabulary."""
    return any(vocabulary.speaks(key) for vocabulary in VOCABULARIES.values())


def owners(pod: LegacyPod, *, bare_gpu: str = nvidia.VOCABULARY.name) -> tuple[str, ...]:
    """Return the vocabularies that own the pod's keys, in the order that decides shared keys.

    Args:
        bare_gpu: Who owns `nvidia.com/gpu` where nothing else in the pod says: "nvidia" or "hami".
    """
    named = {key for container in pod.containers for key in container.limits}
    speaks_hami = (
        bare_gpu == hami.VOCABULARY.name
        or any(key in named for key in hami.OWN_KEYS)
        or any(key in pod.annotations for key in hami.VOCABULARY.annotations)
    )
    candidates = (hami.VOCABULARY, nvidia.VOCABULARY) if speaks_hami else (nvidia.VOCABULARY,)
    split = divided(named, candidates)
    return tuple(vocabulary.name for vocabulary in candidates if split[vocabulary.name])


def divided(keys: Iterable[str], candidates: Sequence[Vocabulary]) -> Mapping[str, frozenset[str]]:
    """Return vocabulary name to the keys that are its own; each key has at most one owner."""
    split: dict[str, set[str]] = {vocabulary.name: set() for vocabulary in candidates}
    for key in keys:
        owner = next((v for v in candidates if v.speaks(key)), None)
        if owner is not None:
            split[owner.name].add(key)
    return {name: frozenset(owned) for name, owned in split.items()}


def part_of(pod: LegacyPod, keys: frozenset[str]) -> LegacyPod:
    """Return the pod with only these keys in its containers' limits."""
    return msgspec.structs.replace(
        pod,
        containers=tuple(
            msgspec.structs.replace(
                container,
                limits={key: amount for key, amount in container.limits.items() if key in keys},
            )
            for container in pod.containers
        ),
    )
