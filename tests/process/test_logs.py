"""Lines of the log: JSON, with nothing in them that a terminal obeys."""

import io
import json

import pytest
import structlog

from process.running.logs import log_to


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J",
        "a\r\nb",
        "\x7f",
        "\x9b31m",
        "\u202eevil",
        "\u2028",
        "\u200b",
        "\ufeff",
        "\U000e0041",
        'quote " and \\',
        "café 東京",
    ],
)
def test_a_line_is_printable_and_says_the_same(text: str) -> None:
    stream = io.StringIO()
    before = structlog.get_config()
    try:
        log_to(stream, "info")
        structlog.get_logger().info("event", name=text, **{"key \x9b": 1})
    finally:
        structlog.configure(**before)

    line = stream.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    fields = json.loads(line)
    assert (fields["name"], fields["key \x9b"]) == (text, 1)
