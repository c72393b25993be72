"""How the API server comes to believe the webhook: a Secret with authorities, and caBundles.

The controller keeps certificate authorities in one Secret, as certs/rotation.py judges, and writes
all that are trusted into the webhook's configurations. It watches those, so that one which is
applied again is healed, and looks at the Secret from time to time, so that one which was deleted or
damaged is made good. webhook/leaves.py signs with what is in it.
"""

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from cryptography import x509

from certs.authority import Authority, CertificateError
from certs.rotation import (
    TEXTS,
    Action,
    Seen,
    Timing,
    Trust,
    after,
    certificates_of,
    next_action,
    texts_of,
    trust_of,
)
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.url import Resource
from kube.client import Client, PatchType
from kube.errors import KubeError, NotFound
from kube.informer import DEFAULTS, Informer, InformerSettings
from kube.product import NAME, ROTATE_ANNOTATION
from webhook.jsonpatch import pointer
from webhook.resources import SECRETS, WEBHOOK_CONFIGURATIONS
from webhook.settings import Settings

OURS: Final = {"app.kubernetes.io/name": NAME}
"""Labels of a Secret that we may write. One without them is somebody's: used, never changed."""

Clock = Callable[[], datetime]

log = structlog.get_logger()


class Secret(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 Secret that we read; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it may be written."""
        return OURS.items() <= (self.metadata.labels or {}).items()

    @property
    def is_asked(self) -> bool:
        """Whether somebody wants a new authority."""
        return ROTATE_ANNOTATION in (self.metadata.annotations or {})

    def texts(self) -> Mapping[str, bytes]:
        """Return the texts in it; what is no base64 stays as it is, for others to find wrong."""
        return {name: _decoded(value) for name, value in (self.data or {}).items()}


def _decoded(value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        return value.encode()


# --- the authorities as a Secret ------------------------------------------------------------------


def secret_of(trust: Trust, settings: Settings) -> Mapping[str, Any]:
    """Return the Secret that holds a trust."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": settings.authority_secret,
            "namespace": settings.namespace,
            "labels": OURS,
        },
        "type": "Opaque",
        "data": {name: b64encode(text).decode() for name, text in texts_of(trust).items()},
    }


def patch_of(trust: Trust, secret: Secret, *, is_answered: bool) -> Mapping[str, Any]:
    """Return the merge patch after which a Secret holds a trust, unless it has changed meanwhile.

    Args:
        is_answered: Whether the wish for a new authority, if there was one, is fulfilled.
    """
    texts = texts_of(trust)
    metadata: dict[str, Any] = {"resourceVersion": secret.metadata.resource_version}
    if is_answered:
        metadata["annotations"] = {ROTATE_ANNOTATION: None}
    data = {name: b64encode(texts[name]).decode() if name in texts else None for name in TEXTS}
    return {"metadata": metadata, "data": data}


async def read_signer(client: Client, settings: Settings) -> Authority:
    """Return who signs in the cluster.

    Raises:
        NotFound: There is no Secret yet.
        KubeError: It cannot be read.
        CertificateError: Nobody in it can sign, or not yet.
    """
    name, namespace = settings.authority_secret, settings.namespace
    secret = await client.get(SECRETS, name, Secret, namespace=namespace)
    trust, problems = trust_of(secret.texts())
    if trust.signer is None:
        raise CertificateError("; ".join(problems) or "nobody signs yet")
    return trust.signer


# --- the caBundle ---------------------------------------------------------------------------------


class _ClientConfig(ApiStruct, frozen=True, kw_only=True):
    ca_bundle: str = ""


class TrustedWebhook(ApiStruct, frozen=True, kw_only=True):
    """The part of a webhook in a configuration that we read; mutating or validating, it is the same."""

    name: str = ""
    client_config: _ClientConfig = _ClientConfig()

    @property
    def ca_bundle(self) -> str:
        """Whom the API server trusts, as base64 of PEM."""
        return self.client_config.ca_bundle


class _Configuration(ApiStruct, frozen=True, kw_only=True):
    webhooks: tuple[TrustedWebhook, ...] | None = None


