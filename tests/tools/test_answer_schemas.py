"""The published JSON Schemas describe the output of commands."""

import json
from typing import Any, Final

import jsonschema
import pytest

from answers.model.kinds import API_VERSION
from testing.answers import JSON_CALLS
from testing.command import ROOT, drawbridge
from tools.answer_schemas import FOLDER, commands


def published(command: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((ROOT / FOLDER / f"{command}.json").read_text())
    return schema


def answer(call: tuple[str, ...], output: str = "json") -> str:
    return drawbridge(*call, "-o", output).stdout


COMMANDS: Final = sorted(commands())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_schema_is_one(command: str) -> None:
    jsonschema.Draft202012Validator.check_schema(published(command))


def test_every_command_with_an_answer_is_called() -> None:
    # `status` and `wave` need an API server, and `rehearse` starts one: tests/cli/test_status.py, test_wave.py
    # and test_rehearse.py compare their answers with their schemas.
    assert COMMANDS == sorted({call[0] for call in JSON_CALLS} | {"rehearse", "status", "wave"})


@pytest.mark.parametrize("call", JSON_CALLS, ids=" ".join)
def test_an_answer_has_its_schema(call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    document = json.loads(answer(call))

    jsonschema.Draft202012Validator(published(call[0])).validate(document)
    assert ["apiVersion", "kind"] == list(document)[:2]
    assert API_VERSION == document["apiVersion"]


@pytest.mark.parametrize("call", JSON_CALLS, ids=" ".join)
def test_a_schema_rejects_an_answer_without_a_part(
    call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    document = json.loads(answer(call))
    validator = jsonschema.Draft202012Validator(published(call[0]))
    # What an answer may lack is left out where it is empty, or was not requested.
    optional = {"demand", "denials", "devices", "pluginResources", "recorded"}
    if call[0] == "top":
        optional |= {"namespaces", "nodes", "pods", "waiting"}

    accepted = {
        key
        for key in document
        if validator.is_valid({name: value for name, value in document.items() if name != key})
    }

    assert accepted <= optional


@pytest.mark.parametrize("command", COMMANDS)
def test_descriptions_are_of_one_type_or_key(command: str) -> None:
    assert "Attributes:" not in json.dumps(published(command))


def test_a_key_has_the_lines_about_its_attribute() -> None:
    blocker = published("assess")["$defs"]["Blocker"]

    assert blocker["description"] == "A reason not to move yet."
    assert blocker["properties"]["objects"]["description"].startswith("`Kind/namespace/name`")


def test_the_lines_of_a_recording_have_their_schema() -> None:
    schema = published("recording")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    lines = (ROOT / "examples/replay/recording.jsonl").read_text().splitlines()

    assert [] == [line for line in lines if not validator.is_valid(json.loads(line))]
    assert not validator.is_valid({"at": "soon", "mark": "end"})
    assert not validator.is_valid({"at": 1, "mark": "lunch"})
