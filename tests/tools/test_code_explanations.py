"""The explanations of codes agree with the findings that the code makes."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from findings.finding import Code
from tools.code_explanations import FIXES, NOTHING

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "admission",
    "allocator",
    "answers",
    "migration",
    "quotas",
    "rules",
    "translation",
)
FINDINGS: Final = {"error", "warning", "info"}


def fixed_codes(source: str) -> Iterator[tuple[str, int]]:
    """Yield the codes of findings that a file makes with a fix, with their lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id=function),
                args=[ast.Attribute(value=ast.Name(id="Code"), attr=code), *others],
                keywords=keywords,
            ) if function in FINDINGS:
                fixes = [*others[2:3], *(word.value for word in keywords if word.arg == "fix")]
                if any(not isinstance(fix, ast.Constant) or fix.value for fix in fixes):
                    yield code, node.lineno


def test_a_code_that_needs_no_fix_comes_with_none() -> None:
    needless = {code.name for code in Code if FIXES.get(code.value) == NOTHING}
    assert needless
    contradictions = [
        f"{file.relative_to(ROOT)}:{line}: {code} has a fix here, and none in tools/code_explanations.py"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for code, line in fixed_codes(file.read_text())
        if code in needless
    ]
    assert not contradictions, "\n".join(contradictions)


def test_fixes_are_found_by_position_and_by_name() -> None:
    source = (
        "warning(Code.A, path, text, fix)\nerror(Code.B, path, text)\n"
        "info(Code.C, path, text, fix='remove it')\nerror(Code.D, path, text, '')\n"
    )
    assert [("A", 1), ("C", 3)] == list(fixed_codes(source))
