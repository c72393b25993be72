"""The certificate authority: what is in it, and which texts are none."""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs.authority import Authority, CertificateError
from certs.serving import issue_leaf

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
LIFE: Final = timedelta(days=10)
AUTHORITY: Final = Authority.make("drawbridge", now=NOW, life=LIFE)
OTHER: Final = Authority.make("drawbridge", now=NOW, life=LIFE)
LEAF: Final = issue_leaf(AUTHORITY, ["a.example"], now=NOW, life=LIFE)
RSA_KEY: Final = rsa.generate_private_key(65537, 2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)


def test_what_is_written_reads_back() -> None:
    read = Authority.read(AUTHORITY.certificate_pem, AUTHORITY.key_pem)

    assert read.certificate == AUTHORITY.certificate
    assert read.key_pem == AUTHORITY.key_pem


def test_it_begins_an_hour_early_and_ends_in_time() -> None:
    assert AUTHORITY.certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert AUTHORITY.not_after == NOW + LIFE


def test_it_signs_leaves_and_nothing_else() -> None:
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


class Refused(NamedTuple):
    name: str
    certificate: bytes
    key: bytes
    told: str


REFUSED = (
    Refused("no certificate", b"", AUTHORITY.key_pem, "not a certificate authority"),
    Refused("no key", AUTHORITY.certificate_pem, b"key", "not a certificate authority"),
    Refused("a leaf", LEAF.certificate, LEAF.key, "may not sign"),
    Refused("a foreign key", AUTHORITY.certificate_pem, OTHER.key_pem, "does not belong"),
    Refused("a key of another kind", AUTHORITY.certificate_pem, RSA_KEY, "elliptic curve"),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_other_texts_are_refused(row: Refused) -> None:
    with pytest.raises(CertificateError, match=row.told):
        Authority.read(row.certificate, row.key)
