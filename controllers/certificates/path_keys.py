"""The path keys, and the choice of the one that the webhook configurations name. Pure.

A key belongs to a certificate authority and is valid as long as that is trusted. A key that a
configuration names stays valid, too, whatever became of its authority: API servers call it until the
configuration changes. The configurations change to the signer's key once all replicas of the webhook
have had time to read it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography.hazmat.primitives.hashes import SHA256

from admission.webhook_configuration import WEBHOOK_PATHS
from certs.rotation import Authorities
from controllers.certificates.patches import same_name
from kube.jsonpatch import pointer
from process.certificates import RegisteredWebhook
from process.webhook_paths import PathKey, PathKeys, split_path

EXTERNAL: Final = "external"
"""In place of a fingerprint where somebody else keeps the authorities, such as cert-manager."""


def authority_ids(authorities: Authorities) -> Sequence[str]:
    """Return the fingerprints of the trusted authorities, that of the signer last."""
    trusted_ids = [_fingerprint(certificate) for certificate in authorities.trusted]
    if authorities.signer is not None:
        signer = _fingerprint(authorities.signer.certificate)
        trusted_ids = [
            *(fingerprint for fingerprint in trusted_ids if fingerprint != signer),
            signer,
        ]
    return trusted_ids or [EXTERNAL]


def _fingerprint(certificate: Any) -> str:
    return str(certificate.fingerprint(SHA256()).hex()[:16])


def named_keys(webhooks: Iterable[RegisteredWebhook]) -> Collection[str]:
    """Return the keys in the paths of our webhooks, in their order."""
    keys = (split_path(webhook.path)[1] for webhook in webhooks if webhook.name in WEBHOOK_PATHS)
    return tuple(dict.fromkeys(key for key in keys if key))


def update_keys(
    old_keys: PathKeys,
    authorities: Sequence[str],
    keys_in_use: Collection[str],
    now: datetime,
    create: Callable[[], str],
) -> PathKeys:
    """Return the keys that there should be.

    Args:
        old_keys: What the Secret holds; nothing where it was lost.
        authorities: Fingerprints of those that are trusted, that of the signer last.
        keys_in_use: The keys that configurations name. Where the Secret was lost, these are its keys.
        create: Returns a new random key.
    """
    signer = authorities[-1]
    known_keys = list(old_keys) or [
        PathKey(authority=signer, created=now, key=key) for key in keys_in_use
    ]
    kept_keys = [
        key for key in known_keys if key.authority in authorities or key.key in keys_in_use
    ]
    keyed_authorities = {key.authority for key in kept_keys}
    missing = [authority for authority in authorities if authority not in keyed_authorities]
    new_keys = (PathKey(authority=name, created=now, key=create()) for name in missing)
    return (*kept_keys, *new_keys)


def choose_key(
    keys: PathKeys, signer: str, present_key: str, now: datetime, propagation: timedelta
) -> str:
    """Return the key that the path of a webhook should have.

    The signer's, unless it is so young that a replica may not know it. Until then the present one,
    or the oldest where the present one is not valid.

    Args:
        keys: All valid keys; at least one.
        signer: Fingerprint of the authority that signs.
        present_key: The key in the present path; empty where there is none.
    """
    of_signer = [key for key in keys if key.authority == signer]
    known_keys = [key for key in of_signer if not key.created <= now < key.created + propagation]
    if known_keys:
        return known_keys[-1].key
    if any(key.key == present_key for key in keys):
        return present_key
    return min(keys, key=lambda key: key.created).key


def path_patch(
    webhooks: Sequence[RegisteredWebhook], choose: Callable[[str], str]
) -> list[Mapping[str, Any]]:
    """Return the JSON Patch after which the paths of our webhooks have their keys.

    Args:
        choose: Returns the key for a path that has the given one, or none.
    """
    operations: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        operations += _path_operations(index, webhook, choose)
    return operations


def _path_operations(
    index: int, webhook: RegisteredWebhook, choose: Callable[[str], str]
) -> Iterator[Mapping[str, Any]]:
    path_without_key, config = WEBHOOK_PATHS.get(webhook.name), webhook.client_config
    if path_without_key is None:
        return
    present = config.url if config.service is None else config.service.path
    before_key, present_key = split_path(present)
    if config.service is not None:
        before_key, place = (
            path_without_key,
            pointer("webhooks", index, "clientConfig", "service", "path"),
        )
    elif before_key.endswith(
        path_without_key
    ):  # Whatever else a proxy in front of the webhook needs stays.
        place = pointer("webhooks", index, "clientConfig", "url")
    else:
        return
    if present != (expected_path := f"{before_key}/{choose(present_key)}"):
        yield same_name(index, webhook)
        yield {"op": "add", "path": place, "value": expected_path}
