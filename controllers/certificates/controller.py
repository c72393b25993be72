"""The controller of certificates: three Secrets; caBundles, paths, keys and rules of the webhooks.

It stores the authorities in one Secret, as `certs.rotation` decides, and writes all trusted ones into
the webhook configurations. It signs the certificate of the webhook and hands it out through another
Secret, so that nobody else holds the key of an authority. The third one holds the random keys that
end the paths of the webhook. Once the webhook answers, it fills in the rules of the configurations;
until then the API server asks nobody, and pods are admitted as they are.
The webhook that routes pods has rules only while the bridge owns a driver.
The names of keys in the match conditions follow the profiles of the cluster.

The configurations are watched, so that one that is applied again is repaired; none is created. The
Secrets are read from time to time, so that one that was deleted or damaged is repaired; that of the
paths is watched, too.
"""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
from cryptography import x509

from admission.webhook_configuration import ROUTING_WEBHOOK, webhook_rules
from certs.authority import BACKDATED, Authority, CertificateError
from certs.rotation import (
    Action,
    Authorities,
    Observation,
    Timing,
    decode_authorities,
    rotate,
)
from certs.serving import ServingCertificate, issue_serving_certificate
from controllers.certificates.endpoint_check import EndpointCheck, check_endpoint
from controllers.certificates.patches import (
    Conditions,
    Rules,
    authority_document,
    authority_patch,
    ca_bundle_patch,
    conditions_patch,
    lacks_rules,
    rules_patch,
    serving_document,
    serving_patch,
)
from controllers.certificates.path_keys import path_patch
from controllers.certificates.path_secret import PathSecret
from controllers.certificates.serving import needs_renewal, seconds_to_check
from controllers.certificates.settings import Settings
from kube.api.ownership import OWNERSHIP, owned_drivers, project_ownership
from kube.api.urls import ALLOCATOR_OWNERSHIPS, SECRETS, WEBHOOK_CONFIGURATIONS, Resource
from kube.client.client import Client, PatchType
from kube.errors import KubeError, NotFound
from kube.logs import get_logger
from kube.names import NAME
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory
from process.certificates.certificates import (
    TLS_TYPE,
    CertificateSettings,
    Clock,
    RegisteredWebhook,
    Secret,
    bundled_certificates,
    decode_serving_certificate,
    project_digest,
    project_webhooks,
)
from process.certificates.webhook_paths import PathKeys

KEY: Final = "authority"
"""The only key: all certificates are reconciled together."""

log = get_logger()


