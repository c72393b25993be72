"""A stand-in for HAMi's extender: the cards of a node that a pod gets, with its memory and cores. Pure.

Not modelled: renamed resource names, `defaultMemory`, MIG mode, NUMA binding, cordoned cards, a scaling of
memory or cores, and policies other than `binpack` and `spread`. Init containers get no card, as in HAMi before
its pull request 2560.

Sources: Project-HAMi/HAMi v2.10.0, pkg/device/nvidia/device.go (defaults, and the fit of a card),
pkg/scheduler/policy (scores of nodes and of cards).
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kube.api.core import Container, Node, Pod

SCHEDULER: Final = "hami-scheduler"
REGISTER: Final = "hami.io/node-nvidia-register"
HANDSHAKE: Final = "hami.io/node-handshake"
GPU: Final = "nvidia.com/gpu"
MEMORY_MIB: Final = "nvidia.com/gpumem"
MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"
SHARE_KEYS: Final = frozenset({MEMORY_MIB, MEMORY_PERCENT, CORES, "nvidia.com/priority"})
"""Keys that HAMi alone knows: no node offers them, so kube-scheduler leaves their pods to it."""
MANAGED: Final = SHARE_KEYS | {GPU}
"""Keys that kube-scheduler ignores in HAMi's profile, since the extender counts them."""
_USE_TYPE: Final = "nvidia.com/use-gputype"
_NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"
_USE_UUID: Final = "nvidia.com/use-gpuuuid"
_NO_USE_UUID: Final = "nvidia.com/nouse-gpuuuid"
_NODE_POLICY: Final = "hami.io/node-scheduler-policy"
_CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
_BINPACK: Final = "binpack"
_SPREAD: Final = "spread"
_WHOLE: Final = 100
"""Percent of a card."""


class Card(msgspec.Struct, frozen=True, kw_only=True, rename={"uuid": "id", "model": "type"}):
    """A card as HAMi's device plugin registers it; `devmem` in MiB, `devcore` in percent."""

    uuid: str
    model: str = ""
    count: int = 10
    devmem: int = 0
    devcore: int = _WHOLE
    health: bool = True


class CardShare(NamedTuple):
    """A part of a card that a container has: memory in MiB, cores in percent."""

    uuid: str
    memory: int
    cores: int


class _Wanted(NamedTuple):
    """The cards of a container; `memory` in MiB, or None for a percentage of each."""

    cards: int
    memory: int | None
    percent: int
    cores: int


def registered_cards(node: Node) -> tuple[Card, ...]:
    """Return the cards of a node; none without HAMi, or if the register cannot be read."""
    text = (node.metadata.annotations or {}).get(REGISTER, "")
    if not text.strip():
        return ()
    try:
        return tuple(msgspec.convert(json.loads(text), type=list[Card]))
    except (ValueError, msgspec.ValidationError):
        return tuple(_older_register(text))


def exchanged_annotations(
    document: Mapping[str, Any], *, is_left: bool, moment: time.struct_time
) -> dict[str, str]:
    """Return the annotations of a node once its plugin has left or is back; none for a node that is not registered.

    As with HAMi 2.8, a node that had no handshake is marked when its plugin leaves.

    Args:
        document: The Node, as it was with its plugin.
        is_left: The plugin has left the node.
        moment: The time.
    """
    annotations = document["metadata"].get("annotations") or {}
    if REGISTER not in annotations:
        return {}
    now = time.strftime("%Y-%m-%d %H:%M:%S", moment)
    if is_left:
        return {HANDSHAKE: f"Deleted_{now}"}
    asked = {HANDSHAKE: f"Requesting_{now}"} if HANDSHAKE in annotations else {}
    return {**asked, REGISTER: annotations[REGISTER]}


def is_for_hami(pod: Pod) -> bool:
    """Return True if HAMi's scheduler places a pod: it is named, or a container has one of its own keys."""
    return pod.spec.scheduler_name == SCHEDULER or any(
        not SHARE_KEYS.isdisjoint(_amounts(container)) for container in pod.spec.containers or ()
    )


def wants_cards(pod: Pod) -> bool:
    """Return True if a container of a pod asks for a card, or a share of one."""
    return any(_wanted(container) is not None for container in pod.spec.containers or ())


def find_cards(
    pod: Pod, cards: Sequence[Card], in_use: Iterable[CardShare]
) -> tuple[CardShare, ...] | None:
    """Return the shares of a node's cards that a pod gets; None if they do not suffice.

    Args:
        pod: The pod.
        cards: The node's cards.
        in_use: The shares that other pods have on them.
    """
    used = _by_card(cards, in_use)
    shares: list[CardShare] = []
    annotations = pod.metadata.annotations or {}
    is_packed = annotations.get(_CARD_POLICY, _SPREAD) == _BINPACK
    for container in pod.spec.containers or ():
        wanted = _wanted(container)
        if wanted is None:
            continue
        ordered = sorted(
            cards,
            key=lambda card: ((-1 if is_packed else 1) * _load(card, used[card.uuid]), card.uuid),
        )
        own = [
            share
            for card in ordered
            if card.health
            and _is_selected(card, annotations)
            and (share := _fit(card, wanted, used[card.uuid])) is not None
        ][: wanted.cards]
        if len(own) < wanted.cards:
            return None
        for share in own:
            used[share.uuid].append(share)
        shares += own
    return tuple(shares)


