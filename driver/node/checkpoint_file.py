"""The checkpoint on the disk, and the recovery from one that cannot be relied on.

A file that cannot be read, or is missing although specs of this boot are there, is set aside: it is
renamed so that the next start still sees it. As long as such a file of the present boot is there, nobody
knows which devices are in use, and nothing is prepared. A reboot ends that, or a person who has ended
all pods with devices and removes the file. A driver that can read it takes it back, without the claims
that were unprepared meanwhile: their specs are gone.
"""

import errno
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from driver.model.record import Record, State
from driver.model.steps import Step, StepHook
from driver.node.files import read_file, replace_file, sync_folder
from driver.plan.checkpoint import (
    MAX_BYTES,
    Checkpoint,
    Unreadable,
    decode_checkpoint,
    encode_checkpoint,
)
from kube.logs import get_logger

NAME: Final = "checkpoint"
SET_ASIDE: Final = "checkpoint.unreadable."
_NO_FILE: Final = frozenset({errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO})

log = get_logger()


class CheckpointFile:
    """Reads and writes under the driver's lock, held by the caller."""

    def __init__(self, folder: Path, boot_id: str, at_step: StepHook) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._boot_id = boot_id
        self._at_step = at_step

    def recover(self, boots: Mapping[str, str]) -> None:
        """Leave a readable checkpoint, and set an unreadable one aside; called once at the start.

        Args:
            boots: Claim UID to the boot in which its CDI spec was written, for all claims with a spec.

        Raises:
            OSError: The folder cannot be written.
        """
        content = self._read()
        if content is None and self._boot_id in boots.values():
            content = Unreadable(why="it is missing, although claims have been prepared")
        if isinstance(content, Unreadable):
            self._set_aside(content)
            content = None
        if content is None or content.boot_id != self._boot_id:
            if content is not None:
                log.info("checkpoint.other_boot", claims=len(content.claims))
            content = Checkpoint(boot_id=self._boot_id)
            self.store(content)
        self._take_back(content, boots)

    def load(self) -> Checkpoint:
        """Return the records of this boot.

        Raises:
            OSError: The file cannot be read, or another process has damaged it.
        """
        content = self._read()
        if content is None or (
            isinstance(content, Checkpoint) and content.boot_id != self._boot_id
        ):
            return Checkpoint(boot_id=self._boot_id)
        if isinstance(content, Unreadable):
            raise OSError(f"{self._path}: {content.why}")
        return content

    def store(self, checkpoint: Checkpoint) -> None:
        """Write the records.

        Raises:
            OSError: It could not be written, or would be too large to be read; the old one is still there.
        """
        content = encode_checkpoint(checkpoint)
        if len(content) > MAX_BYTES:
            reason = f"the prepared claims take more than {MAX_BYTES >> 20} MiB; delete pods with large claims"
            raise OSError(errno.EFBIG, reason, str(self._path))
        replace_file(
            self._path, content, before_rename=lambda: self._at_step(Step.TEMPORARY_WRITTEN)
        )

    def set_aside(self) -> tuple[Path, ...]:
        """Return this boot's checkpoint files that could not be read."""
        return tuple(sorted(self._folder.glob(f"{SET_ASIDE}{self._boot_id}.*")))

    def _read(self) -> Checkpoint | Unreadable | None:
        """Return the content of the file; None if there is none."""
        try:
            content = read_file(self._path, MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return Unreadable(why="it is no regular file")
        if len(content) > MAX_BYTES:
            return Unreadable(why=f"it is larger than {MAX_BYTES >> 20} MiB")
        return decode_checkpoint(content)

    def _set_aside(self, unreadable: Unreadable) -> None:
        names = (f"{SET_ASIDE}{self._boot_id}.{number}" for number in count())
        aside = next(path for name in names if not (path := self._folder / name).exists())
        if self._path.exists():
            self._path.replace(aside)
        else:
            aside.touch(mode=0o600)
        sync_folder(self._folder)
        log.error("checkpoint.set_aside", why=unreadable.why, file=str(aside))

    def _take_back(self, present: Checkpoint, boots: Mapping[str, str]) -> None:
        """Add the claims of files that were set aside by a version that could not read them."""
        for aside in self.set_aside():
            try:
                checkpoint = decode_checkpoint(read_file(aside, MAX_BYTES))
            except OSError:
                continue  # Whatever it is, it stays aside.
            if isinstance(checkpoint, Checkpoint) and checkpoint.boot_id == self._boot_id:
                claims = _prepared_claims(checkpoint, boots)
                present = msgspec.structs.replace(present, claims={**claims, **present.claims})
                self.store(present)
                aside.unlink()
                sync_folder(self._folder)
                ended = len(checkpoint.claims) - len(claims)
                log.info("checkpoint.taken_back", claims=len(claims), ended=ended, file=str(aside))


def _prepared_claims(aside: Checkpoint, boots: Mapping[str, str]) -> Mapping[str, Record]:
    """Return the claims of a file that was set aside, without those that were unprepared since.

    Meanwhile an unprepared claim leaves no record, and the kubelet does not call again for it. But its spec
    is gone, and each completed claim had one. The spec of a claim that was only started may never have been
    written; such a claim is completed by the next call, or undone when it no longer exists.
    """
    return {
        uid: record
        for uid, record in aside.claims.items()
        if record.state is State.STARTED or uid in boots
    }
