"""The controller of the certificate authority: one Secret, and the caBundles of the webhooks.

It stores the authorities in one Secret, as `certs.rotation` decides, and writes all trusted ones into
the webhook configurations. These are watched, so that one that is applied again is repaired. The
Secret is read from time to time, so that one that was deleted or damaged is repaired.
`webhook.serving_certificate` signs with it.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import structlog

from certs.authority import Authority, CertificateError
from certs.rotation import (
    Action,
    Authorities,
    Observation,
    Timing,
    apply_action,
    decode_authorities,
    next_action,
)
from controllers.certificates.patches import ca_bundle_patch, secret_document, secret_patch
from controllers.settings import Settings
from kube.api.urls import SECRETS, WEBHOOK_CONFIGURATIONS, Resource
from kube.client.client import Client, PatchType
from kube.errors import KubeError, NotFound
from kube.names import NAME
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory
from process.certificates import (
    CertificateSettings,
    Clock,
    RegisteredWebhook,
    Secret,
    bundled_certificates,
    project_webhooks,
)

KEY: Final = "authority"
"""The only key: authorities and caBundles are reconciled together."""

log = structlog.get_logger()


class CertificateAuthorityController:
    """Keeps the authorities and the caBundles; the leader runs it.

    Attributes:
        controllers: To be run.
    """

    def __init__(
        self, client: Client, informers: InformerFactory, settings: Settings, now: Clock
    ) -> None:
        """Subscribe to the webhook configurations.

        Args:
            now: The wall clock, with a time zone.
        """
        self._client = client
        self._settings = settings
        self._timing = rotation_timing(settings.certificates)
        self._now = now
        self._authorities = Authorities()
        self._published: tuple[bytes, datetime] | None = None
        self._webhooks: dict[tuple[Resource, str], tuple[RegisteredWebhook, ...]] = {}
        configurations = [
            informers.subscribe(
                resource,
                project_webhooks,
                field_selector=f"metadata.name={settings.certificates.webhook_configuration}",
                handlers=[partial(self._configuration_changed, resource)],
            )
            for resource in WEBHOOK_CONFIGURATIONS
        ]
        self._controller: Controller[str] = Controller(
            "certificates",
            self._reconcile,
            # Where the Secret is lost, the caBundles are what is left of its authorities.
            subscriptions=configurations,
            backoff=settings.controllers.backoff(),
            expected=(KubeError, CertificateError),
        )
        self._controller.queue.add(KEY)
        self.controllers: Final = (self._controller,)

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the authorities expire, for metrics."""
        pairs = (("ca", self._authorities.signer), ("next-ca", self._authorities.successor))
        return {kind: authority.not_after for kind, authority in pairs if authority is not None}

    def trusted(self) -> int:
        """Return how many authorities are trusted; more than one during a rotation."""
        return len(self._authorities.trusted)

    def is_published(self) -> bool:
        """Return whether every caBundle, as far as known, is that of the trusted authorities."""
        ca_bundle = b64encode(self._authorities.ca_bundle).decode()
        return all(webhook.ca_bundle == ca_bundle for webhook in self._all_webhooks())

    def _configuration_changed(
        self,
        resource: Resource,
        key: tuple[str, str],
        _old: tuple[RegisteredWebhook, ...] | None,
        new: tuple[RegisteredWebhook, ...] | None,
    ) -> None:
        _, name = key
        if new is None:
            self._webhooks.pop((resource, name), None)
        else:
            self._webhooks[resource, name] = new
        self._controller.queue.add(KEY)

    def _all_webhooks(self) -> Iterator[RegisteredWebhook]:
        return (webhook for webhooks in self._webhooks.values() for webhook in webhooks)

    async def _reconcile(self, _key: str) -> float:
        """Take the steps of the rotation that are due, and publish the trusted authorities."""
        name, namespace = self._settings.certificates.authority_secret, self._settings.namespace
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, name, Secret, namespace=namespace)
        if secret is None or secret.is_managed:
            self._authorities = await self._rotate(secret)
        else:
            self._authorities = _foreign_authorities(secret)
        await self._publish()
        return self._settings.certificates.resync_period

    async def _rotate(self, secret: Secret | None) -> Authorities:
        """Take the steps that are due, and return what the Secret holds then."""
        authorities, problems = decode_authorities({} if secret is None else secret.values())
        requested = secret is not None and secret.is_rotation_requested
        actions: list[Action] = []
        while True:
            observation = self._observe(authorities, rotation_requested=requested)
            action = next_action(authorities, observation, self._timing)
            if action is None:
                break
            create = partial(self._create_authority, observation.now)
            authorities = apply_action(action, authorities, observation, create)
            requested = requested and action is not Action.PUBLISH
            actions.append(action)
        if secret is None:
            await self._create_secret(authorities)
        elif actions or problems:
            await self._patch_secret(secret, authorities, removes_request=Action.PUBLISH in actions)
        if actions or problems:
            log.info("authority.rotated", actions=[*actions], problems=problems)
        return authorities

    async def _create_secret(self, authorities: Authorities) -> None:
        namespace = self._settings.namespace
        document = secret_document(
            authorities, namespace=namespace, name=self._settings.certificates.authority_secret
        )
        await self._client.create(SECRETS, document, Secret, namespace=namespace)

    async def _patch_secret(
        self, secret: Secret, authorities: Authorities, *, removes_request: bool
    ) -> None:
        name, namespace = self._settings.certificates.authority_secret, self._settings.namespace
        patch = secret_patch(authorities, secret, removes_request=removes_request)
        await self._client.patch(SECRETS, name, patch, PatchType.MERGE, Secret, namespace=namespace)

    def _observe(self, authorities: Authorities, *, rotation_requested: bool) -> Observation:
        ca_bundle, since = self._published or (b"", None)
        return Observation(
            now=self._now(),
            published_since=since if ca_bundle == authorities.ca_bundle else None,
            published=tuple(bundled_certificates(self._all_webhooks())),
            rotation_requested=rotation_requested,
        )

    def _create_authority(self, now: datetime) -> Authority:
        life = timedelta(seconds=self._settings.certificates.authority_duration)
        return Authority.create(NAME, now=now, life=life)

    async def _publish(self) -> None:
        """Write the caBundles that differ, and remember since when none does."""
        ca_bundle = self._authorities.ca_bundle
        for (resource, name), webhooks in list(self._webhooks.items()):
            operations = ca_bundle_patch(webhooks, ca_bundle)
            if operations:
                raw = await self._client.patch(
                    resource, name, operations, PatchType.JSON, msgspec.Raw
                )
                # The watch brings the same later; what it has brought already may be newer.
                if self._webhooks.get((resource, name)) is webhooks:
                    self._webhooks[resource, name] = project_webhooks(bytes(raw))
                log.info("ca_bundle.updated", configuration=f"{resource.plural}/{name}")
        if self._published is None or self._published[0] != ca_bundle:
            self._published = ca_bundle, self._now()


def rotation_timing(settings: CertificateSettings) -> Timing:
    """Return the durations of a rotation."""
    return Timing(
        renew_at=settings.authority_renew_fraction,
        propagation=timedelta(seconds=settings.authority_publish_period),
        urgent_propagation=timedelta(seconds=settings.authority_expedited_publish_period),
        # Replicas sign soon after they have read the Secret; the resync periods are the margin.
        certificate_lifetime=timedelta(
            seconds=settings.serving_duration + 2 * settings.resync_period
        ),
    )


def _foreign_authorities(secret: Secret) -> Authorities:
    """Return what a Secret without our labels holds; at least its signer is trusted.

    Raises:
        CertificateError: There is no signer in it.
    """
    authorities, problems = decode_authorities(secret.values())
    if authorities.signer is None:
        reason = "; ".join(problems) or "it holds no signer"
        raise CertificateError(f"the Secret is not managed, and cannot be used: {reason}")
    trusted = authorities.trusted or (authorities.signer.certificate,)
    return msgspec.structs.replace(authorities, trusted=trusted)
