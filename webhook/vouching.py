"""Whether API servers would believe the certificate that this replica serves.

The self-check proves that the endpoint answers to whoever trusts its authority; whether API servers
do, the caBundle of the webhook's configuration says. It is only read. Where it cannot be, nothing
is known and nobody is kept from serving.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from certs.authority import CertificateError
from certs.rotation import certificates_of
from certs.serving import Leaf
from kube.client import Client
from kube.informer import DEFAULTS, Informer, InformerSettings
from webhook.resources import MUTATING_WEBHOOK_CONFIGURATIONS
from webhook.trust import TrustedWebhook, believed, kept_webhooks

PATIENCE_S: Final = 30.0
"""For so long a replica that was believed stays ready when it is not any more: the controller heals
a caBundle within a second, and open connections go on meanwhile."""
KNOWN_S: Final = 300.0
"""What was heard of the configuration so long ago is not known any more. Twice what a watch may be
silent for."""


class Vouching:
    """Compares the caBundle with the leaf.

    Attributes:
        informer: Follows the configuration; nobody waits for it.
    """

    def __init__(
        self,
        client: Client,
        configuration: str,
        leaf: Callable[[], Leaf | None],
        *,
        settings: InformerSettings = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember what to compare; nothing is asked before `run`.

        Args:
            configuration: The name of the MutatingWebhookConfiguration.
            leaf: What is served; None while there is none.
            clock: Monotonic seconds.
        """
        self.informer: Final = Informer(
            client,
            MUTATING_WEBHOOK_CONFIGURATIONS,
            kept_webhooks,
            field_selector=f"metadata.name={configuration}",
            settings=settings,
        )
        self._leaf = leaf
        self._clock = clock
        self._believed_at: float | None = None

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        await self.informer.run()

    def check(self) -> str:
        """Return why API servers would not believe us, if that lasts or was always so."""
        if not (self.informer.synced.is_set() or self.informer.failures):
            return "not looked yet"
        leaf = self._leaf()
        webhooks = tuple(webhook for each in self.informer.store.values() for webhook in each)
        is_known = self.informer.contact_age_s <= KNOWN_S
        if leaf is None or not webhooks or not is_known:
            return ""
        now = self._clock()
        if vouches(webhooks, leaf.authority):
            self._believed_at = now
        elif self._believed_at is None or now - self._believed_at > PATIENCE_S:
            return "the caBundle does not vouch for the certificate"
        return ""


@lru_cache(maxsize=4)
def vouches(webhooks: tuple[TrustedWebhook, ...], authority: bytes) -> bool:
    """Whether every webhook's caBundle holds a certificate of the authority, or of its key.

    Args:
        authority: As PEM. One that was issued again with the same name and key still vouches.
    """
    wanted = set[tuple[bytes, bytes]]()
    with suppress(CertificateError):
        wanted.update(_identity(each) for each in certificates_of(authority))
    return all(
        not wanted.isdisjoint(_identity(each) for each in believed([webhook]))
        for webhook in webhooks
    )


def _identity(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    key = certificate.public_key()
    return (
        certificate.subject.public_bytes(),
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    )
