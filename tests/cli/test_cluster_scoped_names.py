"""Objects without a namespace are `Kind/name` for people, and keep three parts for scripts."""

import json
from pathlib import Path

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object

CLASS = api_object("DeviceClass", "a", spec={"extendedResourceName": "a/b"})
WRONG = {**CLASS, "spec": {"selectors": [{"cel": {"expression": "("}}]}}


def test_an_upgrade_names_them_for_people(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([CLASS]))
    result = drawbridge("check-upgrade", "--snapshot", file, "--kubernetes", "1.34")

    assert "DeviceClass/a" in result.stdout
    assert "DeviceClass//a" not in result.stdout


def test_a_translation_names_them_for_people() -> None:
    result = drawbridge("translate", "-f", "-", "-o", "text", stdin=dump_yaml([CLASS]))

    assert "unchanged DeviceClass/a\n" in result.stdout


def test_a_code_host_shows_them_for_people() -> None:
    result = drawbridge("check", "-f", "-", "-o", "sarif", stdin=dump_yaml([WRONG]))

    texts = [entry["message"]["text"] for entry in json.loads(result.stdout)["runs"][0]["results"]]
    assert texts
    assert all(text.startswith("DeviceClass/a: ") for text in texts)


def test_scripts_get_three_parts() -> None:
    result = drawbridge("check", "-f", "-", "-o", "json", stdin=dump_yaml([WRONG]))

    assert {entry["object"] for entry in json.loads(result.stdout)["findings"]} == {
        "DeviceClass//a"
    }
