"""The lines of fields in manifests, for hosts that show findings beside the lines of a change."""

import json

import pytest

from kube.manifests.field_lines import FieldLines, Step

TEXT = """\
# A pod.
kind: Pod
spec:
  containers:
  - name: main
    resources: {limits: {a/b: 1},
      requests: {c: 2}}
  - name: other
    resources: &x
      limits:
        a/b: 1
  - name: third
    resources: *x
---
kind: List
items:
- kind: Pod
  spec:
    nodeName: a
"""


@pytest.mark.parametrize(
    ("object_line", "path", "line"),
    [
        (2, (), 2),
        (2, ("spec",), 3),
        (2, ("spec", "containers", 0, "resources", "limits", "a/b"), 6),
        (2, ("spec", "containers", 0, "resources", "requests", "c"), 7),
        (2, ("spec", "containers", 1, "resources", "limits", "a/b"), 11),
        (2, ("spec", "containers", 1, "resources", "requests", "a/b"), 9),
        (2, ("spec", "containers", 2, "resources", "limits", "a/b"), 13),
        (2, ("spec", "containers", 9, "name"), 4),
        (2, ("metadata", "name"), 2),
        (17, ("spec", "nodeName"), 19),
        (4, ("spec",), 4),
    ],
)
def test_the_line_of_the_deepest_part_that_is_written(
    object_line: int, path: tuple[Step, ...], line: int
) -> None:
    assert FieldLines(TEXT.encode()).line(object_line, path) == line


def test_json() -> None:
    text = json.dumps({"kind": "Pod", "spec": {"a": [1, 2]}}, indent=1)

    assert FieldLines(text.encode()).line(1, ("spec", "a", 1)) == 6


@pytest.mark.parametrize("text", [b"", b"a: [", b"\xff", b"[" * 5000])
def test_of_another_text_no_field_is_known(text: bytes) -> None:
    assert FieldLines(text).line(3, ("spec",)) == 3
