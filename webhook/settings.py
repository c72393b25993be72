"""Settings of the webhook, `python -m webhook`."""

from collections.abc import Mapping
from typing import Final

from clusterstate.settings import ValidationSettings
from process.certificates.certificates import CertificateSettings
from process.certificates.signing import SigningSettings
from process.model.durations import Duration, PositiveDuration
from process.model.settings import Fraction, Name, Port, Positive, ProcessSettings, ServerSettings
from process.profiles.translation import TranslationSettings

MEBIBYTE: Final = 2**20


class WebhookSettings(ServerSettings, frozen=True, kw_only=True):
    """The HTTPS server."""

    port: Port = 8443
    """HTTPS, for the API server. Above 1024, so that no capability is needed; the Service maps 443
    to it. Private control planes that reach nodes on 443 and 10250 only need 10250."""

    max_body_bytes: Positive = 7 * MEBIBYTE
    """A larger body is answered with 413. The limit of controller-runtime, too: two objects of 3 MiB, the
    most that a request to the API server may have, and one for the envelope. The API server writes
    each of `<`, `>` and `&` as six bytes, so an object of 1.2 MiB may be too large."""

    read_timeout: PositiveDuration = PositiveDuration(5)
    """A body that has not arrived by then is answered with 408. As long as the API server waits."""

    small_body_read_timeout: PositiveDuration = PositiveDuration(1)
    """The same for a body of less than 64 KiB, as nearly all are: an API server sends it at once."""

    max_in_flight: Positive = 100
    """Reviews at a time that have arrived. A further one waits up to a second for a place, and is then
    answered with 503."""

    max_reading: Positive = 100
    """Bodies at a time that are still arriving. For another one, that which began first is answered
    with 408."""

    max_bytes_in_flight: Positive = 48 * MEBIBYTE
    """Their bodies together, as announced, without those below 64 KiB; further ones wait likewise.
    Six of the largest, or all of `maxInFlight` at eighty times the usual 6 KiB. Less than a tenth of the
    memory limit in the manifests, since a parsed body takes several times its size."""

    user_cpu_fraction: Fraction = 0.25
    """The fraction of a core that the reviews of one user, or of one namespace, may use in the long
    run, evaluations of selectors included. While all reviews together take twice as much, further
    pods are denied with code 429, for the client to try again a second later, and other objects are
    admitted without validation. An honest pod takes a millisecond. Accounts of kube-system, and a
    ServiceAccount in another namespace than its own, count by the namespace of the object only, since
    they create pods for others."""

    user_cpu_burst: PositiveDuration = PositiveDuration(2)
    """Seconds of CPU that a user or namespace may use at once: a rollout of a thousand pods."""

    max_connections: Positive = 256
    """Connections at a time. When all are taken, the least useful one is closed; where a review is
    answered on each, a new one is refused. What `maxInFlight` reviews need, and the 25 idle ones
    that each of six API servers keeps. A connection that carried a large review keeps half a MiB of
    buffers, so all of them a quarter of the memory limit in the manifests."""

    max_unused_connections_per_address: Positive = 128
    """The part of `maxConnections` for one client's connections without a valid request so far. An
    API server needs one for each review that finds none idle."""

    request_header_timeout: PositiveDuration = PositiveDuration(10)
    """A connection on which no review began so long after it was opened, or after a request began on
    it, is closed. An API server takes milliseconds. Requests for anything but reviews have as
    long."""

    keepalive_timeout: PositiveDuration = PositiveDuration(110)
    """Idle connections are closed after it. Above the 90 s after which the API server closes them:
    the server must not close first, since a POST that races with it is lost."""

    requests_per_connection: Positive = 1000
    """The average number of requests on a connection before it is closed, so that new replicas get
    their part of the load. The number is random, so that connections of one age do not end
    together."""

    client_ca_file: str | None = None
    """A file with the authorities of clients, as PEM. A client without a certificate of one of them is
    rejected in the TLS handshake, of version 1.3. The file is read again every
    `certificates.resyncPeriod`; while it cannot be read, what was read before stays in force. None:
    every client that knows the path is answered, since API servers present no certificate unless
    configured to."""

    client_names: tuple[Name, ...] = ("kube-apiserver",)
    """The clients that are answered with `clientCaFile`, by common name or DNS name of the
    certificate; others get status 403. The authority of API servers' client certificates often
    signs those of kubelets and people as well."""

    drain: Duration = Duration(10)
    """The time without a review for which the endpoint, after SIGTERM, is unready and keeps
    answering: clients learn of that at a time of their own. "0s" for local runs."""

    max_drain: Duration = Duration(25)
    """It keeps answering no longer than that."""

    shutdown_grace_period: PositiveDuration = PositiveDuration(10)
    """Then running reviews get so long before they are cancelled. Together with `maxDrain` below the
    pod's terminationGracePeriodSeconds."""

    def __post_init__(self) -> None:
        """Refuse limits that contradict each other."""
        if self.max_bytes_in_flight < self.max_body_bytes:
            raise ValueError("maxBytesInFlight must be at least maxBodyBytes")


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of the webhook."""

    translation: TranslationSettings = TranslationSettings()
    validation: ValidationSettings = ValidationSettings()
    certificates: CertificateSettings = CertificateSettings()
    signing: SigningSettings = SigningSettings()
    webhook: WebhookSettings = WebhookSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_NAMESPACE": "namespace",
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_PROFILES": "translation.profilesDirectory",
    "DRAWBRIDGE_SERVING_NAMES": "certificates.extraNames",
    "DRAWBRIDGE_CERTIFICATES": "certificates.directory",
    "DRAWBRIDGE_CLIENT_CA": "webhook.clientCaFile",
    "DRAWBRIDGE_BIND": "webhook.bindAddress",
    "DRAWBRIDGE_PORT": "webhook.port",
    "DRAWBRIDGE_PROBE_PORT": "webhook.probePort",
    "DRAWBRIDGE_METRICS_PORT": "webhook.metricsPort",
    "DRAWBRIDGE_DRAIN": "webhook.drain",
}
"""Environment variable to the field that it sets."""
