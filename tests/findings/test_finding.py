"""Codes of findings are public."""

from pathlib import Path

from findings.finding import Code

CODES = Path(__file__).parent / "data" / "codes.txt"


def test_codes_change_only_with_their_golden_file() -> None:
    assert CODES.read_text().split() == sorted(Code)
