"""Run legacy schedulers on scenarios and keep their outcomes: `python -m testing.oracle.legacy.record`.

    python -m testing.oracle.legacy.record hami=CHECKOUT aliyun=CHECKOUT

A checkout is a clone of the project at the commit that `SYSTEMS` names. Files of ours that lie beside
this one are overlaid, so the checkout is not changed: they call the project's own webhook, device
managers and scheduler, below its own go.mod. Only outcomes are kept. HAMi needs a C compiler.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.oracle.legacy.questions import RECORDS, SYSTEMS, System, questions, record_path
from tools.go import go_command

FOLDER = Path(__file__).parent


def main(arguments: Sequence[str]) -> None:
    """Write the record of each system that has a checkout; the same commit gives the same bytes."""
    for argument in arguments:
        name, _, checkout = argument.partition("=")
        system = SYSTEMS[name]
        head = _run(["git", "rev-parse", "HEAD"], Path(checkout)).strip()
        if head != system.commit:
            raise SystemExit(f"{checkout} is at {head}; check out {system.commit}")
        RECORDS.mkdir(parents=True, exist_ok=True)
        for vocabulary in system.vocabularies:
            record = recorded_document(name, system, vocabulary, Path(checkout))
            record_path(vocabulary).write_text(json.dumps(record, indent=1) + "\n")


def recorded_document(name: str, system: System, vocabulary: str, checkout: Path) -> dict[str, Any]:
    """Return the provenance, and for each scenario its question's hash and the outcome of each pod."""
    asked = questions(vocabulary)
    answers = json.loads(
        _ask(name, checkout, json.dumps([question.content for question in asked.values()]))
    )
    return {
        "provenance": {
            "repository": system.repository,
            "commit": system.commit,
            "command": f"python -m testing.oracle.legacy.record {name}=CHECKOUT",
        },
        "scenarios": {
            scenario: {"question": question.digest, "pods": outcomes}
            for (scenario, question), outcomes in zip(asked.items(), answers, strict=True)
        },
    }


def _ask(name: str, checkout: Path, question: str) -> str:
    """Build the recorder inside a checkout, and return its answer."""
    sources = FOLDER / name
    overlaid = {
        str(checkout.resolve() / source.relative_to(sources)): str(source)
        for source in sorted(sources.rglob("*.go"))
    }
    overlaid[str(checkout.resolve() / "cmd/record/frame.go")] = str(FOLDER / "frame.go")
    with tempfile.TemporaryDirectory() as scratch:
        overlay, binary = Path(scratch, "overlay.json"), Path(scratch, "record")
        overlay.write_text(json.dumps({"Replace": overlaid}))
        build = [str(go_command()), "build", "-trimpath", f"-overlay={overlay}", "-o", str(binary)]
        _run([*build, "./cmd/record"], checkout)
        return _run([str(binary)], checkout, question)


def _run(command: Sequence[str], folder: Path, text: str | None = None) -> str:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


if __name__ == "__main__":
    main(sys.argv[1:])
