"""The init containers that reuse the devices of another container.

Kubernetes accounts for the larger of the init containers and the sum of the app containers, since
init containers run first. Claims are held for the pod's lifetime, so without reuse the pod would
need the sum of all. An init container that needs no more than another container reuses its request;
sidecars run beside the app containers, so they neither reuse devices nor have theirs reused. Where
the operator chooses so, an app container's request is raised to what an init container needs, so that
it can be reused, too: then the pod reserves as much as in the legacy system.

Source: Project-HAMi/HAMi 4707fb0, pkg/scheduler/score.go, and docs/develop/initContainer-design.md,
which reserve the larger of both; KEP-753 for sidecars; k8s.io/component-helpers resource, PodRequests, for the accounting.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from kube.api.resource import MAX_RESULTS
from kube.quantity import ZERO, Quantity
from translation.model.intents import DeviceKind, Intent, LegacyContainer

_covered_fields: Final = attrgetter("kind", "replica", "through_mps", "filter")
"""The fields in which the intent of an init container equals the one that it reuses."""
_merged_fields: Final = attrgetter(
    "kind", "replica", "same_numa", "within", "every", "pool", "through_mps", "filter"
)
"""The fields in which two intents are equal that can be requested at once."""


class MergedIntents(msgspec.Struct, frozen=True, kw_only=True):
    """The intents of a pod after its init containers and app containers use devices together.

    Attributes:
        reused_indexes: Index of each init container's intent in a card group to that of the intent
            that has its devices, which is itself for devices that no app container uses.
    """

    intents: tuple[Intent, ...]
    reused_indexes: Mapping[int, int] = {}
    findings: tuple[Finding, ...] = ()


def reused_intents(
    intents: Sequence[Intent],
    containers: Mapping[str, LegacyContainer],
    decided_indexes: Mapping[int, int],
) -> tuple[Mapping[int, int], tuple[Finding, ...]]:
    """Return index of an init container's intent to the index of the intent that it reuses.

    Args:
        intents: The intents in the order of the pod's containers.
        containers: The pod's containers by name.
        decided_indexes: The indexes that `merge_init_intents` has decided.
    """
    findings: list[Finding] = []
    init, reusable = _init_and_app_indexes(intents, containers)
    apps = tuple(intents[index] for index in reusable)
    reused_indexes: dict[int, int] = {}
    for index in init:
        intent = intents[index]
        match = decided_indexes.get(index)
        if match is None:
            in_use = {
                decided_indexes.get(other, reused_indexes.get(other, other))
                for other in init
                if intents[other].container == intent.container
            }
            match = next(
                (
                    other
                    for other in reusable
                    if other not in in_use and _covers(intents[other], intent)
                ),
                None,
            )
        if match is None or match == index:
            reusable.append(index)
            findings.append(_held_finding(intent, apps))
            continue
        reused_indexes[index] = match
        if _size(intents[match]) != _size(intent):
            findings.append(_reuse_finding(intent, intents[match]))
    return reused_indexes, tuple(findings)


def check_sidecars(
    intents: Sequence[Intent], containers: Sequence[LegacyContainer]
) -> Iterator[Finding]:
    """Yield a finding for each sidecar that HAMi counts as an init container.

    Source:
        Project-HAMi/HAMi 4707fb0, pkg/scheduler/score.go, allocateInitContainers, which reads no
        restartPolicy: app containers may get the memory that a sidecar still uses.
    """
    by_name = {container.name: container for container in containers}
    apps = [intent for intent in intents if not by_name[intent.container].init]
    for intent in intents:
        if by_name[intent.container].sidecar and apps:
            yield info(
                Code.SIDECAR_ADDED,
                intent.path("count"),
                "runs beside the app containers, so the pod holds the devices of both; HAMi counts a "
                "sidecar as an init container and holds the larger: the pod may fit on no node",
                "request less, so that the sum fits",
            )


def merge_init_intents(
    intents: Sequence[Intent],
    containers: Mapping[str, LegacyContainer],
    *,
    limits_are_of_claim: bool,
) -> MergedIntents:
    """Return the intents, with those of app containers raised to the needs of init containers.

    An init container's intent for more devices than the app container's becomes two: one that reuses
    the app container's devices, and one for the others. One that needs more of fewer shares raises as
    many of them only: the app container's intent becomes one per size. Shares of several intents are
    a card group.

    Args:
        intents: The intents in the order of the pod's containers.
        containers: The pod's containers by name.
        limits_are_of_claim: A container may get the limits of any device of a claim that it uses.
    """
    findings: list[Finding] = []
    init, apps = _init_and_app_indexes(intents, containers)
    # A group must not be divided among claims, which happens beyond the devices of one.
    may_split = sum(intent.count for intent in intents) <= MAX_RESULTS
    parts: dict[int, list[Intent]] = {index: [intent] for index, intent in enumerate(intents)}
    groups: dict[int, _CardGroup] = {app: _CardGroup(cards=(intents[app],)) for app in apps}
    matches: dict[int, int] = {}
    in_use: dict[str, set[int]] = {}
    for index in init:
        intent = intents[index]
        used_apps = in_use.setdefault(intent.container, set())
        free = [app for app in apps if app not in used_apps]
        match = next(
            (app for app in free if any(_covers(card, intent) for card in groups[app].cards)), None
        )
        is_covered = match is not None
        if not is_covered:
            mergeable = (
                app
                for app in free
                if _merges(groups[app], intent)
                and (
                    groups[app].count >= intent.count
                    or _are_whole(groups[app], intent)
                    or (may_split and (_covers(intent, intents[app]) or not limits_are_of_claim))
                )
            )
            match = max(mergeable, key=lambda app: _size(groups[app].cards[0]), default=None)
        if match is None:
            continue
        used_apps.add(match)
        group = groups[match]
        further = intent.count - group.count
        if further > 0 and _are_whole(group, intent):
            parts[index] = [_with_count(intent, group.count), _with_count(intent, further)]
            continue
        matches[index] = match
        if is_covered:
            continue
        if further > 0:
            group = _CardGroup(
                cards=(*group.cards, _with_count(intent, further)), extended_by=index
            )
        raised_cards = _raised_parts(group.cards, intent, may_split=may_split)
        groups[match] = msgspec.structs.replace(group, cards=tuple(raised_cards))
        raised_containers = {card.container for card in raised_cards if card not in group.cards}
        findings += [
            _raised_finding(intents[owner], intent)
            for owner in (match, group.extended_by)
            if owner is not None and intents[owner].container in raised_containers
        ]
    return _grouped(parts, groups, matches, tuple(findings))


class _CardGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that an app container's intent has, and further ones that init containers use.

    Attributes:
        cards: One intent per size, first those of the app container. Each init container uses the
            first devices.
        extended_by: The index of the init container's intent with the last cards; None without any.
    """

    cards: tuple[Intent, ...]
    extended_by: int | None = None

    @property
    def count(self) -> int:
        """Return the number of devices."""
        return sum(card.count for card in self.cards)


