"""The certificate authority: one key pair, made once, that signs serving certificates.

Keys are P-256: a handshake costs four fifths of one with RSA-2048, and making a key takes no time.
Every authority has a subject of its own, so that two can be trusted at the same time.
certs/rotation.py says when.
"""

from datetime import datetime, timedelta
from typing import Final, Self

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BACKDATED: Final = timedelta(hours=1)
"""Certificates begin so long before they are made, for clients whose clock is behind."""


class CertificateError(Exception):
    """Text that is not the certificate or key that it should be; the message says what is wrong."""


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate authority.

    Attributes:
        certificate: What clients trust.
        key: What signs.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str, *, now: datetime, life: timedelta) -> Self:
        """Return a new authority.

        Args:
            name: The beginning of its subject; a part of its serial number ends it.
            now: With a time zone.
            life: From now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {serial:040x}"[:60])])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate=certificate, key=key)

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Self:
        """Return the authority that two PEM texts hold; any elliptic curve will do.

        Raises:
            CertificateError: They are no certificate and such a key, not a pair, or no authority.
        """
        try:
            found = x509.load_pem_x509_certificate(certificate)
            private = serialization.load_pem_private_key(key, password=None)
            constraints = found.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (
            *(ValueError, TypeError, UnsupportedAlgorithm),
            *(x509.DuplicateExtension, x509.ExtensionNotFound),
        ) as fault:
            raise CertificateError(f"not a certificate authority: {fault}") from fault
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise CertificateError(
                "not a certificate authority: the key is not of an elliptic curve"
            )
        if not constraints.ca:
            raise CertificateError("the certificate may not sign others")
        if private.public_key() != found.public_key():
            raise CertificateError("the key does not belong to the certificate")
        return cls(certificate=found, key=private)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as text."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as text; whoever has it can be the webhook."""
        return pem_of_key(self.key)

    @property
    def not_after(self) -> datetime:
        """When it ends."""
        return self.certificate.not_valid_after_utc


def pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PKCS 8."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what a key is for: signing certificates, or handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
