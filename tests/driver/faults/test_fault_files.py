"""Faults that other programs report as files."""

import os
from pathlib import Path

import pytest

from driver.faults.fault_files import MAX_BYTES, OTHER, FaultFiles
from driver.model.health import Fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"xid\nXid 79: it has fallen off the bus\n", Fault(kind="xid", message="Xid 79: it has fallen off the bus")),
        (b"linkDown", Fault(kind="linkDown")),
        (b"", Fault(kind=OTHER)),
        (b"two words\n", Fault(kind=OTHER, message="two words")),
        (b"\xff\xfe", Fault(kind=OTHER, message="\ufffd\ufffd")),
    ],
    ids=["kind and message", "kind alone", "nothing", "no label value", "no text"],
)  # fmt: skip
def test_the_first_line_is_the_kind(tmp_path: Path, text: bytes, fault: Fault) -> None:
    (tmp_path / "eth0").write_bytes(text)

    assert {"eth0": fault} == FaultFiles(tmp_path).read()


def test_a_folder_that_is_not_there_reports_nothing(tmp_path: Path) -> None:
    assert {} == FaultFiles(tmp_path / "faults").read()


def test_files_that_name_no_device_are_passed_over(tmp_path: Path) -> None:
    for name in (".eth0.partial", "ETH0", "eth_0"):
        (tmp_path / name).write_text("linkDown")

    assert {} == FaultFiles(tmp_path).read()


def test_a_long_report_is_cut(tmp_path: Path) -> None:
    (tmp_path / "eth0").write_text("linkDown\n" + "x" * 2 * MAX_BYTES)

    (fault,) = FaultFiles(tmp_path).read().values()

    assert len(fault.message) < MAX_BYTES


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_report_that_is_no_file_is_a_fault(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "eth0"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)

    (fault,) = FaultFiles(tmp_path).read().values()

    assert OTHER == fault.kind
