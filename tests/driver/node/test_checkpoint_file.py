"""The checkpoint on a disk: across crashes, reboots, versions and damage."""

import os
from pathlib import Path

import pytest

from driver.model.record import State
from driver.model.steps import Step, ignore_step
from driver.node.checkpoint_file import CheckpointFile
from driver.plan.checkpoint import Checkpoint, encode_checkpoint
from testing.allocation.builders import result
from testing.driver.builders import BOOT, allocated_claim, prepared_checkpoint

CHECKPOINT = prepared_checkpoint(allocated_claim(result("gpu-0")))
NOTHING = Checkpoint(boot_id=BOOT)
SPECS = dict.fromkeys(CHECKPOINT.claims, BOOT)


def file_in(folder: Path, boot: str = BOOT) -> CheckpointFile:
    return CheckpointFile(folder, boot, ignore_step)


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    file_in(tmp_path).store(CHECKPOINT)
    checkpoint_file = file_in(tmp_path)

    checkpoint_file.recover(SPECS)

    assert CHECKPOINT == checkpoint_file.load()
    assert ["checkpoint"] == [path.name for path in tmp_path.iterdir()]
    assert 0o600 == (tmp_path / "checkpoint").stat().st_mode & 0o777


def test_the_first_start_has_nothing(tmp_path: Path) -> None:
    file = file_in(tmp_path)

    file.recover({})

    assert NOTHING == file.load()
    assert not file.set_aside()


def test_after_a_reboot_nothing_is_prepared(tmp_path: Path) -> None:
    file_in(tmp_path).store(CHECKPOINT)
    checkpoint_file = file_in(tmp_path, "boot-2")

    assert Checkpoint(boot_id="boot-2") == checkpoint_file.load()
    checkpoint_file.recover({})
    assert Checkpoint(boot_id="boot-2") == checkpoint_file.load()


@pytest.mark.parametrize("content", [b"", b"broken", encode_checkpoint(CHECKPOINT)[:-9]])
def test_a_broken_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    file = file_in(tmp_path)

    file.recover({})

    (aside,) = file.set_aside()
    assert content == aside.read_bytes()
    assert NOTHING == file.load()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "loop", "nowhere"])
def test_what_is_no_file_is_set_aside(tmp_path: Path, kind: str) -> None:
    path, elsewhere = tmp_path / "checkpoint", tmp_path / "elsewhere"
    elsewhere.write_bytes(encode_checkpoint(CHECKPOINT))
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        targets = {"link": elsewhere, "loop": path, "nowhere": tmp_path / "nowhere"}
        path.symlink_to(targets[kind])
    checkpoint_file = file_in(tmp_path)

    with pytest.raises(OSError, match="no regular file"):
        checkpoint_file.load()
    checkpoint_file.recover(SPECS)

    assert NOTHING == checkpoint_file.load()
    assert checkpoint_file.set_aside()
    assert encode_checkpoint(CHECKPOINT) == elsewhere.read_bytes()
    file_in(tmp_path).recover(SPECS)
    assert checkpoint_file.set_aside(), "it stays set aside"


def test_it_stays_set_aside_until_it_is_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"broken")
    file_in(tmp_path).recover({})
    checkpoint_file = file_in(tmp_path)

    checkpoint_file.recover({})

    (aside,) = checkpoint_file.set_aside()
    aside.unlink()
    assert not checkpoint_file.set_aside()


def test_it_does_not_matter_after_a_reboot(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"broken")
    file_in(tmp_path).recover({})
    checkpoint_file = file_in(tmp_path, "boot-2")

    checkpoint_file.recover({})

    assert not checkpoint_file.set_aside()


def test_a_version_that_can_read_it_takes_it_back(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"of a later version")
    older = file_in(tmp_path)
    older.recover({})
    (aside,) = older.set_aside()
    newer = file_in(tmp_path)
    aside.write_bytes(encode_checkpoint(CHECKPOINT))  # As the later version reads it.

    newer.recover(SPECS)

    assert not newer.set_aside()
    assert CHECKPOINT == newer.load()


@pytest.mark.parametrize(
    ("state", "specs", "number"),
    [
        (State.COMPLETED, SPECS, 1),
        (State.COMPLETED, dict.fromkeys(SPECS, ""), 1),  # A damaged spec is one.
        (State.COMPLETED, {}, 0),
        (State.STARTED, {}, 1),
    ],
)
def test_claims_that_were_unprepared_meanwhile_are_not_taken_back(
    tmp_path: Path, state: State, specs: dict[str, str], number: int
) -> None:
    file = file_in(tmp_path)
    file.store(NOTHING)
    aside = prepared_checkpoint(allocated_claim(result("gpu-0")), state=state)
    (tmp_path / f"checkpoint.unreadable.{BOOT}.0").write_bytes(encode_checkpoint(aside))

    file.recover(specs)

    assert number == len(file.load().claims)
    assert not file.set_aside()


def test_a_missing_file_is_no_empty_one_where_specs_are_left(tmp_path: Path) -> None:
    file = file_in(tmp_path)

    file.recover(SPECS)

    (aside,) = file.set_aside()
    assert b"" == aside.read_bytes()


def test_a_file_that_breaks_while_the_driver_runs_is_an_error(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.store(CHECKPOINT)
    (tmp_path / "checkpoint").write_bytes(b"broken")

    with pytest.raises(OSError, match="checkpoint: its first line"):
        file.load()


def test_whoever_dies_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def killed(step: Step) -> None:
        assert Step.TEMPORARY_WRITTEN is step
        raise KilledError

    file_in(tmp_path).store(CHECKPOINT)
    with pytest.raises(KilledError):
        CheckpointFile(tmp_path, BOOT, killed).store(NOTHING)

    assert CHECKPOINT == file_in(tmp_path).load()


def test_a_folder_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.store(CHECKPOINT)
    (tmp_path / "checkpoint.partial").mkdir()  # Even root cannot write a file there.

    with pytest.raises(OSError, match=r"checkpoint\.partial"):
        file.store(NOTHING)

    assert CHECKPOINT == file.load()


def test_no_file_that_was_set_aside_is_overwritten(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        (tmp_path / "checkpoint").write_bytes(content)
        file_in(tmp_path).recover({})
    first, second = file_in(tmp_path).set_aside()
    first.unlink()

    (tmp_path / "checkpoint").write_bytes(b"third")
    file_in(tmp_path).recover({})

    assert [b"third", b"second"] == [path.read_bytes() for path in (first, second)]


def test_a_checkpoint_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Users choose how large their claims are, and a larger file would stop the driver until a reboot.
    checkpoint_file = file_in(tmp_path)
    checkpoint_file.store(CHECKPOINT)
    monkeypatch.setattr("driver.node.checkpoint_file.MAX_BYTES", len(encode_checkpoint(CHECKPOINT)))
    both = prepared_checkpoint(
        allocated_claim(result("gpu-0")), allocated_claim(result("gpu-1"), name="b")
    )

    with pytest.raises(OSError, match="delete pods with large claims"):
        checkpoint_file.store(both)

    assert CHECKPOINT == checkpoint_file.load()
    checkpoint_file.store(NOTHING)
    assert NOTHING == checkpoint_file.load()
