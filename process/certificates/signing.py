"""Signing keys as a cluster stores them: one Secret, followed by webhook and controllers."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from kube.api.meta import decode
from kube.api.urls import SECRETS
from kube.logs import get_logger
from kube.names import SIGNING_SECRET
from kube.runtime.informers import InformerFactory, Subscription
from process.certificates.certificates import DAY_S, Secret
from process.model.durations import PositiveDuration
from process.model.settings import Name, Positive, Section
from translation.record.signature import Keys, KeyTiming, SigningKeysError, decode_keys

KEYS: Final = "keys.json"
"""The only value of the Secret."""

log = get_logger()


class SigningSettings(Section, frozen=True, kw_only=True):
    """The keys that the webhook signs translated pods with."""

    secret: Name = SIGNING_SECRET
    """The Secret, in `namespace`, that holds the keys. The controllers write it, the webhook reads it."""

    key_renew_period: PositiveDuration = PositiveDuration(90 * DAY_S)
    """The age at which the newest key gets a successor. An annotation `drawbridge.internal/rotate` on the
    Secret asks for one at once."""

    key_publish_period: PositiveDuration = PositiveDuration(60)
    """A new key is known for so long before it signs, so that whoever verifies has it."""

    max_keys: Positive = 8
    """Keys that are kept, the newest; at most 64. An older one is withdrawn a day after the next one
    began to sign, when no further pod with its signature can be created; the log tells. Pods that carry it
    keep their templates and claims, and get no new template: two years later by default, and a pod waits for
    its templates for seconds."""

    def timing(self) -> KeyTiming:
        """Return the durations of a rotation."""
        return KeyTiming(
            renew_after=timedelta(seconds=self.key_renew_period),
            propagation=timedelta(seconds=self.key_publish_period),
            max_keys=self.max_keys,
        )


class SigningKeyCache:
    """The signing keys, kept up to date.

    Keys that were known stay known while the Secret is gone or damaged, so that pods are signed
    meanwhile; the next readable Secret replaces them.

    Attributes:
        keys: Empty before the first.
        changed: Called when other keys are known.
        subscription: The subscription to the Secret.
    """

    def __init__(
        self,
        informers: InformerFactory,
        namespace: str,
        settings: SigningSettings,
    ) -> None:
        """Subscribe to the Secret.

        Args:
            namespace: The Secret's namespace.
        """
        self.keys: Keys = ()
        self.changed: Callable[[], None] = lambda: None
        self._has_keys = asyncio.Event()
        self.subscription: Final[Subscription[Keys]] = informers.subscribe(
            SECRETS,
            project_keys,
            namespace=namespace,
            field_selector=f"metadata.name={settings.secret}",
            handlers=[self._replace],
        )

    async def wait_first(self) -> None:
        """Return once there is a key."""
        await self._has_keys.wait()

    def check(self) -> str:
        """Return the reason nothing can be signed, as a readiness check."""
        return "" if self.keys else "no signing key yet"

    def _replace(self, _key: tuple[str, str], _old: Keys | None, new: Keys | None) -> None:
        if new and new != self.keys:
            self.keys = new
            log.info("signing_keys.replaced", keys=[key.id for key in new])
            self._has_keys.set()
            self.changed()


def project_keys(raw: bytes) -> Keys:
    """Project a Secret to the signing keys in it; none if it has none.

    Raises:
        msgspec.DecodeError: It holds something else.
    """
    value = decode(raw, Secret).values().get(KEYS)
    if not value:
        return ()
    try:
        return decode_keys(value)
    except SigningKeysError as fault:
        raise msgspec.DecodeError(str(fault)) from fault
