"""The kubelet's protos are those that were published."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tools.go import go_command
from tools.kubelet_api import FOLDER, ROOT

MODULE: Final = "k8s.io/kubelet@v0.37.1"
SOURCES: Final = {
    "dra_v1": "pkg/apis/dra/v1/api.proto",
    "dra_health_v1": "pkg/apis/dra-health/v1/api.proto",
    "pluginregistration_v1": "pkg/apis/pluginregistration/v1/api.proto",
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", SOURCES)
def test_protos_are_the_published_ones(name: str) -> None:
    go = go_command()
    subprocess.run([go, "mod", "download", MODULE], check=True, cwd=ROOT)
    cache = subprocess.run(
        [go, "env", "GOMODCACHE"], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()

    text = (Path(cache) / MODULE / SOURCES[name]).read_text()

    assert text == (ROOT / FOLDER / f"{name}.proto").read_text()
