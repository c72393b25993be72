"""Objects without a namespace are `Kind/name` for people, and keep three parts for scripts."""

import json
from pathlib import Path

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document, api_object

CLASS = api_object("DeviceClass", "a", spec={"extendedResourceName": "a/b"})
WRONG = {**CLASS, "spec": {"selectors": [{"cel": {"expression": "("}}]}}

POLICY = api_object(
    "ValidatingAdmissionPolicy",
    "main",
    api_version="admissionregistration.k8s.io/v1",
    spec={"validations": [{"expression": 'object.spec["nvidia.com/gpu"] == 1'}]},
)


def queue(api_version: str) -> Document:
    resources = {"capability": {"nvidia.com/gpu": "4"}, "resources": {"gpu": {"quota": 4}}}
    return api_object("Queue", "main", api_version=api_version, spec=resources)


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


@pytest.mark.parametrize(
    "document", [queue("scheduling.volcano.sh/v1beta1"), queue("scheduling.run.ai/v2"), POLICY]
)
def test_queues_and_policies_have_no_namespace(document: Document) -> None:
    result = drawbridge("check", "-f", "-", stdin=dump_yaml([document]))

    assert f"{document['kind']}/main: " in result.stdout
