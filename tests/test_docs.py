"""README and docs tell the truth: their commands print the text below them, links lead somewhere.

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

from tools.docs_site import pages
from translation.profiles.profile import parse_profile

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT / page for page in pages(ROOT))
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
PUBLIC = ROOT / "tests" / "golden" / "public.txt"
METRIC = re.compile(r"\b(?:drawbridge|controller_runtime|workqueue|leader_election)_[a-z_]+\b")
SETTING = re.compile(
    r"`((?:certificates|controllers|driver|observer|translation|validation|webhook)(?:\.[a-zA-Z]+)+)`"
)
VARIABLE = re.compile(r"\bDRAWBRIDGE_[A-Z_]+\b")
BASE_COMMAND = re.compile(
    r"(?:-k|--kustomize|kustomize|-f|-Rf)[ =](?:\./)?manifests/base/?(?=[\s`'\"]|$)"
)
PROGRESS = re.compile(r"^[a-z]+ [a-z]+: \d+ of \d+.* left.*\n", re.MULTILINE)
"""The lines of a command that takes long, as on a busy machine."""
PROSE_FOR_BASE = re.compile(r"[Aa]pply `manifests/base/?`")
"""Commands and sentences that apply or delete the folder of mode OptOut, whatever was installed."""


def _run_console(example: Example) -> str | None:
    blocks = re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]
    assert blocks, "a console block holds lines that start with $"
    for block in blocks:
        command, _, expected = block.partition("\n")
        output = _output(command)
        assert expected.rstrip() == output.rstrip(), f"{command} printed:\n{output}"
    return None


def _output(command: str) -> str:
    assert shlex.split(command)[0] in {"drawbridge", "cat", "kubectl-drawbridge"}, command
    bin_folder = str(Path(sys.executable).parent)
    completed = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "110", "HOME": "/nowhere"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return PROGRESS.sub("", completed.stdout)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_only_a_first_installation_names_the_base(page: Path) -> None:
    """An upgrade or removal with the base would turn an installation in mode OptIn into OptOut."""
    text = page.read_text()

    assert BASE_COMMAND.findall(text) + PROSE_FOR_BASE.findall(text) == []


@pytest.mark.parametrize(
    "command",
    [
        "kubectl apply -k manifests/base",
        "kubectl delete -k manifests/base --ignore-not-found",
        "`kubectl apply --kustomize=./manifests/base/`",
        "kubectl kustomize manifests/base | kubectl apply -f -",
    ],
)
def test_a_command_with_the_base_is_seen(command: str) -> None:
    assert BASE_COMMAND.search(command)


@pytest.mark.parametrize(
    "command",
    [
        "kubectl apply -k manifests/overlays/opt-in",
        "kubectl apply -f manifests/base/allocatorownerships.yaml",
    ],
)
def test_a_command_with_another_folder_or_one_file_is_not_the_base(command: str) -> None:
    assert not BASE_COMMAND.search(command)


def public_names(*sections: str) -> set[str]:
    """Return the first words of the lines of sections of the list of public names."""
    names: set[str] = set()
    section = ""
    for line in PUBLIC.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section in sections and line:
            names.add(line.split()[0].rstrip(":"))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_no_metric_setting_or_variable_that_does_not_exist(page: Path) -> None:
    text = page.read_text()
    settings = public_names("settings")
    sections = {setting.rpartition(".")[0] for setting in settings}
    metrics = public_names("metrics")
    histograms = {f"{metric}_{part}" for metric in metrics for part in ("bucket", "count", "sum")}

    assert set(METRIC.findall(text)) <= metrics | histograms
    assert set(SETTING.findall(text)) <= settings | sections
    assert set(VARIABLE.findall(text)) <= public_names("environment variables")


def test_make_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    listed = subprocess.run(
        ["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert targets == [line.split()[0] for line in listed.stdout.splitlines()]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
