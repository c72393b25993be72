"""The serving certificate: a leaf in memory, and the TLS listener that it can be swapped in.

A leaf never touches a disk: OpenSSL reads it through a file descriptor of this process. It is
swapped by giving each handshake the newest context, since loading a second certificate into a live
one is not atomic, and keeps certificates of other key types.

Linux only. What OpenSSL does with a live context was tried, under asyncio and uvloop alike.
"""

import os
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

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

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        # What decides about versions is always the context that listens.
        self.context = self._current = _context(leaf)
        self.context.sni_callback = self._swap

    def replace(self, leaf: Leaf) -> None:
        """Give new connections this leaf; open ones go on."""
        self._current = _context(leaf)
        self.leaf = leaf

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called for each handshake, also where the client names no server, as the kubelet does.
        connection.context = self._current


def _context(leaf: Leaf) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(leaf.key + leaf.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def client_context(authority: bytes) -> ssl.SSLContext:
    """Return what a client needs to believe in leaves of an authority, given as PEM."""
    return ssl.create_default_context(cadata=authority.decode())
