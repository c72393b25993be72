import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.api.core import Node, Pod
from kube.api.meta import ApiStruct
from kube.errors import ObjectFileError
from kube.manifests import source
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects, read_paths, read_views
from kube.manifests.source import SourceObject, ViewedObject
from testing.documents import api_object

HEAD = "apiVersion: v1\nkind: ConfigMap\n"
DOCUMENT = {"apiVersion": "v1", "kind": "ConfigMap"}


def lines_and_names(source_objects: list[SourceObject]) -> list[tuple[int, str]]:
    return [
        (source_object.line, f"{source_object.kind}/{source_object.namespace}/{source_object.name}")
        for source_object in source_objects
    ]


class Case(NamedTuple):
    name: str
    text: str
    want: list[tuple[int, str]]


CASES = (
    Case("nothing", "", []),
    Case("only comments and empty documents", "# a\n---\n---\n# b\n...\n", []),
    Case("one object", HEAD, [(1, "ConfigMap//")]),
    Case(
        "documents, comments before them, and an end without a line break",
        f"# first\n---\n{HEAD}metadata: {{name: a}}\n---\n# second\n\n{HEAD}metadata: {{name: b, namespace: ns}}",
        [(3, "ConfigMap//a"), (9, "ConfigMap/ns/b")],
    ),
    Case("a name to be generated", f"{HEAD}metadata: {{generateName: a-}}", [(1, "ConfigMap//a-")]),
    Case(
        "metadata that is nonsense is not our business",
        f"{HEAD}metadata: [1]",
        [(1, "ConfigMap//")],
    ),
    Case("a byte order mark", "\ufeff" + HEAD, [(1, "ConfigMap//")]),
    Case("Windows line ends", HEAD.replace("\n", "\r\n"), [(1, "ConfigMap//")]),
    Case(
        "a List is flattened, each item with its line",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- apiVersion: v1\n  kind: Node\n",
        [(4, "Pod//"), (6, "Node//")],
    ),
    Case(
        "a List in a List",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items: [{apiVersion: v1, kind: Pod}]\n",
        [(4, "Pod//")],
    ),
    Case(
        "items of a typed list get its type",
        "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n",
        [(4, "Pod//a")],
    ),
    Case("a List without items", "apiVersion: v1\nkind: List\n", []),
    Case(
        "a typed list whose items Go left nil", "apiVersion: v1\nkind: PodList\nitems: null\n", []
    ),
    Case(
        "a kind that only ends like a list",
        "apiVersion: a/v1\nkind: AllowList\n",
        [(1, "AllowList//")],
    ),
    Case("JSON", '\n{"apiVersion": "v1",\n"kind": "Pod"}', [(2, "Pod//")]),
    Case(
        "a JSON List, each item with its line, also where two are equal",
        '{"apiVersion": "v1", "kind": "List",\n"items": [\n{"apiVersion":"v1",\n"kind":"Pod"},\n'
        '{"apiVersion":"v1",\n"kind":"Pod"}]}',
        [(3, "Pod//"), (5, "Pod//")],
    ),
    Case(
        "JSON documents one behind the other",
        '{"apiVersion": "v1", "kind": "Pod"}\n{"apiVersion": "v1",\n"kind": "Node"} {"apiVersion": "v1", "kind": "Pod"}',
        [(1, "Pod//"), (2, "Node//"), (3, "Pod//")],
    ),
    Case("YAML that looks like JSON", "{apiVersion: v1, kind: Pod}", [(1, "Pod//")]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_read_objects(case: Case) -> None:
    assert case.want == lines_and_names(read_objects(case.text.encode(), "file.yaml"))


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        (
            "numbers and words",
            "a: [yes, 0x10, 1e3, 1.5, '1', ~, 3Gi]",
            [True, 16, 1000, 1.5, "1", None, "3Gi"],
        ),
        ("a timestamp stays text", "a: 2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        (
            "keys become text",
            "a: {on: 1, 8080: 2, 1.10: 3, 'no': 4}",
            {"true": 1, "8080": 2, "1.1": 3, "no": 4},
        ),
        ("the last of equal keys wins", "a: {b: 1, b: 2}", {"b": 2}),
        ("an alias", "b: &x {c: 1}\na: *x", {"c": 1}),
        ("a key with an anchor", "b: {&k c: 1}\na: {*k : 2}", {"c": 2}),
        (
            "merged keys go below those that follow",
            "b: &x {c: 1, d: 1}\na: {<<: *x, d: 2}",
            {"c": 1, "d": 2},
        ),
        ("and above those before, as in go-yaml", "b: &x {c: 1}\na: {c: 2, <<: *x}", {"c": 1}),
        ("the first of several merged wins", "a:\n  <<: [{c: 1}, {c: 2, d: 2}]", {"c": 1, "d": 2}),
        ("a quoted << is a key", 'a: {"<<": 1}', {"<<": 1}),
        ("a tag that says text", "a: !!str 1", "1"),
        ("a tag that says number", "a: !!int '1'", 1),
        ("an unknown tag means text", "a: !foo 1", "1"),
        ("binary", "a: !!binary aGk=", "hi"),
        ("a block of text", "a: |\n  x\n   y\n", "x\n y\n"),
        ("a folded block", "a: >-\n  x\n  y\n", "x y"),
    ],
)
def test_read_values(name: str, text: str, want: object) -> None:
    [object_] = read_objects(f"{HEAD}{text}\n".encode(), "file.yaml")

    assert want == object_.document["a"], name


