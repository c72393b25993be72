"""The arbiter: the vocabularies that own the device keys of a pod.

The decision is made per pod and stored in its translation record as an ordered list: a key belongs
to the first vocabulary of the list that handles it. So the controller, which has only the record,
divides the keys as the webhook did.

Bare `nvidia.com/gpu` and `mig-*` belong to the device plugin. Beside a key or annotation that only
HAMi has, `nvidia.com/gpu` belongs to HAMi in the whole pod; `mig-*` stays with the device plugin.
Beside an annotation about GPUs that only Koordinator has, `nvidia.com/gpu` belongs to Koordinator.
Whole devices of other vendors and NICs come last: names that profiles add to them, even of a whole vendor, take no key of another one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import msgspec

from findings.finding import Code, Finding, error
from findings.text import printable
from kube.api.core import Pod
from kube.collections.latest import keep_latest
from kube.quantity import ZERO
from translation.model.intents import LegacyPod, Vocabulary
from translation.vocabularies import (
    aliyun,
    ascend,
    hygon,
    kai,
    multus,
    nvidia,
    rdma,
    resources,
    sriov,
    tencent,
    tensorfusion,
    volcano,
    volcengine,
)
from translation.vocabularies.hami.keys import COUNT as GPU_COUNT
from translation.vocabularies.hami.keys import OWN_KEYS as HAMI_KEYS
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.koordinator.keys import FOREIGN_GPUS, GPU_KEYS, OWN_KEYS
from translation.vocabularies.koordinator.replacements import takes_whole_gpus
from translation.vocabularies.koordinator.translate import VOCABULARY as KOORDINATOR
from translation.vocabularies.tensorfusion import leaves_whole_gpus

SHARES: Final = (
    volcano.VOCABULARY.name,
    aliyun.VOCABULARY.name,
    tencent.VOCABULARY.name,
    volcengine.VOCABULARY.name,
)
"""Systems that divide GPUs, and have keys of their own only."""
GPUS_BY_ANNOTATIONS: Final = (kai.VOCABULARY.name, tensorfusion.VOCABULARY.name)
"""Systems that divide GPUs, without keys."""
OTHER_VENDORS: Final = (
    ascend.VOCABULARY.name,
    hygon.VOCABULARY.name,
    resources.VOCABULARY.name,
)
"""Devices of other vendors than NVIDIA; NICs are not among them."""
NICS: Final = (rdma.VOCABULARY.name, sriov.VOCABULARY.name, multus.VOCABULARY.name)
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    vocabulary.name: vocabulary
    for vocabulary in (
        HAMI,
        nvidia.VOCABULARY,
        KOORDINATOR,
        volcano.VOCABULARY,
        aliyun.VOCABULARY,
        tencent.VOCABULARY,
        volcengine.VOCABULARY,
        kai.VOCABULARY,
        tensorfusion.VOCABULARY,
        ascend.VOCABULARY,
        hygon.VOCABULARY,
        resources.VOCABULARY,
        rdma.VOCABULARY,
        sriov.VOCABULARY,
        multus.VOCABULARY,
    )
}
"""The vocabularies by name, in the order of precedence for keys that several handle."""
_REQUESTED_BY_ANNOTATIONS: Final = tuple(
    vocabulary.name for vocabulary in VOCABULARIES.values() if vocabulary.requesting
)
REQUESTING_ANNOTATIONS: Final = frozenset(
    name for vocabulary in VOCABULARIES.values() for name in vocabulary.requesting
)
"""The annotations that request devices without any key."""
_BY_ANNOTATIONS: Final = {name: VOCABULARIES[name] for name in GPUS_BY_ANNOTATIONS}
_FOREIGN: Final = frozenset(
    key for vocabulary in VOCABULARIES.values() for key in vocabulary.foreign
)
_DIVIDING_KEYS: Final = {
    HAMI.name: frozenset(HAMI_KEYS),
    KOORDINATOR.name: frozenset(GPU_KEYS),
    **{name: frozenset(VOCABULARIES[name].keys) for name in SHARES},
}
"""Vocabulary to its keys of shares of GPUs."""
_SHARE_KEYS: Final = frozenset[str]().union(*(_DIVIDING_KEYS[name] for name in SHARES))
_QGPU_KEYS: Final = frozenset({tencent.QGPU.cores, tencent.QGPU.memory})
"""The keys of Tencent's second system, which no container may have beside those of the first."""
_KEYS_OF_GPUS: Final = frozenset[str]({GPU_COUNT}).union(*_DIVIDING_KEYS.values())
_KOORDINATOR_KEYS: Final = frozenset(OWN_KEYS)
_COMPANIONS: Final = frozenset(FOREIGN_GPUS)
_NO_KEYS: Final = frozenset[str]()


