"""README and docs tell the truth: their commands print what stands below them, links lead somewhere.

A `console` block is run as it stands, from the project's root; what needs a cluster is a `text` block.
A `yaml` block with a driver is a profile, and must be one.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from translation.profiles.profile import parse_profile

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def _run_console(example: Example) -> str | None:
    blocks = re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]
    assert blocks, "a console block holds lines that start with $"
    for block in blocks:
        command, _, expected = block.partition("\n")
        printed = _output(command)
        assert expected.rstrip() == printed.rstrip(), f"{command} printed:\n{printed}"
    return None


def _output(command: str) -> str:
    assert shlex.split(command)[0] in {"drawbridge", "cat", "kubectl-drawbridge"}, command
    bin_folder = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "110", "HOME": "/nowhere"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout


def _check_profile(example: Example) -> str | None:
    if example.parsed.startswith("driver:"):
        parse_profile(example.parsed, example.path)
    return None


SYBIL = Sybil(
    parsers=[
        CodeBlockParser(language="console", evaluator=_run_console),
        CodeBlockParser(language="yaml", evaluator=_check_profile),
        PythonCodeBlockParser(),
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path) -> None:
    for example in SYBIL.parse(page):
        example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert broken == []


def test_make_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    listed = subprocess.run(
        ["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert targets == [line.split()[0] for line in listed.stdout.splitlines()]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
