"""The check that a webhook answers at the address of its configuration, as an API server calls it."""

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable
from typing import Final

from certs.authority import CertificateError
from certs.serving import client_tls_context
from process.certificates.certificates import RegisteredWebhook

TIMEOUT_S: Final = 3.0

EndpointCheck = Callable[[RegisteredWebhook], Awaitable[str]]
"""Returns why a webhook does not answer; empty where it does."""


async def check_endpoint(webhook: RegisteredWebhook) -> str:
    """Return the reason no TLS connection to a webhook is possible; empty if one is.

    A replica listens once it can answer, and a Service leads to those that are ready. So a handshake
    with a certificate that the caBundle trusts is proof enough, and needs no rights.
    """
    host, port = webhook.address
    try:
        context = client_tls_context(b64decode(webhook.ca_bundle, validate=True))
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
        writer.close()
    except TimeoutError:
        return f"{host}:{port}: no connection within {TIMEOUT_S:g} s"
    except (CertificateError, OSError, Base64Error) as error:  # ssl.SSLError is an OSError.
        return f"{host}:{port}: {error}"
    return ""