class _Keys(NamedTuple):
    """The keys of several vocabularies.

    Attributes:
        alone: The names that are read whatever stands beside them.
    """

    names: frozenset[str]
    prefixes: tuple[str, ...]
    alone: frozenset[str]


def _keys_of(vocabularies: Collection[Vocabulary]) -> _Keys:
    keys = [(vocabulary, key) for vocabulary in vocabularies for key in vocabulary.keys]
    return _Keys(
        names=frozenset(key for _, key in keys),
        prefixes=tuple(prefix for vocabulary in vocabularies for prefix in vocabulary.key_prefixes),
        alone=frozenset(key for vocabulary, key in keys if vocabulary.reads(key, ())),
    )


@keep_latest
def _all_keys(vocabularies: Mapping[str, Vocabulary]) -> _Keys:
    return _keys_of(vocabularies.values())


@keep_latest
def _keys_of_vendors(vocabularies: Mapping[str, Vocabulary]) -> _Keys:
    return _keys_of([vocabularies[name] for name in OTHER_VENDORS if name in vocabularies])


def find_device_keys(
    names: Collection[str], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> Iterator[str]:
    """Yield the resource names of one container that belong to any vocabulary."""
    # Every review asks about every name, and most names are of no vocabulary.
    keys, prefixes, alone = _all_keys(vocabularies)
    for name in names:
        if name in alone or (
            (name in keys or name.startswith(prefixes))
            and any(vocabulary.reads(name, names) for vocabulary in vocabularies.values())
        ):
            yield name


def is_handled(key: str, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES) -> bool:
    """Return True if a resource name belongs to any vocabulary."""
    names, prefixes, _ = _all_keys(vocabularies)
    return key in names or key.startswith(prefixes)


def is_nic(key: str) -> bool:
    """Return True if a resource name belongs to a vocabulary of NICs."""
    return any(VOCABULARIES[name].handles(key) for name in NICS)


def unhandled_keys(
    keys: Iterable[str], vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> frozenset[str]:
    """Return the resource names that belong to no vocabulary."""
    names, prefixes, _ = _all_keys(vocabularies)
    return frozenset(key for key in keys if key not in names and not key.startswith(prefixes))


def vendor_owners(keys: Iterable[str], vocabularies: Mapping[str, Vocabulary]) -> Mapping[str, str]:
    """Return each key of a device of another vendor than NVIDIA to the first such vocabulary that handles it."""
    names, prefixes, _ = _keys_of_vendors(vocabularies)
    probable_keys = [key for key in keys if key in names or key.startswith(prefixes)]
    return {
        key: name
        for name in reversed(OTHER_VENDORS)
        if name in vocabularies
        for key in probable_keys
        if vocabularies[name].handles(key)
    }


def companions(keys: Iterable[str]) -> frozenset[str]:
    """Return the keys of other vendors' devices that are read beside these keys only."""
    return _NO_KEYS if _KOORDINATOR_KEYS.isdisjoint(keys) else _COMPANIONS


def translating_vocabularies(
    pod: Pod, vocabularies: Mapping[str, Vocabulary]
) -> Mapping[str, Vocabulary]:
    """Return the vocabularies that translate a pod: none for NICs in the host's network."""
    if not pod.spec.host_network:
        return vocabularies
    return {name: vocabulary for name, vocabulary in vocabularies.items() if name not in NICS}


def owner_of(name: str) -> str | None:
    """Return the first vocabulary that has a resource name."""
    return next(
        (owner for owner, vocabulary in VOCABULARIES.items() if vocabulary.handles(name)), None
    )


def extended_vocabularies(
    names_by_vocabulary: Iterable[tuple[str, Iterable[str]]],
    renamed_keys: Mapping[str, str] = {},
) -> Mapping[str, Vocabulary]:
    """Return the vocabularies, extended by the resource names in profiles.

    Args:
        names_by_vocabulary: Vocabulary and the names of a profile that serves it; one that ends in `*` is a prefix.
        renamed_keys: Name in pods to the name in a vocabulary; the first that has it reads both.
    """
    keys_by_vocabulary: dict[str | None, dict[str, str]] = {}
    for name, own_name in sorted(renamed_keys.items()):
        keys_by_vocabulary.setdefault(owner_of(own_name), {})[name] = own_name
    names_added: dict[str, list[str]] = {}
    for vocabulary, names in names_by_vocabulary:
        names_added.setdefault(vocabulary, []).extend(names)
    ceded = ceded_pools(
        names_added.get(sriov.VOCABULARY.name, ()), names_added.get(rdma.VOCABULARY.name, ())
    )
    vocabularies = dict(VOCABULARIES)
    if ceded:
        own = vocabularies[rdma.VOCABULARY.name]
        vocabularies[own.name] = msgspec.structs.replace(own, ceded=ceded)
    return {
        name: _with_renamed_keys(
            _extended(vocabulary, tuple(dict.fromkeys(names_added.get(name, ())))),
            keys_by_vocabulary.get(name, {}),
        )
        for name, vocabulary in vocabularies.items()
    }


def ceded_pools(of_functions: Iterable[str], of_pools: Collection[str]) -> tuple[str, ...]:
    """Return the names with the prefix of pools that are counted, as names of the SR-IOV device plugin.

    That plugin may have any prefix. A name that the profile of pools lists, too, is one of a pool.

    Args:
        of_functions: The names in the profile that serves `sriov`.
        of_pools: The names in the profile that serves `rdma`.
    """
    return tuple(
        dict.fromkeys(
            name
            for name in of_functions
            if name.startswith(rdma.POOL_PREFIX) and name not in of_pools
        )
    )


def _extended(vocabulary: Vocabulary, names: Iterable[str]) -> Vocabulary:
    further = [name for name in names if vocabulary.takes_names and not vocabulary.handles(name)]
    if not further:
        return vocabulary
    keys = [name for name in further if not name.endswith("*")]
    prefixes = [name.removesuffix("*") for name in further if name.endswith("*")]
    return msgspec.structs.replace(
        vocabulary,
        keys=(*vocabulary.keys, *keys),
        key_prefixes=(*vocabulary.key_prefixes, *prefixes),
    )


def _with_renamed_keys(vocabulary: Vocabulary, renamed_keys: Mapping[str, str]) -> Vocabulary:
    if not renamed_keys:
        return vocabulary
    in_pods = {own_name: name for name, own_name in renamed_keys.items()}
    added_key = vocabulary.added_key
    return msgspec.structs.replace(
        vocabulary,
        keys=(*vocabulary.keys, *renamed_keys),
        renamed_keys=renamed_keys,
        added_key=None if added_key is None else in_pods.get(added_key, added_key),
    )


def owners(
    pod: LegacyPod,
    *,
    default_gpu_owner: str = nvidia.VOCABULARY.name,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
) -> tuple[str, ...]:
    """Return the vocabularies that own the pod's keys, in the order that decides shared keys."""
    return tuple(owned_keys(pod, default_gpu_owner=default_gpu_owner, vocabularies=vocabularies))


def owned_keys(
    pod: LegacyPod,
    *,
    default_gpu_owner: str = nvidia.VOCABULARY.name,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
) -> Mapping[str, frozenset[str]]:
    """Return the vocabularies that own the pod's keys, in the order that decides shared keys, with these keys.

    A vocabulary whose devices are requested by annotations may own no key.

    Args:
        default_gpu_owner: The owner of `nvidia.com/gpu` where nothing in the pod decides it:
            "nvidia", "hami" or "koordinator".
        vocabularies: The chosen vocabularies, extended by the resource names in profiles.
    """
    keys = pod.keys()
    uses_hami = (
        default_gpu_owner == HAMI.name
        or not keys.isdisjoint(HAMI_KEYS)
        or not keys.isdisjoint(vocabularies.get(HAMI.name, HAMI).renamed_keys)
        or not pod.annotations.keys().isdisjoint(HAMI.annotations)
    )
    koordinator_first = (
        default_gpu_owner == KOORDINATOR.name and not uses_hami
    ) or takes_whole_gpus(pod)
    candidates = _candidates(vocabularies)[uses_hami, koordinator_first]
    split_keys = _split_keys(keys, candidates.values())
    names = {*split_keys, *_requested_vocabularies(pod, vocabularies)}
    return {name: split_keys.get(name, _NO_KEYS) for name in candidates if name in names}


@keep_latest
def _candidates(
    vocabularies: Mapping[str, Vocabulary],
) -> Mapping[tuple[bool, bool], Mapping[str, Vocabulary]]:
    """Return the vocabularies in the order that decides shared keys.

    That depends on two facts about a pod: whether it uses HAMi, and whether Koordinator comes first.
    """
    last = (*SHARES, *GPUS_BY_ANNOTATIONS, *OTHER_VENDORS, *NICS)
    orders = {}
    for uses_hami, koordinator_first in product((False, True), repeat=2):
        gpus = (HAMI.name, nvidia.VOCABULARY.name) if uses_hami else (nvidia.VOCABULARY.name,)
        first = (KOORDINATOR.name, *gpus) if koordinator_first else (*gpus, KOORDINATOR.name)
        orders[uses_hami, koordinator_first] = {
            name: vocabularies[name] for name in (*first, *last) if name in vocabularies
        }
    return orders


def _requested_vocabularies(
    pod: LegacyPod, vocabularies: Mapping[str, Vocabulary]
) -> Sequence[str]:
    """Return the vocabularies with devices that annotations of a pod request."""
    if pod.annotations.keys().isdisjoint(REQUESTING_ANNOTATIONS):
        return ()  # As of most pods, each of which asks several times.
    return [
        name
        for name in _REQUESTED_BY_ANNOTATIONS
        if name in vocabularies and _is_requested(vocabularies[name], pod)
    ]


def _is_requested(vocabulary: Vocabulary, pod: LegacyPod) -> bool:
    """Return True if annotations of a pod request devices of a vocabulary, beside those of keys."""
    if not vocabulary.is_requested(pod):
        return False
    return vocabulary.name != tensorfusion.VOCABULARY.name or not leaves_whole_gpus(pod)


def requests_devices(pod: LegacyPod, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return True if a pod requests devices, by keys or by annotations alone."""
    return pod.requests_devices or requests_by_annotations(pod, vocabularies)


def requests_by_annotations(pod: LegacyPod, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Return True if annotations of a pod request devices without a key."""
    return bool(_requested_vocabularies(pod, vocabularies))


def check_conflicts(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each key of a system in a pod with GPUs that belong to another."""
    keys = pod.keys()
    yield from _check_shares(pod, keys)
    yield from _check_containers(pod)
    yield from _check_annotations(pod)
    whole_gpus = GPU_COUNT in keys and takes_whole_gpus(pod)
    if not whole_gpus and keys.isdisjoint(GPU_KEYS):
        return
    for container in pod.containers:
        for key in HAMI_KEYS:
            if key in container.limits:
                yield error(
                    Code.AMBIGUOUS_OWNER,
                    container.limit_path(key),
                    "belongs to HAMi, and the pod's GPUs belong to Koordinator",
                    "use the keys of one of them",
                )


def _check_annotations(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each key of a GPU beside annotations that request one."""
    for name in _requested_vocabularies(pod, _BY_ANNOTATIONS):
        for container in pod.containers:
            for key in sorted(_KEYS_OF_GPUS & container.limits.keys()):
                yield error(
                    Code.AMBIGUOUS_OWNER,
                    container.limit_path(key),
                    f"stands beside annotations that request a share of a GPU by {name}",
                    "request one of them",
                )


def _check_shares(pod: LegacyPod, requested_keys: Collection[str]) -> Iterator[Finding]:
    """Yield an error for each key of a second system that divides GPUs: both count the same cards."""
    present = [name for name, keys in _DIVIDING_KEYS.items() if not keys.isdisjoint(requested_keys)]
    for name in present[1:] if not set(present) <= {HAMI.name, KOORDINATOR.name} else ():
        for container in pod.containers:
            for key in sorted(_DIVIDING_KEYS[name] & container.limits.keys()):
                yield error(
                    Code.AMBIGUOUS_OWNER,
                    container.limit_path(key),
                    f"belongs to {name}, and other keys of the pod divide GPUs by {present[0]}",
                    "use the keys of one of them",
                )


def _check_containers(pod: LegacyPod) -> Iterator[Finding]:
    """Yield an error for each share in a container that also requests GPUs, or MIG devices, by other keys.

    The rest differ by vocabulary, see `_check_shares`. Literally both device plugins would give theirs,
    which nobody means: the container has one environment for the limits of both.
    """
    for container in pod.containers:
        if _SHARE_KEYS.isdisjoint(container.limits):
            continue  # As of most containers.
        requested = sorted(key for key, amount in container.limits.items() if amount > ZERO)
        first = next(filter(nvidia.VOCABULARY.handles, requested), None)
        shares = _SHARE_KEYS
        if first is None and tencent.VCUDA.cores in requested:
            first, shares = tencent.VCUDA.cores, _QGPU_KEYS
        if first is None:
            continue
        for key in filter(shares.__contains__, requested):
            yield error(
                Code.AMBIGUOUS_OWNER,
                container.limit_path(key),
                f"stands beside {printable(first)} in one container, so it would get the GPUs of both",
                "keep one of them",
            )


def divide_keys(
    keys: Iterable[str], candidates: Collection[Vocabulary]
) -> Mapping[str, frozenset[str]]:
    """Return vocabulary name to the keys that it owns; each key has at most one owner.

    A foreign key belongs to a vocabulary that owns another key, so that it is rejected there, unless
    a profile lists it.
    """
    split_keys = _split_keys(keys, candidates)
    return {vocabulary.name: split_keys.get(vocabulary.name, _NO_KEYS) for vocabulary in candidates}


def _split_keys(
    keys: Iterable[str], candidates: Collection[Vocabulary]
) -> Mapping[str, frozenset[str]]:
    """Return the keys of `divide_keys` for vocabularies that own some."""
    split: dict[str, set[str]] = {}
    foreign: list[str] = []
    for key in keys:
        owner = next((vocabulary for vocabulary in candidates if vocabulary.handles(key)), None)
        if key in _FOREIGN and any(key in vocabulary.foreign for vocabulary in candidates):
            foreign.append(key)
        elif owner is not None:
            split.setdefault(owner.name, set()).add(key)
    for key in foreign:
        readers = [vocabulary for vocabulary in candidates if key in vocabulary.foreign]
        handlers = [vocabulary for vocabulary in candidates if vocabulary.handles(key)]
        other_handlers = [
            handler for handler in handlers if not VOCABULARIES[handler.name].handles(key)
        ]
        own = [
            vocabulary
            for vocabulary in readers
            if split.get(vocabulary.name, set()).difference(foreign)
        ]
        owner = (other_handlers or own or handlers or readers)[0]
        split.setdefault(owner.name, set()).add(key)
    return {name: frozenset(own_keys) for name, own_keys in split.items()}


def restrict_keys(pod: LegacyPod, keys: frozenset[str]) -> LegacyPod:
    """Return the pod with only these keys in its containers' limits."""
    if all(container.limits.keys() <= keys for container in pod.containers):
        return pod
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