def node_score(pod: Pod, cards: Sequence[Card], in_use: Iterable[CardShare]) -> float:
    """Return HAMi's score of a node: the fuller the better, unless the pod says `spread`."""
    used = _by_card(cards, in_use)
    load = sum(_load(card, used[card.uuid]) for card in cards) / max(len(cards), 1)
    policy = (pod.metadata.annotations or {}).get(_NODE_POLICY, _BINPACK)
    return -load if policy == _SPREAD else load


def _older_register(text: str) -> Iterable[Card]:
    """Yield the entries of the older form: `id,count,memory,cores,type,numa,health:`."""
    for entry in text.split(":"):
        fields = entry.split(",")
        if len(fields) >= 7 and all(field.isdecimal() for field in fields[1:4]):
            count, devmem, devcore = map(int, fields[1:4])
            yield Card(
                uuid=fields[0],
                count=count,
                devmem=devmem,
                devcore=devcore,
                model=fields[4],
                health=fields[6] == "true",
            )


def _amounts(container: Container) -> dict[str, Any]:
    """Return a container's resources: its limits, and requests if it has no limit."""
    return {**container.requests, **(container.limits or {})}


def _wanted(container: Container) -> _Wanted | None:
    """Return the cards of a container with HAMi's defaults; None if it asks for none."""
    amounts = {
        name: max(0, amount.round_up())
        for name, amount in _amounts(container).items()
        if name in MANAGED
    }
    cards = amounts.get(GPU, 1 if amounts.keys() & {MEMORY_MIB, MEMORY_PERCENT, CORES} else 0)
    if not cards:
        return None
    is_whole = (
        amounts[MEMORY_PERCENT] == _WHOLE
        if MEMORY_PERCENT in amounts
        else MEMORY_MIB not in amounts
    )
    return _Wanted(
        cards=cards,
        memory=amounts.get(MEMORY_MIB) or None,
        percent=amounts.get(MEMORY_PERCENT) or _WHOLE,
        # A pod with whole cards, and no word about cores, has them alone.
        cores=min(amounts.get(CORES, _WHOLE if is_whole else 0), _WHOLE),
    )


def _fit(card: Card, wanted: _Wanted, used: Sequence[CardShare]) -> CardShare | None:
    """Return the share of a card that a container would have; None if the card has too little left."""
    memory = wanted.memory
    if memory is None:
        memory = card.devmem * wanted.percent // 100
    cores_used = sum(share.cores for share in used)
    has_slot = len(used) < card.count
    has_memory = memory <= card.devmem - sum(share.memory for share in used)
    has_cores = wanted.cores <= card.devcore - cores_used
    is_alone = not (used and wanted.cores == _WHOLE == card.devcore)
    # A card whose cores are all in use takes no share without a bound, either.
    is_open = wanted.cores > 0 or not card.devcore or cores_used < card.devcore
    if has_slot and has_memory and has_cores and is_alone and is_open:
        return CardShare(card.uuid, memory, wanted.cores)
    return None


def _by_card(cards: Sequence[Card], in_use: Iterable[CardShare]) -> dict[str, list[CardShare]]:
    used: dict[str, list[CardShare]] = {card.uuid: [] for card in cards}
    for share in in_use:
        used.setdefault(share.uuid, []).append(share)
    return used


def _load(card: Card, used: Sequence[CardShare]) -> float:
    """Return the load of a card: the parts of its slots, cores and memory in use, added."""
    parts = (
        (len(used), card.count),
        (sum(share.cores for share in used), card.devcore),
        (sum(share.memory for share in used), card.devmem),
    )
    return sum(part / total for part, total in parts if total)


def _is_selected(card: Card, annotations: Mapping[str, str]) -> bool:
    """Return True if a pod's annotations let it use a card."""
    model = card.model.upper()

    def names(key: str) -> list[str]:
        return [name for text in annotations.get(key, "").split(",") if (name := text.strip())]

    def is_wanted(key: str, *, matches: Sequence[bool]) -> bool:
        # Only commas match nothing; a blank value is no constraint.
        return not annotations.get(key, "").strip() or any(matches)

    return (
        is_wanted(_USE_TYPE, matches=[name.upper() in model for name in names(_USE_TYPE)])
        and not any(name.upper() in model for name in names(_NO_USE_TYPE))
        and is_wanted(_USE_UUID, matches=[name == card.uuid for name in names(_USE_UUID)])
        and card.uuid not in names(_NO_USE_UUID)
    )
