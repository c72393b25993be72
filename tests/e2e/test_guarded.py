"""The environment of a rehearsal; it reaches one cluster only."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from e2e.guarded import guarded_environment, printed_commands

CONTEXT: Final = "rehearsal"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a real kubectl that prints its arguments."""
    monkeypatch.setenv("KUBECONFIG", "/of/the/caller")
    real = tmp_path / "real"
    real.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$KUBECONFIG" "$HOME" "$@"\n')
    real.chmod(0o700)
    return guarded_environment(tmp_path, tmp_path / "kubeconfig", real, CONTEXT)


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_kubectl_has_the_kubeconfig_of_the_rehearsal_whatever_the_caller_has(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KUBECONFIG"] = "/of/somebody/else"

    result = run(environment, "kubectl", f"--context={CONTEXT}", "get", "nodes")

    expected = [tmp_path / "kubeconfig", tmp_path / "home", f"--context={CONTEXT}", "get", "nodes"]
    assert [str(word) for word in expected] == result.stdout.splitlines()
    assert [] == list((tmp_path / "home").iterdir())


@pytest.mark.parametrize(
    "word",
    ["--server=https://other", "-s", "--kubeconfig=/other", "--context=other", "--cluster=other",
     "--user=other", "--token=other"],
)  # fmt: skip
def test_kubectl_refuses_words_that_lead_to_another_cluster(
    environment: dict[str, str], word: str
) -> None:
    result = run(environment, "kubectl", "get", "nodes", word)

    assert (1, "") == (result.returncode, result.stdout)
    assert f"{word} would lead to another cluster" in result.stderr


def test_commands_of_charts_are_written_down_and_not_run(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(2):
        result = run(environment, "helm", "upgrade", "a b")
        assert (0, "not rehearsed: helm upgrade a\\ b\n") == (result.returncode, result.stderr)

    assert ["helm upgrade a\\ b"] == printed_commands(tmp_path)