class CertificateController:
    """Keeps certificates, caBundles and rules; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        settings: Settings,
        now: Clock,
        check_endpoint: EndpointCheck = check_endpoint,
        *,
        conditions: Callable[[], Conditions] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to the webhook configurations.

        Args:
            now: The wall clock, with a time zone.
            check_endpoint: Returns True if a webhook answers.
            conditions: Returns the match conditions of the webhooks; none while they are not known.
            clock: Monotonic seconds.
        """
        self._client = client
        self._settings = settings
        self._timing = rotation_timing(settings.certificates)
        self._now = now
        self._check_endpoint = check_endpoint
        self._conditions = conditions
        self._clock_skew = timedelta()
        self._authorities = Authorities()
        self._serving: ServingCertificate | None = None
        self._path_secret = PathSecret(client, settings, self._server_now, clock)
        self._published: tuple[bytes, datetime] | None = None
        self._waiting: list[str] = []
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
        # Not waited for, since the kind may not be installed.
        self._ownerships = informers.subscribe(
            ALLOCATOR_OWNERSHIPS,
            project_ownership,
            field_selector=f"metadata.name={OWNERSHIP}",
            handlers=[self._ownership_changed],
        )
        # Not waited for either: without it a request to rotate is only seen later.
        informers.subscribe(
            SECRETS,
            project_digest,
            namespace=settings.namespace,
            field_selector=f"metadata.name={settings.certificates.path_secret}",
            handlers=[self._path_secret_changed],
        )
        self._controller: Controller[str] = Controller(
            "certificates",
            self._reconcile,
            # Where the Secret is lost, the caBundles are what is left of its authorities.
            subscriptions=configurations,
            backoff=settings.certificate_controller.backoff(),
            expected_errors=(KubeError, CertificateError),
        )
        self._controller.queue.add(KEY)
        self.controllers: Final = (self._controller,)

    def not_after(self) -> Mapping[str, datetime]:
        """Return the expiry times of authorities and of the serving certificate, for metrics."""
        certificates = {
            "ca": self._authorities.signer,
            "next-ca": self._authorities.successor,
            "serving": self._serving,
        }
        return {
            kind: certificate.not_after
            for kind, certificate in certificates.items()
            if certificate is not None
        }

    def clock_skew(self) -> timedelta:
        """Return the lead of this clock over the API server's, as last measured."""
        return self._clock_skew

    @property
    def keeps_authorities(self) -> bool:
        """True if it issues certificates, and writes their authorities into the caBundles."""
        return self._settings.certificates.directory is None

    def trusted_count(self) -> int:
        """Return the number of trusted authorities; more than one during a rotation."""
        return len(self._authorities.trusted)

    def path_keys(self) -> PathKeys:
        """Return the valid keys of the paths, for metrics."""
        return self._path_secret.keys

    def is_published(self) -> bool:
        """Return True if every caBundle, as far as known, is that of the trusted authorities."""
        return self._is_in_all(self._authorities.ca_bundle)

    def _is_in_all(self, ca_bundle: bytes) -> bool:
        encoded_bundle = b64encode(ca_bundle).decode()
        return all(webhook.ca_bundle == encoded_bundle for webhook in self._all_webhooks())

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
        if self._published is not None and not self._is_in_all(self._published[0]):
            # Once it is repaired, API servers get as much time to receive it as before.
            self._published = None
        self._controller.queue.add(KEY)

    def profiles_changed(self, *_profiles: object) -> None:
        """Write the keys of other profiles into the match conditions."""
        self._controller.queue.add(KEY)

    def _ownership_changed(self, _key: object, _old: object, _new: object) -> None:
        self._controller.queue.add(KEY)

    def _path_secret_changed(self, _key: object, _old: object, _new: object) -> None:
        self._controller.queue.add(KEY)

    def _rules(self) -> Rules:
        """Return the rules of the webhooks; none for routing while ownership is not known."""
        is_known = self._ownerships.synced.is_set()
        rules = webhook_rules(routes=bool(owned_drivers(self._ownerships.store.values())))
        return {name: rules[name] for name in rules if is_known or name != ROUTING_WEBHOOK}

    def _all_webhooks(self) -> Iterator[RegisteredWebhook]:
        return (webhook for webhooks in self._webhooks.values() for webhook in webhooks)

    async def _reconcile(self, _key: str) -> float:
        """Take the steps that are due; return when to look again."""
        if self.keeps_authorities:
            await self._reconcile_authorities()
            await self._reconcile_serving_certificate()
            await self._publish()
        await self._write_paths()
        await self._write_conditions()
        are_complete = await self._fill_in_rules()
        settings = self._settings
        period_s = (
            settings.certificates.resync_period
            if are_complete
            else settings.certificate_controller.endpoint_check_period
        )
        fraction = settings.certificates.serving_renew_fraction
        return seconds_to_check(self._serving, self._server_now(), fraction, period_s)

    async def _reconcile_authorities(self) -> None:
        """Take the steps of the rotation that are due."""
        name, namespace = self._settings.certificates.authority_secret, self._settings.namespace
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, name, Secret, namespace=namespace)
        wall = self._now()
        if self._is_clock_wrong(wall):
            # What this process would create, API servers would not accept; and what is good may
            # only look as if it had expired.
            if secret is None:
                raise CertificateError("no authority is created while clocks disagree")
            self._authorities, _ = decode_authorities(secret.values())
        elif secret is None or secret.is_managed:
            await self._read_serving_certificate()
            self._authorities = await self._rotate(secret, self._client.correct(wall))
        else:
            self._authorities = _foreign_authorities(secret)

    def _server_now(self) -> datetime:
        """Return the time for comparison with stored times; it does not jump with this clock."""
        return self._client.correct(self._now())

    def _is_clock_wrong(self, wall: datetime) -> bool:
        """Return True if our and the API server's clock differ by more than the backdating.

        Args:
            wall: The wall-clock time of the later decisions, since the clock may be set meanwhile.
        """
        server_time = self._client.server_time
        self._clock_skew = wall - server_time if server_time is not None else timedelta()
        is_wrong = abs(self._clock_skew) > BACKDATED
        if is_wrong:
            log.warning("clock.wrong", ahead_of_api_server_s=self._clock_skew.total_seconds())
        return is_wrong

    async def _rotate(self, secret: Secret | None, now: datetime) -> Authorities:
        """Take the steps that are due, and return the authorities in the Secret after them."""
        authorities, problems = decode_authorities({} if secret is None else secret.values())
        requested = secret is not None and secret.is_rotation_requested
        authorities, actions = rotate(
            authorities,
            partial(self._observe, now=now, rotation_requested=requested),
            self._timing,
            partial(self._create_authority, now),
        )
        if secret is None:
            await self._create_secret(authorities)
        elif actions or problems:
            await self._patch_secret(secret, authorities, removes_request=Action.PUBLISH in actions)
        if actions or problems:
            log.info("authority.rotated", actions=[*actions], problems=problems)
        return authorities

    async def _create_secret(self, authorities: Authorities) -> None:
        namespace = self._settings.namespace
        document = authority_document(
            authorities, namespace=namespace, name=self._settings.certificates.authority_secret
        )
        await self._client.create(SECRETS, document, Secret, namespace=namespace)

    async def _patch_secret(
        self, secret: Secret, authorities: Authorities, *, removes_request: bool
    ) -> None:
        name, namespace = self._settings.certificates.authority_secret, self._settings.namespace
        patch = authority_patch(authorities, secret, removes_request=removes_request)
        await self._client.patch(SECRETS, name, patch, PatchType.MERGE, Secret, namespace=namespace)

    async def _reconcile_serving_certificate(self) -> None:
        """Sign a certificate for the webhook if its present one is not good for long."""
        settings = self._settings.certificates
        signer, names = self._authorities.signer, settings.names(self._settings.namespace)
        secret = await self._read_serving_certificate()
        is_foreign = secret is not None and not secret.is_managed
        wall = self._now()
        if signer is None or is_foreign or self._is_clock_wrong(wall):
            return
        now = self._client.correct(wall)
        if self._serving is not None and not needs_renewal(
            self._serving, signer, names, now, settings.serving_renew_fraction
        ):
            return
        life = timedelta(seconds=settings.serving_duration)
        certificate = issue_serving_certificate(signer, names, now=now, life=life)
        await self._hand_out(certificate, secret)
        self._serving = certificate
        log.info("certificate.issued", not_after=certificate.not_after.isoformat())

    async def _read_serving_certificate(self) -> Secret | None:
        """Return the Secret with the serving certificate, and note its readable content."""
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(
                SECRETS,
                self._settings.certificates.serving_secret,
                Secret,
                namespace=self._settings.namespace,
            )
        self._serving = _readable_certificate(secret)
        return secret

    async def _hand_out(self, certificate: ServingCertificate, secret: Secret | None) -> None:
        name, namespace = self._settings.certificates.serving_secret, self._settings.namespace
        if secret is None:
            document = serving_document(certificate, namespace=namespace, name=name)
            await self._client.create(SECRETS, document, Secret, namespace=namespace)
            return
        if secret.type != TLS_TYPE:
            raise CertificateError(
                f"the Secret {name} is of type {secret.type or 'Opaque'}, which cannot be changed;"
                f" delete it, and one of type {TLS_TYPE} is created"
            )
        patch = serving_patch(certificate, secret)
        await self._client.patch(SECRETS, name, patch, PatchType.MERGE, Secret, namespace=namespace)

    def _observe(
        self, authorities: Authorities, now: datetime, *, rotation_requested: bool
    ) -> Observation:
        ca_bundle, since = self._published or (b"", None)
        # A caBundle that somebody has overwritten holds what `published` says.
        is_held = ca_bundle == authorities.ca_bundle and self._is_in_all(ca_bundle)
        return Observation(
            now=now,
            published_since=since if is_held else None,
            published=tuple(bundled_certificates(self._all_webhooks())),
            rotation_requested=rotation_requested,
            serving_authority=_authority_of(self._serving),
        )

    def _create_authority(self, now: datetime) -> Authority:
        life = timedelta(seconds=self._settings.certificates.authority_duration)
        return Authority.create(NAME, now=now, life=life)

    async def _publish(self) -> None:
        """Write the caBundles that differ, and remember since when none does."""
        ca_bundle = self._authorities.ca_bundle
        if not ca_bundle:  # Only while clocks disagree.
            return
        for (resource, name), webhooks in list(self._webhooks.items()):
            await self._patch(resource, name, ca_bundle_patch(webhooks, ca_bundle), "caBundle")
        is_new = self._published is None or self._published[0] != ca_bundle
        if is_new and self._is_in_all(ca_bundle):
            self._published = ca_bundle, self._server_now()

    async def _write_paths(self) -> None:
        """Write the path keys that are due, and the paths that should have another one."""
        await self._path_secret.reconcile(tuple(self._all_webhooks()))
        for (resource, name), webhooks in list(self._webhooks.items()):
            operations = path_patch(webhooks, self._path_secret.choose)
            await self._patch(resource, name, operations, "path")

    async def _write_conditions(self) -> None:
        """Write the keys of the profiles in force into the match conditions that have others."""
        conditions = self._conditions()
        for (resource, name), webhooks in list(self._webhooks.items()):
            operations = conditions_patch(webhooks, conditions)
            await self._patch(resource, name, operations, "matchConditions")

    async def _fill_in_rules(self) -> bool:
        """Write the rules of webhooks that answer; return True if all have them."""
        rules = self._rules()
        changing = [webhook for webhook in self._all_webhooks() if lacks_rules(webhook, rules)]
        # To have nothing sent to a webhook, it need not answer.
        lacking = [webhook for webhook in changing if rules[webhook.name]]
        # Several webhooks have one address and one caBundle.
        problems = {
            (webhook.address, webhook.ca_bundle): await self._check_endpoint(webhook)
            for webhook in {
                (webhook.address, webhook.ca_bundle): webhook for webhook in lacking
            }.values()
        }
        reached_names = {
            webhook.name
            for webhook in changing
            if not rules[webhook.name] or not problems[webhook.address, webhook.ca_bundle]
        }
        for (resource, name), webhooks in list(self._webhooks.items()):
            await self._patch(resource, name, rules_patch(webhooks, rules, reached_names), "rules")
        waiting = sorted({problem for problem in problems.values() if problem})
        if waiting != self._waiting:
            self._waiting = waiting
            if waiting:
                log.warning("rules.waiting", reason="the webhook does not answer", errors=waiting)
        return not waiting

    async def _patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        part: str,
    ) -> None:
        if not operations:
            return
        before = self._webhooks.get((resource, name))
        raw = await self._client.patch(resource, name, operations, PatchType.JSON, msgspec.Raw)
        # The watch brings the same later; what it has brought already may be newer.
        if before is not None and self._webhooks.get((resource, name)) is before:
            self._webhooks[resource, name] = project_webhooks(bytes(raw))
        log.info("configuration.updated", part=part, configuration=f"{resource.plural}/{name}")


