"""The Secret with the path keys: read, and written where keys are due."""

import secrets
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from controllers.certificates.path_keys import update_keys
from controllers.certificates.settings import Settings
from kube.api.urls import SECRETS
from kube.client.client import Client, PatchType
from kube.errors import NotFound
from process.certificates import MANAGED_LABELS, Clock, Secret
from process.webhook_paths import (
    KEY_BYTES,
    PATH_KEYS,
    PathKeys,
    PathKeysError,
    decode_path_keys,
    encode_path_keys,
)

log = structlog.get_logger()


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

    async def reconcile(self, authorities: Sequence[str], named: Collection[str]) -> PathKeys:
        """Write the keys that are due, and return all that are valid.

        Args:
            authorities: Fingerprints of those that are trusted, that of the signer last.
            named: The keys that configurations name.

        Raises:
            KubeError: The Secret cannot be read or written.
        """
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, self._name, Secret, namespace=self._namespace)
        stored, problem = _stored_keys(secret)
        if stored and secret is not None and not secret.is_managed:
            return stored
        keys = update_keys(stored, authorities, named, self._now(), create_key)
        if tuple(keys) != tuple(stored):
            await self._write(keys, secret)
            log.info(
                "path_keys.updated", authorities=[key.authority for key in keys], problem=problem
            )
        return keys

    async def _write(self, keys: PathKeys, secret: Secret | None) -> None:
        if secret is None:
            document = secret_document(keys, namespace=self._namespace, name=self._name)
            await self._client.create(SECRETS, document, Secret, namespace=self._namespace)
            return
        metadata = {"resourceVersion": secret.metadata.resource_version}
        patch = {"metadata": metadata, "data": _data(keys)}
        await self._client.patch(
            SECRETS, self._name, patch, PatchType.MERGE, Secret, namespace=self._namespace
        )


def secret_document(keys: PathKeys, *, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the Secret that stores keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_LABELS},
        "type": "Opaque",
        "data": _data(keys),
    }


def _data(keys: PathKeys) -> Mapping[str, str]:
    return {PATH_KEYS: b64encode(encode_path_keys(keys)).decode()}


def _stored_keys(secret: Secret | None) -> tuple[PathKeys, str]:
    """Return the keys in a Secret, and what is wrong with it."""
    stored = None if secret is None else secret.values().get(PATH_KEYS)
    if not stored:
        return (), ""
    try:
        return decode_path_keys(stored), ""
    except PathKeysError as fault:
        return (), str(fault)
