"""Keys, certificates and kubeconfigs of a cluster that lives for a test or a day.

Elliptic keys throughout: made in a millisecond, and the API server takes them for service account
tokens too.
"""

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR: Final = dt.timedelta(days=30)
_USES: Final = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
)

# Python 3.13 verifies strictly and refuses an authority that does not say this.
_SIGNS: Final = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write both into `directory`; returns the certificate's path and the key's."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_secret(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority that forgets its key with the process."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _certificate(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, common_name: str, *organizations: str, addresses: Iterable[str] = ()
    ) -> KeyPair:
        """A pair for a client of that user name and groups, and for a server on loopback.

        Args:
            addresses: More addresses of the server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName("localhost"),
                x509.DNSName("kubernetes.default.svc"),
                *(
                    x509.IPAddress(ipaddress.ip_address(address))
                    for address in dict.fromkeys(("127.0.0.1", *addresses))
                ),
            ]
        )
        certificate = (
            _certificate(x509.Name(subject), self._name, key.public_key())
            .add_extension(names, critical=False)
            .add_extension(_USES, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return KeyPair(
            certificate=certificate.public_bytes(serialization.Encoding.PEM), key=_pem(key)
        )


def signing_key() -> bytes:
    """A private key for service account tokens, in PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def cluster_entry(server: str, authority: bytes) -> dict[str, str]:
    """A kubeconfig's cluster entry: a URL, and the certificate that vouches for it in PEM."""
    return {"server": server, "certificate-authority-data": _base64(authority)}


def kubeconfig(
    cluster: Mapping[str, Any], user: Mapping[str, Any], *, name: str = "drawbridge-e2e"
) -> str:
    """The text of a kubeconfig with one cluster, one user and one context.

    Args:
        cluster: The result of `cluster_entry`.
        user: `{"token": ...}`, or what `certificate_user` gives.
        name: The name of cluster, user and context.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"


def certificate_user(pair: KeyPair) -> dict[str, str]:
    """A kubeconfig's user entry that presents a client certificate."""
    return {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }


def write_secret(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # SEC 1, which Kubernetes reads for service account keys as well as for TLS.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
