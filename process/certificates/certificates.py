"""Certificates as a cluster stores them: two Secrets, and the caBundles of webhooks."""

import hashlib
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from certs.authority import CertificateError
from certs.rotation import parse_certificates
from certs.serving import ServingCertificate
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.urls import SECRETS
from kube.client.client import Client
from kube.names import CONFIGURATION, NAME, ROTATE_ANNOTATION, SERVICE
from process.model.durations import Duration, PositiveDuration
from process.model.settings import Fraction, Name, Section

DAY_S: Final = 86_400.0
HTTPS_PORT: Final = 443

MANAGED_LABELS: Final = {"app.kubernetes.io/name": NAME}
"""Labels of a Secret that the certificate controller manages. One without them is used and never
changed."""

TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
TLS_AUTHORITY: Final = "ca.crt"
"""The keys of a Secret of type kubernetes.io/tls, and its files where it is mounted."""
TLS_TYPE: Final = "kubernetes.io/tls"

Clock = Callable[[], datetime]


class Secret(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 Secret that we read; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None
    type: str = ""

    @property
    def is_managed(self) -> bool:
        """Return True if the certificate controller may write it."""
        return MANAGED_LABELS.items() <= (self.metadata.labels or {}).items()

    @property
    def is_rotation_requested(self) -> bool:
        """Return True if an administrator has requested a new authority or new keys."""
        return ROTATE_ANNOTATION in (self.metadata.annotations or {})

    def values(self) -> Mapping[str, bytes]:
        """Return the decoded values; text that is not base64 stays as it is, and is found invalid."""
        return {name: _decode_base64(value) for name, value in (self.data or {}).items()}


def project_digest(raw: bytes) -> bytes:
    """Project a Secret to a hash of it, so that every change is seen and no copy is kept."""
    return hashlib.sha256(raw).digest()


def _decode_base64(value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        return value.encode()


async def read_serving_certificate(client: Client, namespace: str, name: str) -> ServingCertificate:
    """Return the serving certificate of a Secret.

    Raises:
        NotFound: There is no Secret yet.
        KubeError: It cannot be read.
        CertificateError: It holds no serving certificate.
    """
    secret = await client.get(SECRETS, name, Secret, namespace=namespace)
    return decode_serving_certificate(secret)


def decode_serving_certificate(secret: Secret) -> ServingCertificate:
    """Return the serving certificate that a Secret holds.

    Raises:
        CertificateError: It holds none.
    """
    values = secret.values()
    certificate, key, authority = (
        values.get(name, b"") for name in (TLS_CERTIFICATE, TLS_KEY, TLS_AUTHORITY)
    )
    return ServingCertificate.read(certificate, key, authority)


class ServiceReference(ApiStruct, frozen=True, kw_only=True):
    """The Service in front of a webhook."""

    name: str = ""
    namespace: str = ""
    port: int | None = None
    path: str = ""


class _ClientConfig(ApiStruct, frozen=True, kw_only=True):
    ca_bundle: str = ""
    url: str = ""
    service: ServiceReference | None = None


class WebhookRule(ApiStruct, frozen=True, kw_only=True):
    """The requests that a webhook receives."""

    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = "*"


class MatchCondition(ApiStruct, frozen=True, kw_only=True):
    """A condition for requests that a webhook receives, in CEL."""

    name: str = ""
    expression: str = ""


class RegisteredWebhook(ApiStruct, frozen=True, kw_only=True):
    """The part of a mutating or validating webhook that we read."""

    name: str = ""
    client_config: _ClientConfig = _ClientConfig()
    rules: tuple[WebhookRule, ...] | None = None
    match_conditions: tuple[MatchCondition, ...] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the API server reaches it at; the certificate is of that host."""
        service = self.client_config.service
        if service is not None:
            return f"{service.name}.{service.namespace}.svc", service.port or HTTPS_PORT
        url = urlsplit(self.client_config.url)
        return url.hostname or "", url.port or HTTPS_PORT

    @property
    def path(self) -> str:
        """Return the path that reviews are posted to; empty if nothing is said."""
        service = self.client_config.service
        return urlsplit(self.client_config.url).path if service is None else service.path

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
    """The certificate authority, the serving certificate, and the objects that have to trust it."""

    directory: str | None = None
    """A folder with tls.crt, tls.key and ca.crt, such as a mounted Secret of cert-manager's, to serve
    with; neither authority nor caBundle is kept then. None: certificates are our own."""

    service: Name = SERVICE
    """The Service in front of the webhook; the API server checks the certificate for its name."""

    cluster_domain: Name = "cluster.local"
    """The end of `<service>.<namespace>.svc.<clusterDomain>`, a further name of the certificate."""

    extra_names: tuple[Name, ...] = ()
    """Further DNS names and IP addresses of the certificate, such as that of a load balancer."""

    authority_secret: Name = "drawbridge-ca"  # noqa: S105  The name of a Secret.
    """The Secret, in `namespace`, that holds the certificate authority with its key. The certificate
    controller creates it, and no other process may read it."""

    serving_secret: Name = "drawbridge-webhook-tls"  # noqa: S105  The name of a Secret.
    """The Secret of type kubernetes.io/tls, in `namespace`, through which the replicas of the webhook
    get their certificate. The certificate controller creates it."""

    path_secret: Name = "drawbridge-webhook-path"  # noqa: S105  The name of a Secret.
    """The Secret, in `namespace`, with the random keys of the webhook's paths. The manifests ship it
    empty; the certificate controller fills it in, and the webhook reads it."""

    path_key_renew_period: Duration = Duration(DAY_S)
    """The age at which the keys of the webhook's paths are replaced; "0s" for never. An annotation
    `drawbridge.internal/rotate` on their Secret asks for new ones at once."""

    path_key_grace_period: PositiveDuration = PositiveDuration(300)
    """A new key of a path is in the Secret for so long before a webhook configuration names it, and an
    old one stays valid for so long after the last configuration named it. Replicas and API servers
    learn of it within a second or so, but none confirms; a watch may be silent for two and a half
    minutes before it counts as dead."""

    webhook_configuration: Name = CONFIGURATION
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of this name are ours:
    the certificate controller keeps their caBundles and their rules. The first sorts last, so that keys which other webhooks add
    are seen."""

    resync_period: PositiveDuration = PositiveDuration(60)
    """The time between checks of the wall clock, of the Secrets and of mounted certificates, since
    a timer sleeps when its machine does. Nothing is lost by it: a replaced authority stays trusted
    for longer."""

    serving_duration: PositiveDuration = PositiveDuration(7 * DAY_S)
    """Life of the serving certificate. Short, since nothing revokes."""

    serving_renew_fraction: Fraction = 2 / 3
    """Fraction of its life after which it is replaced; leaves a third to find out why it was not."""

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
            namespace: The Service's namespace.
        """
        first = f"{self.service}.{namespace}.svc"
        short = (self.service, f"{self.service}.{namespace}")
        service_names = (first, *short, f"{first}.{self.cluster_domain}", *self.extra_names)
        return tuple(dict.fromkeys(service_names))
