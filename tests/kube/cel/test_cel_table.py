"""Results compared with those of Go, recorded in testing/oracle/data/cel.json."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.api.meta import convert
from kube.api.resource import Device
from kube.cel import device as devices
from kube.cel.compile import Environment, compile_in_place
from kube.cel.device import DeviceView
from kube.errors import InvalidSelector, SelectorFailed, UnsupportedSelector
from testing.oracle.cases import DEVICES, cases
from testing.oracle.differences import EXPECTED

RECORD: Final = json.loads((Path(__file__).parents[3] / "testing/oracle/data/cel.json").read_text())


def _decode_device(document: dict[str, Any]) -> DeviceView:
    fields = {key: value for key, value in document.items() if key != "driver"}
    return devices.device_view(document["driver"], convert({"name": "device", **fields}, Device))


VIEWS: Final = {name: _decode_device(document) for name, document in RECORD["devices"].items()}


def verdict(expression: str, environment: str, device: DeviceView) -> str:
    try:
        selector = compile_in_place(expression, Environment(environment))
    except InvalidSelector:
        return "compileError"
    except UnsupportedSelector:
        return "unsupported"
    try:
        return "match" if selector.matches(device) else "noMatch"
    except SelectorFailed:
        return "runtimeError"
    except UnsupportedSelector:
        return "unsupported"


@pytest.mark.parametrize("environment", ["new", "stored"])
@pytest.mark.parametrize(
    "row", RECORD["rows"], ids=lambda row: f"{row['device']}: {row['expression']}"
)
def test_verdict(row: dict[str, Any], environment: str) -> None:
    theirs = row[environment]["verdict"]
    difference = EXPECTED.get((environment, row["expression"]))

    ours = verdict(row["expression"], environment, VIEWS[row["device"]])

    assert ours == (theirs if difference is None else difference.ours)
    assert difference is None or ours != theirs, f"no longer different: {difference.reason}"


def test_the_recorded_cases_are_these() -> None:
    documents = [case._asdict() for case in cases()]

    assert [
        {key: row[key] for key in case} for case, row in zip(documents, RECORD["rows"], strict=True)
    ] == documents
    assert RECORD["devices"] == DEVICES


def test_every_difference_is_about_a_case() -> None:
    assert {expression for _, expression in EXPECTED} <= {case.expression for case in cases()}
