"""The corpus run: the outputs that count as a fault, and those that do not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import container, gpus, pod
from tools import corpus

GOOD = dump_yaml([pod(gpus(1, mem=3000, cores=30))])
REFUSED = dump_yaml([pod(gpus(1, mem="8Gi"))])


@pytest.mark.parametrize(
    ("want", "text"),
    [
        (True, GOOD),
        (False, "# nothing\n"),
        (False, "kind: Pod\n"),
        (False, "{{ if .Values.gpu }}\n"),
        (False, "- a\n- b\n"),
    ],
)
def test_is_readable(want: bool, text: str) -> None:
    assert want is corpus.is_readable(text.encode())


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    monkeypatch.setattr("sys.argv", ["corpus", str(folder)])
    code = corpus.main()
    return code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_table_of_what_became_of_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "good.yaml").write_text(GOOD)
    (tmp_path / "refused.yml").write_text(REFUSED)
    (tmp_path / "template.yaml").write_text("{{ include x }}\n")

    code, lines = run(tmp_path, monkeypatch, capsys)

    assert lines == [
        f"file kinds alone in a cluster checked checked in a cluster {corpus.SILENT} codes",
        "deep/er/good.yaml Pod 1 translated 1 translated clean clean 0 tolerationMissing",
        "refused.yml Pod 1 refused 1 refused 1 errors 1 errors 0 wrongUnit",
        lines[3],
        "3 files, 0 faults",
    ]
    assert lines[3].startswith("template.yaml 1: ")
    assert lines[3].endswith("unreadable unreadable unreadable unreadable 0")
    assert code == 0


def test_a_readable_file_that_is_called_unreadable_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    # A call that is wrong exits with 2, as an unreadable file does.
    monkeypatch.setattr(corpus, "COMMANDS", (("alone", ("translate", "--no-such-flag")),))

    code, lines = run(tmp_path, monkeypatch, capsys)

    assert (code, lines[-1]) == (1, "1 files, 1 faults")


def test_a_folder_without_manifests_is_a_wrong_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, capsys)[0] == 2


def test_a_device_key_of_another_system_has_its_word(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(GOOD.replace("nvidia.com/gpu", "cambricon.com/mlu"))

    assert corpus.silent_keys(other) == []


def test_a_device_key_without_a_word_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "is_probable_device_key", lambda key: key == "cpu")
    (tmp_path / "good.yaml").write_text(dump_yaml([pod(container("main", {"cpu": 1}))]))

    assert ["cpu"] == corpus.silent_keys(tmp_path / "good.yaml")


@pytest.mark.parametrize(
    "document",
    [
        pod(gpus(1), nodeName="node-a"),
        pod(gpus(1), labels={"hami.io/dra": "true"}),
        pod(gpus(1), schedulerName="other"),
    ],
    ids=["bound", "converted", "another scheduler"],
)
def test_a_finding_on_the_whole_pod_is_a_word_on_its_keys(
    tmp_path: Path, document: Mapping[str, Any]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(dump_yaml([document]))

    assert [] == corpus.silent_keys(path)


def test_a_configuration_without_a_name_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kind.yaml").write_text("apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n")

    code, lines = run(tmp_path, monkeypatch, capsys)

    assert lines[1:] == ["kind.yaml Cluster unchanged unchanged clean clean 0", "1 files, 0 faults"]
    assert code == 0
