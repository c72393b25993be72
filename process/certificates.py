"""Certificates as a cluster stores them: the Secret of the authority, and caBundles."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.rotation import (
    decode_authorities,
    parse_certificates,
)
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.urls import SECRETS
from kube.client.client import Client
from kube.names import CONFIGURATION, NAME, ROTATE_ANNOTATION, SERVICE
from process.durations import PositiveDuration
from process.settings import Fraction, Name, Section

DAY_S: Final = 86_400.0

MANAGED_LABELS: Final = {"app.kubernetes.io/name": NAME}
"""Labels of a Secret that the controller manages. One without them is used and never changed."""


Clock = Callable[[], datetime]


class Secret(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 Secret that we read; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None

    @property
    def is_managed(self) -> bool:
        """Whether the controller may write it."""
        return MANAGED_LABELS.items() <= (self.metadata.labels or {}).items()

    @property
    def is_rotation_requested(self) -> bool:
        """Whether an administrator has requested a new authority."""
        return ROTATE_ANNOTATION in (self.metadata.annotations or {})

    def values(self) -> Mapping[str, bytes]:
        """Return the decoded values; text that is not base64 stays as it is, and is found invalid."""
        return {name: _decode_base64(value) for name, value in (self.data or {}).items()}


def _decode_base64(value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        return value.encode()


async def read_signer(client: Client, namespace: str, name: str) -> Authority:
    """Return the authority that signs serving certificates.

    Args:
        namespace: Of the authority's Secret.
        name: Of the authority's Secret.

    Raises:
        NotFound: There is no Secret yet.
        KubeError: It cannot be read.
        CertificateError: It holds no signer, or none yet.
    """
    secret = await client.get(SECRETS, name, Secret, namespace=namespace)
    authorities, problems = decode_authorities(secret.values())
    if authorities.signer is None:
        raise CertificateError("; ".join(problems) or "the Secret holds no signer yet")
    return authorities.signer


class _ClientConfig(ApiStruct, frozen=True, kw_only=True):
    ca_bundle: str = ""


class RegisteredWebhook(ApiStruct, frozen=True, kw_only=True):
    """The part of a mutating or validating webhook that we read."""

    name: str = ""
    client_config: _ClientConfig = _ClientConfig()

    @property
    def ca_bundle(self) -> str:
        """The certificates that the API server trusts, as base64 of PEM."""
        return self.client_config.ca_bundle


class _Configuration(ApiStruct, frozen=True, kw_only=True):
    webhooks: tuple[RegisteredWebhook, ...] | None = None


def project_webhooks(raw: bytes) -> tuple[RegisteredWebhook, ...]:
    """Project a webhook configuration to its webhooks."""
    return decode(raw, _Configuration).webhooks or ()


def bundled_certificates(webhooks: Iterable[RegisteredWebhook]) -> Iterator[x509.Certificate]:
    """Yield the certificates of all caBundles that can be parsed."""
    for bundle in dict.fromkeys(webhook.ca_bundle for webhook in webhooks):
        with suppress(CertificateError):
            yield from parse_certificates(_decode_base64(bundle))


class CertificateSettings(Section, frozen=True, kw_only=True):
    """The certificate authority, the serving certificate, and who has to trust it."""

    directory: str | None = None
    """A folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager's, to serve
    with; the controllers then keep neither authority nor caBundle. None: certificates are our own.
    DRAWBRIDGE_CERTIFICATES sets it too."""

    service: Name = SERVICE
    """The Service in front of the webhook; the API server checks the certificate for its name."""

    cluster_domain: Name = "cluster.local"
    """The end of `<service>.<namespace>.svc.<clusterDomain>`, a further name of the certificate."""

    extra_names: tuple[Name, ...] = ()
    """Further DNS names and IP addresses of the certificate, such as that of a load balancer.
    DRAWBRIDGE_SERVING_NAMES sets them too."""

    authority_secret: Name = "drawbridge-ca"  # noqa: S105  The name of a Secret.
    """The Secret, in `namespace`, that holds the certificate authority. The controllers create it."""

    webhook_configuration: Name = CONFIGURATION
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of this name are ours:
    the controllers keep their caBundles. The first sorts last, so that keys which other webhooks add
    are seen."""

    resync_period: PositiveDuration = PositiveDuration(60)
    """Between looks at the wall clock, at the Secret and at mounted certificates, since a timer
    sleeps when its machine does. Nothing is lost by it: what is replaced stays trusted for longer."""

    serving_duration: PositiveDuration = PositiveDuration(7 * DAY_S)
    """Life of the serving certificate, which exists in memory only. Short, since nothing revokes."""

    serving_renew_fraction: Fraction = 2 / 3
    """Fraction of its life after which it is replaced, minus up to 10 % random jitter; leaves a third
    to find out why it was not."""

    authority_duration: PositiveDuration = PositiveDuration(365 * DAY_S)
    """Life of a certificate authority."""

    authority_renew_fraction: Fraction = 2 / 3
    """Fraction of its life after which it gets a successor; leaves months to find out why not."""

    authority_publish_period: PositiveDuration = PositiveDuration(300)
    """A successor is trusted for so long before it signs. API servers learn of it within a second
    or so, but none confirms; one that is cut off for minutes does not admit pods either."""

    authority_expedited_publish_period: PositiveDuration = PositiveDuration(10)
    """The same where nobody can sign, because the Secret was deleted or damaged: replicas keep
    serving with the certificates that they have, but a new one has to wait for it."""

    def __post_init__(self) -> None:
        """Refuse an authority that ends before its successor may sign."""
        left_s = self.authority_duration * (1 - self.authority_renew_fraction)
        if left_s <= self.authority_publish_period + 2 * self.resync_period:
            raise ValueError(
                "what is left of authorityDuration after authorityRenewFraction is too short for"
                " authorityPublishPeriod and two resyncPeriods"
            )

    def names(self, namespace: str) -> tuple[str, ...]:
        """Return the DNS names and addresses of the serving certificate.

        Args:
            namespace: Of the Service.
        """
        first = f"{self.service}.{namespace}.svc"
        short = (self.service, f"{self.service}.{namespace}")
        named = (first, *short, f"{first}.{self.cluster_domain}", *self.extra_names)
        return tuple(dict.fromkeys(named))
