"""Hostile files through the command line: snapshots and manifests of others, changed at random.

A command must end in a status of its own, within its time, and print nothing that a terminal or a CI
system obeys. Kubernetes has validated none of these files, so that every value may have any type.
"""

import argparse
import copy
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from kube.manifests.reader import read_paths
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document

FOLDERS: Final = (
    *("migration", "cluster", "waiting", "compatibility", "shares", "koordinator", "accelerators"),
    *("profile", "gpu-shared", "nics", "quickstart", "groups"),
)
"""The folders of the examples with objects that are changed."""
HIDDEN: Final = "\x1b[2J\x07\x9b31m\u202egnp\u200b\n::error::"
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 10**18, 2**63, 10**30, 1.5, 1e308),
    *("", " 1", "+1", "-1", "0", "1e999999", "9" * 10_000, "1e-30", "10Ei", "0x10", "NaN", "-5%"),
    *(
        HIDDEN,
        "a" * 300,
        "x" * 70_000,
        "*",
        "true",
        "\uff11\uff12",
        "%s%n",
        "../../../x",
        "--server=a",
        "`id`",
    ),
    *("##vso[a]b", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "[[[[", '{"a":', '[{"id":1}]'),
    *([], {}, [[]], [None], [{}], {"a": None}, {"": ""}, {HIDDEN: HIDDEN}, {"key": "a"}),
)
KEYS: Final = (HIDDEN, "x" * 300, "", "a/b/c", "/", "nvidia.com/", "metadata", "spec")
MAX_S: Final = 60.0
"""The CPU time of one command; the slowest example takes a second."""

Place = tuple[str | int, ...]


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A command that did not do well, and the file that it was given."""

    command: tuple[str, ...]
    text: str
    file: bytes


def originals() -> Mapping[str, Sequence[Document]]:
    """Return the objects of the examples by folder."""
    return {
        folder: [
            source.document
            for file in sorted((EXAMPLES / folder).glob("*.yaml"))
            for source in read_paths([str(file)])
        ]
        for folder in FOLDERS
    }


def mutate(documents: Sequence[Document], chance: Random) -> list[Document]:
    """Return the objects with a few changes."""
    mutated = copy.deepcopy(list(documents))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        document = chance.choice(mutated)
        places = [place for place in _places(document) if place not in {("apiVersion",), ("kind",)}]
        if places:
            _change(document, chance.choice(places), mutated, chance)
    return mutated


def _places(value: object, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every value inside a document."""
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        yield (*place, key)
        yield from _places(child, (*place, key))


def _change(document: Document, place: Place, documents: list[Document], chance: Random) -> None:
    *above, last = place
    parent: Any = document
    for key in above:
        parent = parent[key]
    kind = chance.random()
    if kind < 0.7:
        parent[last] = copy.deepcopy(chance.choice(VALUES))
    elif kind < 0.8 and isinstance(parent, dict):
        parent[chance.choice(KEYS)] = parent.pop(last)
    elif kind < 0.9:
        del parent[last]
    else:
        documents.append(copy.deepcopy(document))


def commands(file: Path, plan: Path, chance: Random) -> Iterator[tuple[str, ...]]:
    """Yield the commands that read a file."""
    state = ("--snapshot", str(file))
    objects = ("-f", str(file))
    yield ("assess", *state, "-o", chance.choice(("text", "json", "yaml", "csv")))
    yield ("assess", "--residue", *state)
    yield ("plan", *state, "-o", str(plan))
    yield ("verify", *state)
    for options in ((), ("--before",)):
        if (plan / "wave-1").is_dir():
            yield ("verify", *state, "--wave", str(plan / "wave-1"), *options)
    output = chance.choice(("text", "json", "sarif", "junit"))
    yield ("check", *objects, *state, "-o", output)
    yield ("inventory", *state, "-o", chance.choice(("text", "json", "yaml")))
    yield ("matrix", *state, "-o", chance.choice(("text", "json")))
    yield ("quota", "convert", *state)
    yield ("settings", "import", *objects)
    yield ("translate", *objects, *state, "-o", chance.choice(("text", "json", "yaml", "diff")))
    yield ("simulate", *objects, *state, "-o", chance.choice(("text", "json")))


def run(seed: int, rounds: int) -> Iterator[Complaint]:
    """Yield the faults met; a seed gives the same files again."""
    chance, folders = Random(seed), originals()
    with TemporaryDirectory() as folder:
        file, plan = Path(folder) / "objects.json", Path(folder) / "plan"
        for _ in range(rounds):
            objects = mutate(folders[chance.choice(FOLDERS)], chance)
            file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
            for command in commands(file, plan, chance):
                text = complaint(command)
                if text:
                    yield Complaint(command=command, text=text, file=file.read_bytes())


def complaint(command: Sequence[str]) -> str:
    """Run a command; return the fault of its end, empty without one."""
    began_s = time.process_time()
    try:
        result = drawbridge(*command)
    except Exception as error:  # noqa: BLE001  A bug, whatever it is.
        return "".join(traceback.format_exception(error)[-3:])
    took_s = time.process_time() - began_s
    if took_s > MAX_S:
        return f"took {took_s:.1f} s of CPU"
    if result.exit_code not in {0, 1, 2}:
        return f"exit status {result.exit_code}"
    for line in result.output.split("\n"):
        if not line.replace("\t", "").isprintable():
            return f"prints {line!r}"
        if line.lstrip().startswith("::") or ("text" in command and "##vso[" in line):
            return f"prints a command of a CI system: {line!r}"
    return ""


def main() -> int:
    """Return the exit status: 1 if any command did not do well."""
    parser = argparse.ArgumentParser(prog="python -m testing.fuzz.commands", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    print(f"fuzz: seed {options.seed}, {options.rounds} hostile files", flush=True)
    folder, failures = Path(".local") / "fuzz", 0
    for failure in run(options.seed, options.rounds):
        failures += 1
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"file-{options.seed}-{failures}.json"
        file.write_bytes(failure.file)
        print(f"drawbridge {' '.join(failure.command)}\n{file}: {failure.text}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
