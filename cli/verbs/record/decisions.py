"""The decisions of the bridge, read from its sidecar's socket while a cluster is recorded. Read-only."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import msgspec

from kube.errors import DrawbridgeError

URL: Final = "http://sidecar/v1/debug/decisions"
PERIOD_S: Final = 1.0
"""Seconds between two readings."""
TIMEOUT_S: Final = 30.0
_OK: Final = 200


class _LoggedEntry(msgspec.Struct, frozen=True):
    number: int
    entry: dict[str, msgspec.Raw] = {}


class _View(msgspec.Struct, frozen=True):
    """The fields of the sidecar's answer that the next reading depends on."""

    instance: str
    entries: tuple[_LoggedEntry, ...] = ()
    more: bool = False


async def check_socket(socket: str) -> None:
    """Connect to the socket of a sidecar once.

    Raises:
        DrawbridgeError: It cannot be opened.
    """
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except (OSError, ValueError) as error:  # ValueError: a path that no socket can have.
        raise DrawbridgeError(
            f"{socket}: not the socket of a sidecar that runs ({error}); --decisions needs the one of the "
            "bridge's leader, in its pod"
        ) from None
    writer.close()


class DecisionFollower:
    """The log of a sidecar, followed from now on.

    Attributes:
        decisions: Entries of answers and of chosen devices that were read.
    """

    def __init__(self, socket: str, write: Callable[[Mapping[str, msgspec.Raw]], None]) -> None:
        """Begin without a connection.

        Args:
            socket: The path of the sidecar's socket.
            write: Takes the fields of each answer with entries.
        """
        self.decisions = 0
        self._socket = socket
        self._write = write
        self._instance, self._number = "", 0
        self._turn = asyncio.Lock()

    async def run(self, is_ready: Callable[[], bool]) -> None:
        """Read the log now and then; a sidecar without an answer is asked again later.

        Args:
            is_ready: Tells whether the first state of the cluster is written.
        """
        while True:
            if is_ready():
                await self.read()
            await asyncio.sleep(PERIOD_S)

    async def read(self) -> None:
        """Read all that is in the log, if the sidecar answers.

        Readings are made in turn: two of them from one number would have the same entries, and two
        first ones would have the log begin anew.
        """
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._turn:
            connector = aiohttp.UnixConnector(path=self._socket)
            try:
                async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                    while await self._read_part(session):
                        pass
            except (aiohttp.ClientError, OSError, TimeoutError):
                return

    async def _read_part(self, session: aiohttp.ClientSession) -> bool:
        """Read a part of the log, and return True if there is more."""
        last = {"instance": self._instance, "number": str(self._number)}
        async with session.get(URL, params=last) as response:
            text = await response.read()
            if response.status != _OK:
                return False  # It does not lead, or is not ready.
        try:
            view = msgspec.json.decode(text, type=_View)
        except msgspec.DecodeError:
            return False
        if view.entries:
            self._write(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
            self._instance, self._number = view.instance, view.entries[-1].number
            kinds = [bytes(logged.entry.get("type", b"")) for logged in view.entries]
            self.decisions += sum(kind in {b'"decided"', b'"placed"'} for kind in kinds)
        return view.more and bool(view.entries)