def _grouped(
    parts: dict[int, list[Intent]],
    groups: Mapping[int, _CardGroup],
    matches: Mapping[int, int],
    findings: tuple[Finding, ...],
) -> MergedIntents:
    """Number the groups with several intents, and divide the intents that use their devices.

    Args:
        parts: Index of a container's intent to what it becomes.
        groups: Index of an app container's intent to its group.
        matches: Index of an init container's intent to that of the intent that it reuses.
    """
    for app, group in groups.items():
        parts[app] = list(group.cards)
    matches = {index: app for index, app in matches.items() if len(groups[app].cards) > 1}
    for app in set(matches.values()):
        group = groups[app]
        cards = [msgspec.structs.replace(card, card_group=app) for card in group.cards]
        parts[app] = [card for card in cards if card.container == cards[0].container]
        for index in matches:
            if matches[index] == app:
                parts[index] = _divided(parts[index][0], cards)
                if index == group.extended_by:
                    parts[index][len(parts[app]) :] = cards[len(parts[app]) :]
    first_indexes: dict[int, int] = {}
    merged: list[Intent] = []
    for index, intents in parts.items():
        first_indexes[index] = len(merged)
        merged += intents
    reused_indexes: dict[int, int] = {}
    for index, app in matches.items():
        for number in range(len(parts[index])):
            owner = app if number < len(parts[app]) else groups[app].extended_by
            assert owner is not None
            reused_indexes[first_indexes[index] + number] = first_indexes[owner] + number
    return MergedIntents(intents=tuple(merged), reused_indexes=reused_indexes, findings=findings)


