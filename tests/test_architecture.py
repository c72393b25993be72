"""The import contracts of pyproject.toml hold, and leave no module out."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from importlinter import configuration
from importlinter.application import use_cases

ROOT = Path(__file__).parents[1]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]

EDGES = {"__main__", "app", "caches", "connections", "handlers", "metrics", "probes", "profiles"}
EDGES |= {
    "audit",
    "judging",
    "leaves",
    "observer",
    "policies",
    "shipped",
    "templates",
    "trust",
    "vouching",
    "workqueue",
}
"""Modules of the webhook that may touch the world."""


def test_contracts_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    configuration.configure()

    held = use_cases.lint_imports(cache_dir=".import_linter_cache", no_logo=True)

    assert held, capsys.readouterr().out


def test_every_module_of_the_webhook_is_pure_or_an_edge() -> None:
    (pure,) = (one for one in CONTRACTS if one["id"] == "pure")
    named = {name.removeprefix("webhook.") for name in pure["source_modules"]}

    modules = {
        path.stem
        for path in (ROOT / "webhook").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
    }

    assert modules <= named | EDGES
    assert not named & EDGES
