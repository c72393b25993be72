"""Every manifest below a folder through the command line: `python -m tools.corpus DIR`.

Prints a table: file, kinds, what a translation makes of it without a cluster and against the recorded
cluster of the examples, what a check says of it, how many device keys no finding names, and the codes
of all findings. Exits 1 when something crashed, when a readable manifest was called unreadable, when
translating the output again changed something, or when a device key was left without a word; 2 when
there is nothing.
"""

import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from click.testing import CliRunner

from cli.__main__ import main as drawbridge
from findings.finding import Code
from kube.errors import ObjectFileError
from kube.manifests.reader import read_objects
from kube.manifests.source import SUFFIXES
from kube.names import REQUEST_ANNOTATION
from translation.reading.untranslated_keys import is_probable_device_key

CLUSTER: Final = Path(__file__).parent.parent / "examples" / "cluster" / "cluster.yaml"
COMMANDS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("alone", ("translate", "-o", "json")),
    ("in a cluster", ("translate", "-o", "json", "--snapshot", str(CLUSTER))),
    ("checked", ("check", "-o", "json")),
    ("checked in a cluster", ("check", "-o", "json", "--snapshot", str(CLUSTER))),
)
"""Column to the call whose outcome stands in it; `-f FILE` is added."""


SILENT: Final = "device keys left without a word"
WHOLE_POD: Final = frozenset(
    code.value
    for code in (
        *(Code.FOREIGN_SCHEDULER, Code.OPTED_OUT),
        *(Code.NODE_NAME_SET, Code.ALREADY_CONVERTED),
    )
)
"""Codes of findings that say why nothing of a pod is translated."""
MAX_KINDS: Final = 40
"""Characters of the column."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call.

    Attributes:
        word: The word for the table.
        fault: The reason that the corpus fails for it; empty when it does not.
    """

    word: str
    codes: tuple[str, ...] = ()
    fault: str = ""


def outcome(arguments: Sequence[str], text: bytes, *, readable: bool) -> Outcome:
    """Return the outcome of the command for a manifest."""
    code, output = _call(arguments, text)
    if code is None:
        return Outcome(word="CRASH", fault=output)
    if code == 2:
        fault = "readable, and called unreadable" if readable else ""
        return Outcome(word="unreadable", fault=fault)
    answer = msgspec.json.decode(output)
    codes = tuple(sorted({finding["code"] for finding in answer["findings"]}))
    if "objects" not in answer:
        return Outcome(word=_numbers(answer["findings"]), codes=codes)
    return Outcome(word=_word(answer), codes=codes, fault=_unstable(arguments, answer["objects"]))


def _numbers(findings: Sequence[dict[str, Any]]) -> str:
    numbers = Counter(finding["severity"] for finding in findings)
    words = (
        f"{numbers[severity]} {severity}s" for severity in ("error", "warning") if numbers[severity]
    )
    return ", ".join(words) or "clean"


def _word(answer: dict[str, Any]) -> str:
    rejected_objects = {f["object"] for f in answer["findings"] if f["severity"] == "error"}
    translated_count = sum(
        REQUEST_ANNOTATION in msgspec.json.encode(o).decode() for o in answer["objects"]
    )
    words = (
        f"{translated_count} translated" if translated_count else "",
        f"{len(rejected_objects)} refused" if rejected_objects else "",
    )
    return ", ".join(filter(None, words)) or "unchanged"


def _unstable(arguments: Sequence[str], objects: Sequence[Any]) -> str:
    """Return a fault if the output, translated again, is not the same."""
    if not objects:
        return ""
    list_document = {"apiVersion": "v1", "kind": "List", "items": objects}
    code, output = _call(arguments, msgspec.json.encode(list_document))
    if code == 0 and msgspec.json.decode(output)["objects"] == objects:
        return ""
    return f"its output, translated again, changes: exit {code}"


def _call(arguments: Sequence[str], text: bytes) -> tuple[int | None, str]:
    """Return exit code and standard output; None and the exception if there was one."""
    result = CliRunner().invoke(drawbridge, [*arguments, "-f", "-"], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return None, repr(result.exception)
    return result.exit_code, result.stdout


def is_readable(text: bytes) -> bool:
    """Return True if another parser finds objects, and nothing else, with apiVersion and kind."""
    try:
        documents = [
            document
            for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
            if document is not None
        ]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError):
        return False
    return any(map(_has_objects, documents)) and all(
        isinstance(document, dict) and document.get("apiVersion") and document.get("kind")
        for document in documents
    )


