"""Who owns a pod that speaks several vocabularies.

The decision is made per pod and recorded in its request annotation as an ordered list: a key
belongs to the first vocabulary of the list that speaks it. So the controller, which has nothing but
the annotation, splits the keys as the webhook did.

Bare `nvidia.com/gpu` and `mig-*` are the device plugin's. Beside a key or annotation that only HAMi
has, `nvidia.com/gpu` is HAMi's in the whole pod; `mig-*` stays the device plugin's. Where an
annotation says of GPUs what only Koordinator knows, `nvidia.com/gpu` is Koordinator's. NICs come last:
names that profiles give them, perhaps a whole vendor's, take no key from another vocabulary.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from webhook.findings import Code, Finding, error
from webhook.intents import LegacyPod, Vocabulary
from webhook.vocabularies import hami, koordinator, nvidia, rdma, sriov
from webhook.vocabularies.koordinator_keys import FOREIGN_GPUS, GPU_KEYS, OWN_KEYS

NICS: Final = (rdma.VOCABULARY.name, sriov.VOCABULARY.name)
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    vocabulary.name: vocabulary
    for vocabulary in (
        hami.VOCABULARY,
        nvidia.VOCABULARY,
        koordinator.VOCABULARY,
        rdma.VOCABULARY,
        sriov.VOCABULARY,
    )
}
"""By name, in the order in which they are asked for a key that several speak."""


def device_keys(
    names: Collection[str], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> frozenset[str]:
    """Return which resource names of one container belong to any vocabulary."""
    return frozenset[str]().union(*(each.spoken(names) for each in vocabularies.values()))


def companions(keys: Collection[str]) -> frozenset[str]:
    """Return the keys that are of other vendors' devices, and read beside these keys only."""
    beside = any(key in OWN_KEYS for key in keys)
    return frozenset(FOREIGN_GPUS if beside else ())


def speaking(named: Mapping[str, Iterable[str]]) -> Mapping[str, Vocabulary]:
    """Return the vocabularies, with the resource names that profiles give them.

    Args:
        named: Vocabulary to names; one that ends in `*` stands for all that begin so.
    """
    return {name: _speaking(each, named.get(name, ())) for name, each in VOCABULARIES.items()}


def _speaking(vocabulary: Vocabulary, names: Iterable[str]) -> Vocabulary:
    further = [name for name in names if vocabulary.takes_names and not vocabulary.speaks(name)]
    if not further:
        return vocabulary
    keys = [name for name in further if not name.endswith("*")]
    prefixes = [name.removesuffix("*") for name in further if name.endswith("*")]
    return msgspec.structs.replace(
        vocabulary,
        keys=(*vocabulary.keys, *keys),
        key_prefixes=(*vocabulary.key_prefixes, *prefixes),
    )


def owners(
    pod: LegacyPod,
    *,
    bare_gpu: str = nvidia.VOCABULARY.name,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
) -> tuple[str, ...]:
    """Return the vocabularies that own the pod's keys, in the order that decides shared keys.

    Args:
        bare_gpu: Who owns `nvidia.com/gpu` where nothing else in the pod says: "nvidia", "hami" or
            "koordinator".
        vocabularies: With the names that profiles give them.
    """
    named = {key for container in pod.containers for key in container.limits}
    speaks_hami = (
        bare_gpu == hami.VOCABULARY.name
        or any(key in named for key in hami.OWN_KEYS)
        or any(key in pod.annotations for key in hami.VOCABULARY.annotations)
    )
    gpus = (hami.VOCABULARY, nvidia.VOCABULARY) if speaks_hami else (nvidia.VOCABULARY,)
    koordinator_first = (
        bare_gpu == koordinator.VOCABULARY.name and not speaks_hami
    ) or koordinator.takes_whole_gpus(pod)
    ordered = (
        (koordinator.VOCABULARY, *gpus) if koordinator_first else (*gpus, koordinator.VOCABULARY)
    )
    candidates = (*ordered, *(vocabularies[name] for name in NICS))
    split = divided(named, candidates)
    return tuple(vocabulary.name for vocabulary in candidates if split[vocabulary.name])


def conflicts(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each key of HAMi on GPUs that are Koordinator's in the same pod."""
    named = {key for container in pod.containers for key in container.limits}
    whole_gpus = hami.COUNT in named and koordinator.takes_whole_gpus(pod)
    if not whole_gpus and not any(key in named for key in GPU_KEYS):
        return
    for container in pod.containers:
        for key in hami.OWN_KEYS:
            if key in container.limits:
                yield error(
                    Code.SEVERAL_OWNERS,
                    container.limit_path(key),
                    "is HAMi's, and the pod's GPUs are Koordinator's",
                    "use the keys of one of them",
                )


def divided(keys: Iterable[str], candidates: Sequence[Vocabulary]) -> Mapping[str, frozenset[str]]:
    """Return vocabulary name to the keys that are its own; each key has at most one owner."""
    split: dict[str, set[str]] = {vocabulary.name: set() for vocabulary in candidates}
    for key in keys:
        owner = next((v for v in candidates if v.speaks(key) or key in v.foreign), None)
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
