"""A readiness check that calls the endpoint as the API server does."""

import asyncio
from collections.abc import Callable

from certs.authority import CertificateError
from certs.serving import ServingCertificate, client_tls_context
from kube.logs import get_logger
from webhook.endpoint import Endpoint

log = get_logger()


class SelfCheck:
    """Calls the endpoint from time to time, and remembers the result."""

    def __init__(
        self,
        endpoint: Endpoint,
        certificate: Callable[[], ServingCertificate | None],
        *,
        host: str,
        name: str,
        every_s: float = 10.0,
        retry_s: float = 0.5,
    ) -> None:
        """Begin without a result.

        Args:
            certificate: Returns the one of new connections, None before the first.
            host: The address on which the endpoint listens; empty for all addresses.
            name: The server name that the API server verifies.
        """
        self._endpoint = endpoint
        self._certificate = certificate
        self._host = host
        self._name = name
        self._every_s = every_s
        self._retry_s = retry_s
        self._problem = "not called yet"

    def check(self) -> str:
        """Return the reason the API server would get no answer."""
        return self._problem

    async def run(self) -> None:
        """Call the endpoint periodically, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    self._problem = await self._call()
            # ssl.SSLError is an OSError.
            except (CertificateError, OSError, TimeoutError) as error:
                self._problem = str(error) or "timed out"
                log.warning("endpoint.unreachable", error=self._problem)
            await asyncio.sleep(self._retry_s if self._problem else self._every_s)

    async def _call(self) -> str:
        certificate = self._certificate()
        if certificate is None:
            return "there is no certificate yet"
        reader, writer = await asyncio.open_connection(
            self._host or "localhost",
            self._endpoint.port,
            ssl=client_tls_context(certificate.authority),
            server_hostname=self._name,
        )
        try:
            if self._endpoint.wants_certificate:
                return ""  # There is none here, and the server certificate was verified.
            writer.write(b"GET / HTTP/1.1\r\nHost: self\r\nConnection: close\r\n\r\n")
            status = (await reader.readline()).split(b" ")
        finally:
            writer.close()
        return "" if status[1:2] == [b"404"] else "no HTTP 404, with which strangers are answered"