def _has_objects(document: object) -> bool:
    """Return True if a document has anything to apply; an empty List has not."""
    if not isinstance(document, dict):
        return False
    is_list = document.get("kind") == "List" or "items" in document
    return bool(document.get("items")) if is_list else True


def kinds(text: bytes) -> str:
    """Return the kinds in a manifest, with their number if it is not one."""
    try:
        kind_counts = Counter(read_document.kind for read_document in read_objects(text, ""))
    except ObjectFileError as fault:
        return textwrap.shorten(str(fault).removeprefix(":"), MAX_KINDS, placeholder=" ...")
    names = (
        kind if number == 1 else f"{number} {kind}" for kind, number in sorted(kind_counts.items())
    )
    return textwrap.shorten(", ".join(names), MAX_KINDS, placeholder=" ...")


def rows(folder: Path) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield name, kinds and outcomes of each manifest below the folder, by name."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            text = path.read_bytes()
            readable = is_readable(text)
            yield (
                str(path.relative_to(folder)),
                kinds(text),
                [outcome(call, text, readable=readable) for _, call in COMMANDS],
            )


def silent_keys(path: Path) -> Sequence[str]:
    """Return the device keys of a manifest that a translation leaves without a finding.

    A device key is above zero in a pod or a pod template, and some device plugin or scheduler reads
    it. A finding says its name, or why the whole pod is left alone.
    """
    text = path.read_bytes()
    if not is_readable(text):
        return ()
    code, output = _call(COMMANDS[0][1], text)
    if code not in {0, 1}:
        return ()
    answer = msgspec.json.decode(output)
    words = " ".join(f"{finding['path']} {finding['message']}" for finding in answer["findings"])
    left_alone = {
        finding["object"] for finding in answer["findings"] if finding["code"] in WHOLE_POD
    }
    device_keys = {
        key
        for document in answer["objects"]
        if _name(document) not in left_alone
        for key in _device_keys(document)
    }
    return sorted(key for key in device_keys if key not in words)


def _name(document: Mapping[str, Any]) -> str:
    """Return the name of an object as findings have it."""
    # Configurations of programs have kinds, and no names.
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{document['kind']}/{metadata.get('namespace') or 'default'}/{name}"


def _device_keys(value: object) -> Iterator[str]:
    """Yield the device keys in the limits and requests of a document."""
    if isinstance(value, list):
        for item in value:
            yield from _device_keys(item)
    if not isinstance(value, dict):
        return
    resources = value.get("resources")
    if isinstance(resources, dict):
        for section in ("limits", "requests"):
            amounts = resources.get(section)
            for key, amount in amounts.items() if isinstance(amounts, dict) else ():
                if str(amount) != "0" and is_probable_device_key(key):
                    yield key
    for item in value.values():
        yield from _device_keys(item)


def main() -> int:
    """Return the exit status."""
    folder = Path(sys.argv[1])
    table_rows = list(rows(folder))
    silent = {name: silent_keys(folder / name) for name, _, _ in table_rows}
    if not table_rows:
        print(f"no manifest below {folder}", file=sys.stderr)
        return 2
    table = [("file", "kinds", *(name for name, _ in COMMANDS), SILENT, "codes")]
    table += [
        (
            name,
            kinds,
            *(outcome.word for outcome in outcomes),
            str(len(silent[name])),
            ", ".join(sorted({code for outcome in outcomes for code in outcome.codes})),
        )
        for name, kinds, outcomes in table_rows
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
    faults = [
        f"{name}: {column}: {outcome.fault}"
        for name, _, outcomes in table_rows
        for (column, _), outcome in zip(COMMANDS, outcomes, strict=True)
        if outcome.fault
    ]
    faults += [f"{name}: {SILENT}: {', '.join(keys)}" for name, keys in silent.items() if keys]
    print(f"{len(table_rows)} files, {len(faults)} faults")
    for line in faults:
        print(line, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
