"""A readiness check: the caBundle has to contain the authority of the serving certificate.

The self-check proves that the endpoint answers a client that trusts its authority. Whether API servers
do is in the caBundle of the webhook configuration, which is only read here. Where it cannot be read,
the check passes.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from certs.authority import CertificateError
from certs.rotation import parse_certificates
from certs.serving import ServingCertificate
from kube.api.urls import MUTATING_WEBHOOK_CONFIGURATIONS
from kube.runtime.informers import InformerFactory
from process.certificates.certificates import (
    RegisteredWebhook,
    bundled_certificates,
    project_webhooks,
)

GRACE_PERIOD_S: Final = 30.0
"""The time for which a replica that was trusted stays ready after the caBundle has changed: the
controller repairs it within a second, and open connections keep working meanwhile."""
MAX_AGE_S: Final = 300.0
"""A configuration that was last read longer ago is unknown. Twice the longest silence of a watch."""


class CaBundleCheck:
    """Compares the caBundle with the serving certificate.

    Attributes:
        configurations: The webhooks of the configuration, if it exists.
    """

    def __init__(
        self,
        informers: InformerFactory,
        configuration: str,
        certificate: Callable[[], ServingCertificate | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to the configuration; nobody waits for it.

        Args:
            configuration: The name of the MutatingWebhookConfiguration.
            certificate: Returns the one that is served, None before the first.
            clock: Monotonic seconds.
        """
        self.configurations: Final = informers.subscribe(
            MUTATING_WEBHOOK_CONFIGURATIONS,
            project_webhooks,
            field_selector=f"metadata.name={configuration}",
        )
        self._certificate = certificate
        self._clock = clock
        self._trusted_at: float | None = None

    def check(self) -> str:
        """Return the reason API servers would not trust the certificate, if that lasts or was always so."""
        if not (self.configurations.synced.is_set() or self.configurations.failures):
            return "the webhook configuration was not read yet"
        certificate = self._certificate()
        webhooks = tuple(
            webhook
            for configuration in self.configurations.store.values()
            for webhook in configuration
        )
        is_known = self.configurations.contact_age_s <= MAX_AGE_S
        if certificate is None or not webhooks or not is_known:
            return ""
        now = self._clock()
        if trusts(webhooks, certificate.authority):
            self._trusted_at = now
        elif self._trusted_at is None or now - self._trusted_at > GRACE_PERIOD_S:
            return "the caBundle does not contain the authority of the serving certificate"
        return ""


@lru_cache(maxsize=4)
def trusts(webhooks: tuple[RegisteredWebhook, ...], authority: bytes) -> bool:
    """Return True if every webhook's caBundle has a certificate of the authority's name and key.

    Args:
        authority: The authority as PEM. One that was issued again for the same key is as good.
    """
    identities = set[tuple[bytes, bytes]]()
    with suppress(CertificateError):
        identities.update(_identity(certificate) for certificate in parse_certificates(authority))
    return all(
        not identities.isdisjoint(
            _identity(certificate) for certificate in bundled_certificates([webhook])
        )
        for webhook in webhooks
    )


def _identity(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    key = certificate.public_key()
    return (
        certificate.subject.public_bytes(),
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    )
