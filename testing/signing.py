"""Signing keys and signed pods, for tests."""

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from admission.signing import Signing
from controllers.certificates.secret_documents import secret_document
from kube.api.meta import rfc3339
from kube.names import NAMESPACE as OUR_NAMESPACE
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, SIGNING_SECRET
from process.certificates.signing import KEYS
from testing.builders import NAMESPACE
from testing.documents import Document
from translation.record.signature import SigningKey, content_of, encode_keys, sign

NOW: Final = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
KEY: Final = SigningKey(id="0123abcd", created=NOW, secret=b"k" * 32)
SIGNING: Final = Signing(keys=(KEY,), now=NOW)


def fixed_signing() -> Signing:
    """Return the key and time of the tests."""
    return SIGNING


def signed_document(
    document: Mapping[str, Any], key: SigningKey = KEY, *, namespace: str = NAMESPACE
) -> Document:
    """Return a translated pod as it is persisted: signed, and created at the same time."""
    result = copy.deepcopy(dict(document))
    annotations = result["metadata"]["annotations"]
    content = content_of(result, namespace=namespace, record=annotations[REQUEST_ANNOTATION])
    annotations[SIGNATURE_ANNOTATION] = sign(content, key, NOW)
    result["metadata"]["creationTimestamp"] = rfc3339(NOW)
    return result


def signing_secret(*keys: SigningKey) -> Document:
    """Return the Secret with keys."""
    document: Document = msgspec.to_builtins(
        secret_document(
            {KEYS: encode_keys(keys or (KEY,))}, namespace=OUR_NAMESPACE, name=SIGNING_SECRET
        )
    )
    return document
