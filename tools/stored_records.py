"""Records of translations as clusters keep them, and the claims that derive from them.

    python -m tools.stored_records

A pod's annotation outlives an upgrade, and its claims are derived from it again. So a record of one
translation version gives the same claims for ever. The command adds the records of new examples, and
replaces those of changed profiles, whose versions clusters keep, and of another translation version. It
never writes other claims for a record that is there: that needs a new TRANSLATION_VERSION.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from cli.__main__ import main as drawbridge
from findings.finding import Code
from kube.names import REQUEST_ANNOTATION
from process.profiles.profile_files import load_profiles
from translation.profiles.profile import Profile
from translation.record.derive import derive
from translation.record.record import RecordVersionError, decode_record

ROOT: Final = Path(__file__).parent.parent
FILE: Final = ROOT / "tests" / "golden" / "records.json"
EXAMPLES: Final = ROOT / "examples"
FOLDERS: Final = ("", "accelerators", "koordinator", "nics", "shares", "multus", "gpu-shared")
"""Folders of examples with pods that are translated."""

Records = Mapping[str, Sequence[str]]
"""Text of a record to the names of the templates of its claims, in order."""


def stored_records() -> Records:
    """Return the records in the file."""
    entries = json.loads(FILE.read_text()) if FILE.exists() else []
    return {entry["record"]: entry["templates"] for entry in entries}


def derived_templates(text: str, profiles: Mapping[str, Profile]) -> Sequence[str] | None:
    """Return the templates of a record, or its errors; None if its version or a profile is another now."""
    try:
        derivation = derive(decode_record(text), profiles)
    except RecordVersionError:
        return None
    codes = [finding.code for finding in derivation.findings if finding.is_error]
    if Code.PROFILE_CHANGED in codes:
        return None
    return codes or [claim.template for claim in derivation.claims]


def example_records() -> Iterator[str]:
    """Yield the records of the examples, as the command writes them."""
    files = [argument for folder in FOLDERS for argument in ("-f", str(EXAMPLES / folder))]
    result = CliRunner().invoke(
        drawbridge, ["translate", *files, "-o", "json"], catch_exceptions=False
    )
    yield from _annotations(json.loads(result.stdout))


def updated_records(records: Records, profiles: Mapping[str, Profile]) -> Records:
    """Return the records that hold, as they are, and those of examples that are new."""
    kept_records = {
        text: templates
        for text, templates in records.items()
        if derived_templates(text, profiles) is not None
    }
    new_records = {
        text: templates
        for text in example_records()
        if text not in records and (templates := derived_templates(text, profiles))
    }
    return {**kept_records, **new_records}


def _annotations(document: Any) -> Iterator[str]:
    values = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in values:
        if key == REQUEST_ANNOTATION:
            yield value
        elif isinstance(value, dict | list):
            yield from _annotations(value)


def main() -> int:
    """Update the file."""
    records = updated_records(stored_records(), load_profiles())
    entries = [
        {"record": text, "templates": list(templates)} for text, templates in records.items()
    ]
    FILE.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
