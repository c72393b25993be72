"""Paths are structure; their text is as the API server writes it."""

import pytest

from findings.field_path import MAX_STEP_LENGTH, FieldPath, Key

REQUEST = FieldPath.of("spec", "devices", "requests", 0)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (FieldPath(), ""),
        (FieldPath.of("spec"), "spec"),
        (REQUEST.child("exactly", "count"), "spec.devices.requests[0].exactly.count"),
        (
            REQUEST.child("exactly", "capacity", "requests").key("memory"),
            "spec.devices.requests[0].exactly.capacity.requests[memory]",
        ),
        (FieldPath.of("a", Key("b.example.com/c"), "d"), "a[b.example.com/c].d"),
        (FieldPath.of(0), "[0]"),
    ],
    ids=str,
)
def test_the_text_is_that_of_the_api_server(path: FieldPath, text: str) -> None:
    assert text == str(path)


def test_a_key_with_brackets_and_dots_is_one_step() -> None:
    path = FieldPath.of("limits").key("a[0].b")

    assert path == FieldPath.of("limits", Key("a[0].b"))
    assert path != FieldPath.of("limits", Key("a"), 0, "b")


def test_a_long_key_with_control_characters_does_not_fill_the_message() -> None:
    text = str(FieldPath.of("limits").key("nvidia.com/mig-" + "\n" * 10_000))

    assert text.isprintable()
    assert len(text) < 3 * MAX_STEP_LENGTH


def test_the_longest_resource_name_is_not_cut() -> None:
    longest = f"{'d' * 253}/{'n' * 63}"

    assert str(FieldPath.of("limits").key(longest)) == f"limits[{longest}]"


def test_a_relative_path_and_its_prefix_join_to_the_path() -> None:
    path = REQUEST.child("exactly", "count")
    below = path.relative_to(REQUEST)

    assert below == FieldPath.of("exactly", "count")
    assert path == REQUEST.join(below)


@pytest.mark.parametrize("prefix", [FieldPath.of("spec", "device"), REQUEST.child("exactly", "x")])
def test_a_path_is_relative_to_its_prefixes_only(prefix: FieldPath) -> None:
    assert REQUEST.child("exactly").relative_to(prefix) is None


def test_removing_a_prefix_leaves_something() -> None:
    spec = FieldPath.of("spec")

    assert FieldPath.of("nodeName") == spec.child("nodeName").remove_prefix(spec)
    assert spec == spec.remove_prefix(spec)
    assert FieldPath.of("metadata") == FieldPath.of("metadata").remove_prefix(spec)
