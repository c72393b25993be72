"""Paths of the webhook and their keys, for tests."""

import msgspec

from controllers.certificates.secret_documents import secret_document
from kube.names import NAMESPACE
from process.certificates.certificates import CertificateSettings
from process.certificates.webhook_paths import PATH_KEYS, PathKey, encode_path_keys
from testing.documents import Document


def fixed_path(path: str) -> str:
    """Take every path for one with the right key."""
    return path


def path_secret(*keys: PathKey) -> Document:
    """Return the Secret with path keys."""
    document: Document = msgspec.to_builtins(
        secret_document(
            {PATH_KEYS: encode_path_keys(keys)},
            namespace=NAMESPACE,
            name=CertificateSettings().path_secret,
        )
    )
    return document
