"""Files that are replaced as a whole, with anything in their way."""

import os
from pathlib import Path

import pytest

from driver.node.files import TEMPORARY, read_file, replace_file, write_file


def nothing() -> None:
    """Do nothing before a file is renamed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def temporary_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{TEMPORARY}")


@pytest.mark.parametrize("size", [0, 1, 2**20])
def test_what_was_written_is_read(path: Path, size: int) -> None:
    replace_file(path, b"old", before_rename=nothing)

    replace_file(path, b"x" * size, before_rename=nothing)

    assert b"x" * size == read_file(path, 2**21)
    assert 0o600 == path.stat().st_mode & 0o777
    assert [path] == list(path.parent.iterdir())


def test_no_more_is_read_than_what_shows_that_it_is_too_much(path: Path) -> None:
    path.write_bytes(b"x" * 100)

    assert 11 == len(read_file(path, 10))


def test_what_a_killed_process_left_is_replaced(path: Path) -> None:
    temporary_of(path).write_bytes(b"half of something longer")

    write_file(path, b"new", before_rename=nothing)

    assert b"new" == path.read_bytes()
    assert not temporary_of(path).exists()


@pytest.mark.parametrize("name", ["file", f"file{TEMPORARY}"], ids=["the file", "its temporary"])
def test_a_link_in_its_place_is_replaced_and_not_followed(path: Path, name: str) -> None:
    target = path.with_name("target")
    target.write_bytes(b"of others")
    (path.parent / name).symlink_to(target)

    write_file(path, b"new", before_rename=nothing)

    assert b"of others" == target.read_bytes()
    assert b"new" == path.read_bytes()
    assert not path.is_symlink()


def test_a_failure_leaves_the_old_file_alone(path: Path) -> None:
    path.write_bytes(b"old")

    def fail() -> None:
        raise OSError("the disk is broken")

    with pytest.raises(OSError, match="broken"):
        write_file(path, b"new", before_rename=fail)

    assert b"old" == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


def test_a_full_disk_leaves_the_old_file_alone(path: Path) -> None:
    path.write_bytes(b"old")
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")

    def write_to_full_disk(descriptor: int, _content: object) -> int:
        del descriptor
        with full.open("wb", buffering=0) as file:
            return file.write(b"x")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write_to_full_disk)
        with pytest.raises(OSError, match="space") as failure:
            write_file(path, b"new", before_rename=nothing)

    assert failure.value.filename == str(path)
    assert b"old" == path.read_bytes()
    assert [path] == list(path.parent.iterdir())


def test_a_write_that_takes_a_part_goes_on(path: Path) -> None:
    write = os.write

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:3]))
        write_file(path, b"0123456789", before_rename=nothing)

    assert b"0123456789" == path.read_bytes()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_is_not_read(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/hostname")

    with pytest.raises(OSError, match=r"no regular file|symbolic links"):
        read_file(path, 100)
