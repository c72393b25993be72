"""The files of a release with the real kubectl and Helm, and the plugin of kubectl as krew installs it."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.access import Access
from e2e.binaries import binaries, helm
from e2e.chart import DEFINITIONS, run_helm
from e2e.drawbridge import ROOT
from kube.names import NAMESPACE
from tools.plugin_archive import LOCKED
from tools.release import Release, build

pytestmark = pytest.mark.long

REPOSITORY: Final = "registry.example.com/drawbridge"
DIGEST: Final = f"sha256:{'0' * 64}"
IMAGE: Final = f"{REPOSITORY}@{DIGEST}"
TIMEOUT_S: Final = 60.0
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM: Final = "linux-arm64" if os.uname().machine == "aarch64" else "linux-amd64"
RELEASE: Final = Release(
    version="0.1.0",
    date="2026-11-21",
    image=IMAGE,
    address="https://files.example.com/0.1.0",
    source="https://git.example.com/drawbridge",
    builder="https://ci.example.com/runner",
    platforms=(PLATFORM,),
    python_version=PYTHON,
    local=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release."""
    out = tmp_path_factory.mktemp("release")
    build(RELEASE, out, binaries().kubectl, helm(), "c" * 40)
    return out


def test_every_file_is_there_with_its_checksum(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}

    names = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert names == sums.keys()
    assert names == {
        "drawbridge-0.1.0.tgz",
        "drawbridge_dra-0.1.0-py3-none-any.whl",
        "install.yaml",
        f"kubectl-drawbridge-0.1.0-{PLATFORM}.tar.gz",
        "krew.yaml",
        "notes.md",
        "provenance.intoto.json",
        "sbom.cdx.json",
    }
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    subjects = json.loads((folder / "provenance.intoto.json").read_text())["subject"]
    assert {subject["name"] for subject in subjects} == names - {"provenance.intoto.json"}
    assert IMAGE in (folder / "install.yaml").read_text()


def test_krew_would_install_a_plugin_that_runs(
    cluster: Access, folder: Path, tmp_path: Path
) -> None:
    manifest = yaml.load((folder / "krew.yaml").read_text(), Loader=yaml.CSafeLoader)
    (platform,) = manifest["spec"]["platforms"]
    store, links = tmp_path / "store", tmp_path / "bin"
    links.mkdir()
    with tarfile.open(folder / platform["uri"].rpartition("/")[2]) as tar:
        tar.extractall(store, filter="data")
    (links / "kubectl-drawbridge").symlink_to(store / platform["bin"])

    result = subprocess.run(
        [cluster.kubectl_binary, "drawbridge", "inventory", "-o", "json"],
        # No package of this environment is to help it.
        env={
            "PATH": f"{links}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(cluster.kubeconfig),
            "DRAWBRIDGE_PYTHON": os.path.realpath(sys.executable),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["kind"] == "InventoryReport"


def test_the_wheel_runs_in_a_fresh_environment(folder: Path, tmp_path: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    environment = tmp_path / "environment"
    uv = [sys.executable, "-m", "uv", "--quiet", "--offline"]
    python = environment / "bin" / "python"
    packages = ["--require-hashes", "--requirement", str(LOCKED)]
    into = ["pip", "install", "--no-deps", "--python", str(python)]
    for command in (
        ["venv", "--python", sys.executable, str(environment)],
        [*into, *packages],
        [*into, str(wheel)],
    ):
        subprocess.run([*uv, *command], check=True, capture_output=True, text=True)

    result = subprocess.run(
        [environment / "bin" / "drawbridge", "translate", "-f", "-", "-o", "text"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        input=(ROOT / "examples" / "share.yaml").read_text(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert "1 object translated, 1 template" in result.stdout


@pytest.fixture
def empty(cluster: Access) -> Iterator[Access]:
    """A cluster without any rest of an installation afterwards."""
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "crd", "--ignore-not-found", *DEFINITIONS)
    cluster.wait_gone("namespaces", NAMESPACE, timeout_s=TIMEOUT_S)


def image_of_webhook(cluster: Access) -> str:
    deployment = cluster.get("deployments", "drawbridge-webhook", NAMESPACE)
    image: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_install_yaml_installs_on_a_cluster(empty: Access, folder: Path) -> None:
    """Nothing runs the image here; the story shows that the API server takes all objects."""
    install = folder / "install.yaml"
    documents = [
        entry for entry in yaml.load_all(install.read_text(), Loader=yaml.CSafeLoader) if entry
    ]

    empty.kubectl("apply", "--server-side", "-f", install)

    stored = empty.kubectl("get", "-f", install, "-o", "name").stdout.split()
    assert len(documents) == len(stored)
    assert image_of_webhook(empty) == IMAGE
    empty.kubectl("delete", "-f", install)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_the_chart_of_a_release_installs_on_a_cluster(empty: Access, folder: Path) -> None:
    package, where = folder / f"drawbridge-{RELEASE.version}.tgz", ("--namespace", NAMESPACE)
    image = f"image.repository={REPOSITORY},image.digest={DIGEST}"

    run_helm(
        *("install", "drawbridge", package, *where, "--create-namespace", "--set", image),
        kubeconfig=empty.kubeconfig,
    )

    assert image_of_webhook(empty) == IMAGE
    run_helm("uninstall", "drawbridge", *where, kubeconfig=empty.kubeconfig)
    assert empty.find("deployments", "drawbridge-webhook", NAMESPACE) is None