def test_aliases_are_copies() -> None:
    [object_] = read_objects(f"{HEAD}a: &x [1]\nb: *x\n".encode(), "file.yaml")

    object_.document["a"].append(2)

    assert object_.document["b"] == [1]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP_ALIASES = "a: &a {a: {a: 1}}\n" + "".join(
    f"b{number}: &a {'{a: ' * 100}*a{'}' * 100}\n" for number in range(20)
)
"""Each line nests a hundred levels, and they ended commands in a traceback together."""


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("broken YAML", "a: b: c", "f:1: not YAML: mapping values are not allowed in this context"),
        (
            "broken YAML in a later document",
            f"{HEAD}---\na: [\n",
            "f:5: not YAML: did not find expected node content",
        ),
        (
            "broken JSON",
            '{"apiVersion": "v1",\n"kind": ]}',
            "f:2: not YAML: did not find expected node content",
        ),
        ("a list", "- a", "f:1: expected an object, found a list"),
        ("a word", "\nhello", "f:2: expected an object, found a string"),
        ("no apiVersion", "---\nkind: Pod\n", "f:2: apiVersion is missing"),
        ("no kind", f"{HEAD}---\napiVersion: v1\n", "f:4: kind is missing"),
        ("an empty kind", "apiVersion: v1\nkind: ''", "f:1: kind is missing"),
        (
            "a kind that is a number",
            "apiVersion: v1\nkind: 1",
            "f:1: kind is a number, not a string",
        ),
        (
            "an item without kind",
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n",
            "f:4: kind is missing",
        ),
        (
            "an item that is no object",
            '{"apiVersion": "v1", "kind": "List", "items": [\n1]}',
            "f:2: items[0]: expected an object, found a number",
        ),
        ("infinity", f"{HEAD}a: .inf", "f:3: .inf is not a JSON number"),
        ("null as a key", f"{HEAD}~: 1", "f:3: ~ cannot be a key"),
        ("a list as a key", f"{HEAD}? [a]\n: 1", "f:3: a list cannot be a key"),
        (
            "a template",
            f"{HEAD}a: {{{{ .Values.a }}}}",
            "f:3: an object cannot be a key; if this is a template, render it first",
        ),
        (
            "a template that is no YAML",
            f"{HEAD}{{{{- if .Values.a }}}}\na: 1",
            "f:4: not YAML: could not find expected ':'; if this is a template, render it first",
        ),
        ("a merge of no mapping", f"{HEAD}<<: 1", "f:3: << takes a mapping or a list of mappings"),
        ("an alias of nothing", f"{HEAD}a: *b", "f:3: the alias *b has no anchor before it"),
        ("an alias of itself", f"{HEAD}a: &a [*a]", "f:3: the alias *a has no anchor before it"),
        (
            "a tag that does not agree with its value",
            f"{HEAD}a: !!int x",
            "f:3: 'x' does not agree with its tag",
        ),
        ("an alias bomb", HEAD + BOMB, "f:8: aliases expand to more than 100000 values"),
        ("aliases in each other", HEAD + DEEP_ALIASES, "f:5: nested deeper than 200 levels"),
        ("deep YAML", f"{HEAD}a: {'[' * 100_000}", "f:3: nested deeper than 200 levels"),
        (
            "deep JSON",
            '{"apiVersion": "v1", "kind": "Pod", "a": ' + "[" * 300 + "]" * 300 + "}",
            "f:1: nested deeper than 200 levels",
        ),
        (
            "JSON deeper than its parser goes",
            '{"apiVersion": "v1", "kind": "Pod", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "f:1: nested deeper than 200 levels",
        ),
        (
            "a control character",
            f"{HEAD}a: \x01",
            "f:3: not YAML: control characters are not allowed",
        ),
    ],
)
def test_read_objects_rejects(name: str, text: str, want: str) -> None:
    with pytest.raises(ObjectFileError) as refusal:
        read_objects(text.encode(), "f")

    assert want == str(refusal.value), name


