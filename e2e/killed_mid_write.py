"""A process of ours that is killed in the middle of a write: `python -m e2e.killed_mid_write PACKAGE ORDER`.

It is the process in everything else. The file ORDER says at which write it kills itself, as the kernel
would when memory runs out, and whether before the request is sent or after it is answered. The file is
deleted then, and the next process started, like a container that ended.
"""

import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal

import msgspec

from e2e.substitute import command_with
from kube.client.client import Client
from process.running.command import Process, run_command

Moment = Literal["before", "after"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The write to die at.

    Attributes:
        write: Module and name of a function, and the method of the client that it calls.
        moment: The time: before the request is sent, or after it is answered.
        part: A text in the request, where one function writes several things.
    """

    write: str
    moment: Moment
    part: str = ""


class KilledClient(Client):
    """A client that kills its process at the write that the order names."""

    order: ClassVar[Path]

    def create(self, *arguments: Any, **keywords: Any) -> Coroutine[Any, Any, Any]:
        """Create an object."""
        write = _name_write(inspect.currentframe(), "create")
        return self._write(write, arguments, super().create(*arguments, **keywords))

    def patch(self, *arguments: Any, **keywords: Any) -> Coroutine[Any, Any, Any]:
        """Patch an object."""
        write = _name_write(inspect.currentframe(), "patch")
        return self._write(write, arguments, super().patch(*arguments, **keywords))

    def delete(self, *arguments: Any, **keywords: Any) -> Coroutine[Any, Any, Any]:
        """Delete an object."""
        write = _name_write(inspect.currentframe(), "delete")
        return self._write(write, arguments, super().delete(*arguments, **keywords))

    async def _write(self, write: str, arguments: object, call: Awaitable[Any]) -> Any:
        order = self._read_order()
        is_due = order is not None and write == order.write and order.part in repr(arguments)
        if order is not None and is_due and order.moment == "before":
            self._die()
        try:
            return await call
        finally:
            if is_due:
                self._die()

    def _read_order(self) -> Order | None:
        try:
            return msgspec.json.decode(self.order.read_bytes(), type=Order)
        except FileNotFoundError:
            return None

    def _die(self) -> None:
        self.order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class KilledProcess(Process[Any], frozen=True, kw_only=True):
    """A process with such a client."""

    async def client(self) -> Client:
        """Return a client of the API server."""
        return await KilledClient.discover(timeout_s=self.settings.client_timeout)


def _name_write(method: FrameType | None, name: str) -> str:
    """Return the name of a write.

    Args:
        method: The frame of the client's method, which is no coroutine, so that its caller is known.
        name: The method's.
    """
    caller = method.f_back if method is not None else None
    assert caller is not None
    return f"{caller.f_globals['__name__']}.{caller.f_code.co_qualname} {name}"


def main(package: str, order: str) -> int:
    """Run the process again and again until it ends by itself; return its exit status."""
    KilledClient.order = Path(order)
    # Imported once: a fork of this is there much sooner than a new process.
    command = command_with(package, KilledProcess)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    while True:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return run_command(command, [])
        _, status = os.waitpid(child, 0)
        if signals or os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
