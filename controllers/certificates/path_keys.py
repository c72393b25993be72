"""The path keys: created, named in the webhook configurations, and withdrawn so that no call fails. Pure.

Replicas of the webhook and API servers learn of a change at different times, and none confirms it. So
each path has at least two keys, and the one that the configurations change to was in the Secret long
before:

    create      there is none: create the present key and its successor
    rotate      the newest key is older than a period: its successor is created, so that the
                configurations change to what was the successor
    on demand   a new key and its successor are created: the configurations change to the old successor
                at once, and to the new key once every replica has had time to read it
    withdraw    a key before the present one was called by no configuration for a grace period

A rotation begins when the one before has ended, so a path has four keys at most, and those that
configurations name if the Secret was lost.

A decision depends on the stored keys, the configurations and the time, never on the previous one. A
process may therefore stop between any two steps.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final

import msgspec

from admission.webhook_configuration import WEBHOOK_PATHS
from controllers.certificates.patches import same_name
from kube.jsonpatch import pointer
from process.certificates.certificates import RegisteredWebhook
from process.certificates.webhook_paths import PathKey, PathKeys, split_path

PATHS: Final = tuple(dict.fromkeys(WEBHOOK_PATHS.values()))
"""The fixed parts of the paths that have keys."""
SETTLED: Final = 2
"""The number of a path's keys while it is not rotated: the present one and its successor."""


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts about the use of keys.

    Attributes:
        named: Path to the keys that the webhook configurations name.
        published: The keys that every replica has had time to read.
        abandoned: The keys that no API server calls any more.
    """

    named: Mapping[str, Sequence[str]] = {}
    published: Collection[PathKey] = frozenset()
    abandoned: Collection[PathKey] = frozenset()


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """The time and the reasons to rotate.

    Attributes:
        now: The time, with a time zone.
        renew_after: The age at which the newest key of a path gets a successor; None for never.
        requested: True if an administrator has requested new keys, and no path is being rotated.
    """

    now: datetime
    renew_after: timedelta | None
    requested: bool = False


class KeyHistory:
    """The beginning of each key in the Secret, and the time of its last use.

    It begins with its process, so a new leader waits again. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._first_seen_s: Mapping[PathKey, float] = {}
        self._last_used_s: dict[PathKey, float] = {}

    def observe(
        self,
        keys: PathKeys,
        keys_in_use: Mapping[str, Sequence[str]],
        now_s: float,
        grace_s: float,
    ) -> KeyUse:
        """Note the keys of the Secret and of the configurations; return their use by now.

        Args:
            keys_in_use: Path to the keys that the configurations name.
            grace_s: The time within which every replica reads the Secret, and every API server a
                configuration.
        """
        used_keys = {key for key in keys if key.key in keys_in_use.get(key.path, ())}
        self._first_seen_s = {key: self._first_seen_s.get(key, now_s) for key in keys}
        self._last_used_s = {
            key: now_s if key in used_keys else self._last_used_s.get(key, now_s) for key in keys
        }
        published_keys, abandoned_keys = (
            frozenset(key for key, time_s in times_s.items() if now_s - time_s >= grace_s)
            for times_s in (self._first_seen_s, self._last_used_s)
        )
        return KeyUse(named=keys_in_use, published=published_keys, abandoned=abandoned_keys)

    def choose(self, key: PathKey, now_s: float) -> None:
        """Note that a key is written into a configuration; the write may succeed although it seems not to."""
        self._last_used_s[key] = now_s


def named_keys(webhooks: Iterable[RegisteredWebhook]) -> Mapping[str, Sequence[str]]:
    """Return path to the keys that our webhooks name, in their order."""
    keys_by_path: dict[str, list[str]] = {}
    for webhook in webhooks:
        path = WEBHOOK_PATHS.get(webhook.name)
        _, key = split_path(webhook.path)
        if path is not None and key and key not in keys_by_path.setdefault(path, []):
            keys_by_path[path].append(key)
    return keys_by_path


def keys_of(path: str, keys: PathKeys) -> PathKeys:
    """Return the keys of a path, from oldest to newest."""
    return tuple(key for key in keys if key.path == path)


