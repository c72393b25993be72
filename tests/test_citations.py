"""Citations of the source exist: documents, files and folders of this repository."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
TEXTS: Final = (".py", ".md", ".yaml", ".toml", ".proto", ".go", ".mod", ".sh", "Makefile", "file")
ROOMS: Final = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name != "build"
)
"""Folders of the repository; what is in build/ is made."""
PATH: Final = re.compile(
    rf"(?<![\w./{{<-])(?:{'|'.join(ROOMS)})/[\w./-]*\w\.(?:md|py|yaml|json|txt|proto|toml)\b"
)
PLACEHOLDERS: Final = re.compile(r"X|NAME|FILE|FOLDER|MODULE|PLURAL")
TEST: Final = re.compile(r"`(test_\w+)`")
NOTES: Final = re.compile(r"\bresearch/[\w-]+")
DOCUMENT: Final = re.compile(r"\b[A-Z]{4,}\.md\b")
OWN: Final = {"README.md", "LICENSE.md", "CHANGELOG.md"}
UPSTREAM: Final = re.compile(
    r"https?://\S+|\b[\w.-]+/[\w.-]+/v?\d[\w.]*\S*|Source:(?s:.)*?(?=\n\n|\"\"\")"
)
"""Addresses and sources, whose paths are in other repositories."""


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    own = Path(__file__)
    return [path for path in paths if path.name.endswith(TEXTS) and path.is_file() and path != own]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(errors="replace") for path in _files()}


def test_documents_that_are_cited_are_in_the_repository(texts: dict[str, str]) -> None:
    citations = [
        f"{path}: {cited}"
        for path, text in texts.items()
        for cited in (*NOTES.findall(text), *DOCUMENT.findall(UPSTREAM.sub("", text)))
        if cited not in OWN and not (ROOT / cited).is_file()
    ]

    assert [] == citations


def test_files_that_are_cited_exist(texts: dict[str, str]) -> None:
    missing = [
        f"{path}: {cited}"
        for path, text in texts.items()
        for cited in PATH.findall(UPSTREAM.sub("", text))
        if not PLACEHOLDERS.search(cited)
        and not (ROOT / cited).exists()
        and not (ROOT / path).parent.joinpath(cited).exists()
    ]

    assert [] == missing


def test_tests_that_are_named_exist(texts: dict[str, str]) -> None:
    tests = {
        name
        for path, text in texts.items()
        for name in (Path(path).stem, *re.findall(r"\bdef (test_\w+)", text))
    }
    missing = [
        f"{path}: {name}"
        for path, text in texts.items()
        if path.endswith(".md")
        for name in TEST.findall(text)
        if name not in tests
    ]

    assert [] == missing
