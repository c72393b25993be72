"""Keys of the webhook's paths as a cluster stores them: one Secret, followed by the replicas.

The last part of every path of the webhook is a random key. Only who may read the webhook
configurations knows it, so a review from anybody else is answered with 404 before it is read. A key
opens one path. A path has several keys, since API servers and replicas learn of a new one at different
times (controllers/certificates/path_keys.py); the webhook accepts all of them.
"""

import asyncio
import hmac
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from kube.api.meta import decode
from kube.api.urls import SECRETS
from kube.logs import get_logger
from kube.runtime.informers import InformerFactory, Subscription
from process.certificates.certificates import CertificateSettings, Secret

PATH_KEYS: Final = "paths.json"
"""The only value of the Secret."""
KEY_BYTES: Final = 16
MAX_KEYS: Final = 64
"""The keys that are read of a Secret."""
KEY_PATTERN: Final = "[0-9a-f]{32}"
"""A key, as a regular expression of RE2 and of Python."""

_KEYED_PATH: Final = re.compile(f"(.*)/({KEY_PATTERN})")

log = get_logger()


class PathKeysError(ValueError):
    """Text that does not hold path keys; the message has the reason."""


class PathKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the webhook's paths.

    Attributes:
        path: The fixed part of the path that it opens, such as `/mutate`.
        created: The time of creation, with a time zone.
        key: 32 hexadecimal digits.
    """

    path: str
    created: datetime
    key: str

    @property
    def keyed_path(self) -> str:
        """Return the path with its key."""
        return f"{self.path}/{self.key}"

    def __repr__(self) -> str:
        """Return everything but the key; that must not reach a log."""
        return f"PathKey(path={self.path!r}, created={self.created.isoformat()})"


PathKeys = Sequence[PathKey]
"""The keys of each path from oldest to newest."""


def encode_path_keys(keys: PathKeys) -> bytes:
    """Return the text that a Secret stores."""
    return msgspec.json.encode(keys)


def decode_path_keys(text: bytes) -> PathKeys:
    """Return the keys that a Secret stores.

    Raises:
        PathKeysError: It stores something else.
    """
    try:
        keys = msgspec.json.decode(text, type=tuple[PathKey, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise PathKeysError(f"not path keys: {fault}") from fault
    if len(keys) > MAX_KEYS:
        raise PathKeysError(f"{len(keys)} path keys, and at most {MAX_KEYS} are read")
    for key in keys:
        if not re.fullmatch(KEY_PATTERN, key.key):
            raise PathKeysError("a path key is not 32 hexadecimal digits")
        if key.created.tzinfo is None:
            raise PathKeysError("a path key was created at a time without time zone")
    return keys


def split_path(path: str) -> tuple[str, str]:
    """Return the part before the key of a path, and the key; empty if there is none.

    >>> split_path("/mutate/0123456789abcdef0123456789abcdef")
    ('/mutate', '0123456789abcdef0123456789abcdef')
    >>> split_path("/mutate")
    ('/mutate', '')
    """
    match = _KEYED_PATH.fullmatch(path)
    return (match[1], match[2]) if match else (path, "")


def find_path(path: str, keys: PathKeys) -> str | None:
    """Return the path without its key; None if the key is not one of that path.

    Every key is compared, each in constant time, so that the time of an answer tells nothing.

    Args:
        path: Untrusted text.
    """
    requested_path = path.encode(errors="replace")
    matches = [
        key.path for key in keys if hmac.compare_digest(requested_path, key.keyed_path.encode())
    ]
    return matches[0] if matches else None


class PathKeyCache:
    """The path keys, kept up to date.

    Keys that were known stay known while the Secret is gone or damaged, so that reviews are answered
    meanwhile; the next readable Secret replaces them.

    Attributes:
        keys: Empty before the first.
        subscription: The subscription to the Secret.
    """

    def __init__(
        self, informers: InformerFactory, namespace: str, settings: CertificateSettings
    ) -> None:
        """Subscribe to the Secret.

        Args:
            namespace: The Secret's namespace.
        """
        self.keys: PathKeys = ()
        self._has_keys = asyncio.Event()
        self.subscription: Final[Subscription[PathKeys]] = informers.subscribe(
            SECRETS,
            project_path_keys,
            namespace=namespace,
            field_selector=f"metadata.name={settings.path_secret}",
            handlers=[self._replace],
        )

    async def wait_first(self) -> None:
        """Return once there is a key."""
        await self._has_keys.wait()

    def check(self) -> str:
        """Return the reason no path is known, as a readiness check."""
        return "" if self.keys else "no path key yet"

    def find(self, path: str) -> str | None:
        """Return a path without its key; None if the key is not one of that path."""
        return find_path(path, self.keys)

    def _replace(self, _key: tuple[str, str], _old: PathKeys | None, new: PathKeys | None) -> None:
        if new and new != self.keys:
            self.keys = new
            log.info("path_keys.replaced", paths=dict(Counter(key.path for key in new)))
            self._has_keys.set()


def project_path_keys(raw: bytes) -> PathKeys:
    """Project a Secret to the path keys in it; none if it has none.

    Raises:
        msgspec.DecodeError: It holds something else.
    """
    value = decode(raw, Secret).values().get(PATH_KEYS)
    if not value:
        return ()
    try:
        return decode_path_keys(value)
    except PathKeysError as fault:
        raise msgspec.DecodeError(str(fault)) from fault
