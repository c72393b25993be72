"""The output of `python -m driver state`."""

from driver.commands.state import align_columns


def test_a_terminal_obeys_nothing_that_is_printed() -> None:
    rows = [("CLAIM", "API"), ("team/a\x1b[2J", "unknown: \u202e\n"), ("b", "gone")]

    assert list(align_columns(rows)) == [
        "CLAIM          API",
        r"team/a\x1b[2J  unknown: \u202e\n",
        "b              gone",
    ]
