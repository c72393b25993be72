"""The bill of materials: the locked packages, and nothing else."""

import json
from pathlib import Path

import pytest

from tools import sbom

LOCKED = f"""
# a comment
aiohttp==3.14.5 ; sys_platform != 'win32' \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via somebody
Multi_Dict==6.1 \\
    --hash=sha256:{"c" * 64}
"""


def test_locked_packages() -> None:
    assert [
        ("aiohttp", "3.14.5", ("a" * 64, "b" * 64)),
        ("multi-dict", "6.1", ("c" * 64,)),
    ] == list(sbom.locked_packages(LOCKED))


def test_a_package_that_is_not_installed_has_no_licence_and_needs_nobody() -> None:
    assert sbom.licence("no-such-package") == ""
    assert sbom.dependencies_of("no-such-package", {}) == []


def test_the_bill_is_complete_and_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for name in ("a.json", "b.json"):
        monkeypatch.setattr("sys.argv", ["sbom", str(tmp_path / name)])
        assert sbom.main() == 0
        texts.append((tmp_path / name).read_text())
    document = json.loads(texts[0])
    named = {component["bom-ref"] for component in document["components"]}

    assert texts[0] == texts[1]
    assert document["specVersion"] == "1.6"
    assert len(named) == sum("==" in line for line in sbom.LOCKED.read_text().splitlines())
    assert all(
        component["hashes"] and component["licenses"] for component in document["components"]
    )
    depended = {reference for entry in document["dependencies"] for reference in entry["dependsOn"]}
    assert depended <= named
    assert {name for name in named if name.startswith("pkg:pypi/aiohttp@")} <= depended
