"""`drawbridge translate --in-place` rewrites the changed parts of manifest files, and nothing else."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from kube.manifests.reader import read_objects
from testing.command import CLUSTER, EXAMPLES, drawbridge

FILES = sorted(
    file
    for folder in (EXAMPLES, EXAMPLES / "shares", EXAMPLES / "quickstart")
    for file in folder.glob("*.yaml")
    if "cluster" not in file.name and "inventory" not in file.name
)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:   {name: web}  # stays\nspec: {}\n"
SHARE = (EXAMPLES / "share.yaml").read_text()
HALF_A_GPU = (EXAMPLES / "mistakes" / "half-a-gpu.yaml").read_text()


def comment_lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip().startswith("#")}


@pytest.mark.parametrize("example", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_a_file_has_the_objects_that_translate_prints(example: Path, tmp_path: Path) -> None:
    file = tmp_path / example.name
    shutil.copy(example, file)
    stream = drawbridge("translate", "-f", example, "--snapshot", CLUSTER)
    assert 0 == stream.exit_code, stream.output

    result = drawbridge("translate", "-f", file, "--snapshot", CLUSTER, "--in-place")

    assert 0 == result.exit_code, result.output
    printed = [entry.document for entry in read_objects(stream.stdout.encode(), "stdout")]
    written = [entry.document for entry in read_objects(file.read_bytes(), file.name)]
    by_name = {(entry["kind"], entry["metadata"]["name"]): entry for entry in printed}
    assert by_name == {(entry["kind"], entry["metadata"]["name"]): entry for entry in written}
    assert comment_lines(example.read_text()) <= comment_lines(file.read_text())

    again = drawbridge("translate", "-f", file, "--snapshot", CLUSTER, "--in-place")

    assert (0, "no file changes\n") == (again.exit_code, again.stderr.splitlines(True)[-1])


def test_objects_that_do_not_change_keep_their_bytes(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(f"{SERVICE}---\n{SHARE}---\n{SERVICE}")
    file.chmod(0o640)

    result = drawbridge("translate", "-f", file, "--in-place")

    assert f"{file}: 1 object translated, 1 template added\n" == result.stdout
    text = file.read_text()
    assert text.startswith(f"{SERVICE}---\napiVersion: resource.k8s.io/v1\n")
    assert text.endswith(f"---\n{SERVICE}")
    comment, record = text.partition("    # The keys ")[2].splitlines()[:2]
    assert "derive from" in comment
    assert record.startswith("    drawbridge.internal/request: ")
    assert 0o640 == file.stat().st_mode & 0o777
    assert [file] == list(tmp_path.iterdir())


def test_a_dry_run_prints_a_diff_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "share.yaml"
    file.write_text(SHARE)

    result = drawbridge("translate", "-f", file, "--in-place", "--dry-run")

    lines = result.stdout.splitlines()
    assert [f"--- {file}", f"+++ {file}"] == lines[:2]
    assert "-        nvidia.com/gpumem: 3000" in lines
    assert "+  resourceClaims:" in lines
    assert SHARE == file.read_text()


def test_subdirectories_are_read_with_r(tmp_path: Path) -> None:
    folder = tmp_path / "team" / "app"
    folder.mkdir(parents=True)
    (folder / "share.yaml").write_text(SHARE)
    (tmp_path / "loop").symlink_to(tmp_path)

    assert 2 == drawbridge("translate", "-f", tmp_path, "--in-place").exit_code
    result = drawbridge("translate", "-f", tmp_path, "-R", "--in-place")

    assert f"{folder / 'share.yaml'}: 1 object translated, 1 template added\n" == result.stdout


def test_a_template_of_two_files_is_added_to_the_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(SHARE.replace("name: share", f"name: {name}"))

    drawbridge("translate", "-f", tmp_path, "--in-place")

    counts = [
        file.read_text().count("ResourceClaimTemplate\n") for file in sorted(tmp_path.iterdir())
    ]
    assert [1, 0] == counts


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "share.yaml", tmp_path / "link.yaml"
    target.write_text(SHARE)
    link.symlink_to(target)

    assert 0 == drawbridge("translate", "-f", link, "--in-place").exit_code
    assert link.is_symlink()
    assert "resourceClaims:" in target.read_text()


def test_nothing_is_written_where_an_object_is_rejected(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.yaml", tmp_path / "b.yaml"
    good.write_text(SHARE)
    bad.write_text(HALF_A_GPU)

    result = drawbridge("translate", "-f", tmp_path, "--in-place")

    assert 1 == result.exit_code
    assert "nothing is rewritten because of the errors above" in result.stderr
    assert (SHARE, HALF_A_GPU) == (good.read_text(), bad.read_text())

    result = drawbridge("translate", "-f", tmp_path, "--in-place", "--on-refusal", "keep")

    assert 1 == result.exit_code
    assert "resourceClaims:" in good.read_text()
    assert HALF_A_GPU == bad.read_text()


@pytest.mark.parametrize(
    ("built_by", "text", "fix"),
    [
        ("Chart.yaml", "apiVersion: v2\nname: web\n", "helm template"),
        ("kustomization.yaml", "resources: [templates]\n", "kubectl kustomize"),
        ("Kustomization", "", "kubectl kustomize"),
    ],
)
def test_files_from_which_others_build_are_refused(
    built_by: str, text: str, fix: str, tmp_path: Path
) -> None:
    (tmp_path / built_by).write_text(text)
    file = tmp_path / "templates" / "share.yaml"
    file.parent.mkdir()
    file.write_text(SHARE)

    result = drawbridge("translate", "-f", file, "--in-place")

    assert 2 == result.exit_code
    assert f"{fix} {tmp_path} | drawbridge translate -f -" in result.stderr
    assert SHARE == file.read_text()


def test_a_kustomization_above_the_repository_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").touch()
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    file = tmp_path / "repository" / "share.yaml"
    file.write_text(SHARE)

    assert 0 == drawbridge("translate", "-f", file, "--in-place").exit_code


def test_files_that_are_not_yaml_are_refused(tmp_path: Path) -> None:
    (document,) = (entry.document for entry in read_objects(SHARE.encode(), "share"))
    as_json, compressed = tmp_path / "share.json", tmp_path / "share.yaml"
    as_json.write_text(json.dumps(document))
    compressed.write_bytes(gzip.compress(SHARE.encode()))

    assert "is JSON" in drawbridge("translate", "-f", as_json, "--in-place").stderr
    assert "is compressed" in drawbridge("translate", "-f", compressed, "--in-place").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dry-run"], "--dry-run requires --in-place"),
        (["--in-place", "-o", "yaml"], "mutually exclusive"),
        (["--in-place", "--on-refusal", "skip"], "--on-refusal=keep"),
        (["--in-place", "-f", "-"], "standard input"),
        (["--in-place", "-f", EXAMPLES / "share.yaml"], "named twice"),
        (["--in-place", "-f", EXAMPLES / "shares" / ".." / "share.yaml"], "named twice"),
    ],
)
def test_options_that_contradict_each_other(options: list[object], message: str) -> None:
    result = drawbridge("translate", "-f", EXAMPLES / "share.yaml", *options, stdin=SERVICE)

    assert 2 == result.exit_code
    assert message in result.stderr


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("kustomization.yaml", "kubectl kustomize {} | drawbridge"),
        ("values.yaml", "helm template {} | drawbridge"),
    ],
)
def test_what_is_no_manifest_says_how_to_get_one(name: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("resources: []\n")

    result = drawbridge("check", "-f", tmp_path, "-R")

    assert 2 == result.exit_code
    assert fix.format(tmp_path) in result.stderr


@pytest.mark.parametrize("namespace", ["", "\n  namespace: default"], ids=["", "default"])
def test_an_object_that_was_translated_before_keeps_no_template_from_others(
    namespace: str, tmp_path: Path
) -> None:
    """A live pod that was dumped has claims, and the file does not have their template."""
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(SHARE.replace("name: share", "name: a"))
    drawbridge("translate", "-f", a, "--in-place")
    dumped = a.read_text().partition("---\n")[2]
    assert "ResourceClaimTemplate\n" not in dumped
    a.write_text(dumped)
    b.write_text(SHARE.replace("name: share", f"name: b{namespace}"))

    drawbridge("translate", "-f", tmp_path, "--in-place")

    assert dumped == a.read_text()
    assert 1 == b.read_text().count("ResourceClaimTemplate\n")