def _raised_parts(apps: Sequence[Intent], init: Intent, *, may_split: bool) -> list[Intent]:
    """Return an app container's intents, with the first devices raised for an init container.

    Every init container gets the first devices, so each device has at least the amounts of the next.

    Args:
        apps: The intents of one container for at least as many devices.
        may_split: An intent may become two, of which one is raised.
    """
    parts: list[Intent] = []
    missing = init.count
    for app in apps:
        count = min(missing, app.count)
        missing -= count
        if not count or _covers(app, _with_count(init, count)):
            parts.append(app)
        elif count == app.count or not may_split:
            parts.append(_raised_intent(app, init))
        else:
            parts.append(_raised_intent(_with_count(app, count), init))
            parts.append(_with_count(app, app.count - count))
    return parts


def _divided(init: Intent, cards: Sequence[Intent]) -> list[Intent]:
    """Divide an init container's intent into one for each intent with devices it uses."""
    parts: list[Intent] = []
    missing = init.count
    for card in cards:
        count = min(missing, card.count)
        missing -= count
        if count:
            parts.append(msgspec.structs.replace(init, count=count, card_group=card.card_group))
    return parts


def _init_and_app_indexes(
    intents: Sequence[Intent], containers: Mapping[str, LegacyContainer]
) -> tuple[list[int], list[int]]:
    """Return the indexes of the intents of init containers, and of those of app containers.

    The largest intent of an init container is first, so that smaller init containers can reuse its
    devices. Those of sidecars are neither.
    """
    init: list[int] = []
    apps: list[int] = []
    for index, intent in enumerate(intents):
        container = containers[intent.container]
        if not container.sidecar:
            (init if container.init else apps).append(index)
    init.sort(key=lambda index: _size(intents[index]), reverse=True)
    return init, apps


def _with_count(intent: Intent, count: int) -> Intent:
    return msgspec.structs.replace(intent, count=count)


def _merges(group: _CardGroup, init: Intent) -> bool:
    """Return True if devices for both containers can be requested at once.

    Args:
        group: The devices of an app container, whose intents differ in their amounts only.
        init: The intent of an init container.
    """
    app = group.cards[0]
    if app.through_mps or _merged_fields(app) != _merged_fields(init):
        return False
    if init.count > group.count and _are_whole(group, init):
        # No claim relates the further devices to the others.
        return _covers_memory(app, init) and not (init.same_numa or init.within)
    return app.kind is DeviceKind.GPU and all(_are_comparable(card, init) for card in group.cards)


def _are_whole(group: _CardGroup, init: Intent) -> bool:
    """Return True if both containers request whole devices."""
    return init.exclusive and group.cards[0].exclusive


def _are_comparable(app: Intent, init: Intent) -> bool:
    """Return True if the memory of both on a device can be compared."""
    if app.takes_all_memory or init.takes_all_memory:
        return True
    return (app.memory_percent is None) is (init.memory_percent is None)


def _raised_intent(app: Intent, init: Intent) -> Intent:
    """Return the app container's intent with the larger amounts of both."""
    exclusive = app.exclusive or init.exclusive
    takes_all = exclusive or app.takes_all_memory or init.takes_all_memory
    memories = [intent.memory for intent in (app, init) if intent.memory is not None]
    percents = [
        intent.memory_percent for intent in (app, init) if intent.memory_percent is not None
    ]
    return msgspec.structs.replace(
        app,
        exclusive=exclusive,
        memory=None if takes_all else max(memories, default=None),
        memory_percent=None if takes_all else max(percents, default=None),
        cores_percent=max(_cores(app), _cores(init)),
        paths={**app.paths, **_raised_paths(app, init)},
    )


