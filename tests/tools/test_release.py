"""The parts of a release that need neither Helm nor kubectl: e2e/test_adopt_release.py has the others."""

import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from tools.plugin_archive import PLATFORMS, archive, krew_manifest, launcher
from tools.provenance import provenance
from tools.release import Release, ReleaseError, check

ROOT: Final = Path(__file__).parents[2]
DIGEST: Final = "0" * 64
RELEASE: Final = Release(
    version="0.1.0",
    date="2026-11-21",
    image=f"registry.example.com/drawbridge@sha256:{DIGEST}",
    address="https://files.example.com/0.1.0/",
    source="https://git.example.com/drawbridge",
    builder="https://ci.example.com/runner",
)
THIS_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


# --- arguments ------------------------------------------------------------------------------------


def test_a_good_release_is_accepted() -> None:
    check(RELEASE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "9.9.9"}, "pyproject.toml is 0.1.0, not 9.9.9"),
        ({"image": "drawbridge:0.1.0"}, "by its digest"),
        ({"platforms": ("plan9-amd64",)}, "no platform plan9-amd64; there are linux-amd64"),
    ],
)
def test_a_wrong_argument_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ReleaseError, match=words):
        check(msgspec.structs.replace(RELEASE, **change))


# --- the plugin of kubectl ------------------------------------------------------------------------


def manifest() -> dict[str, Any]:
    archives = {platform: platform.encode() for platform in PLATFORMS}
    text = krew_manifest("0.1.0", "3.13", RELEASE.address, archives, RELEASE.source)
    document: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    return document


