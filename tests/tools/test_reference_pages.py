"""The pages of reference have every name with its meaning."""

import re

from tools.public_names import kinds, metrics, settings
from tools.reference_pages import kinds_page, metrics_page, settings_page


def test_every_setting_has_a_meaning_and_its_default() -> None:
    listed = dict(re.findall(r"^- `([^`]*)`: (.*)$", settings_page(), re.MULTILINE))

    assert set(listed) == {line.partition(" = ")[0] for line in settings()}
    for line in settings():
        name, _, default = line.partition(" = ")
        text, _, shown = listed[name].rpartition(" Default: ")
        assert shown == f"`{default}`."
        assert text.endswith((".", "`", ":")), name


def test_every_metric_has_a_help() -> None:
    listed = re.findall(
        r"^\| `([^`]*)` \| (\w+) \| ([^|]*) \| (.+) \|$", metrics_page(), re.MULTILINE
    )

    assert {f"{name} {kind}" for name, kind, *_ in listed} == {
        line.partition(" {")[0] for line in metrics()
    }


def test_every_field_of_our_kinds_is_listed() -> None:
    page = kinds_page()

    for line in kinds():
        _, separator, field = line.partition(": spec.")
        if separator:
            assert f"`spec.{field.partition(' = ')[0]}`" in page