def is_settled(keys: PathKeys) -> bool:
    """Return True if no path is being rotated."""
    return all(len(keys_of(path, keys)) <= SETTLED for path in PATHS)


def update_keys(
    old_keys: PathKeys, use: KeyUse, rotation: Rotation, create: Callable[[], str]
) -> PathKeys:
    """Return the keys that there should be; those of paths that are not ours stay.

    Args:
        old_keys: The keys in the Secret; none where it was lost.
        create: Returns a new random key.
    """
    foreign_keys = (key for key in old_keys if key.path not in PATHS)
    own_keys = (_update_path(path, old_keys, use, rotation, create) for path in PATHS)
    return (*foreign_keys, *chain.from_iterable(own_keys))


def _update_path(
    path: str, old_keys: PathKeys, use: KeyUse, rotation: Rotation, create: Callable[[], str]
) -> PathKeys:
    keys = _withdraw(keys_of(path, old_keys), use)
    if not keys:
        # Where the Secret was lost, the configurations have what is left of it.
        names = use.named.get(path, ())
        keys = tuple(PathKey(path=path, created=rotation.now, key=name) for name in names)
    count = _missing_count(keys, rotation)
    return (*keys, *(PathKey(path=path, created=rotation.now, key=create()) for _ in range(count)))


def _withdraw(keys: PathKeys, use: KeyUse) -> PathKeys:
    """Return the keys of a path without those that have had their time."""
    present = _newest_published(keys, use)
    superseded = keys[: keys.index(present)] if present is not None else ()
    return tuple(key for key in keys if key not in superseded or key not in use.abandoned)


def _missing_count(keys: PathKeys, rotation: Rotation) -> int:
    """Return the number of keys to create for a path."""
    if len(keys) < SETTLED:
        return SETTLED - len(keys)
    if rotation.requested:
        return SETTLED
    # A key of the future, made by a clock that was wrong, does not put off the next one.
    age = min(abs(rotation.now - key.created) for key in keys)
    is_due = rotation.renew_after is not None and age >= rotation.renew_after
    return 1 if is_due and len(keys) <= SETTLED else 0


def choose_key(keys: PathKeys, use: KeyUse, present_key: str) -> PathKey:
    """Return the key that the path of a webhook should have.

    The newest before the successor that every replica knows. Where there is none, the present one, or
    the oldest where that is not valid.

    Args:
        keys: All valid keys of the path; at least one.
        present_key: The key in the present path; empty where there is none.
    """
    newest = _newest_published(keys, use)
    if newest is not None:
        return newest
    return next((key for key in keys if key.key == present_key), keys[0])


def _newest_published(keys: PathKeys, use: KeyUse) -> PathKey | None:
    """Return the newest key but the successor that every replica has had time to read."""
    candidates = [key for key in keys[:-1] or keys if key in use.published]
    return candidates[-1] if candidates else None


# --- the configurations ---------------------------------------------------------------------------


def path_patch(
    webhooks: Sequence[RegisteredWebhook], choose: Callable[[str, str], str]
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch that gives the paths of our webhooks their keys.

    Args:
        choose: Returns the key for a path, which has the given key now, or none.
    """
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        operations += _path_operations(index, webhook, choose)
    return operations


def _path_operations(
    index: int, webhook: RegisteredWebhook, choose: Callable[[str, str], str]
) -> Iterator[Mapping[str, Any]]:
    path_without_key, config = WEBHOOK_PATHS.get(webhook.name), webhook.client_config
    if path_without_key is None:
        return
    present = config.url if config.service is None else config.service.path
    before_key, present_key = split_path(present)
    if config.service is not None:
        before_key, place = (
            path_without_key,
            pointer("webhooks", index, "clientConfig", "service", "path"),
        )
    elif before_key.endswith(
        path_without_key
    ):  # Whatever else a proxy in front of the webhook needs stays.
        place = pointer("webhooks", index, "clientConfig", "url")
    else:
        return
    expected_path = f"{before_key}/{choose(path_without_key, present_key)}"
    if present != expected_path:
        yield same_name(index, webhook)
        if present:  # A leader that was stopped for long must not name a key that was withdrawn.
            yield {"op": "test", "path": place, "value": present}
        yield {"op": "add", "path": place, "value": expected_path}
