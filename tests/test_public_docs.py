"""Docs name only settings, metrics and processes that exist."""

import re
from pathlib import Path
from typing import Final

import pytest

from tools.docs_site import pages
from tools.public_names import metrics, processes, settings

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = sorted({*(ROOT / page for page in pages(ROOT)), *ROOT.glob("*/README.md")})
SECTIONS: Final = {line.partition(".")[0] for line in settings() if "." in line.partition(" ")[0]}
SETTINGS: Final = {line.partition(" ")[0] for line in settings()}
METRICS: Final = {line.partition(" ")[0] for line in metrics()}
PROCESSES: Final = {re.split(r" [-<](?!m )", line)[0] for line in processes()}
KUBERNETES: Final = {
    *("activeDeadlineSeconds", "bindTimeoutSeconds", "timeoutSeconds"),
    "terminationGracePeriodSeconds",
}


def _problems(page: Path) -> list[str]:
    text = page.read_text()
    named = set(re.findall(r"`([a-z]+\.[A-Za-z.]+)(?::[^`]*)?`", text))
    paths = {name for name in named if name.partition(".")[0] in SECTIONS}
    missing = {
        path
        for path in paths
        if not any(known == path or known.startswith(f"{path}.") for known in SETTINGS)
    }
    spelled = set(re.findall(r"\bdrawbridge_[a-z_]+[a-z]\b", text))
    missing |= {name for name in spelled if name not in METRICS}
    commands = re.findall(r"python -m (?:webhook|controllers|observer|driver)(?: [a-z]+)?", text)
    missing |= set(commands) - PROCESSES
    # Durations are texts such as 10s; no field has its unit in its name.
    missing |= set(re.findall(r"`([a-z][A-Za-z.]*Seconds)`", text)) - KUBERNETES
    return sorted(missing)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_docs_exist(page: Path) -> None:
    assert [] == _problems(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_upgrades_a_release_by_its_old_defaults(page: Path) -> None:
    """With --reuse-values keys of a newer chart are missing, and null takes no value of the release back."""
    commands = re.findall(r"^ *helm upgrade .*", page.read_text(), re.MULTILINE)

    assert [] == [command for command in commands if " --reuse-values" in command]


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")]

    missing = [
        str(page)
        for page in pages
        if page.name != "index.md" and page.parts[0] != "adr" and f"({page})" not in index
    ]

    assert [] == missing


THREAT_MODEL: Final = (ROOT / "docs/threat-model.md").read_text()


def test_the_tests_that_the_threat_model_names_exist() -> None:
    files = set(re.findall(r"`((?:tests|e2e|testing|translation|manifests)/[^`]*)`", THREAT_MODEL))
    stories = set(re.findall(r"make e2e STORY=(\w+)", THREAT_MODEL))

    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    assert [name for name in sorted(stories) if not [*ROOT.glob(f"e2e/test_{name}*.py")]] == []


def test_each_promise_of_the_threat_model_names_a_test() -> None:
    promises = re.findall(
        r"^- .*?(?=^- |^\n|^#)", THREAT_MODEL.partition("\n## Tests")[0], re.MULTILINE | re.DOTALL
    )
    unproved = [
        promise
        for promise in promises
        if not promise.startswith("- **Not mitigated:**")
        and not re.search(r"`(?:tests|e2e)/|`make fuzz`", promise)
    ]

    assert promises
    assert unproved == []