def _raised_paths(app: Intent, init: Intent) -> Mapping[str, FieldPath]:
    """Return aspect to the path of its key, for the amounts that an init container raises."""
    # The last amount is that of cores.
    *app_memory, _ = _amounts(app)
    *init_memory, _ = _amounts(init)
    paths: dict[str, FieldPath] = {}
    if init_memory > app_memory:
        paths["memory"] = init.path("memory")
        if "amount" in init.paths:
            paths["amount"] = init.path("amount")
    if _cores(init) > _cores(app):
        paths["cores"] = init.path("cores")
    return paths


def _raised_finding(app: Intent, init: Intent) -> Finding:
    return warning(
        Code.INIT_RAISES_LIMIT,
        app.path("count"),
        f"init container {init.container} needs more: the pod reserves the larger amounts once, and "
        f"container {app.container} may use them, too",
        "to keep their limits apart, set translation.initContainers to separate: the pod reserves "
        "the sum then",
    )


def _size(intent: Intent) -> tuple[int, tuple[bool, Quantity, int, int]]:
    return intent.count, _amounts(intent)


def _amounts(intent: Intent) -> tuple[bool, Quantity, int, int]:
    return (
        intent.exclusive or intent.takes_all_memory,
        intent.memory or ZERO,
        intent.memory_percent or 0,
        _cores(intent),
    )


def _cores(intent: Intent) -> int:
    """Return the percent of each device's compute, as comparisons count it."""
    if intent.cores_percent is None and intent.kind in (DeviceKind.NPU, DeviceKind.HCU):
        # Their drivers give all of it by default, and other kinds have no share.
        return 100
    return intent.cores_percent or 0


def _covers(larger: Intent, smaller: Intent) -> bool:
    """Return True if the devices of one intent are enough for another."""
    if _covered_fields(larger) != _covered_fields(smaller):
        return False
    if larger.count < smaller.count or (smaller.same_numa and not larger.same_numa):
        return False
    if larger.kind is DeviceKind.GPU and larger.exclusive:
        return True
    if larger.exclusive is not smaller.exclusive:
        return False
    return _covers_memory(larger, smaller) and _cores(larger) >= _cores(smaller)


def _covers_memory(larger: Intent, smaller: Intent) -> bool:
    if larger.memory is None and larger.memory_percent is None:
        # All memory of a share, but of a MIG device only what its profile has.
        return larger.kind is not DeviceKind.MIG or smaller.memory is None
    if larger.memory is not None and smaller.memory is not None:
        return larger.memory >= smaller.memory
    return (larger.memory_percent or 0) >= (smaller.memory_percent or 101)


def _held_finding(intent: Intent, apps: Sequence[Intent]) -> Finding:
    """Return the finding on an init container that gets devices of its own.

    Args:
        apps: The intents of app containers.
    """
    group = intent.card_group
    if group is not None:
        app = next(app for app in apps if app.card_group == group)
        return warning(
            Code.HELD_FOR_POD_LIFETIME,
            intent.path("count"),
            f"requests more devices than container {app.container}, and the pod holds the further ones "
            "for its whole lifetime, too",
            f"request as many in container {app.container}, or fewer in this one",
        )
    incomparable = next((app for app in apps if _differs_in_unit(app, intent)), None)
    if incomparable is None:
        reason = "no app container requests as much"
        fix = "request as much in an app container"
    else:
        reason = (
            f"its memory and that of container {incomparable.container} are an amount and a percentage, so it "
            "is not known which is larger"
        )
        fix = "request the memory of both as amounts, or of both as percentages"
    return warning(
        Code.HELD_FOR_POD_LIFETIME,
        intent.path("count"),
        f"{reason}, and the pod holds the init container's devices for its whole lifetime, beside those of "
        "its app containers: it may fit on no node",
        fix,
    )


def _differs_in_unit(app: Intent, init: Intent) -> bool:
    """Return True if both request memory of the same devices, one as an amount and one as a percentage."""
    is_same = app.kind is init.kind and app.filter == init.filter and app.count >= init.count
    takes_part = not (app.takes_all_memory or init.takes_all_memory)
    return is_same and takes_part and not _are_comparable(app, init)


def _reuse_finding(intent: Intent, reused_intent: Intent) -> Finding:
    return warning(
        Code.INIT_SHARES_DEVICE,
        intent.path("count"),
        f"shares the device of container {reused_intent.container} and sees that container's amounts",
    )
