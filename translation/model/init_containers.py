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

import msgspec

from findings.finding import Code, Finding, info, warning
from kube.api.resource import MAX_RESULTS
from kube.quantity import ZERO, Quantity
from translation.model.intents import DeviceKind, Intent, LegacyContainer


def reused_intents(
    intents: Sequence[Intent], containers: Mapping[str, LegacyContainer]
) -> tuple[Mapping[int, int], tuple[Finding, ...]]:
    """Return index of an init container's intent to the index of the intent that it reuses.

    Args:
        intents: The intents in the order of the pod's containers.
        containers: The pod's containers by name.
    """
    findings: list[Finding] = []
    init, reusable = _init_and_app_indexes(intents, containers)
    reused_indexes: dict[int, int] = {}
    for index in init:
        intent = intents[index]
        in_use = {
            reused_indexes.get(other, other)
            for other in init
            if intents[other].container == intent.container
        }
        match = next(
            (
                other
                for other in reusable
                if other not in in_use
                and intent.card_group in (None, intents[other].card_group)
                and _covers(intents[other], intent)
            ),
            None,
        )
        if match is None:
            reusable.append(index)
            apps = [
                intents[other]
                for other in reusable[:-1]
                if not containers[intents[other].container].init
            ]
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
    intents: Sequence[Intent], containers: Mapping[str, LegacyContainer]
) -> tuple[Sequence[Intent], tuple[Finding, ...]]:
    """Return the intents, with those of app containers raised to the needs of init containers.

    An init container's intent for more whole devices than the app container's becomes two: one that
    reuses the app container's devices, and one for the others. One that needs more of fewer shares
    raises as many of them only: the app container's intent becomes one per size, in a card group.

    Args:
        intents: The intents in the order of the pod's containers.
        containers: The pod's containers by name.
    """
    findings: list[Finding] = []
    init, apps = _init_and_app_indexes(intents, containers)
    # A group must not be divided among claims, which happens beyond the devices of one.
    may_split = sum(intent.count for intent in intents) <= MAX_RESULTS
    parts: dict[int, list[Intent]] = {index: [intent] for index, intent in enumerate(intents)}
    matches: dict[int, int] = {}
    in_use: dict[str, set[int]] = {}
    for index in init:
        intent = intents[index]
        used_apps = in_use.setdefault(intent.container, set())
        free = [app for app in apps if app not in used_apps]
        covering = [app for app in free if any(_covers(part, intent) for part in parts[app])]
        mergeable = [app for app in free if _merges(parts[app], intent)]
        match = next(iter(covering), None)
        if match is None:
            match = max(mergeable, key=lambda app: _size(parts[app][0]), default=None)
        if match is None:
            continue
        used_apps.add(match)
        app = intents[match]
        if intent.count > app.count:
            reused, further = app.count, intent.count - app.count
            parts[index] = [_with_count(intent, reused), _with_count(intent, further)]
            continue
        matches[index] = match
        if match not in covering:
            raised_parts = _raised_parts(parts[match], intent, may_split=may_split)
            if raised_parts != parts[match]:
                parts[match] = raised_parts
                findings.append(_raised_finding(app, intent))
    _group_parts(parts, matches)
    return [part for index in parts for part in parts[index]], tuple(findings)


def _group_parts(parts: dict[int, list[Intent]], matches: Mapping[int, int]) -> None:
    """Number the groups of app containers with several intents, and divide the intents that reuse them.

    Args:
        parts: Index of a container's intent to what it becomes.
        matches: Index of an init container's intent to that of the intent that it reuses.
    """
    for index, match in matches.items():
        if len(parts[match]) > 1:
            parts[index] = _divided(parts[index][0], parts[match], match)
    for match in matches.values():
        if len(parts[match]) > 1:
            parts[match] = [
                msgspec.structs.replace(part, card_group=match) for part in parts[match]
            ]


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


def _divided(init: Intent, apps: Sequence[Intent], group: int) -> list[Intent]:
    """Divide an init container's intent into one for each app intent with devices it reuses."""
    parts: list[Intent] = []
    missing = init.count
    for app in apps:
        count = min(missing, app.count)
        missing -= count
        if count:
            parts.append(msgspec.structs.replace(init, count=count, card_group=group))
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


def _merges(apps: Sequence[Intent], init: Intent) -> bool:
    """Return True if devices for both containers can be requested at once.

    Args:
        apps: The intents of one app container, which differ in their amounts only.
        init: The intent of an init container.
    """
    app = apps[0]
    same = ("kind", "filter", "replica", "through_mps", "same_numa", "within", "every", "pool")
    if any(getattr(app, field) != getattr(init, field) for field in same) or app.through_mps:
        return False
    if init.count > sum(part.count for part in apps):
        # Constraints and distinct devices of a share span one request only.
        is_whole = init.exclusive and app.exclusive and _covers_memory(app, init)
        return is_whole and not (init.same_numa or init.within)
    return app.kind is DeviceKind.GPU and all(_are_comparable(part, init) for part in apps)


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
        cores_percent=max(app.cores_percent or 0, init.cores_percent or 0),
    )


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
        intent.cores_percent or 0,
    )


def _covers(larger: Intent, smaller: Intent) -> bool:
    """Return True if the devices of one intent are enough for another."""
    same = ("kind", "filter", "replica", "through_mps")
    if any(getattr(larger, field) != getattr(smaller, field) for field in same):
        return False
    if larger.count < smaller.count or (smaller.same_numa and not larger.same_numa):
        return False
    if larger.kind is DeviceKind.GPU and larger.exclusive:
        return True
    if larger.exclusive is not smaller.exclusive:
        return False
    return _covers_memory(larger, smaller) and (
        (larger.cores_percent or 0) >= (smaller.cores_percent or 0)
    )


def _covers_memory(larger: Intent, smaller: Intent) -> bool:
    if larger.memory is None and larger.memory_percent is None:
        # All memory of a share, but of a MIG device only what its profile has.
        return larger.kind is DeviceKind.GPU or smaller.memory is None
    if larger.memory is not None and smaller.memory is not None:
        return larger.memory >= smaller.memory
    return (larger.memory_percent or 0) >= (smaller.memory_percent or 101)


def _held_finding(intent: Intent, apps: Sequence[Intent]) -> Finding:
    """Return the finding on an init container that gets devices of its own.

    Args:
        apps: The intents of app containers.
    """
    incomparable = next((app for app in apps if _differs_in_unit(app, intent)), None)
    if incomparable is None:
        reason, fix = "no app container requests as much", ""
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
