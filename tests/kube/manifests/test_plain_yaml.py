"""Text that is no YAML, or makes no sense, is one error for anything that the library raises."""

import pytest

from kube.manifests.plain_yaml import MAX_BYTES, PlainYamlError, load_yaml

WRONG = {
    "depth": "[" * 100_000,
    "mappings that nest": "{a: " * 50_000,
    "an integer of many digits": "9" * 100_000,
    "a date without such a month": "2001-99-99",
    "a time zone of four days": "2001-12-14t21:59:43.10-99:00",
    "a time that is none": "!!timestamp x",
    "a bool that is none": "!!bool x",
    "an integer without digits": "!!int ''",
    "an integer of a base without digits": "0b_",
    "a float that is none": "!!float x",
    "binary that is none": "!!binary 'é'",
    "an object of Python": "!!python/object/apply:os.system ['false']",
    "a key that is a list": "? [a]\n: b",
    "a key that is itself": "&a {*a : b}",
    "a control character": "a: \x1b[2J",
    "bytes of no encoding": b"\xff\xfe\x00\xd8",
    "bytes that are no UTF-8": b"a: \xe9\xff",
    "a lone surrogate": "a: \ud800",
    "two documents": "a\n---\nb",
    "a tag with a control character": "!<\x9b31m> a",
    "too much": "a" * (MAX_BYTES + 1),
    "the value key": "!!value a",
    "pairs that are none": "!!omap [a]",
    "merge keys that double and double": "a0: &a0 {k: 1, l: 2}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1},' * 9}]}}\n" for n in range(1, 60)),
    "many merge keys of a large mapping": "a: &a {"
    + "".join(f"k{number}: 1, " for number in range(1000))
    + "}\nb: {<<: ["
    + "*a, " * 10_000
    + "]}",
    "aliases that double and double": "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 60)),
    "many aliases of a large list": f"a: &a [{'x,' * 1000}]\nb: [{'*a,' * 1000}]",
    "a merge key of itself": "a: &a {<<: *a}",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_yaml_is_one_error_of_one_line(text: str | bytes) -> None:
    with pytest.raises(PlainYamlError) as refused:
        load_yaml(text)

    message = str(refused.value)
    assert message
    assert message.isprintable()
    assert len(message) <= 256


def test_what_is_yaml_is_read() -> None:
    assert load_yaml("a: [1, {b: null}]") == {"a": [1, {"b": None}]}
    assert load_yaml("") is None


def test_an_alias_stands_for_what_it_names() -> None:
    assert load_yaml("a: &a [x]\nb: [*a, *a]") == {"a": ["x"], "b": [["x"], ["x"]]}


def test_merge_keys_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, y: 3}\nc: {<<: [*b, *a], z: 4}"

    assert load_yaml(text)["c"] == {"x": 1, "y": 3, "z": 4}
