"""The certificates of this replica's endpoint: read or mounted, and replaced without a restart.

The serving certificate is compared with the wall clock from time to time. One that cannot be renewed is
served until it expires, which readiness shows. The authorities of clients are read from a file; while
that cannot be read, those that were read before stay trusted, and before the first nobody is answered.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import CertificateError
from certs.rotation import parse_certificates
from certs.serving import Listener, ServingCertificate
from kube.client.client import Client
from kube.errors import KubeError
from kube.logs import get_logger
from process.certificates.certificates import (
    TLS_AUTHORITY,
    TLS_CERTIFICATE,
    TLS_KEY,
    Clock,
    read_serving_certificate,
)

FIRST_RETRY_S: Final = 0.2
"""The delay between attempts to get the first certificate."""
URGENT_RETRY_S: Final = 1.0
"""The delay between attempts to replace a certificate that is not valid."""

log = get_logger()


class CertificateSource(Protocol):
    """The origin of serving certificates."""

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Return a certificate to serve instead of the current one; None while that is good.

        Raises:
            KubeError, CertificateError, OSError: There is none now.
        """
        ...


class SecretCertificates:
    """Certificates of a Secret that the certificate controller writes; no disk has their key."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Return the certificate of the Secret, if it is not the current one."""
        certificate = await read_serving_certificate(self._client, self._namespace, self._name)
        return None if certificate == current else certificate


class MountedCertificates:
    """Certificates in a directory, such as a Secret of cert-manager's that is mounted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def renew(self, current: ServingCertificate | None) -> ServingCertificate | None:
        """Return the certificate in the directory, if it is not the current one."""
        # Small files in memory: read on the event loop, which a thread would only delay.
        names = (TLS_CERTIFICATE, TLS_KEY, TLS_AUTHORITY)
        certificate = ServingCertificate.read(
            *((self._directory / name).read_bytes() for name in names)
        )
        return None if certificate == current else certificate


def read_client_authorities(file: Path) -> Sequence[x509.Certificate]:
    """Return the certificates in a file, at least one.

    Raises:
        CertificateError: It holds something else.
        OSError: It cannot be read.
    """
    try:
        return parse_certificates(file.read_bytes())
    except CertificateError as error:
        raise CertificateError(f"{file}: {error}") from error


class CertificateWatcher:
    """Holds the serving certificate and the authorities of clients, and replaces them by newer ones.

    Attributes:
        listener: None before the first certificate.
    """

    def __init__(
        self,
        source: CertificateSource,
        now: Clock,
        *,
        resync_s: float,
        client_authority_file: Path | None = None,
    ) -> None:
        """Begin without a certificate.

        Args:
            now: The wall clock, with a time zone.
            resync_s: The period between checks of the source and of the file.
            client_authority_file: The file with the authorities of client certificates, as PEM;
                None accepts clients without one.
        """
        self._source = source
        self._now = now
        self._resync_s = resync_s
        self._client_authority_file = client_authority_file
        self._client_authorities: Sequence[x509.Certificate] = ()
        self.listener: Listener | None = None

    def check(self) -> str:
        """Return the reason there is no valid certificate, as a readiness check."""
        if self.listener is None:
            return "none yet"
        certificate, now = self.listener.certificate, self._now()
        if now < certificate.not_before:
            return "not valid yet"
        return "expired" if now >= certificate.not_after else ""

    def certificate(self) -> ServingCertificate | None:
        """Return the certificate of new connections; None before the first."""
        return self.listener.certificate if self.listener is not None else None

    def not_after(self) -> Mapping[str, datetime]:
        """Return the expiry times of the certificate and the last client authority, for metrics."""
        certificate = self.certificate()
        serving = {} if certificate is None else {"serving": certificate.not_after}
        times = [authority.not_valid_after_utc for authority in self._client_authorities]
        return serving | ({"client-ca": max(times)} if times else {})

    def is_outdated(self, connection: ssl.SSLObject) -> bool:
        """Return True if a client was accepted by authorities that have been replaced since."""
        return self.listener is not None and self.listener.is_outdated(connection)

    async def wait_first(self) -> Listener:
        """Return the listener once there is a certificate."""
        logged_problem = ""
        while self.listener is None:
            problem = await self._renew()
            if problem and problem != logged_problem:
                log.info("certificate.waiting", reason=problem)
                logged_problem = problem
            if self.listener is None:
                await asyncio.sleep(FIRST_RETRY_S)
        return self.listener

    async def run(self) -> None:
        """Renew the certificate from time to time, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s())
            problem = await self._renew()
            if problem:
                log.warning("certificate.renewal_failed", error=problem)

    def _pause_s(self) -> float:
        """Return the time to wait; not long while the certificate is not valid, or soon expires."""
        certificate = self.certificate()
        if certificate is None or self.check():
            return min(URGENT_RETRY_S, self._resync_s)
        left_s = (certificate.not_after - self._now()).total_seconds()
        return min(self._resync_s, max(URGENT_RETRY_S, left_s / 2))

    async def _renew(self) -> str:
        """Replace each file that has a newer source; return the error that prevented it."""
        problems = (self._renew_client_authorities(), await self._renew_certificate())
        return "; ".join(problem for problem in problems if problem)

    def _renew_client_authorities(self) -> str:
        file = self._client_authority_file
        if file is None:
            return ""
        try:
            authorities = read_client_authorities(file)
            if authorities == self._client_authorities:
                return ""
            if self.listener is not None:
                self.listener.replace_client_authorities(_pem(authorities))
        except (CertificateError, OSError) as error:
            return str(error)
        self._client_authorities = authorities
        log.info("client_authorities.replaced", not_after=self.not_after()["client-ca"].isoformat())
        return ""

    async def _renew_certificate(self) -> str:
        needs_authorities = self._client_authority_file is not None
        if needs_authorities and not self._client_authorities:
            return ""  # What is wrong with their file was said.
        try:
            certificate = await self._source.renew(self.certificate())
            if certificate is None:
                return ""
            if self.listener is None:
                authorities = _pem(self._client_authorities) if needs_authorities else None
                self.listener = Listener(certificate, authorities)
            else:
                self.listener.replace(certificate)
        except (KubeError, CertificateError, OSError) as error:
            return str(error)
        log.info("certificate.replaced", not_after=certificate.not_after.isoformat())
        return ""


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as PEM, without the comments that OpenSSL might not read."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
