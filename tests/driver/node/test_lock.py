"""A lock that ends with its holder."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.node.lock import LockTimeout, file_lock, run_to_end

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); input()"
)


async def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    async def hold(name: str) -> None:
        async with file_lock(path, timeout_s=60):
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(hold(name))

    assert all(order[i][0] == order[i + 1][0] for i in (0, 2, 4))


async def test_a_wait_that_takes_too_long_is_reported(tmp_path: Path) -> None:
    async with file_lock(tmp_path / "lock", timeout_s=None):
        with pytest.raises(LockTimeout, match=r"lock has been locked for 0\.01 s"):
            async with file_lock(tmp_path / "lock", timeout_s=0.01):
                pass


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_lock_is_held_until_the_work_on_a_thread_has_ended(
    tmp_path: Path, cancellations: int
) -> None:
    """After a deadline the next call worked beside the thread of the one before."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        may_end.wait()

    async def work_locked() -> None:
        async with file_lock(tmp_path / "lock", timeout_s=None):
            await run_to_end(work)

    working = asyncio.ensure_future(work_locked())
    await asyncio.to_thread(has_begun.wait)
    for _ in range(cancellations):
        working.cancel()
        await asyncio.sleep(0)

    try:
        with pytest.raises(LockTimeout):
            async with file_lock(tmp_path / "lock", timeout_s=0.05):
                pass
    finally:
        may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    async with file_lock(tmp_path / "lock", timeout_s=0.0):
        pass


async def test_work_that_fails_after_a_cancellation_is_no_second_error() -> None:
    may_fail = threading.Event()

    def work() -> None:
        may_fail.wait()
        raise OSError("full")

    working = asyncio.ensure_future(run_to_end(work))
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.sleep(0)
    may_fail.set()

    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock `lock`."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


async def test_a_holder_that_is_killed_holds_nothing(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(LockTimeout):
        async with file_lock(tmp_path / "lock", timeout_s=0.0):
            pass

    holder.kill()

    async with file_lock(tmp_path / "lock", timeout_s=60):
        pass
