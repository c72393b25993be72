"""The changelog from the fragments."""

from pathlib import Path

import pytest

from tools.changelog import (
    CHANGELOG,
    FRAGMENTS,
    HEADER,
    ChangelogError,
    format_section,
    read_fragments,
    release,
    split_entries,
    with_section,
)


def fragments(folder: Path, **texts: str) -> Path:
    (folder / "changes").mkdir()
    (folder / "changes" / "README.md").write_text("# About\n")
    for name, text in texts.items():
        (folder / "changes" / f"{name.lstrip('i').replace('_', '.')}.md").write_text(text)
    return folder / "changes"


def test_the_fragments_of_this_repository_can_be_released() -> None:
    section = format_section("9.9.9", "2099-01-01", read_fragments(FRAGMENTS))

    assert section.startswith("## 9.9.9 (2099-01-01)\n\n### ")
    assert all(line.startswith(("#", "- ")) for line in section.splitlines() if line)


def test_entries_are_by_kind_and_by_issue(tmp_path: Path) -> None:
    folder = fragments(tmp_path, i10_fixed="Ten.\n", i9_fixed="Nine.\n", i9_added="New,\nlong.\n")

    section = format_section("1.2.3", "2026-11-21", read_fragments(folder))

    assert section == (
        "## 1.2.3 (2026-11-21)\n\n### Added\n\n- New, long.\n\n### Fixed\n\n- Nine.\n- Ten.\n"
    )


def test_a_release_writes_the_newest_first_and_removes_the_fragments(tmp_path: Path) -> None:
    folder = fragments(tmp_path, i1_added="One.\n")
    release(tmp_path, "0.1.0", "2026-11-21")
    (folder / "2.added.md").write_text("Two.\n")

    release(tmp_path, "0.2.0", "2026-12-01")

    assert (tmp_path / CHANGELOG.name).read_text() == (
        f"{HEADER}\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- Two.\n"
        "\n## 0.1.0 (2026-11-21)\n\n### Added\n\n- One.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("i1_improved", "x\n", "1.improved.md is no fragment"),
        ("one_added", "x\n", "one.added.md is no fragment"),
        ("i1_added", "\n", "1.added.md is empty"),
    ],
)
def test_a_wrong_fragment_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    folder = fragments(tmp_path, **{name: text})

    with pytest.raises(ChangelogError, match=words):
        read_fragments(folder)


def test_a_version_is_released_once() -> None:
    with pytest.raises(ChangelogError, match=r"has version 0\.1\.0 already"):
        with_section(f"{HEADER}\n## 0.1.0 (2026-11-21)\n", "0.1.0", "")


def test_entries_end_where_a_line_ends_a_sentence() -> None:
    assert list(split_entries("A: b,\nc.\n\n- D.\nE\n")) == ["A: b, c.", "D.", "E"]
