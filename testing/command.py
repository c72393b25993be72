"""The command as a person calls it, in this process."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from click.testing import CliRunner, Result

from cli.__main__ import main
from kube.manifests.dump import dump_yaml

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
CLUSTER = EXAMPLES / "cluster" / "cluster.yaml"

Document = Mapping[str, Any]


def drawbridge(*arguments: object, stdin: str | None = None, **environment: str) -> Result:
    """Call it; an exception that is not an exit is the test's own."""
    call = [str(argument) for argument in arguments]
    return CliRunner().invoke(main, call, input=stdin, env=environment, catch_exceptions=False)


def translate(
    *documents: Document, snapshot: Iterable[Document] | None = None, options: Iterable[object] = ()
) -> Result:
    """Translate documents on standard input; `options` come last."""
    with TemporaryDirectory() as folder:
        state = Path(folder) / "cluster.yaml"
        state.write_text(dump_yaml(snapshot or ()))
        told_state = () if snapshot is None else ("--snapshot", state)
        return drawbridge(
            *("translate", "-f", "-", *told_state, *options), stdin=dump_yaml(documents)
        )


def answer(
    *documents: Document, snapshot: Iterable[Document] | None = None, options: Iterable[object] = ()
) -> dict[str, Any]:
    """The answer of `-o json`."""
    result = translate(*documents, snapshot=snapshot, options=[*options, "-o", "json"])
    assert result.exit_code in (0, 1), result.stderr
    answer_: dict[str, Any] = msgspec.json.decode(result.stdout)
    return answer_


def kinds(answer_: Mapping[str, Any]) -> list[str]:
    """The objects of an answer, as `Kind name`; a template's name is left out."""
    return [
        "template"
        if document["kind"] == "ResourceClaimTemplate"
        else f"{document['kind']} {_name(document)}"
        for document in answer_["objects"]
    ]


def _name(document: Document) -> str:
    metadata = document["metadata"]
    return str(metadata.get("name") or metadata["generateName"])


def finding_lines(answer_: Mapping[str, Any]) -> list[str]:
    """The findings of an answer, as `severity code object path`."""
    return [
        f"{finding['severity']} {finding['code']} {finding['object']} {finding['path']}"
        for finding in answer_["findings"]
    ]
