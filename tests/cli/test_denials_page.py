"""The page of denials shows the output of kubectl on a real cluster; its words are those of check."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "read-a-denial.md"
PAIR = re.compile(
    r"```console\n\$ drawbridge check -f examples/denied/(?P<name>[\w-]+)\.yaml[^\n]*\n(?P<checked>.*?)```\n"
    r"\n```text\n\$ kubectl apply -f examples/denied/(?P=name)\.yaml\n(?P<applied>.*?)```",
    re.DOTALL,
)
PAIRS = {match["name"]: match for match in PAIR.finditer(PAGE.read_text())}
BUILT_IN = {"no-such-request", "not-boolean"}
"""The codes that the API server refuses by itself, in its own words."""


def test_the_page_has_ten_denials() -> None:
    assert 10 == len(PAIRS)


@pytest.mark.parametrize("name", sorted(set(PAIRS) - BUILT_IN))
def test_kubectl_shows_the_words_of_check(name: str) -> None:
    (matches,) = re.findall(r"is invalid: (.*)", PAIRS[name]["applied"])

    checked = [
        f"{path}: drawbridge[{code}]: {words}" + (f" ({'. '.join(reasons)})" if reasons else "")
        for path, words, code, lines in re.findall(
            r": error: [^ ]+: ([^ ]+): (.*) \[(\w+)\]\n((?:  .*\n)*)", PAIRS[name]["checked"]
        )
        for reasons in [[line.removeprefix("  ") for line in lines.splitlines()]]
    ]

    assert matches in checked
