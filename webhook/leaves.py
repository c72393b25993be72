"""The serving certificate of this replica: signed here, or mounted; in use without a restart.

It is looked at from time to time by the wall clock. One that cannot be renewed is served for as long
as it lasts, and readiness tells when that is over.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import structlog

from certs.authority import Authority, CertificateError
from certs.serving import Leaf, Listener, issue_leaf
from kube.client import Client
from kube.errors import KubeError
from webhook.settings import Settings
from webhook.trust import Clock, read_signer

FIRST_LOOK_S: Final = 0.2
"""Between looks for a certificate that is not there yet."""
SOONER: Final = 0.1
"""At most this part sooner than need be, so that replicas of one age do not renew together."""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
"""The files of a mounted certificate, named as in a Secret of type kubernetes.io/tls."""

log = structlog.get_logger()


class LeafSource(Protocol):
    """Where leaves come from."""

    async def newer(self, held: Leaf | None) -> Leaf | None:
        """Return a leaf to serve instead of the one that is held; None while that one is good.

        Raises:
            KubeError, CertificateError, OSError: There is none now.
        """
        ...

    def not_after(self) -> Mapping[str, datetime]:
        """Return when certificates other than the leaf end, for metrics."""
        ...


class SignedLeaves:
    """Leaves that this replica signs, by the authority of the cluster; no disk ever has the key."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        now: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Remember whom to ask.

        Args:
            now: The wall clock, with a time zone.
            chance: Uniform from 0 to 1.
        """
        self._client = client
        self._settings = settings
        self._now = now
        # One draw for a life: else a leaf that is looked at often is renewed as soon as it may be.
        self._part = settings.serve.leaf_renewed_at * (1 - SOONER * chance())
        self._signer: Authority | None = None

    async def newer(self, held: Leaf | None) -> Leaf | None:
        """Return a new leaf where the signer is another one, or it is time."""
        self._signer = await read_signer(self._client, self._settings)
        if held is not None and not is_due(held, self._signer, self._now(), self._part):
            return None
        life = timedelta(seconds=self._settings.serve.leaf_seconds)
        return issue_leaf(self._signer, self._settings.names(), now=self._now(), life=life)

    def not_after(self) -> Mapping[str, datetime]:
        """Return when the authority ends."""
        return {} if self._signer is None else {"ca": self._signer.not_after}


def is_due(leaf: Leaf, signer: Authority, now: datetime, renewed_at: float) -> bool:
    """Whether a new leaf should be signed.

    Args:
        signer: As it is in the cluster.
        renewed_at: The part of a leaf's life after which it is replaced.
    """
    return leaf.authority != signer.certificate_pem or now >= leaf.renewed_at(renewed_at)


class MountedLeaves:
    """Leaves that somebody else puts into a folder, such as cert-manager through a Secret."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def newer(self, held: Leaf | None) -> Leaf | None:
        """Return what is in the folder, if it is not what is held."""
        # Small files in memory: read on the loop, which a thread would only delay.
        texts = [(self._directory / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITY)]
        if held is not None and texts == [held.certificate, held.key, held.authority]:
            return None
        return Leaf.read(*texts)

    def not_after(self) -> Mapping[str, datetime]:
        """Return nothing: the authority is not ours to watch."""
        return {}


class LeafKeeper:
    """Holds the leaf that is served, and looks for a newer one.

    Attributes:
        listener: None until there is a first leaf.
    """

    def __init__(
        self, source: LeafSource, now: Clock, *, look_s: float, callers: bytes | None = None
    ) -> None:
        """Remember where leaves come from.

        Args:
            now: The wall clock, with a time zone.
            look_s: Between looks.
            callers: The authorities of clients, as PEM; None lets anybody come.
        """
        self._source = source
        self._now = now
        self._look_s = look_s
        self._callers = callers
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
        ends = dict(self._source.not_after())
        if self.listener is not None:
            ends["leaf"] = self.listener.leaf.not_after
        return ends

    async def first(self) -> Listener:
        """Return the listener with the first leaf, once there is one."""
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
        """Look from time to time whether there is a newer leaf, until cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            problem = await self._looked()
            if problem:
                log.warning("leaf.not_renewed", error=problem)

    async def _looked(self) -> str:
        """Take a newer leaf if there is one; return what was in the way."""
        try:
            leaf = await self._source.newer(None if self.listener is None else self.listener.leaf)
            if leaf is None:
                return ""
            if self.listener is None:
                self.listener = Listener(leaf, self._callers)
            else:
                self.listener.replace(leaf)
        except (KubeError, CertificateError, OSError) as error:
            return str(error)
        log.info("leaf.taken", not_after=leaf.not_after.isoformat())
        return ""
