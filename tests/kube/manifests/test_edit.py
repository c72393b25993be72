"""Objects change in the text of a file, and everything else stays as it is written."""

from typing import Any

import pytest

from kube.errors import NotEditable
from kube.manifests.edit import Change, check_edit, edit_yaml
from kube.manifests.reader import read_objects
from testing.documents import Document

HEAD = "apiVersion: v1\nkind: Pod\n"


def changed(text: str, **fields: Any) -> str:
    """The text with other fields of its only object; None removes one. Read again, it has them."""
    (source_object,) = read_objects(text.encode(), "pod.yaml")
    old = source_object.document
    new = {key: value for key, value in {**old, **fields}.items() if value is not None}
    after = edit_yaml(text, "pod.yaml", [Change(document=0, old=old, new=new)], {})
    check_edit(text.encode(), after.encode(), "pod.yaml", [new])
    return after


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        pytest.param(
            "a: 1 # first\n# second\nb: 2\n", {"a": 5}, "a: 5 # first\n# second\nb: 2\n", id="scalar"
        ),
        pytest.param(
            "a: 1\n# about b\nb: 2 # gone\nc: 3\n", {"b": None}, "a: 1\n# about b\nc: 3\n", id="removed"
        ),
        pytest.param("a: 1\n\n# end\n", {"b": [1]}, "a: 1\nb:\n- 1\n\n# end\n", id="added"),
        pytest.param("a: 1", {"b": "yes"}, 'a: 1\nb: "yes"', id="no line end at the end"),
        pytest.param("a: 1\r\nb: 2\r\n", {"c": 3}, "a: 1\r\nb: 2\r\nc: 3\r\n", id="CRLF"),
        pytest.param("a: {b: 1,  c: 2}\n", {"a": {"c": "x,y"}}, 'a: {c: "x,y"}\n', id="braces"),
        pytest.param(
            "a:\n    b:   1\n    c: 2\n", {"a": {"b": 1, "d": {"e": 1}}},
            "a:\n    b:   1\n    d:\n      e: 1\n", id="indentation of the file",
        ),
        pytest.param(
            "a:\n  - b: 1 # one\n  - b: 2\n", {"a": [{"b": 1}, {"b": 2}, {"b": 3}]},
            "a:\n  - b: 1 # one\n  - b: 2\n  - b: 3\n", id="an item below an indented list",
        ),
        pytest.param(
            "a:\n- b\n# after\nc: |\n  text\n\n\nd: 1\n", {"a": ["b", "c"], "c": None},
            "a:\n- b\n- c\n# after\n\n\nd: 1\n", id="a block literal is removed",
        ),
        pytest.param("'a' :   1 # one\n", {"a": 2}, "'a' :   2 # one\n", id="a word alone"),
        pytest.param("a: '1'\nb: \"x\"\n", {"a": "2", "b": "y z"}, "a: '2'\nb: \"y z\"\n", id="quotes"),
        pytest.param("a: x\n", {"a": "yes"}, 'a: "yes"\n', id="a word that needs quotes"),
        pytest.param("a: 'x'\n", {"a": "it's"}, "a: it's\n", id="a quote in quotes"),
        pytest.param("a: 'x'\n", {"a": 8192}, "a: 8192\n", id="a number in place of quotes"),
        pytest.param("a: &b 1\n", {"a": 2}, "a: 2\n", id="an anchor that nothing names"),
        pytest.param("a: {b: 1,  c: [x,  y] } # c\n", {"a": {"b": 2, "c": ["x", "z"]}},
                     "a: {b: 2,  c: [x,  z] } # c\n", id="words in brackets"),
        pytest.param("a: {b: 1,\n    c: 2}\n", {"a": {"b": 1, "c": 2, "d": "x"}},
                     "a: {b: 1,\n    c: 2,\n    d: x}\n", id="an entry in brackets"),
        pytest.param("a: {b: {}}\n", {"a": {"b": {"c": 1}}}, "a: {b: {c: 1}}\n",
                     id="the first entry in brackets"),
        pytest.param('a: d["x"].y >= 1\n', {"a": 'd["x"].y >= 2'}, 'a: d["x"].y >= 2\n',
                     id="a text that would end within brackets"),
        pytest.param("a: x.y\n", {"a": 'd["x"].y >= 2'}, 'a: "d[\\"x\\"].y >= 2"\n',
                     id="quotes in quotes"),
        pytest.param("a: {b: , c: 1}\n", {"a": {"b": 2, "c": 1}}, "a: {b: 2, c: 1}\n",
                     id="nothing in brackets"),
        pytest.param("a:  # nothing yet\nb: 2\n", {"a": 1}, "a: 1  # nothing yet\nb: 2\n", id="null"),
        pytest.param("a: 'x'\nb: >-\n  folded\n  text\n", {"c": 1},
                     "a: 'x'\nb: >-\n  folded\n  text\nc: 1\n", id="below a folded text"),
        pytest.param("? a\n: !!str 16 # why\nb: 2\n", {"a": "2"}, '? a\n: "2" # why\nb: 2\n',
                     id="a tagged word of an explicit key"),
        pytest.param("a: &x 1\nb: 2\n", {"a": 3}, "a: 3\nb: 2\n",
                     id="an anchor that nothing refers to"),
        pytest.param("é: 🙂 # ü\nb: 2\n", {"b": 3}, "é: 🙂 # ü\nb: 3\n", id="other characters"),
        pytest.param("b: &x\n  c: 1\na: *x\n", {"d": 1}, "b: &x\n  c: 1\na: *x\nd: 1\n",
                     id="below an alias"),
    ],
)  # fmt: skip
def test_edit_yaml(text: str, fields: Document, expected: str) -> None:
    head = HEAD.replace("\n", "\r\n") if "\r" in text else HEAD

    assert head + expected == changed(head + text, **fields)


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        ("x: &x {b: 1}\na: *x\n", {"a": {"b": 2}}, "pod.yaml:4: .* the value is an alias"),
        ("x: &x\n  b: 1\na: *x\n", {"x": {"b": 2}}, "pod.yaml:1: .* changing something else"),
        ("x: &x {b: 1}\na:\n  <<: *x\n  c: 1\n", {"a": {"c": 1}}, "b comes from a merge key"),
        ("a: {b: 1, # why\n  c: 2}\n", {"a": {"c": 2}}, "a comment stands within brackets"),
        ("a:\n- b: 1\n  c: 2\n", {"a": [{"c": 2}]}, "pod.yaml:4: .* behind a dash"),
        ("x: &x 1\na: *x\n", {"x": 2}, "pod.yaml:3: .* aliases refer to the value by &x"),
        ("x: {b: &x 1}\na: *x\n", {"x": {}}, "pod.yaml:3: .* aliases refer to the value by &x"),
        ("? a\n: |-\n  b\n", {"a": "c"}, "pod.yaml:3: .* written with a question mark"),
        ("a:\n- 1\n- 2\n", {"a": [1, 3]}, "an item of a list changes"),
        ("a:\n- 1\n# two\n- 2\n", {"a": [1]}, "pod.yaml:5: .* without losing this comment"),
        ("a: 1\nb: 1\nb: 2\n", {"b": None}, "without changing something else"),
    ],
)
def test_edit_yaml_of_a_form_that_cannot_change_alone(
    text: str, fields: Document, reason: str
) -> None:
    with pytest.raises(NotEditable, match=reason):
        changed(HEAD + text, **fields)


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        ("# about a\na: 1\n", 0, "new: 1\n---\n# about a\na: 1\n"),
        ("\ufeffa: 1\n", 0, "\ufeffnew: 1\n---\na: 1\n"),
        ("# license\n---\na: 1\n", 0, "# license\n---\nnew: 1\n---\na: 1\n"),
        ("a: 1\n--- # second\nb: 1\n", 1, "a: 1\n---\nnew: 1\n--- # second\nb: 1\n"),
    ],
)
def test_edit_yaml_inserts_documents(text: str, number: int, expected: str) -> None:
    assert expected == edit_yaml(text, "pod.yaml", [], {number: [{"new": 1}]})


