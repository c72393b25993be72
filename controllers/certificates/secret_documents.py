"""Secrets as they are created and patched, and the keys that they store. Pure."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kube.names import ROTATE_ANNOTATION
from process.certificates.certificates import MANAGED_LABELS, Secret
from process.certificates.webhook_paths import PathKeysError
from translation.record.signature import SigningKeysError

T = TypeVar("T")


def secret_document(
    values: Mapping[str, bytes], kind: str = "Opaque", *, namespace: str, name: str
) -> Mapping[str, Any]:
    """Return the managed Secret that stores values.

    Args:
        kind: The Secret's type.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_LABELS},
        "type": kind,
        "data": _encode(values),
    }


def secret_patch(
    values: Mapping[str, bytes | None], secret: Secret, *, removes_request: bool = False
) -> Mapping[str, Any]:
    """Return the merge patch that stores values in a Secret, unless it was changed since.

    Args:
        values: None removes a value.
        removes_request: The requested rotation has begun, so its annotation goes.
    """
    metadata: dict[str, Any] = {"resourceVersion": secret.metadata.resource_version}
    if removes_request:
        metadata["annotations"] = {ROTATE_ANNOTATION: None}
    return {"metadata": metadata, "data": _encode(values)}


def stored_keys(
    secret: Secret | None, name: str, decode: Callable[[bytes], Sequence[T]]
) -> tuple[Sequence[T], str]:
    """Return the keys that a value of a Secret holds, and the fault of the value.

    Args:
        decode: Raises PathKeysError or SigningKeysError.
    """
    value = None if secret is None else secret.values().get(name)
    if not value:
        return (), ""
    try:
        return decode(value), ""
    except (PathKeysError, SigningKeysError) as fault:
        return (), str(fault)


def _encode(values: Mapping[str, bytes | None]) -> dict[str, str | None]:
    return {
        key: None if value is None else b64encode(value).decode() for key, value in values.items()
    }
