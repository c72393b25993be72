"""The controller of the signing keys: one Secret with keys that it creates and replaces.

The webhook signs translated pods with them, and the controller of templates verifies with them. The
Secret is watched, so that one that is lost or damaged is written again, with a new key: to delete it
is to revoke every signature.
"""

import secrets
from contextlib import suppress
from datetime import datetime
from typing import Final

from controllers.certificates.secret_documents import secret_document, secret_patch, stored_keys
from controllers.certificates.settings import Settings
from kube.api.urls import SECRETS
from kube.client.client import Client, PatchType
from kube.errors import NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory
from process.certificates.certificates import Clock, Secret, project_digest
from process.certificates.signing import KEYS
from translation.record.signature import (
    SECRET_BYTES,
    SigningKey,
    decode_keys,
    encode_keys,
    rotate_keys,
)

KEY: Final = "signing-keys"
"""The only key of the queue."""

log = get_logger()


class SigningKeyController:
    """Keeps the signing keys; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self, client: Client, informers: InformerFactory, settings: Settings, now: Clock
    ) -> None:
        """Subscribe to the Secret.

        Args:
            now: The wall clock, with a time zone.
        """
        self._client = client
        self._namespace = settings.namespace
        self._settings = settings
        self._now = now
        subscription = informers.subscribe(
            SECRETS,
            project_digest,
            namespace=settings.namespace,
            field_selector=f"metadata.name={settings.signing.secret}",
            handlers=[lambda *_: self._controller.queue.add(KEY)],
        )
        self._controller: Controller[str] = Controller(
            "signing-keys",
            self._reconcile,
            subscriptions=[subscription],
            backoff=settings.certificate_controller.backoff(),
        )
        self._controller.queue.add(KEY)
        self.controllers: Final = (self._controller,)

    async def _reconcile(self, _key: str) -> float:
        """Write the keys that are due."""
        name = self._settings.signing.secret
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, name, Secret, namespace=self._namespace)
        if secret is not None and not secret.is_managed:
            log.warning(
                "signing_keys.not_managed", secret=name, reason="the Secret lacks our label"
            )
        else:
            await self._rotate(name, secret)
        return self._settings.certificates.resync_period

    async def _rotate(self, name: str, secret: Secret | None) -> None:
        keys, problem = stored_keys(secret, KEYS, decode_keys)
        timing = self._settings.signing.timing()
        requested = secret is not None and secret.is_rotation_requested
        rotated_keys = rotate_keys(keys, self._now(), timing, create_key, requested=requested)
        if rotated_keys is keys:
            return
        values = {KEYS: encode_keys(rotated_keys)}
        if secret is None:
            document = secret_document(values, namespace=self._namespace, name=name)
            await self._client.create(SECRETS, document, Secret, namespace=self._namespace)
        else:
            patch = secret_patch(values, secret, removes_request=requested)
            await self._client.patch(
                SECRETS, name, patch, PatchType.MERGE, Secret, namespace=self._namespace
            )
        log.info("signing_keys.rotated", keys=[key.id for key in rotated_keys], problem=problem)
        if withdrawn := [key.id for key in keys if key not in rotated_keys]:
            log.warning("signing_keys.withdrawn", keys=withdrawn)


def create_key(now: datetime) -> SigningKey:
    """Create a random key."""
    return SigningKey(
        id=secrets.token_hex(4), created=now, secret=secrets.token_bytes(SECRET_BYTES)
    )