def _readable_certificate(secret: Secret | None) -> ServingCertificate | None:
    if secret is None:
        return None
    with suppress(CertificateError):
        return decode_serving_certificate(secret)
    return None


def _authority_of(serving: ServingCertificate | None) -> x509.Certificate | None:
    return None if serving is None else x509.load_pem_x509_certificates(serving.authority)[0]


def rotation_timing(settings: CertificateSettings) -> Timing:
    """Return the durations of a rotation."""
    return Timing(
        renew_at=settings.authority_renew_fraction,
        propagation=timedelta(seconds=settings.authority_publish_period),
        urgent_propagation=timedelta(seconds=settings.authority_expedited_publish_period),
        # Replicas read the Secret once a resync period; the second one is the margin.
        certificate_lifetime=timedelta(
            seconds=settings.serving_duration + 2 * settings.resync_period
        ),
    )


def _foreign_authorities(secret: Secret) -> Authorities:
    """Return the authorities of a Secret without our labels; at least its signer is trusted.

    Raises:
        CertificateError: There is no signer in it.
    """
    authorities, problems = decode_authorities(secret.values())
    if authorities.signer is None:
        reason = "; ".join(problems) or "it holds no signer"
        raise CertificateError(f"the Secret is not managed, and cannot be used: {reason}")
    certificates = authorities.trusted or (authorities.signer.certificate,)
    return msgspec.structs.replace(authorities, trusted=certificates)
