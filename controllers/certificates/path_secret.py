"""The Secret with the path keys: read, and written if keys are due."""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from certs.authority import CertificateError
from controllers.certificates.path_keys import (
    PATHS,
    KeyHistory,
    KeyUse,
    Rotation,
    choose_key,
    is_settled,
    keys_of,
    named_keys,
    update_keys,
)
from controllers.certificates.secret_documents import secret_document, secret_patch, stored_keys
from controllers.certificates.settings import Settings
from kube.api.urls import SECRETS
from kube.client.client import Client, PatchType
from kube.errors import NotFound
from kube.logs import get_logger
from process.certificates.certificates import Clock, RegisteredWebhook, Secret
from process.certificates.webhook_paths import (
    KEY_BYTES,
    PATH_KEYS,
    PathKeys,
    decode_path_keys,
    encode_path_keys,
)

log = get_logger()


def create_key() -> str:
    """Create a random key."""
    return secrets.token_hex(KEY_BYTES)


class PathSecret:
    """Keeps the Secret with the path keys, and chooses those that the configurations name.

    Attributes:
        keys: All valid keys, as last read or written.
    """

    def __init__(
        self, client: Client, settings: Settings, now: Clock, clock: Callable[[], float]
    ) -> None:
        """Keep nothing yet.

        Args:
            now: The wall clock, with a time zone.
            clock: Monotonic seconds.
        """
        self._client = client
        self._namespace = settings.namespace
        self._name = settings.certificates.path_secret
        self._grace_s = settings.certificates.path_key_grace_period
        renew_s = settings.certificates.path_key_renew_period
        self._renew_after = timedelta(seconds=renew_s) if renew_s else None
        self._now = now
        self._clock = clock
        self._history = KeyHistory()
        self._use = KeyUse()
        self.keys: PathKeys = ()

    async def reconcile(self, webhooks: Sequence[RegisteredWebhook]) -> None:
        """Write the keys that are due.

        Args:
            webhooks: The webhooks of both configurations.

        Raises:
            KubeError: The Secret cannot be read or written.
            CertificateError: It belongs to somebody else, and lacks a key.
        """
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, self._name, Secret, namespace=self._namespace)
        old_keys, problem = stored_keys(secret, PATH_KEYS, decode_path_keys)
        self._observe(old_keys, webhooks)
        if old_keys and secret is not None and not secret.is_managed:
            self._check_complete(old_keys)
            return
        rotation = Rotation(
            now=self._now(),
            renew_after=self._renew_after,
            # Until the rotation before has ended, the request waits in its annotation.
            requested=secret is not None and secret.is_rotation_requested and is_settled(old_keys),
        )
        keys = update_keys(old_keys, self._use, rotation, create_key)
        if tuple(keys) != tuple(old_keys):
            await self._write(keys, secret, removes_request=rotation.requested)
            self._log_changes(old_keys, keys, requested=rotation.requested, problem=problem)
            self._observe(keys, webhooks)

    def choose(self, path: str, present_key: str) -> str:
        """Return the key that a path should have in the configurations.

        Args:
            present_key: The key that it has; empty where it has none.
        """
        key = choose_key(keys_of(path, self.keys), self._use, present_key)
        self._history.choose(key, self._clock())
        return key.key

    def _observe(self, keys: PathKeys, webhooks: Sequence[RegisteredWebhook]) -> None:
        """Note the existing keys, and those of them in use."""
        keys_in_use = named_keys(webhooks)
        self._use = self._history.observe(keys, keys_in_use, self._clock(), self._grace_s)
        self.keys = keys

    def _check_complete(self, keys: PathKeys) -> None:
        """Refuse keys of somebody else that a path of ours is missing from.

        Raises:
            CertificateError: The rules of the webhooks are not written then.
        """
        missing = [path for path in PATHS if not keys_of(path, keys)]
        if missing:
            raise CertificateError(
                f"the Secret {self._name} is not managed, and has no key of {', '.join(missing)};"
                " add one, or delete the Secret, and one with all keys is created"
            )

    async def _write(self, keys: PathKeys, secret: Secret | None, *, removes_request: bool) -> None:
        values = {PATH_KEYS: encode_path_keys(keys)}
        if secret is None:
            document = secret_document(values, namespace=self._namespace, name=self._name)
            await self._client.create(SECRETS, document, Secret, namespace=self._namespace)
            return
        patch = secret_patch(values, secret, removes_request=removes_request)
        await self._client.patch(
            SECRETS, self._name, patch, PatchType.MERGE, Secret, namespace=self._namespace
        )

    def _log_changes(
        self, old_keys: PathKeys, keys: PathKeys, *, requested: bool, problem: str
    ) -> None:
        if created := [key.path for key in keys if key not in old_keys]:
            log.info(
                "path_keys.rotated",
                created=dict(Counter(created)),
                requested=requested,
                problem=problem,
            )
        if withdrawn := [key.path for key in old_keys if key not in keys]:
            log.info("path_keys.withdrawn", withdrawn=dict(Counter(withdrawn)))
