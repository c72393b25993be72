"""Stories wait for kinds that were defined a moment ago."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.custom_kinds import is_established

REPOSITORY: Final = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("expected", "status"),
    [
        (False, {}),
        (False, {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}),
        (False, {"conditions": [{"type": "NamesAccepted", "status": "True"}]}),
        (False, {"conditions": [{"type": "Established", "status": "False"}]}),
        (True, {"conditions": [{"type": "Established", "status": "True"}]}),
    ],
)
def test_a_kind_is_served_once_its_definition_is_established(
    expected: bool, status: dict[str, Any]
) -> None:
    assert expected == is_established({"status": status} if status else {})


def test_nothing_has_kubectl_wait_for_a_definition() -> None:
    # It ends at once if `conditions` of a new definition is null.
    words = "for=condition=" + "Established"
    listed = subprocess.run(
        ["git", "grep", "-l", "-i", words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.stdout.split() == []
