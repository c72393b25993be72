"""Histories as JSON lines, and the imports of the checker."""

import ast
import json
import sys
from pathlib import Path
from typing import Final

import pytest

from e2e.checker.history import Event, State, read_history

FOLDER: Final = Path(__file__).parents[3] / "e2e" / "checker"


def line(kind: str, version: int, event: str = "MODIFIED") -> str:
    metadata = {"name": "a", "uid": "u", "resourceVersion": str(version)}
    return json.dumps({"at": 1.5, "kind": kind, "type": event, "object": {"metadata": metadata}})


def test_it_imports_nothing_but_itself_and_the_standard_library() -> None:
    modules = {
        name
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }

    strange = {
        name
        for name in modules
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not name.startswith("e2e.checker.")
    }
    assert set() == strange


def test_events_of_all_kinds_are_read_in_the_order_of_their_versions() -> None:
    lines = [
        line("pods", 7),
        line("nodes", 3),
        line("pods", 9, "LISTED"),
        line("nodes", 8, "LISTED"),
    ]

    events = read_history(lines)

    assert ["8", "9", "3", "7"] == [event.object["metadata"]["resourceVersion"] for event in events]


@pytest.mark.parametrize("text", ["{", "[]", '{"at": 1}', line("pods", 1).replace('"1"', '"x"')])
def test_a_line_that_is_no_event_is_reported_by_its_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2 is .*an event has at, kind, type, object"):
        read_history([line("pods", 1), text])


def test_a_state_has_the_last_version_of_what_is_there() -> None:
    state = State()
    first = {"metadata": {"name": "a", "uid": "u", "namespace": "n"}}
    changed = {**first, "spec": {}}

    assert state.apply(Event(0, "pods", "ADDED", first)) is None
    assert state.apply(Event(1, "pods", "MODIFIED", changed)) is first
    assert changed is state.named("pods", "n", "a")
    state.apply(Event(2, "pods", "DELETED", changed))
    assert [] == list(state.objects("pods"))
