"""The serving certificate of this replica: signed here or mounted, and replaced without a restart.

It is compared with the wall clock from time to time. One that cannot be renewed is served until it
expires, which readiness shows.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import structlog

from certs.authority import Authority, CertificateError
from certs.serving import Listener, ServingCertificate, issue_serving_certificate
from kube.client.client import Client
from kube.errors import KubeError
from process.certificates import CertificateSettings, Clock, read_signer

FIRST_RETRY_S: Final = 0.2
"""Between attempts to get the first certificate."""
MAX_JITTER: Final = 0.1
"""Replicas of one age renew at times that differ by up to this fraction."""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
"""The files of a mounted certificate, named as in a Secret of type kubernetes.io/tls."""

log = structlog.get_logger()


class CertificateSource(Protocol):
    """The origin of serving certificates."""

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Return a certificate to serve instead of the current one; None while that is good.

        Raises:
            KubeError, CertificateError, OSError: There is none now.
        """
        ...

    def not_after(self) -> Mapping[str, datetime]:
        """Return when certificates other than the serving one expire, for metrics."""
        ...


class SignedCertificates:
    """Certificates that this replica signs with the cluster's authority; no disk has their key."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        settings: CertificateSettings,
        now: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Sign with the authority in a namespace.

        Args:
            now: The wall clock, with a time zone.
            chance: Uniform from 0 to 1.
        """
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._now = now
        # Drawn once: drawn at each check, the earliest time would win.
        self._renew_fraction = settings.serving_renew_fraction * (1 - MAX_JITTER * chance())
        self._signer: Authority | None = None

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Sign a certificate where the signer has changed, or it is time."""
        self._signer = await read_signer(
            self._client, self._namespace, self._settings.authority_secret
        )
        if current is not None and not needs_renewal(
            current, self._signer, self._now(), self._renew_fraction
        ):
            return None
        life = timedelta(seconds=self._settings.serving_duration)
        return issue_serving_certificate(
            self._signer, self._settings.names(self._namespace), now=self._now(), life=life
        )

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the authority expires."""
        return {} if self._signer is None else {"ca": self._signer.not_after}


def needs_renewal(
    certificate: ServingCertificate, signer: Authority, now: datetime, renew_fraction: float
) -> bool:
    """Return whether a new certificate should be signed.

    Args:
        signer: The present signer of the cluster.
        renew_fraction: Of the certificate's life, after which it is renewed.
    """
    return certificate.authority != signer.certificate_pem or now >= certificate.renewal_time(
        renew_fraction
    )


class MountedCertificates:
    """Certificates in a directory, such as a Secret of cert-manager's that is mounted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Return the certificate in the directory, if it is not the current one."""
        # Small files in memory: read on the event loop, which a thread would only delay.
        files = [(self._directory / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITY)]
        if current is not None and files == [
            current.certificate,
            current.key,
            current.authority,
        ]:
            return None
        return ServingCertificate.read(*files)

    def not_after(self) -> Mapping[str, datetime]:
        """Return nothing: the authority is managed elsewhere."""
        return {}


class CertificateWatcher:
    """Holds the serving certificate, and replaces it when its source has a newer one.

    Attributes:
        listener: None before the first certificate.
    """

    def __init__(
        self,
        source: CertificateSource,
        now: Clock,
        *,
        resync_s: float,
        client_authorities: bytes | None = None,
    ) -> None:
        """Begin without a certificate.

        Args:
            now: The wall clock, with a time zone.
            resync_s: Between checks of the source.
            client_authorities: Of client certificates, as PEM; None accepts clients without one.
        """
        self._source = source
        self._now = now
        self._resync_s = resync_s
        self._client_authorities = client_authorities
        self.listener: Listener | None = None

    def check(self) -> str:
        """Return why there is no valid certificate, as a readiness check."""
        if self.listener is None:
            return "none yet"
        return "expired" if self._now() >= self.listener.certificate.not_after else ""

    def certificate(self) -> ServingCertificate | None:
        """Return the certificate of new connections; None before the first."""
        return self.listener.certificate if self.listener is not None else None

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the certificates expire, for metrics."""
        expiry = dict(self._source.not_after())
        if self.listener is not None:
            expiry["serving"] = self.listener.certificate.not_after
        return expiry

    async def wait_first(self) -> Listener:
        """Return the listener once there is a certificate."""
        logged = ""
        while self.listener is None:
            problem = await self._renew()
            if problem and problem != logged:
                log.info("certificate.waiting", reason=problem)
                logged = problem
            if self.listener is None:
                await asyncio.sleep(FIRST_RETRY_S)
        return self.listener

    async def run(self) -> None:
        """Renew the certificate from time to time, until cancelled."""
        while True:
            await asyncio.sleep(self._resync_s)
            problem = await self._renew()
            if problem:
                log.warning("certificate.renewal_failed", error=problem)

    async def _renew(self) -> str:
        """Replace the certificate if there is a newer one; return what prevented it."""
        try:
            certificate = await self._source.renew(self.certificate())
            if certificate is None:
                return ""
            if self.listener is None:
                self.listener = Listener(certificate, self._client_authorities)
            else:
                self.listener.replace(certificate)
        except (KubeError, CertificateError, OSError) as error:
            return str(error)
        log.info("certificate.replaced", not_after=certificate.not_after.isoformat())
        return ""
