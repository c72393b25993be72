"""The serving certificate: a leaf in memory, and the TLS listener that it can be swapped in.

A leaf never touches a disk: OpenSSL reads it through a file descriptor of this process. It is
swapped by giving each handshake the newest context, since loading a second certificate into a live
one is not atomic, and keeps certificates of other key types.

Linux only. What OpenSSL does with a live context was tried, under asyncio and uvloop alike.
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final, Self

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import BACKDATED, Authority, CertificateError, key_usage, pem_of_key

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; those of 1.3 are all good."""
MAX_COMMON_NAME: Final = 64


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A serving certificate.

    Attributes:
        certificate: As PEM.
        key: As PEM; it stays in memory.
        authority: The certificate that clients must trust, as PEM.
    """

    certificate: bytes
    key: bytes
    authority: bytes
    not_before: datetime
    not_after: datetime

    @classmethod
    def read(cls, certificate: bytes, key: bytes, authority: bytes) -> Self:
        """Return the leaf that three PEM texts hold, of any kind of key.

        Args:
            certificate: With those between it and its authority after it.
            key: Of the first certificate.
            authority: What clients must trust.

        Raises:
            CertificateError: They are not, or are not of each other.
        """
        try:
            first = x509.load_pem_x509_certificates(certificate)[0]
            private = serialization.load_pem_private_key(key, password=None)
            x509.load_pem_x509_certificates(authority)
        except (ValueError, TypeError) as fault:
            raise CertificateError(f"no certificate to serve with: {fault}") from fault
        if private.public_key() != first.public_key():
            raise CertificateError("the key does not belong to the certificate")
        return cls(
            certificate=certificate,
            key=key,
            authority=authority,
            not_before=first.not_valid_before_utc,
            not_after=first.not_valid_after_utc,
        )

    def renewed_at(self, part: float) -> datetime:
        """Return when this part of its life, from 0 to 1, is over."""
        begin = self.not_before + BACKDATED
        return begin + (self.not_after - begin) * part


def issue_leaf(
    authority: Authority, names: Sequence[str], *, now: datetime, life: timedelta
) -> Leaf:
    """Return a new leaf.

    Args:
        names: DNS names and IP addresses, at least one.
        now: With a time zone.
        life: From now; the leaf ends no later than its authority.

    Raises:
        CertificateError: The authority has ended.
    """
    if authority.not_after <= now:
        raise CertificateError(f"the authority ended at {authority.not_after.isoformat()}")
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
    return Leaf(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=pem_of_key(key),
        authority=authority.certificate_pem,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Listener:
    """The TLS side of a server socket, whose leaf can be replaced while it serves.

    Attributes:
        context: To listen with.
        leaf: The one that new connections get.
    """

    def __init__(self, leaf: Leaf, callers: bytes | None = None) -> None:
        """Listen with a leaf.

        Args:
            callers: The authorities of clients, as PEM; who has no certificate of theirs is refused.
                None: anybody may come.

        Raises:
            CertificateError: OpenSSL does not take one of them.
        """
        self.leaf = leaf
        self._callers = callers
        # What decides about versions, and whether clients need certificates, is always the context
        # that listens; whom to believe is told by the one that was swapped in.
        self.context = self._current = _context(leaf, callers)
        self.context.sni_callback = self._swap

    def replace(self, leaf: Leaf) -> None:
        """Give new connections this leaf; open ones go on.

        Raises:
            CertificateError: OpenSSL does not take it; the one before stays.
        """
        self._current = _context(leaf, self._callers)
        self.leaf = leaf

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called for each handshake, also where the client names no server, as the kubelet does.
        connection.context = self._current


def _context(leaf: Leaf, callers: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(leaf.key + leaf.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        if callers is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=callers.decode())
            # A resumed connection would not show its certificate again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
    except (ssl.SSLError, ValueError) as fault:
        raise CertificateError(f"not good to serve with: {fault}") from fault
    finally:
        os.close(descriptor)
    return context


def names_of_peer(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common name and the DNS names of a certificate, as `ssl` tells it.

    >>> told = {"subject": ((("commonName", "a"),),), "subjectAltName": (("DNS", "b"),)}
    >>> sorted(names_of_peer(told))
    ['a', 'b']
    """
    subject = (pair for names in certificate.get("subject", ()) for pair in names)
    common = (value for kind, value in subject if kind == "commonName")
    others = (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
    return frozenset((*common, *others))


def client_context(authority: bytes) -> ssl.SSLContext:
    """Return what a client needs to believe in leaves of an authority, given as PEM."""
    return ssl.create_default_context(cadata=authority.decode())
