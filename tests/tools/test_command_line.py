"""Manual pages and the reference of commands: complete, well-formed, and made from the parser."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from cli.__main__ import COMMANDS
from tools.command_line import MAN_FOLDER, Page, man_files, man_page, pages, reference

ROOT = Path(__file__).parent.parent.parent
PLAIN = Page(
    name="a b",
    summary="Do it.",
    usage="[OPTIONS]",
    paragraphs=(".first", "'second' has a \\ and -o"),
    exit_status="0 always.",
    options=(("-o, --output [a|b]", "The ~ form."),),
    commands=(),
    examples=(".a b -o 'x'",),
)


def shown(path: Path) -> str:
    """A page as man shows it, in one column."""
    program = shutil.which("man")
    if program is None:
        pytest.skip("man is not installed")
    done = subprocess.run(
        [program, "--warnings", "-l", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "MANWIDTH": "400", "PATH": os.environ["PATH"]},
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.man_name)
def test_a_page_is_without_warnings_and_shows_every_option(page: Page) -> None:
    text = shown(ROOT / MAN_FOLDER / f"{page.man_name}.1")

    for names, _ in page.options:
        assert names in text
    for example in page.examples:
        assert example in text


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.man_name)
def test_mandoc_finds_nothing_wrong(page: Page) -> None:
    program = shutil.which("mandoc")
    if program is None:
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        [program, "-T", "lint", "-W", "warning", str(ROOT / MAN_FOLDER / f"{page.man_name}.1")],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stdout.splitlines() if "missing date" not in line]

    assert complaints == []


def test_text_is_shown_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a-b.1"
    path.write_text(man_page(PLAIN))
    text = shown(path)

    for line in (*PLAIN.paragraphs, *PLAIN.examples, "-o, --output [a|b]", "The ~ form."):
        assert line in text


def test_every_command_has_a_page_and_no_other_is_there() -> None:
    names = {path for path, _ in man_files()}

    assert names == {str(path.relative_to(ROOT)) for path in (ROOT / MAN_FOLDER).iterdir()}
    assert {f"{MAN_FOLDER}/drawbridge-{name}.1" for name in COMMANDS} < names


def test_the_wheel_has_the_pages_where_man_looks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert wheel["shared-data"] == {MAN_FOLDER: "share/man/man1"}


def test_every_link_of_the_reference_leads_to_a_heading() -> None:
    text = reference()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)

    assert set(re.findall(r"\(#([^)]*)\)", text)) <= {name.replace(" ", "-") for name in headings}
    assert headings == [page.name for page in pages()]
