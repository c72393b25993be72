"""Hostile files through the command line: a sample of `make fuzz`, and its past findings."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from testing.documents import Document
from testing.fuzz.commands import commands, complaint, mutate, originals, run

ORIGINALS: Final = originals()


@pytest.mark.parametrize("seed", range(2))
def test_commands_end_in_order_whatever_they_read(seed: int) -> None:
    assert list(run(seed, rounds=1)) == []


FOUND: Final[Sequence[tuple[str, str, Sequence[str | int], Any]]] = (
    ("quota", "ResourceQuota", ("metadata",), "-1"),
    ("residue", "Pod", ("spec", "schedulerName"), ["a"]),
)
"""Command, kind, field and value."""


@pytest.mark.parametrize("row", FOUND, ids=lambda row: f"{row[0]}-{row[1]}-{row[2][-1]}")
def test_what_was_found(row: tuple[str, str, Sequence[str | int], Any], tmp_path: Path) -> None:
    command, kind, (*above, last), value = row
    objects = copy.deepcopy(list(ORIGINALS["migration"]))
    for document in objects:
        if document["kind"] == kind:
            parent: Any = document
            for field in above:
                parent = parent[field]
            parent[last] = value
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    complaints = {
        arguments: complaint(arguments)
        for arguments in commands(file, tmp_path / "plan", Random(0))
        if any(command in argument for argument in arguments[:2])
    }

    assert complaints
    assert not any(complaints.values()), complaints


def test_a_seed_gives_the_same_file_again() -> None:
    def file(seed: int) -> list[Document]:
        return mutate(ORIGINALS["migration"], Random(seed))

    assert file(1) == file(1)
    assert file(1) != file(2)
