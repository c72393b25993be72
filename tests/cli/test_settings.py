"""`--settings FILE`: a command decides as the cluster's processes do."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import REQUEST_ANNOTATION
from testing.builders import HAMI, NVIDIA, gpus, pod
from testing.command import CLUSTER, drawbridge, translate
from testing.documents import Document

FOREIGN = pod(gpus(1, mem=3000, cores=30), schedulerName="hami-scheduler")


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "webhook: {port: 8443}\n"
        "translation:\n"
        "  adoptSchedulers: {hami-scheduler: default-scheduler}\n"
        f"  profiles: {{nvidia.com/gpu: {HAMI}}}\n"
    )
    return file


def translated(document: Document, *options: object) -> dict[str, Any]:
    result = translate(document, options=("-o", "json", *options))
    assert result.exit_code in (0, 1), result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def drivers(answer: dict[str, Any]) -> list[str]:
    (document,) = [item for item in answer["objects"] if item["kind"] == "Pod"]
    annotations = document["metadata"].get("annotations", {})
    record = json.loads(annotations.get(REQUEST_ANNOTATION, "{}"))
    return [used["name"] for used in record.get("profiles", [])]


def test_an_adopted_scheduler_is_adopted_offline(settings: Path) -> None:
    without, with_settings = translated(FOREIGN), translated(FOREIGN, "--settings", settings)

    assert ["foreignScheduler"] == [finding["code"] for finding in without["findings"]]
    assert ([], [HAMI]) == (drivers(without), drivers(with_settings))


def test_the_owner_of_a_key_is_the_settings_owner(settings: Path) -> None:
    assert [HAMI] == drivers(translated(pod(gpus(1)), "--settings", settings))


def test_a_flag_precedes_the_settings(settings: Path) -> None:
    flags = ("--settings", settings, "--profile", f"nvidia.com/gpu={NVIDIA}")

    assert [NVIDIA] == drivers(translated(pod(gpus(1)), *flags))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("translation: {adoptScheduler: {}}", "did you mean adoptSchedulers?"),
        ("translation: {profiles: {cuda: gpu.nvidia.com}}", "no vocabulary cuda"),
        ("{", "not YAML"),
        ("translation: 2001-99-99", "not YAML: ValueError: month must be in 1..12"),
        ("[" * 50_000, "not YAML: it nests too deeply"),
        ('"\\x9b31m\\u202e": 1', "unknown field \\x9b31m\\u202e; did you mean"),
    ],
)
def test_settings_that_make_no_sense_are_a_wrong_call(text: str, want: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    result = translate(pod(gpus(1)), options=("--settings", file))

    assert (2, True) == (result.exit_code, want in result.stderr)


def test_a_file_that_is_not_there_is_a_wrong_call(tmp_path: Path) -> None:
    result = translate(pod(gpus(1)), options=("--settings", tmp_path / "none.yaml"))

    assert (2, True) == (result.exit_code, "No such file" in result.stderr)


def test_check_and_simulate_take_settings(settings: Path) -> None:
    for command in ("check", "simulate"):
        result = drawbridge(
            *(command, "-f", "-", "--snapshot", CLUSTER, "--settings", settings),
            stdin=dump_yaml([FOREIGN]),
        )
        assert "foreignScheduler" not in result.output