def kept_webhooks(raw: bytes) -> tuple[TrustedWebhook, ...]:
    """Return the webhooks of a configuration."""
    return decode(raw, _Configuration).webhooks or ()


def trusting(webhooks: Sequence[TrustedWebhook], bundle: bytes) -> list[Mapping[str, Any]]:
    """Return the patch after which every webhook trusts a bundle, given as PEM.

    Empty when they do. Each step is guarded by the webhook's name, so that a list which changed in
    between is not damaged.
    """
    wanted = b64encode(bundle).decode()
    steps: list[Mapping[str, Any]] = []
    for index, webhook in enumerate(webhooks):
        if webhook.ca_bundle != wanted:
            name = pointer("webhooks", index, "name")
            steps.append({"op": "test", "path": name, "value": webhook.name})
            place = pointer("webhooks", index, "clientConfig", "caBundle")
            steps.append({"op": "add", "path": place, "value": wanted})
    return steps


class TrustKeeper:
    """Keeps the authorities and the caBundles; one process at a time runs it.

    Attributes:
        informers: Resource name to informer, for metrics.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        now: Clock,
        *,
        informer_settings: InformerSettings = DEFAULTS,
    ) -> None:
        """Remember what to write where; nothing is asked before `run`.

        Args:
            now: The wall clock, with a time zone.
        """
        self._client = client
        self._settings = settings
        self._timing = timing_of(settings)
        self._now = now
        self._changed = asyncio.Event()
        self._trust = Trust()
        self._told: tuple[bytes, datetime] | None = None
        self._latest: dict[tuple[Resource, str], tuple[TrustedWebhook, ...]] = {}
        self.informers: Final[Mapping[str, Informer[Any]]] = {
            resource.plural: Informer(
                client,
                resource,
                kept_webhooks,
                field_selector=f"metadata.name={settings.webhook_configuration}",
                handlers=(partial(self._noted, resource),),
                settings=informer_settings,
            )
            for resource in WEBHOOK_CONFIGURATIONS
        }
        self._backoff = settings.control.backoff()

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the authorities end, for metrics."""
        pairs = (("ca", self._trust.signer), ("next-ca", self._trust.successor))
        return {kind: each.not_after for kind, each in pairs if each is not None}

    def trusted(self) -> int:
        """Return how many authorities are trusted; one, but for a rotation's days."""
        return len(self._trust.trusted)

    def is_told(self) -> bool:
        """Whether every caBundle, as last read, holds all that are trusted and nobody else."""
        wanted = b64encode(self._trust.bundle).decode()
        return all(each.ca_bundle == wanted for each in self._webhooks())

    async def run(self) -> None:
        """Do what is due in the Secret, and write it where it is not trusted; for ever."""
        async with asyncio.TaskGroup() as group:
            for configurations in self.informers.values():
                group.create_task(configurations.run())
            for configurations in self.informers.values():
                # What API servers believe is what is left of authorities whose Secret is lost.
                await configurations.synced.wait()
            failures = 0
            while True:
                try:
                    await self._looked()
                    failures = 0
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.look_seconds):
                            await self._changed.wait()
                    self._changed.clear()
                except (KubeError, CertificateError) as error:
                    failures += 1
                    log.warning("trust.failed", error=str(error), failures=failures)
                    await asyncio.sleep(self._backoff.pause_s(failures))

    async def _looked(self) -> None:
        name, namespace = self._settings.authority_secret, self._settings.namespace
        secret = None
        with suppress(NotFound):
            secret = await self._client.get(SECRETS, name, Secret, namespace=namespace)
        if secret is None or secret.is_ours:
            self._trust = await self._advanced(secret)
        else:
            self._trust = _somebodys(secret)
        await self._tell()

    async def _advanced(self, secret: Secret | None) -> Trust:
        """Do what is due now, and return what is in the Secret then."""
        trust, problems = trust_of({} if secret is None else secret.texts())
        is_asked = secret is not None and secret.is_asked
        actions: list[Action] = []
        while action := next_action(trust, self._seen(trust, is_asked=is_asked), self._timing):
            seen = self._seen(trust, is_asked=is_asked)
            trust = after(action, trust, seen, partial(self._fresh, seen.now))
            is_asked = is_asked and action is not Action.PUBLISH
            actions.append(action)
        if secret is None:
            body = secret_of(trust, self._settings)
            namespace = self._settings.namespace
            await self._client.create(SECRETS, body, Secret, namespace=namespace)
        elif actions or problems:
            await self._patch(secret, trust, is_answered=Action.PUBLISH in actions)
        if actions or problems:
            log.info("authority.changed", actions=[*actions], problems=problems)
        return trust

    async def _patch(self, secret: Secret, trust: Trust, *, is_answered: bool) -> None:
        name, namespace = self._settings.authority_secret, self._settings.namespace
        patch = patch_of(trust, secret, is_answered=is_answered)
        await self._client.patch(SECRETS, name, patch, PatchType.MERGE, Secret, namespace=namespace)

    def _seen(self, trust: Trust, *, is_asked: bool) -> Seen:
        told = self._told
        return Seen(
            now=self._now(),
            believed_since=told[1] if told is not None and told[0] == trust.bundle else None,
            believed=tuple(believed(self._webhooks())),
            is_asked=is_asked,
        )

    def _fresh(self, now: datetime) -> Authority:
        life = timedelta(seconds=self._settings.control.authority_seconds)
        return Authority.make(NAME, now=now, life=life)

    async def _tell(self) -> None:
        """Write the caBundles that are not as they should be, and note since when all are."""
        bundle = self._trust.bundle
        for (resource, name), webhooks in list(self._latest.items()):
            steps = trusting(webhooks, bundle)
            if steps:
                raw = await self._client.patch(resource, name, steps, PatchType.JSON, msgspec.Raw)
                # The watch tells the same, later; what it has told already may be newer.
                if self._latest.get((resource, name)) is webhooks:
                    self._latest[resource, name] = kept_webhooks(bytes(raw))
                log.info("trust.written", configuration=f"{resource.plural}/{name}")
        if self._told is None or self._told[0] != bundle:
            self._told = bundle, self._now()

    def _webhooks(self) -> Iterator[TrustedWebhook]:
        return (webhook for webhooks in self._latest.values() for webhook in webhooks)

    def _noted(
        self,
        resource: Resource,
        key: tuple[str, str],
        _old: tuple[TrustedWebhook, ...] | None,
        new: tuple[TrustedWebhook, ...] | None,
    ) -> None:
        if new is None:
            self._latest.pop((resource, key[1]), None)
        else:
            self._latest[resource, key[1]] = new
        self._changed.set()


