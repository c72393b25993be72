"""The life of a process: loops that run until a signal comes."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence

from kube.logs import get_logger

log = get_logger()


async def _nothing() -> None:
    """Do nothing before the end."""


async def run_until_signal(
    loops: Sequence[Callable[[], Awaitable[None]]],
    *,
    before_end: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Run loops until SIGTERM or SIGINT comes; the end of one of them is the end of all."""
    received_signal = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        log.info("process.signalled", signal=number.name)
        received_signal.set()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signal_number)  # The next one ends the process at once.

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_forever(loop)) for loop in loops]
        await received_signal.wait()
        await before_end()
        for task in tasks:
            task.cancel()


async def run_forever(run: Callable[[], Awaitable[None]]) -> None:
    """Run a loop that must not end by itself.

    Raises:
        RuntimeError: It did, or something in it was cancelled though nobody cancelled the loop; a TaskGroup would take
            that for a wanted end, and the process would go on without the loop.
    """
    try:
        await run()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(f"{run} was cancelled from within") from error
    raise RuntimeError(f"{run} ended, and should not")
