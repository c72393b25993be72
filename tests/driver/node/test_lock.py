"""A lock that ends with its holder."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.node.lock import LockTimeout, file_lock

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); input()"
)


async def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    async def hold(name: str) -> None:
        async with file_lock(path, timeout_s=5.0):
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

    async with file_lock(tmp_path / "lock", timeout_s=5.0):
        pass
