"""Settings of the driver, and those that it does not start with."""

import subprocess
import sys
from pathlib import Path

import pytest

from driver.model.settings import VARIABLES, Settings
from kube.errors import ConfigError
from process.model.settings import parse_settings


def parse(text: str) -> Settings:
    return parse_settings(text, "file", {}, kind=Settings, variables=VARIABLES)


def test_state_is_in_the_kubelets_folder_of_the_driver() -> None:
    settings = parse("driver: {name: nic.example.com}").driver

    assert Path("/var/lib/kubelet/plugins/nic.example.com") == settings.state == settings.plugins


@pytest.mark.parametrize("name", ["", "a/b", "..", "GPU.example.com", "d" * 64])
def test_a_name_that_no_driver_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        parse(f"driver: {{name: {name!r}}}")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "driver", *arguments],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        check=False,
        timeout=30,
    )


def test_without_a_node_it_does_not_start() -> None:
    completed = run()

    assert (2, "") == (completed.returncode, completed.stdout)
    assert "set DRAWBRIDGE_NODE_NAME" in completed.stderr


def test_with_a_broken_inventory_it_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("kind: Nothing\napiVersion: v1\n")

    completed = run(DRAWBRIDGE_NODE_NAME="node-1", DRAWBRIDGE_INVENTORY=str(file))

    assert 2 == completed.returncode
    assert f"{file}: the document is no inventory" in completed.stderr


def test_settings_are_printed() -> None:
    completed = run("--print-settings")

    assert 0 == completed.returncode
    assert "claimCheckPeriod: 10s" in completed.stdout
