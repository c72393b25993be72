"""How the API server comes to believe the webhook: a Secret, a caBundle, a leaf.

The controller makes a certificate authority once, as a Secret, and writes its certificate into the
webhook's configurations; it watches them, so that one which is applied again is healed, and looks
at the Secret from time to time, so that one which was deleted is made anew.
Each webhook replica reads the Secret and signs a serving certificate of its own, in memory.
Not yet: rotation of the authority. `bundle.crt` is what it will fill with every one still trusted.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from certs.authority import Authority, CertificateError
from certs.serving import Leaf, Listener, issue_leaf
from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.client import Client, PatchType, Resource
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.informer import DEFAULTS, Informer, InformerSettings
from kube.product import NAME
from webhook.jsonpatch import pointer
from webhook.resources import SECRETS, WEBHOOK_CONFIGURATIONS
from webhook.settings import Settings

CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
BUNDLE: Final = "bundle.crt"

FIRST_LOOK_S: Final = 0.2
"""Between looks for a Secret that is not there yet."""
LOOK_S: Final = 60.0
"""Between looks at the wall clock and at the Secret, since a timer sleeps when its machine does."""

Clock = Callable[[], datetime]

log = structlog.get_logger()


class Secret(ApiStruct, frozen=True, kw_only=True):
    """The part of core/v1 Secret that we read; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None


# --- the authority as a Secret --------------------------------------------------------------------


def secret_of(authority: Authority, settings: Settings) -> Mapping[str, Any]:
    """Return the Secret that holds an authority."""
    texts = {
        CERTIFICATE: authority.certificate_pem,
        KEY: authority.key_pem,
        BUNDLE: authority.certificate_pem,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": settings.authority_secret,
            "namespace": settings.namespace,
            "labels": {"app.kubernetes.io/name": NAME},
        },
        "type": "Opaque",
        "data": {name: b64encode(text).decode() for name, text in texts.items()},
    }


def authority_of(secret: Secret) -> Authority:
    """Return the authority that a Secret holds.

    Raises:
        CertificateError: It holds none.
    """
    data = secret.data or {}
    try:
        return Authority.read(b64decode(data[CERTIFICATE]), b64decode(data[KEY]))
    except (KeyError, ValueError) as fault:
        raise CertificateError(f"no {CERTIFICATE} and {KEY} in it: {fault}") from fault


async def read_authority(client: Client, settings: Settings) -> Authority:
    """Return the authority of the cluster.

    Raises:
        NotFound: It is not made yet.
        KubeError: It cannot be read.
        CertificateError: The Secret does not hold one.
    """
    name, namespace = settings.authority_secret, settings.namespace
    return authority_of(await client.get(SECRETS, name, Secret, namespace=namespace))


async def made_authority(client: Client, settings: Settings, now: datetime) -> Authority:
    """Return the authority of the cluster, made now if there is none.

    A Secret that holds something else is left alone: it is somebody's.

    Raises:
        KubeError: It can neither be read nor made.
        CertificateError: The Secret does not hold one.
    """
    try:
        return await read_authority(client, settings)
    except NotFound:
        life = timedelta(seconds=settings.control.authority_seconds)
        made = Authority.make(NAME, now=now, life=life)
    try:
        secret = secret_of(made, settings)
        await client.create(SECRETS, secret, Secret, namespace=settings.namespace)
    except AlreadyExists:  # Somebody was first.
        return await read_authority(client, settings)
    log.info("authority.made", secret=f"{settings.namespace}/{settings.authority_secret}")
    return made


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


