"""Certificates of clients, for tests."""

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import Authority, encode_key
from certs.serving import Listener, ServingCertificate, client_tls_context


def client_context(
    authority: Authority,
    name: str,
    server: ServingCertificate,
    directory: Path,
    *,
    extensions: Iterable[x509.ExtensionType] = (),
) -> ssl.SSLContext:
    """Return the TLS context of a client that has a certificate for a name.

    Args:
        server: The server that the client trusts.
        extensions: More of the certificate.
    """
    now, life = datetime.now(UTC), timedelta(days=1)  # noqa: TID251  TLS compares with the clock.
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - life)
        .not_valid_after(now + life)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    file = directory / "client.pem"
    file.write_bytes(encode_key(key) + certificate.public_bytes(Encoding.PEM))
    context = client_tls_context(server.authority)
    context.check_hostname = False
    context.load_cert_chain(file)
    return context


def is_accepted(listener: Listener, client: ssl.SSLContext) -> bool:
    """Return True if a handshake succeeds, without a network; the client trusts every server."""
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        listener.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True
