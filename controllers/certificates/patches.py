"""Patches and documents: two Secrets, and caBundles and rules of webhook configurations. Pure."""

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from admission.match_conditions import differ_in_keys_only
from certs.rotation import KEYS, Authorities, encode_authorities
from certs.serving import ServingCertificate
from controllers.certificates.secret_documents import secret_document, secret_patch
from kube.jsonpatch import pointer
from process.certificates.certificates import (
    TLS_AUTHORITY,
    TLS_CERTIFICATE,
    TLS_KEY,
    TLS_TYPE,
    RegisteredWebhook,
    Secret,
    WebhookRule,
)

Conditions = Mapping[str, Sequence[Mapping[str, str]]]
"""Name of a webhook to its match conditions."""
Rules = Mapping[str, Sequence[Mapping[str, Any]]]
"""Name of a webhook to its rules."""


# --- Secrets --------------------------------------------------------------------------------------


def authority_document(authorities: Authorities, *, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the Secret that stores authorities."""
    return secret_document(encode_authorities(authorities), namespace=namespace, name=name)


def authority_patch(
    authorities: Authorities, secret: Secret, *, removes_request: bool
) -> Mapping[str, Any]:
    """Return the merge patch that stores authorities in a Secret, unless it was changed since.

    Args:
        removes_request: The requested rotation has begun, so its annotation goes.
    """
    values = encode_authorities(authorities)
    return secret_patch(
        {key: values.get(key) for key in KEYS}, secret, removes_request=removes_request
    )


def serving_document(
    certificate: ServingCertificate, *, namespace: str, name: str
) -> Mapping[str, Any]:
    """Return the Secret that gives the webhook its certificate."""
    return secret_document(_serving_values(certificate), TLS_TYPE, namespace=namespace, name=name)


def serving_patch(certificate: ServingCertificate, secret: Secret) -> Mapping[str, Any]:
    """Return the merge patch that stores a certificate in a Secret, unless it was changed since."""
    return secret_patch(_serving_values(certificate), secret)


def _serving_values(certificate: ServingCertificate) -> dict[str, bytes]:
    return {
        TLS_CERTIFICATE: certificate.certificate,
        TLS_KEY: certificate.key,
        TLS_AUTHORITY: certificate.authority,
    }


# --- webhook configurations -----------------------------------------------------------------------


def ca_bundle_patch(
    webhooks: Sequence[RegisteredWebhook], ca_bundle: bytes
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch that gives every webhook a caBundle; empty if all have it.

    Each operation tests the webhook's name first, so that a list that was changed since is not
    damaged.

    Args:
        ca_bundle: The bundle as PEM.
    """
    encoded_bundle = b64encode(ca_bundle).decode()
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        if webhook.ca_bundle != encoded_bundle:
            operations.append(same_name(index, webhook))
            path = pointer("webhooks", index, "clientConfig", "caBundle")
            operations.append({"op": "add", "path": path, "value": encoded_bundle})
    return operations


def rules_patch(
    webhooks: Sequence[RegisteredWebhook], rules: Rules, reached_names: Collection[str]
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch that gives webhooks their rules; empty if they have them.

    Args:
        reached_names: Names of the webhooks that answer; others are left as they are.
    """
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        if webhook.name in reached_names and lacks_rules(webhook, rules):
            operations.append(same_name(index, webhook))
            path = pointer("webhooks", index, "rules")
            operations.append({"op": "add", "path": path, "value": rules[webhook.name]})
    return operations


def conditions_patch(
    webhooks: Sequence[RegisteredWebhook], conditions: Conditions
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch that gives match conditions the keys of the profiles in force.

    A webhook whose conditions differ in more than the names of keys is left as it is: somebody changed
    it on purpose, or it is of another version.
    """
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        expected = conditions.get(webhook.name)
        if expected is not None and _has_other_keys(webhook, expected):
            operations.append(same_name(index, webhook))
            path = pointer("webhooks", index, "matchConditions")
            operations.append({"op": "replace", "path": path, "value": list(expected)})
    return operations


def _has_other_keys(webhook: RegisteredWebhook, expected: Sequence[Mapping[str, str]]) -> bool:
    stored_conditions = [
        (condition.name, condition.expression) for condition in webhook.match_conditions or ()
    ]
    expected_conditions = [(condition["name"], condition["expression"]) for condition in expected]
    return stored_conditions != expected_conditions and (
        [name for name, _ in stored_conditions] == [name for name, _ in expected_conditions]
        and all(
            differ_in_keys_only(expression, other)
            for (_, expression), (_, other) in zip(
                stored_conditions, expected_conditions, strict=True
            )
        )
    )


def lacks_rules(webhook: RegisteredWebhook, rules: Rules) -> bool:
    """Return True if a webhook is one of ours, and its rules are not those that we know."""
    if webhook.name not in rules:
        return False
    return (webhook.rules or ()) != msgspec.convert(rules[webhook.name], tuple[WebhookRule, ...])


def same_name(index: int, webhook: RegisteredWebhook) -> Mapping[str, Any]:
    """Return the operation that tests a list of webhooks for being the one that was read."""
    return {"op": "test", "path": pointer("webhooks", index, "name"), "value": webhook.name}
