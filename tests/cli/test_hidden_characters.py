"""Names and texts with characters that a terminal obeys: no output of any command has them raw."""

import json
from pathlib import Path

import pytest
import yaml

from kube.manifests.dump import dump_yaml
from kube.names import STRATEGY_ANNOTATION
from testing.builders import container, gpus, pod, workload
from testing.command import CLUSTER, drawbridge
from testing.documents import Document, api_object
from testing.simulated_cluster import claim

HIDDEN = "\x1b[2J\x07\x7f\x9b31m\u202egnp\u2066\u200b\u2028\ufeff\U000e0041\n::error::"


def hostile_pod() -> Document:
    document = pod(gpus(1, mem=3000), container(f"b{HIDDEN}"), annotations={"text": HIDDEN})
    return {**document, "metadata": {**document["metadata"], "labels": {"a": HIDDEN}}}


@pytest.mark.parametrize(
    ("command", "output"),
    [
        *(("translate", output) for output in ("yaml", "json", "text", "diff")),
        *(("check", output) for output in ("text", "json", "sarif")),
        *(("simulate", output) for output in ("text", "json")),
    ],
)
def test_no_output_has_them_raw(command: str, output: str) -> None:
    manifest = json.dumps(hostile_pod())
    result = drawbridge(command, "-f", "-", "--snapshot", CLUSTER, "-o", output, stdin=manifest)

    assert result.exit_code in {0, 1}
    printed = result.stdout + result.stderr
    assert [line for line in printed.split("\n") if not line.isprintable()] == []


@pytest.mark.parametrize(("output", "load"), [("yaml", yaml.safe_load_all), ("json", json.loads)])
def test_they_are_still_there_for_who_reads_the_document(output: str, load: object) -> None:
    manifest = json.dumps(hostile_pod())
    result = drawbridge("translate", "-f", "-", "--snapshot", CLUSTER, "-o", output, stdin=manifest)

    assert callable(load)
    loaded = load(result.stdout)
    documents = loaded["objects"] if output == "json" else list(loaded)
    (translated,) = [document for document in documents if document["kind"] == "Pod"]
    assert translated["metadata"]["annotations"]["text"] == HIDDEN
    assert translated["metadata"]["labels"] == {"a": HIDDEN}


def test_no_note_begins_a_line_of_its_own() -> None:
    """An unknown strategy of a class is quoted in a note on standard error."""
    objects = [
        api_object(
            "DeviceClass", "a", annotations={STRATEGY_ANNOTATION: f"x{HIDDEN}pwned"}, spec={}
        ),
        claim("c", deviceClassName="a"),
    ]
    result = drawbridge("simulate", "-f", "-", "--snapshot", CLUSTER, stdin=dump_yaml(objects))

    assert "is not a strategy" in result.stderr
    lines = (result.stdout + result.stderr).split("\n")
    assert [
        line for line in lines if not line.isprintable() or line.lstrip().startswith("::")
    ] == []


COMMAND = "::stop-commands::x.yaml"
"""The name of a file, at the start of a line a command to GitHub Actions."""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("check", "-R"), rf"\x3a{COMMAND[1:]}:"),
        (("fix", "-R", "-o", "text"), rf"\x3a{COMMAND[1:]}:"),
        (("fix", "-R", "--in-place"), rf"\x3a{COMMAND[1:]}: 1 object fixed"),
        (
            ("translate", "-R", "--in-place", "--on-refusal", "keep"),
            rf"\x3a{COMMAND[1:]}: 1 object translated",
        ),
        (
            ("translate", "-R", "--in-place", "--dry-run", "--on-refusal", "keep"),
            r" \x3a:error::b",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_no_line_begins_with_a_command_of_a_file_name_or_of_a_text(
    call: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = pod(gpus(1, mem=3000), annotations={"text": "a\n::error::b\n"})
    bad = workload(pod(gpus(1, mem="8Gi")))
    (tmp_path / COMMAND).write_text(dump_yaml([good, bad]))
    monkeypatch.chdir(tmp_path)

    printed = drawbridge(*call, "-f", ".").output

    assert expected in printed
    assert [line for line in printed.split("\n") if line.lstrip().startswith("::")] == []
