"""The serving certificate, and a TLS listener that can replace it while it serves.

A certificate never touches a disk: OpenSSL reads it through a file descriptor of this process. To
replace it, each handshake gets the newest TLS context. Loading a second certificate into a live
context is not atomic, and OpenSSL would keep certificates of other key types.

Linux only. Tested with asyncio and uvloop.
"""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final, Self, cast

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import BACKDATED, Authority, CertificateError, encode_key, key_usage
from certs.tls_records import MeteredConnection

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers for TLS 1.2; TLS 1.3 has no weak ciphers."""
NO_COMPRESSED_CERTIFICATES: Final = 1 << 33
"""OpenSSL's SSL_OP_NO_RX_CERTIFICATE_COMPRESSION, which Python does not name; before 3.2 it has no effect. A client's
chain of 300 certificates takes 2.5 KB compressed, which no bound on the length of its handshake would stop."""
MAX_COMMON_NAME: Final = 64


class ServingCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A serving certificate.

    Attributes:
        certificate: The certificate as PEM, followed by intermediate ones.
        key: The private key as PEM; it stays in memory.
        authority: The certificate of the authority that clients must trust, as PEM.
    """

    certificate: bytes
    key: bytes
    authority: bytes
    not_before: datetime
    not_after: datetime

    @classmethod
    def read(cls, certificate: bytes, key: bytes, authority: bytes) -> Self:
        """Return the serving certificate of three PEM texts, with a key of any type.

        Args:
            certificate: The certificate, followed by intermediate ones.
            key: The private key of the first certificate.
            authority: The certificate of the authority that clients must trust.

        Raises:
            CertificateError: One of them cannot be read, or the key is not the certificate's.
        """
        try:
            first = x509.load_pem_x509_certificates(certificate)[0]
            private_key = serialization.load_pem_private_key(key, password=None)
            x509.load_pem_x509_certificates(authority)
        except (ValueError, TypeError) as error:
            raise CertificateError(f"not a serving certificate: {error}") from error
        if private_key.public_key() != first.public_key():
            raise CertificateError("the key does not belong to the certificate")
        return cls(
            certificate=certificate,
            key=key,
            authority=authority,
            not_before=first.not_valid_before_utc,
            not_after=first.not_valid_after_utc,
        )

    def renewal_time(self, fraction: float) -> datetime:
        """Return the time when a fraction of the lifetime, from 0 to 1, has passed."""
        begin = self.not_before + BACKDATED
        return begin + (self.not_after - begin) * fraction


def issue_serving_certificate(
    authority: Authority, names: Sequence[str], *, now: datetime, life: timedelta
) -> ServingCertificate:
    """Issue a serving certificate with a new key.

    Args:
        authority: The signer.
        names: DNS names and IP addresses, at least one.
        now: The time, with a time zone.
        life: The lifetime, from now; the certificate expires no later than its authority.

    Raises:
        CertificateError: The authority has expired.
    """
    if authority.not_after <= now:
        raise CertificateError(f"the authority expired at {authority.not_after.isoformat()}")
    key = ec.generate_private_key(ec.SECP256R1())
    begin, end = now - BACKDATED, min(now + life, authority.not_after)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME])])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return ServingCertificate(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=encode_key(key),
        authority=authority.certificate_pem,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class _ServerContext(ssl.SSLContext):
    """The TLS context of a server.

    Attributes:
        client_authorities: The authorities of clients, as PEM; None accepts every client.
    """

    client_authorities: bytes | None = None
    sslobject_class = MeteredConnection

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any
    ) -> MeteredConnection:
        """Begin a connection that has OpenSSL read one record at a time."""
        records = ssl.MemoryBIO()
        connection = cast(
            MeteredConnection, super().wrap_bio(records, outgoing, *arguments, **options)
        )
        connection.meter(incoming, records)
        return connection


class _ListeningContext(ssl.SSLContext):
    """The TLS context of a server socket; each connection begins with the newest one instead.

    No callback for server names: Python writes a stack trace for each name that is not ASCII.

    Attributes:
        newest: Returns the context of a connection that begins.
    """

    newest: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection; both event loops call this for each."""
        return self.newest().wrap_bio(*args, **options)


class Listener:
    """The TLS side of a server socket; its certificates can be replaced while it serves.

    Attributes:
        context: The TLS context for the server socket.
        certificate: The serving certificate of new connections.
    """

    def __init__(
        self, certificate: ServingCertificate, client_authorities: bytes | None = None
    ) -> None:
        """Build the TLS context.

        Args:
            certificate: The first serving certificate.
            client_authorities: The authorities of clients, as PEM: a client without a certificate
                of one of them is rejected. None accepts clients without certificates.

        Raises:
            CertificateError: OpenSSL rejects one of them.
        """
        self.certificate = certificate
        self._current = _server_tls_context(certificate, client_authorities)
        self.context = _ListeningContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.newest = lambda: self._current

    def replace(self, certificate: ServingCertificate) -> None:
        """Use another certificate for new connections; open connections continue.

        Raises:
            CertificateError: OpenSSL rejects it; the previous certificate stays in use.
        """
        self._current = _server_tls_context(certificate, self._current.client_authorities)
        self.certificate = certificate

    def replace_client_authorities(self, client_authorities: bytes) -> None:
        """Reject new connections of clients without a certificate of these authorities.

        Args:
            client_authorities: The certificates of the authorities as PEM.

        Raises:
            CertificateError: OpenSSL rejects them; the previous ones stay in use.
            RuntimeError: The listener was built to accept clients without certificates.
        """
        if self._current.client_authorities is None:
            raise RuntimeError("clients without certificates are accepted")
        self._current = _server_tls_context(self.certificate, client_authorities)

    def is_outdated(self, connection: ssl.SSLObject) -> bool:
        """Return True if a client was accepted by authorities that have been replaced since."""
        context = connection.context
        return (
            isinstance(context, _ServerContext)
            and context.client_authorities != self._current.client_authorities
        )


def _server_tls_context(
    certificate: ServingCertificate, client_authorities: bytes | None
) -> _ServerContext:
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.client_authorities = client_authorities
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    descriptor = os.memfd_create("serving-certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            # A key needs no newline at its end.
            file.write(certificate.key + b"\n" + certificate.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        if client_authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_authorities.decode())
            # A resumed connection would not show its certificate again, also after its authority was
            # replaced. Without tickets TLS 1.3 resumes none; TLS 1.2 does so by an id as well.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
            context.options |= NO_COMPRESSED_CERTIFICATES
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"OpenSSL rejects the certificates: {error}") from error
    finally:
        os.close(descriptor)
    return context


def peer_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common name and the DNS names of a certificate from `SSLObject.getpeercert`.

    >>> peer = {"subject": ((("commonName", "a"),),), "subjectAltName": (("DNS", "b"),)}
    >>> sorted(peer_names(peer))
    ['a', 'b']
    """
    subject = (pair for names in certificate.get("subject", ()) for pair in names)
    common_names = (value for kind, value in subject if kind == "commonName")
    dns_names = (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
    return frozenset((*common_names, *dns_names))


def client_tls_context(authority: bytes) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts authorities.

    Args:
        authority: Their certificates as PEM; comments between them, in whatever encoding, do not count.

    Raises:
        CertificateError: It cannot be read.
    """
    try:
        certificates = x509.load_pem_x509_certificates(authority)
    except ValueError as error:
        raise CertificateError(f"not the certificates of authorities: {error}") from error
    encoded = (certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)
    return ssl.create_default_context(cadata=b"".join(encoded).decode())
