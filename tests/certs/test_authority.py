"""The certificate authority: its fields, and texts that are not an authority."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.authority import Authority, CertificateError
from certs.serving import issue_serving_certificate

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
LIFE: Final = timedelta(days=10)
AUTHORITY: Final = Authority.create("drawbridge", now=NOW, life=LIFE)
OTHER: Final = Authority.create("drawbridge", now=NOW, life=LIFE)
SERVING: Final = issue_serving_certificate(AUTHORITY, ["a.example"], now=NOW, life=LIFE)
RSA_KEY: Final = rsa.generate_private_key(65537, 2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


def test_an_authority_survives_encoding() -> None:
    content = Authority.read(AUTHORITY.certificate_pem, AUTHORITY.key_pem)

    assert content.certificate == AUTHORITY.certificate
    assert content.key_pem == AUTHORITY.key_pem


def test_an_authority_is_valid_from_an_hour_ago_to_the_end_of_its_lifetime() -> None:
    assert AUTHORITY.certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert AUTHORITY.not_after == NOW + LIFE


def test_an_authority_signs_end_entity_certificates_only() -> None:
    constraints = AUTHORITY.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = AUTHORITY.certificate.extensions.get_extension_for_class(x509.KeyUsage)

    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature


def test_no_two_authorities_share_a_subject() -> None:
    assert AUTHORITY.certificate.subject != OTHER.certificate.subject
    assert AUTHORITY.certificate.serial_number != OTHER.certificate.serial_number


class Rejected(NamedTuple):
    name: str
    certificate: bytes
    key: bytes
    message: str


REJECTED = (
    Rejected("no certificate", b"", AUTHORITY.key_pem, "not a certificate authority"),
    Rejected("no key", AUTHORITY.certificate_pem, b"key", "not a certificate authority"),
    Rejected("a serving certificate", SERVING.certificate, SERVING.key, "may not sign"),
    Rejected("the key of another", AUTHORITY.certificate_pem, OTHER.key_pem, "does not belong"),
    Rejected("an RSA key", AUTHORITY.certificate_pem, RSA_KEY, "elliptic curve"),
)


@pytest.mark.parametrize("row", REJECTED, ids=lambda row: row.name)
def test_read_rejects(row: Rejected) -> None:
    with pytest.raises(CertificateError, match=row.message):
        Authority.read(row.certificate, row.key)
