"""The certificate authority: a key pair that signs serving certificates.

Keys are P-256: a handshake costs four fifths of one with RSA-2048, and key generation is instant.
Every authority has a unique subject, so that two can be trusted at the same time
(certs/rotation.py).
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
"""The time between a certificate's start of validity and its creation, for clients with slow
clocks."""


class CertificateError(Exception):
    """A text is not a valid certificate or key; the message has the reason."""


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate authority.

    Attributes:
        certificate: The certificate that clients trust.
        key: The private key that signs.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, *, now: datetime, life: timedelta) -> Self:
        """Create an authority.

        Args:
            name: The first part of its subject; the second is a part of its serial number.
            now: The time, with a time zone.
            life: The lifetime, from now.
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
        """Return the authority of a PEM certificate and its PEM key, of any elliptic curve.

        Raises:
            CertificateError: One of them cannot be read, they do not belong together, or the
                certificate is not one of an authority.
        """
        try:
            authority = x509.load_pem_x509_certificate(certificate)
            private_key = serialization.load_pem_private_key(key, password=None)
            constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (
            *(ValueError, TypeError, UnsupportedAlgorithm),
            *(x509.DuplicateExtension, x509.ExtensionNotFound),
        ) as error:
            raise CertificateError(f"not a certificate authority: {error}") from error
        if not isinstance(private_key, ec.EllipticCurvePrivateKey):
            raise CertificateError(
                "not a certificate authority: the key is not of an elliptic curve"
            )
        if not constraints.ca:
            raise CertificateError("the certificate may not sign others")
        if private_key.public_key() != authority.public_key():
            raise CertificateError("the key does not belong to the certificate")
        return cls(certificate=authority, key=private_key)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM. Its holder can impersonate the webhook."""
        return encode_key(self.key)

    @property
    def not_after(self) -> datetime:
        """Return the expiry time of the certificate."""
        return self.certificate.not_valid_after_utc


def encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PKCS #8 in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage of an authority (signs certificates) or of a server."""
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