class BundleWriter:
    """Keeps the caBundle of the webhook's configurations; one process at a time runs it."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        now: Clock,
        *,
        informer_settings: InformerSettings = DEFAULTS,
        look_s: float = LOOK_S,
    ) -> None:
        """Remember what to write where; nothing is asked before `run`.

        Args:
            now: The wall clock, with a time zone.
            look_s: Between looks at the Secret.
        """
        self._client = client
        self._settings = settings
        self._now = now
        self._look_s = look_s
        self._changed = asyncio.Event()
        self._authority: Authority | None = None
        self._latest: dict[tuple[Resource, str], tuple[TrustedWebhook, ...]] = {}
        self._configurations = tuple(
            Informer(
                client,
                resource,
                kept_webhooks,
                field_selector=f"metadata.name={settings.webhook_configuration}",
                handlers=(partial(self._noted, resource),),
                settings=informer_settings,
            )
            for resource in WEBHOOK_CONFIGURATIONS
        )
        self._backoff = settings.control.backoff()

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the authority ends, for metrics."""
        return {} if self._authority is None else {"ca": self._authority.not_after}

    async def run(self) -> None:
        """Make the authority where there is none, write it where it is not trusted; for ever."""
        async with asyncio.TaskGroup() as group:
            for configurations in self._configurations:
                group.create_task(configurations.run())
            failures = 0
            while True:
                try:
                    await self._written()
                    failures = 0
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._look_s):
                            await self._changed.wait()
                    self._changed.clear()
                except (KubeError, CertificateError) as error:
                    failures += 1
                    log.warning("trust.failed", error=str(error), failures=failures)
                    await asyncio.sleep(self._backoff.pause_s(failures))

    async def _written(self) -> None:
        self._authority = await made_authority(self._client, self._settings, self._now())
        for (resource, name), webhooks in list(self._latest.items()):
            steps = trusting(webhooks, self._authority.certificate_pem)
            if steps:
                raw = await self._client.patch(resource, name, steps, PatchType.JSON, msgspec.Raw)
                # The watch will tell the same, later.
                self._latest[resource, name] = kept_webhooks(bytes(raw))
                log.info("trust.written", configuration=f"{resource.plural}/{name}")

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


# --- the leaf -------------------------------------------------------------------------------------


def is_due(leaf: Leaf, authority: Authority, now: datetime, renewed_at: float) -> bool:
    """Whether a new leaf should be signed.

    Args:
        authority: As it is in the cluster.
        renewed_at: The part of a leaf's life after which it is replaced.
    """
    return leaf.authority != authority.certificate_pem or now >= leaf.renewed_at(renewed_at)


class LeafKeeper:
    """Signs this replica's serving certificate, and signs it again in time.

    Attributes:
        listener: None until the first leaf is signed.
    """

    def __init__(self, client: Client, settings: Settings, now: Clock) -> None:
        self._client = client
        self._settings = settings
        self._now = now
        self._authority: Authority | None = None
        self.listener: Listener | None = None

    def check(self) -> str:
        """Return why there is no certificate to serve with."""
        if self.listener is None:
            return "none yet"
        return "has ended" if self._now() >= self.listener.leaf.not_after else ""

    def leaf(self) -> Leaf:
        """Return the leaf that new connections get; there is one once `first` has returned."""
        if self.listener is None:
            raise RuntimeError("asked for the leaf before there is one")
        return self.listener.leaf

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the certificates end, for metrics."""
        ends = {}
        if self._authority is not None:
            ends["ca"] = self._authority.not_after
        if self.listener is not None:
            ends["leaf"] = self.listener.leaf.not_after
        return ends

    async def first(self) -> Listener:
        """Return the listener with the first leaf, once there is an authority to sign it."""
        told = ""
        while self.listener is None:
            problem = await self._looked()
            if problem and problem != told:
                log.info("leaf.waiting", reason=problem)
                told = problem
            if self.listener is None:
                await asyncio.sleep(FIRST_LOOK_S)
        return self.listener

    async def run(self) -> None:
        """Look from time to time whether a new leaf is due, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            problem = await self._looked()
            if problem:
                log.warning("leaf.not_renewed", error=problem)

    async def _looked(self) -> str:
        """Sign a leaf if one is due; return what was in the way."""
        try:
            self._authority = await read_authority(self._client, self._settings)
        except (KubeError, CertificateError) as error:
            return str(error)
        part = self._settings.serve.leaf_renewed_at
        if self.listener is not None and not is_due(
            self.listener.leaf, self._authority, self._now(), part
        ):
            return ""
        life = timedelta(seconds=self._settings.serve.leaf_seconds)
        try:
            leaf = issue_leaf(self._authority, self._settings.names(), now=self._now(), life=life)
        except CertificateError as error:
            return str(error)
        if self.listener is None:
            self.listener = Listener(leaf)
        else:
            self.listener.replace(leaf)
        log.info("leaf.signed", not_after=leaf.not_after.isoformat())
        return ""
