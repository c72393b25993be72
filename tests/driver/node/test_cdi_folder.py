"""Specs of claims in a folder that others use, too."""

import os
from pathlib import Path

import pytest

from driver.model.steps import ignore_step
from driver.node.cdi_folder import CdiFolder
from driver.plan.cdi import BOOT_ANNOTATION, Document, spec_file_name

DRIVER = "gpu.example.com"
SPEC: Document = {"annotations": {BOOT_ANNOTATION: "boot-1"}, "devices": []}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


@pytest.fixture
def specs(folder: Path) -> CdiFolder:
    return CdiFolder(folder, DRIVER, ignore_step)


def test_a_spec_is_written_with_its_folder(specs: CdiFolder, folder: Path) -> None:
    specs.write("1", SPEC)

    assert {"1": "boot-1"} == specs.boots()
    assert [spec_file_name(DRIVER, "1")] == [path.name for path in folder.iterdir()]


def test_a_spec_that_is_there_is_not_restored(specs: CdiFolder, folder: Path) -> None:
    specs.write("1", SPEC)
    before = (folder / spec_file_name(DRIVER, "1")).stat().st_ino

    assert not specs.restore("1", SPEC)
    assert before == (folder / spec_file_name(DRIVER, "1")).stat().st_ino


@pytest.mark.parametrize("content", [None, b"", b"[", b"[" * 100_000, b"\xff", b"{}"])
def test_a_damaged_spec_is_restored(specs: CdiFolder, folder: Path, content: bytes | None) -> None:
    specs.write("1", SPEC)
    path = folder / spec_file_name(DRIVER, "1")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        assert {"1": ""} == specs.boots()

    assert specs.restore("1", SPEC)
    assert {"1": "boot-1"} == specs.boots()


@pytest.mark.parametrize("kind", ["pipe", "link", "loop"])
def test_what_is_no_file_is_replaced(specs: CdiFolder, folder: Path, kind: str) -> None:
    folder.mkdir()
    path, target = folder / spec_file_name(DRIVER, "1"), folder / "target"
    target.write_bytes(b"of others")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else path)

    assert {"1": ""} == specs.boots()
    assert specs.restore("1", SPEC)
    assert {"1": "boot-1"} == specs.boots()
    assert b"of others" == target.read_bytes()


def test_a_folder_that_is_a_link_is_that_folder(
    specs: CdiFolder, folder: Path, tmp_path: Path
) -> None:
    """/var/run is one on many systems."""
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")

    specs.write("1", SPEC)
    specs.sync()

    assert {"1": "boot-1"} == specs.boots()
    assert specs.remove("1")


@pytest.mark.parametrize("kind", ["a link to nowhere", "a link to itself", "a file"])
def test_without_a_folder_writing_is_an_error(specs: CdiFolder, folder: Path, kind: str) -> None:
    if kind == "a file":
        folder.write_bytes(b"")
    else:
        folder.symlink_to(folder if kind == "a link to itself" else folder / "nowhere")

    with pytest.raises(OSError, match="cdi"):
        specs.write("1", SPEC)
    assert {} == specs.boots()