def test_an_alias_of_another_document_does_not_refer_to_an_anchor() -> None:
    rest = "---\nb: &x 2\nc: *x\n"
    change = Change(document=0, old={"a": 1}, new={"a": 3})

    assert f"a: 3\n{rest}" == edit_yaml(f"a: &x 1\n{rest}", "pod.yaml", [change], {})


def test_check_edit_refuses_to_lose_a_comment() -> None:
    before, after = (HEAD + "# why\na: 1\n").encode(), (HEAD + "a: 1\n").encode()
    (source_object,) = read_objects(after, "pod.yaml")

    with pytest.raises(NotEditable):
        check_edit(before, after, "pod.yaml", [source_object.document])


@pytest.mark.parametrize(
    ("text", "added", "expected"),
    [
        pytest.param("a: 1\n", {"k": 1}, "a: 1\n# why\nk: 1\n", id="a key"),
        pytest.param(
            "a: 1\n",
            {"b": {"c": [{"j": 0, "k": "k: |\nk: 2\n"}]}},
            "a: 1\nb:\n  c:\n  - j: 0\n    # why\n    k: |\n      k: |\n      k: 2\n",
            id="below, and not in a text",
        ),
        pytest.param("a: 1\n", {"b": [{"k": 1}]}, "a: 1\nb:\n- k: 1\n", id="behind a dash"),
        pytest.param("a: {b: 1}\n", {"a": {"b": 1, "k": 2}}, "a: {b: 1, k: 2}\n", id="in braces"),
        pytest.param("k: 1\n", {"k": 2}, "k: 2\n", id="a key that is there"),
    ],
)
def test_a_new_key_has_its_comment(text: str, added: Document, expected: str) -> None:
    (source_object,) = read_objects((HEAD + text).encode(), "pod.yaml")
    old = source_object.document
    changes = [Change(document=0, old=old, new={**old, **added})]

    after = edit_yaml(HEAD + text, "pod.yaml", changes, {}, {"k": "why"})

    assert HEAD + expected == after
    check_edit((HEAD + text).encode(), after.encode(), "pod.yaml", [{**old, **added}])
