"""A disk that is full at the start is told and waited for; the kubelet is not served meanwhile."""

import errno

from structlog.testing import capture_logs

from driver.node.lock import LockTimeout
from driver.prepare.recovery import RETRY_S, StateRecovery


class Disk:
    """A recovery that fails some times; the checks are noted while it waits."""

    def __init__(self, *failures: OSError | LockTimeout) -> None:
        self._failures = list(failures)
        self.recovery = StateRecovery(self._recover, self._sleep)
        self.problems: list[str] = []

    async def _recover(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    async def _sleep(self, seconds: float) -> None:
        assert seconds == RETRY_S
        self.problems.append(self.recovery.check())


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "/state/checkpoint")


async def test_a_state_that_can_be_read_is_known_at_once() -> None:
    disk = Disk()
    assert disk.recovery.check() == "the state of the node has not been read yet"

    await disk.recovery.run()

    assert (disk.recovery.check(), disk.problems) == ("", [])


async def test_a_full_disk_is_reported_once_and_tried_again() -> None:
    disk = Disk(full(), full(), LockTimeout("another process has the lock"))
    with capture_logs() as lines:
        await disk.recovery.run()

    assert disk.recovery.check() == ""
    told = "[Errno 28] No space left on device: '/state/checkpoint'"
    assert disk.problems == [told, told, "another process has the lock"]
    assert [line["error"] for line in lines] == [told, "another process has the lock"]