def test_the_manifest_has_what_krew_demands() -> None:
    spec = manifest()["spec"]

    assert manifest()["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert spec["version"] == "v0.1.0"
    assert len(spec["shortDescription"]) <= 80
    assert not spec["shortDescription"].endswith(".")
    assert spec["homepage"] == RELEASE.source
    assert "3.13" in spec["caveats"]
    for platform in spec["platforms"]:
        labels = platform["selector"]["matchLabels"]
        name = f"{labels['os']}-{labels['arch']}"
        assert platform["sha256"] == hashlib.sha256(name.encode()).hexdigest()
        assert platform["uri"] == (
            f"https://files.example.com/0.1.0/kubectl-drawbridge-0.1.0-{name}.tar.gz"
        )
        assert platform["bin"] == "kubectl-drawbridge"
    assert len(spec["platforms"]) == len(PLATFORMS)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """An archive of a folder of packages, unpacked."""
    packages = tmp_path / "packages" / "cli"
    packages.mkdir(parents=True)
    (packages / "__init__.py").touch()
    (packages / "__main__.py").write_text("import sys\ndef main():\n    print(*sys.argv)\n")
    content = archive(packages.parent, THIS_PYTHON)
    assert content == archive(packages.parent, THIS_PYTHON)
    folder = tmp_path / "store"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_the_launcher_finds_its_packages_through_a_link(unpacked: Path, tmp_path: Path) -> None:
    links = tmp_path / "bin"
    links.mkdir()
    (links / "first").symlink_to(unpacked / "kubectl-drawbridge")
    (links / "kubectl-drawbridge").symlink_to("first")

    result = subprocess.run(
        [links / "kubectl-drawbridge", "check", "-f", "a b"],
        env={"PATH": "/usr/bin:/bin", "DRAWBRIDGE_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout == "kubectl-drawbridge check -f a b\n"


def test_the_launcher_wants_the_python_of_its_packages() -> None:
    assert "python3.13" in launcher("3.13")


# --- provenance -----------------------------------------------------------------------------------


def test_the_provenance_names_every_file_and_what_it_is_made_of(tmp_path: Path) -> None:
    files = [tmp_path / "b", tmp_path / "a"]
    for path in files:
        path.write_text(path.name)

    statement = json.loads(
        provenance(
            files,
            source=RELEASE.source,
            commit="c" * 40,
            builder=RELEASE.builder,
            parameters={"version": "0.1.0"},
            materials=[ROOT / "requirements" / "base.txt"],
            started="2026-11-21T00:00:00Z",
        )
    )

    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": name, "digest": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}
        for name in ("a", "b")
    ]
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    definition = statement["predicate"]["buildDefinition"]
    source, requirements = definition["resolvedDependencies"]
    assert source == {"uri": RELEASE.source, "digest": {"gitCommit": "c" * 40}}
    assert requirements["name"] == "base.txt"
    assert statement["predicate"]["runDetails"]["builder"] == {"id": RELEASE.builder}


# --- files of the repository ----------------------------------------------------------------------


ACTION: Final = yaml.load((ROOT / "action.yml").read_text(), Loader=yaml.CSafeLoader)
STEPS: Final[dict[str, dict[str, Any]]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
NAMED, RESTORED, INSTALLED, SAVED, CHECKED = STEPS


def test_the_action_passes_its_inputs_as_data() -> None:
    scripts = [step for step in STEPS.values() if "run" in step]

    assert ACTION["runs"]["using"] == "composite"
    assert not [step["name"] for step in scripts if "${{" in step["run"]]
    values = [value for step in scripts for value in step["env"].values()]
    used = {value.partition("inputs.")[2].rstrip(" }") for value in values} - {""}
    assert used == set(ACTION["inputs"])


def test_the_action_keeps_what_it_downloads_under_one_key() -> None:
    restored, saved = STEPS[RESTORED], STEPS[SAVED]

    packages = {f"${{{{ steps.packages.outputs.{name} }}}}" for name in ("folder", "key")}
    assert STEPS[NAMED]["id"] == "packages"
    assert set(restored["with"].values()) == packages
    assert restored["with"] == saved["with"]
    assert STEPS[INSTALLED]["env"]["PACKAGES"] == restored["with"]["path"]
    assert saved["if"] == f"steps.{restored['id']}.outputs.cache-hit != 'true'"


def test_the_action_uses_other_actions_by_their_commit() -> None:
    """A tag can be moved to other code."""
    used = [step["uses"] for step in STEPS.values() if "uses" in step]

    names = {re.sub(r"@[0-9a-f]{40}$", "", name) for name in used}
    assert names == {"actions/cache/restore", "actions/cache/save"}


def write_programs(folder: Path, **scripts: str) -> None:
    """Write shell scripts as programs of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def run_step(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a step as GitHub does, with the programs of a folder; its outputs go to `outputs`."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "GITHUB_OUTPUT": str(folder / "outputs"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def cache_of(folder: Path, **changes: str) -> dict[str, str]:
    """Return the outputs of the step that names the cache.

    Args:
        changes: File name of requirements, without its suffix, to its text.
    """
    requirements = folder / "requirements"
    requirements.mkdir(parents=True)
    for name, text in ({"base": "a==1", "build": "b==1", "dev": "c==1"} | changes).items():
        (requirements / f"{name}.txt").write_text(f"{text}\n")
    result = run_step(
        NAMED,
        folder,
        PYTHON=sys.executable,
        ACTION=str(folder),
        RUNNER_OS="Linux",
        RUNNER_ARCH="X64",
        RUNNER_TEMP="/temp",
    )
    assert (result.returncode, result.stderr) == (0, "")
    outputs = (folder / "outputs").read_text().splitlines()
    return dict(line.split("=", 1) for line in outputs)


def test_the_key_of_the_cache_is_about_the_packages_that_are_installed(tmp_path: Path) -> None:
    first = cache_of(tmp_path / "first")

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(b"a==1\nb==1\n").hexdigest()
    assert first == {
        "key": f"drawbridge-Linux-X64-python{version}-{digest}",
        "folder": "/temp/drawbridge-packages",
    }
    assert first == cache_of(tmp_path / "others", dev="c==2")
    assert first["key"] != cache_of(tmp_path / "base", base="a==2")["key"]
    assert first["key"] != cache_of(tmp_path / "build", build="b==2")["key"]


def test_the_key_of_the_cache_needs_the_requirements(tmp_path: Path) -> None:
    result = run_step(NAMED, tmp_path, PYTHON=sys.executable, ACTION=str(tmp_path))

    assert result.returncode
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("has_wheels", [True, False])
def test_the_action_installs_locked_packages_only(has_wheels: bool, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    ending = "" if has_wheels else 'case "$*" in *--no-index*) exit 1;; esac'
    write_programs(environment / "bin", pip=f'printf "%s|" "$@"; echo; {ending}')
    write_programs(tmp_path, mktemp=f"echo {shlex.quote(str(environment))}", python="true")

    result = run_step(INSTALLED, tmp_path, PYTHON="python", ACTION="action", PACKAGES="kept")

    locked = "--quiet|--require-hashes|--requirement|action/requirements"
    assert result.stdout.splitlines() == [
        f"download|{locked}/base.txt|--dest|kept|",
        f"install|{locked}/base.txt|--no-index|--find-links|kept|",
        *([] if has_wheels else [f"install|{locked}/base.txt|"]),
        f"download|{locked}/build.txt|--dest|kept|",
        f"install|{locked}/build.txt|--no-index|--find-links|kept|",
        *([] if has_wheels else [f"install|{locked}/build.txt|"]),
        "install|--quiet|--no-deps|--no-build-isolation|action|",
    ]
    assert (tmp_path / "outputs").read_text() == f"environment={environment}\n"
    output = f"steps.{STEPS[INSTALLED]['id']}.outputs.environment"
    assert STEPS[CHECKED]["env"]["ENVIRONMENT"] == f"${{{{ {output} }}}}"


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_action_checks_what_it_is_given(status: int, tmp_path: Path) -> None:
    """The script with a program that only prints its arguments."""
    environment = tmp_path / "environment"
    script = f'printf "%s|" drawbridge "$@"; echo; exit {status}'
    write_programs(environment / "bin", drawbridge=script)

    result = run_step(
        CHECKED,
        tmp_path,
        FILES="manifests/\na $(b)\n",
        SNAPSHOT="cluster.json",
        FAIL_ON="error",
        ARGUMENTS="--recursive\n--exclude\na b\n",
        SARIF=str(tmp_path / "a.sarif"),
        ENVIRONMENT=str(environment),
    )

    call = (
        "drawbridge|check|--fail-on|error|--filename|manifests/|--filename|a $(b)"
        "|--snapshot|cluster.json|--recursive|--exclude|a b|--output|"
    )
    assert result.returncode == status
    assert (tmp_path / "a.sarif").read_text() == f"{call}sarif|\n"
    calls = [line for line in result.stdout.splitlines() if line.startswith("drawbridge")]
    # A wrong call is not repeated.
    assert calls == ([] if status == 2 else [f"{call}github|"])


def test_the_page_about_releases_names_targets_and_options_that_there_are() -> None:
    page = (ROOT / "docs" / "release.md").read_text()
    makefile = (ROOT / "Makefile").read_text()

    for target in ("image", "release", "changelog"):
        assert f"make {target} " in page
        assert f"\n{target}: " in makefile
    for field in ("version", "date", "image", "address", "source", "builder"):
        assert f"--{field} " in page
