"""Join the fragments of changes/ to a section of CHANGELOG.md: `python -m tools.changelog VERSION --date DATE`.

The fragments are removed, since the next release has others. With --notes the section is printed, and
nothing is written.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
FRAGMENTS: Final = ROOT / "changes"
CHANGELOG: Final = ROOT / "CHANGELOG.md"
HEADER: Final = "# Changelog\n"
KINDS: Final[Mapping[str, str]] = {
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "removed": "Removed",
}
"""Middle of a fragment's name to the heading of its entries."""
_NAME: Final = re.compile(r"(\d+)\.(\w+)\.md")


class ChangelogError(Exception):
    """A fragment or the changelog is not as it has to be."""


def read_fragments(folder: Path) -> dict[str, list[str]]:
    """Return kind to its entries, by the number of the issue.

    Raises:
        ChangelogError: A file is not named as a fragment, or is empty.
    """
    entries: dict[str, list[str]] = {}
    for _issue, kind, path in sorted(_named(folder)):
        own = list(split_entries(path.read_text()))
        if not own:
            raise ChangelogError(f"{path.name} is empty")
        entries.setdefault(kind, []).extend(own)
    return entries


def _named(folder: Path) -> Iterator[tuple[int, str, Path]]:
    for path in folder.iterdir():
        if path.name == "README.md":
            continue
        match = _NAME.fullmatch(path.name)
        if match is None or match[2] not in KINDS:
            kinds = "|".join(KINDS)
            raise ChangelogError(f"{path.name} is no fragment: name it <issue>.<{kinds}>.md")
        yield int(match[1]), match[2], path


def split_entries(text: str) -> Iterator[str]:
    r"""Yield the entries of a fragment, each on one line; an entry ends if a line ends a sentence.

    >>> list(split_entries("One thing, which\nis long.\nAnother one.\n"))
    ['One thing, which is long.', 'Another one.']
    """
    lines: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line:
            lines.append(line.removeprefix("- "))
        if lines and (not line or line.endswith((".", ".)", ":"))):
            yield " ".join(lines)
            lines = []
    if lines:
        yield " ".join(lines)


def format_section(version: str, date: str, entries: Mapping[str, list[str]]) -> str:
    """Return the section of a version."""
    parts = [f"## {version} ({date})\n"]
    for kind, heading in KINDS.items():
        if kind in entries:
            bullets = "".join(f"- {entry}\n" for entry in entries[kind])
            parts.append(f"### {heading}\n\n{bullets}")
    return "\n".join(parts)


def with_section(changelog: str, version: str, section: str) -> str:
    """Return a changelog with a section before the others.

    Raises:
        ChangelogError: It has the version already.
    """
    if f"\n## {version} (" in changelog:
        raise ChangelogError(f"CHANGELOG.md has version {version} already")
    others = changelog.removeprefix(HEADER).lstrip("\n")
    return "\n".join(filter(None, (HEADER, section, others)))


def release(root: Path, version: str, date: str) -> None:
    """Write a version's section into the changelog, and remove the fragments."""
    folder, path = root / FRAGMENTS.name, root / CHANGELOG.name
    section = format_section(version, date, read_fragments(folder))
    text = path.read_text() if path.exists() else HEADER
    path.write_text(with_section(text, version, section))
    for _, _, fragment in list(_named(folder)):
        fragment.unlink()


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.changelog", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--date", required=True, help="of the release, such as 2026-11-21")
    parser.add_argument("--notes", action="store_true", help="print the section, write nothing")
    options = parser.parse_args()
    try:
        if options.notes:
            entries = read_fragments(FRAGMENTS)
            print(format_section(options.version, options.date, entries), end="")
        else:
            release(ROOT, options.version, options.date)
    except ChangelogError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
