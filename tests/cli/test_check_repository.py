"""`drawbridge check -R` on a folder that holds more than manifests, as Git repositories do."""

from pathlib import Path

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.repositories import is_excluded
from testing.builders import gpus, pod
from testing.command import drawbridge

WRONG = dump_yaml([pod(gpus("1.5"))])
TEMPLATE = "{{- if .Values.a }}\napiVersion: v1\n{{- end }}\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_a_file_without_manifests_is_skipped_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, values_yaml="image: a\n", list_yaml="- a\n", z__pod_yaml=WRONG)
    result = drawbridge("check", "-R", "-f", tmp_path)

    assert result.exit_code == 1, result.output
    assert "notAnInteger" in result.stdout
    assert "2 files have documents without apiVersion and kind" in result.stderr
    assert f"{tmp_path}/values.yaml" in result.stderr


def test_a_file_that_cannot_be_read_is_reported_after_the_findings_of_the_others(
    tmp_path: Path,
) -> None:
    write(tmp_path, a__template_yaml=TEMPLATE, b__half_yaml="kind: Pod\n", z__pod_yaml=WRONG)
    result = drawbridge("check", "-R", "-f", tmp_path)

    assert result.exit_code == 2, result.output
    assert "notAnInteger" in result.stdout
    assert f"Error: {tmp_path}/a/template.yaml:1: " in result.stderr
    assert f"Error: {tmp_path}/b/half.yaml:1: apiVersion is missing" in result.stderr


def test_the_name_of_a_file_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J\n::error::b.yaml").write_text(TEMPLATE)
    (tmp_path / "c\x1b[2J.yaml").write_text("image: a\n")
    result = drawbridge("check", "-R", "-f", tmp_path)

    assert result.exit_code == 2, result.output
    assert "\x1b" not in result.output
    assert "\n::error::" not in result.output


def test_files_that_are_excluded_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, chart__templates__a_yaml=TEMPLATE, z__pod_yaml=WRONG)
    result = drawbridge("check", "-R", "-f", tmp_path, "--exclude", "templates")

    assert result.exit_code == 1, result.output
    assert result.stderr == ""


def test_a_file_that_is_named_has_to_have_objects(tmp_path: Path) -> None:
    write(tmp_path, values_yaml="image: a\n")
    result = drawbridge("check", "-R", "-f", tmp_path / "values.yaml")

    assert result.exit_code == 2
    assert "render the chart first" in result.stderr


def test_exclude_requires_recursion(tmp_path: Path) -> None:
    write(tmp_path, pod_yaml=WRONG)
    result = drawbridge("check", "-f", tmp_path, "--exclude", "a")

    assert result.exit_code == 2
    assert "--exclude requires -R" in result.stderr


@pytest.mark.parametrize("glob", ["a", "a/", "b.yaml", "a/b.yaml", "*.yaml", "a/*", "c*"])
def test_globs_match_names_paths_and_directories_above(glob: str) -> None:
    path = Path("c/a/b.yaml") if glob == "c*" else Path("a/b.yaml")

    assert is_excluded(path, [glob])


@pytest.mark.parametrize("glob", ["b", "A", "a/b", "/a", "*.yml"])
def test_a_glob_matches_whole_names(glob: str) -> None:
    assert not is_excluded(Path("a/b.yaml"), [glob])
