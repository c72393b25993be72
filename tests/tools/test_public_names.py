"""Public names change only on purpose: tests/golden/public.txt holds all of them."""

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from testing.answers import JSON_CALLS
from testing.command import drawbridge
from tools.public_names import (
    DOCUMENTS,
    ROOT,
    calls_of,
    event_makers,
    json_keys,
    key_paths,
    page,
    product_files,
)

GOLDEN: Final = ROOT / "tests/golden/public.txt"
MAPS: Final = (
    *("drivers[].capacity", "drivers[].counters", "drivers[].devices"),
    *(
        "totals",
        "readers",
        "failedBy",
        "idleBecause",
        "mappings",
        "recorded.otherwise",
        "quotas[].added",
        "quotas[].notConvertible",
        "<key>",
    ),
)
"""Paths below which keys are names from the cluster."""
FOREIGN: Final = (
    *("objects[]", "claims[].allocation", "quotas[].document"),
    *(
        "devices[].attributes",
        "devices[].capacity",
        "devices[].free",
        "consumers[].consumed",
        "steps[].patch",
        "steps[].operations[]",
        "steps[].documents[]",
    ),
)
"""Paths below which everything is from the cluster."""


def test_a_public_name_changes_only_with_the_golden_file() -> None:
    difference = difflib.unified_diff(
        GOLDEN.read_text().splitlines(),
        page().splitlines(),
        "tests/golden/public.txt",
        "what the code says",
        n=0,
        lineterm="",
    )
    assert [] == list(difference), "run make fix, and say in changes/ what changes for people"


def test_every_name_is_listed_once() -> None:
    for section in page().split("\n["):
        lines = section.splitlines()[1:]
        assert len(lines) == len(set(lines)), section


@pytest.mark.parametrize("call", JSON_CALLS, ids=" ".join)
def test_what_a_command_prints_has_listed_keys(
    call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    command = next(
        name
        for name in sorted(DOCUMENTS, reverse=True)
        if " ".join(call).startswith(name.partition("|")[0])
    )

    document = json.loads(drawbridge(*call, "-o", "json").stdout)

    printed = {f"{command}: {path}" for path in _printed_paths(document)}
    assert printed
    assert set() == printed - json_keys()


def _printed_paths(document: Any, place: str = "") -> Iterator[str]:
    if any(place.endswith(foreign) for foreign in FOREIGN):
        return
    if isinstance(document, list):
        for item in document:
            yield from _printed_paths(item, f"{place}[]")
    elif isinstance(document, dict):
        for key, value in document.items():
            name = "<key>" if any(place.endswith(path) for path in MAPS) else key
            here = f"{place}.{name}" if place else name
            if name != "<key>":
                yield here
            yield from _printed_paths(value, here)


def _files_with_calls(*called: str) -> list[Path]:
    return [path for path in product_files() if calls_of(path, called)]


def test_metrics_are_made_in_modules_of_that_name() -> None:
    makers = (
        "Counter",
        "Gauge",
        "Histogram",
        "Summary",
        "GaugeMetricFamily",
        "CounterMetricFamily",
    )
    names = [
        str(path.relative_to(ROOT))
        for path in _files_with_calls(*makers)
        if "prometheus_client" in path.read_text() and not path.stem.endswith("metrics")
    ]

    assert [] == names, "tools/public_names.py reads metrics from modules called metrics"


def test_every_reason_of_an_event_is_listed() -> None:
    enumerated = {
        "clusterstate/event_history.py",
        "controllers/audit/report.py",
        "controllers/groups/events.py",
        "controllers/policies/events.py",
        "controllers/profiles/events.py",
        "controllers/shadow/report.py",
        "controllers/templates/actions.py",
    }
    makers = {str(path.relative_to(ROOT)): path for path in event_makers()}

    unlisted = {
        name
        for name, path in makers.items()
        if not re.search(r"^REASON: Final", path.read_text(), re.MULTILINE)
    }

    assert enumerated == unlisted, "a file that makes events has a constant REASON"


class Inner(msgspec.Struct):
    name: str


class Outer(msgspec.Struct, rename="camel"):
    own_items: tuple[Inner, ...]
    by_name: dict[str, Inner]
    maybe: Inner | None = None


def test_the_paths_of_a_type() -> None:
    assert [
        "ownItems",
        "ownItems[].name",
        "byName",
        "byName.<key>.name",
        "maybe",
        "maybe.name",
    ] == list(key_paths(Outer))