def timing_of(settings: Settings) -> Timing:
    """Return how long the steps of a rotation take."""
    control = settings.control
    return Timing(
        renewed_at=control.authority_renewed_at,
        published=timedelta(seconds=control.authority_published_seconds),
        hurried=timedelta(seconds=control.authority_hurried_seconds),
        # A replica signs within a moment of reading who signs; looks are the margin.
        leaf=timedelta(seconds=settings.serve.leaf_seconds + 2 * settings.look_seconds),
    )


def believed(webhooks: Iterable[TrustedWebhook]) -> Iterator[x509.Certificate]:
    """Yield the certificates in caBundles, of those that can be read."""
    for bundle in dict.fromkeys(webhook.ca_bundle for webhook in webhooks):
        with suppress(CertificateError):
            yield from certificates_of(_decoded(bundle))


def _somebodys(secret: Secret) -> Trust:
    """Return what is in a Secret that is not ours: who signs there is trusted, if nobody else.

    Raises:
        CertificateError: Nobody signs there.
    """
    trust, problems = trust_of(secret.texts())
    if trust.signer is None:
        words = "; ".join(problems) or "nobody signs in it"
        raise CertificateError(f"the Secret has none of our labels, and so is left alone: {words}")
    return msgspec.structs.replace(trust, trusted=trust.trusted or (trust.signer.certificate,))
