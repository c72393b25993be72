"""The Secret with the path keys: read, and written where keys are due."""

import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress

from controllers.certificates.path_keys import update_keys
from controllers.certificates.secret_documents import secret_document, secret_patch, stored_keys
from controllers.certificates.settings import Settings
from kube.api.urls import SECRETS
from kube.client.client import Client, PatchType
from kube.errors import NotFound
from kube.logs import get_logger
from process.certificates import Clock, Secret
from process.webhook_paths import (
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
    """Keeps the Secret with the path keys."""

    def __init__(self, client: Client, settings: Settings, now: Clock) -> None:
        """Keep nothing yet.

        Args:
            now: The wall clock, with a time zone.
        """
        self._client = client
        self._namespace = settings.namespace
        self._name = settings.certificates.path_secret
        self._now = now

    async def reconcile(self, authorities: Sequence[str], keys_in_use: Collection[str]) -> PathKeys:
        """Write the keys that are due, and return all that are valid.

        Args:
            authorities: Fingerprints of those that are trusted, that of the signer last.
            keys_in_use: The keys that configurations name.

        Raises:
            KubeError: The Secret cannot be read or written.
        """
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, self._name, Secret, namespace=self._namespace)
        known_keys, problem = stored_keys(secret, PATH_KEYS, decode_path_keys)
        if known_keys and secret is not None and not secret.is_managed:
            return known_keys
        keys = update_keys(known_keys, authorities, keys_in_use, self._now(), create_key)
        if tuple(keys) != tuple(known_keys):
            await self._write(keys, secret)
            log.info(
                "path_keys.updated", authorities=[key.authority for key in keys], problem=problem
            )
        return keys

    async def _write(self, keys: PathKeys, secret: Secret | None) -> None:
        values = {PATH_KEYS: encode_path_keys(keys)}
        if secret is None:
            document = secret_document(values, namespace=self._namespace, name=self._name)
            await self._client.create(SECRETS, document, Secret, namespace=self._namespace)
            return
        patch = secret_patch(values, secret)
        await self._client.patch(
            SECRETS, self._name, patch, PatchType.MERGE, Secret, namespace=self._namespace
        )
