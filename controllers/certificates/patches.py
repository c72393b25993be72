"""What is written for a certificate authority: its Secret, and the caBundles of webhooks. Pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from certs.rotation import KEYS, Authorities, encode_authorities
from kube.jsonpatch import pointer
from kube.names import ROTATE_ANNOTATION
from process.certificates import MANAGED_LABELS, RegisteredWebhook, Secret


def secret_document(authorities: Authorities, *, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the Secret that stores authorities."""
    values = encode_authorities(authorities)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_LABELS},
        "type": "Opaque",
        "data": {key: b64encode(value).decode() for key, value in values.items()},
    }


def secret_patch(
    authorities: Authorities, secret: Secret, *, removes_request: bool
) -> Mapping[str, Any]:
    """Return the merge patch after which a Secret stores authorities, unless it was changed since.

    Args:
        removes_request: The requested rotation has begun, so its annotation goes.
    """
    values = encode_authorities(authorities)
    metadata: dict[str, Any] = {"resourceVersion": secret.metadata.resource_version}
    if removes_request:
        metadata["annotations"] = {ROTATE_ANNOTATION: None}
    data = {key: b64encode(values[key]).decode() if key in values else None for key in KEYS}
    return {"metadata": metadata, "data": data}


def ca_bundle_patch(
    webhooks: Sequence[RegisteredWebhook], ca_bundle: bytes
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch after which every webhook has a caBundle; empty where all have it.

    Each operation tests the webhook's name first, so that a list that was changed since is not
    damaged.

    Args:
        ca_bundle: As PEM.
    """
    encoded = b64encode(ca_bundle).decode()
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        if webhook.ca_bundle != encoded:
            name = pointer("webhooks", index, "name")
            operations.append({"op": "test", "path": name, "value": webhook.name})
            path = pointer("webhooks", index, "clientConfig", "caBundle")
            operations.append({"op": "add", "path": path, "value": encoded})
    return operations