def test_read_objects_rejects_bytes_that_are_not_utf8() -> None:
    with pytest.raises(ObjectFileError, match=r"^f:3: not YAML: invalid leading UTF-8 octet$"):
        read_objects(HEAD.encode() + b"a: \xff", "f")


@pytest.mark.parametrize(
    "text",
    [
        b'{"apiVersion": "v1", "kind": "Pod", "a": {"b": "\xff"}}',
        b'{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod", "a": "\xff"}]}',
        b'{"apiVersion": "v1", "kind": "Pod"} {"apiVersion": "v1", "kind": "Pod", "a": "\xff"}',
    ],
    ids=["an object", "a list", "a stream"],
)
def test_read_objects_rejects_json_that_is_not_utf8(text: bytes) -> None:
    with pytest.raises(ObjectFileError, match=r"^f:1: not YAML: invalid leading UTF-8 octet$"):
        read_objects(text, "f")


def test_read_objects_rejects_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 2**20)

    with pytest.raises(ObjectFileError, match="larger than 1 MiB"):
        read_objects(b"#" * (2**20 + 1), "f")


@pytest.mark.parametrize("text", [f"{HEAD}a: [{'[],' * 100}]", f"{HEAD}a:\n" + "- \n" * 100])
def test_read_objects_rejects_too_many_values(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(source, "MAX_DELIMITERS", 90)

    with pytest.raises(ObjectFileError, match="more than 90 values or lines"):
        read_objects(text.encode(), "f")


def test_a_stream_of_json_documents_is_read_once_and_keeps_its_lines() -> None:
    document = '{"apiVersion": "v1",\n "kind": "A"}'
    # Copying the rest for each document would take minutes.
    stream = f"\n{document} {document}\t{document}" + f"\r\n\n{document}" * 100_000 + "\n "

    objects = read_objects(stream.encode(), "f")

    assert [source_object.line for source_object in objects[:5]] == [2, 3, 4, 7, 10]
    assert len(objects) == 100_003


def test_read_paths(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "c.yml", "d.txt"):
        kind = json.dumps({"apiVersion": "v1", "kind": name[0].upper()})
        (tmp_path / name).write_text(kind)
    (tmp_path / "deeper.yaml").mkdir()
    (tmp_path / "deeper.yaml" / "e.yaml").write_text(HEAD)

    paths = read_paths(
        [str(tmp_path), "-", str(tmp_path / "d.txt")], stdin=io.BytesIO(HEAD.encode())
    )

    assert [path.kind for path in paths] == ["A", "B", "C", "ConfigMap", "D"]
    assert str(tmp_path / "a.json") == paths[0].source
    assert paths[3].source == "<stdin>"


def test_read_paths_rejects(tmp_path: Path) -> None:
    with pytest.raises(ObjectFileError, match=r"absent\.yaml: No such file or directory"):
        read_paths([str(tmp_path / "absent.yaml")])
    with pytest.raises(ObjectFileError, match=r"no \.json, \.yaml, \.yml file in this directory"):
        read_paths([str(tmp_path)])
    # An unset variable of a script must not mean the folder that it runs in.
    with pytest.raises(ObjectFileError, match="the path is empty"):
        read_paths([""])


VIEWS: dict[tuple[str, str], type[ApiStruct]] = {("v1", "Node"): Node, ("v1", "Pod"): Pod}
NODE = api_object("Node", "a")
POD = api_object("Pod", "b", "team")


def json_list(*items: Any, **fields: Any) -> Any:
    return {"apiVersion": "v1", "kind": "List", "items": list(items), **fields}


class ViewCase(NamedTuple):
    name: str
    want: list[str]
    document: Any


VIEW_CASES = (
    ViewCase("items of a List", ["view Node//a", "view Pod/team/b"], json_list(NODE, POD)),
    ViewCase("an empty List", [], json_list()),
    ViewCase("other kinds are left out", ["view Node//a"], json_list(NODE, DOCUMENT)),
    ViewCase(
        "what cannot be viewed is told as it is",
        ["view Node//a", "document Pod//c"],
        json_list(NODE, {**POD, "metadata": {"name": "c", "labels": 3}}),
    ),
    ViewCase("one object", ["document Node//a"], NODE),
    ViewCase(
        "a typed list", ["document Node//a"],
        {"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "a"}}]},
    ),
    ViewCase("a List in a List", ["document Node//a"], json_list(json_list(NODE))),
)  # fmt: skip


@pytest.mark.parametrize("case", VIEW_CASES, ids=lambda case: case.name)
def test_read_views(case: ViewCase, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps(case.document))

    views = read_views([str(file)], VIEWS)

    assert case.want == [
        f"{'view' if isinstance(view, ViewedObject) else 'document'} "
        f"{view.kind}/{view.namespace}/{view.name}"
        for view in views
    ]


def test_read_views_returns_an_invalid_item_as_document_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps(json_list(NODE, {**NODE, "spec": 3}), indent=1))

    _, broken = read_views([str(file)], VIEWS)

    assert isinstance(broken, SourceObject)
    assert file.read_text().splitlines()[broken.line - 1].strip() == "{"


@pytest.mark.parametrize(
    "text",
    ["{", '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}]}', '{"items": 3}'],
)
def test_read_views_rejects_what_read_paths_rejects(text: str, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    with pytest.raises(ObjectFileError) as told_of_documents:
        read_paths([str(file)])

    with pytest.raises(ObjectFileError) as told_of_views:
        read_views([str(file)], VIEWS)

    assert str(told_of_documents.value) == str(told_of_views.value)


def test_dump_yaml() -> None:
    document = {
        **DOCUMENT,
        "metadata": {"name": "a", "labels": {}, "annotations": {"on": "yes", "x.y/z": "1e3"}},
        "data": {"script": "#!/bin/sh\necho hi\n", "one": "a: b"},
        "list": [{"a": 1, "b": [True, None, 1.5]}, [], [["x"], []], "two\nlines"],
    }

    text = dump_yaml([document, DOCUMENT])

    assert (
        text
        == """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  labels: {}
  annotations:
    "on": "yes"
    x.y/z: "1e3"
data:
  script: |
    #!/bin/sh
    echo hi
  one: "a: b"
list:
- a: 1
  b:
  - true
  - null
  - 1.5
- []
- - - x
  - []
- |-
  two
  lines
---
apiVersion: v1
kind: ConfigMap
"""
    )


def test_dump_yaml_rejects_numbers_that_json_lacks() -> None:
    with pytest.raises(ValueError, match="inf is not a JSON value"):
        dump_yaml([{"a": float("inf")}])


SURPRISING = st.sampled_from(
    (
        *("yes", "n", "1", "1e3", "0x10", "2024-01-01", "~", "<<", "-", "---", "...", ":", "#"),
        *("a:b", "12:30", ".5", "+1", "1_0", "=", "null", "", " ", "a\nb", "\n", "a\n\n", " a\nb"),
        *(
            "\ta\nb",
            "a \nb ",
            "a #b",
            "a: b",
            "a\r\nb",
            "\u2028",
            "k" * 1100,
            "\ufeff\nx",
            "a\n---",
        ),
    )
)
TEXT = (
    SURPRISING
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.text("ab \n\t:#-'\"{}[],&*!|>%@`?")
)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.property
@given(st.lists(VALUES, max_size=3))
def test_dumped_objects_read_back_unchanged(values: list[Any]) -> None:
    documents = [{**DOCUMENT, "data": value} for value in values]

    text = dump_yaml(documents)

    assert documents == [
        read_document.document for read_document in read_objects(text.encode(), "f")
    ]
    # So must a reader of YAML 1.1 with dates, base 60 and its own numbers.
    assert documents == list(yaml.load_all(text, Loader=yaml.CSafeLoader))


@pytest.mark.property
@given(st.binary() | st.text("ab:-[]{}&*!|>'\"#%@ \n\t?,<01").map(str.encode))
def test_any_bytes_give_objects_or_an_object_file_error(text: bytes) -> None:
    with suppress(ObjectFileError):
        read_objects(text, "f")
