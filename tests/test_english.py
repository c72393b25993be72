"""The English of docstrings: first lines without clauses, and whole phrases."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

CLAUSE: Final = re.compile(
    r"\b(?:what|whatever|who|whoever|whom|whose|which|whichever|where|wherever|whether|how|why)\b"
    r"|^(?:Compute|Decide|Find|Return|Say|Tell) when\b",
    re.IGNORECASE,
)
"""A word that begins a clause or a question, or a question for a time. "If" and "that" are left alone."""
FRAGMENT: Final = re.compile(
    r"^(?:About|After|Among|As|At|Before|Behind|Below|Beside|Between|By|During|For|From|In|Into|Like|Of|On|Over|Since"
    r"|Through|To|Under|Until|With|Within|Without)\b"
)
"""A preposition at the beginning: the phrase has no head, such as "Of the claim."."""
CLAUSE_FIRST: Final = re.compile(r"^(?:How|That|What|When|Where|Which|Who|Whose|Why)\b")
"""A clause in place of a noun phrase, such as "How long to wait."."""
SECTION: Final = re.compile(r"^( *)(?:Args|Attributes):$")
ENTRY: Final = re.compile(r"^( *)\*{0,2}\w+: (.*)")
CODE: Final = re.compile(r"`[^`]*`")
MAX_FRAGMENTS: Final = 0.02
"""The largest part of first lines that may begin with a preposition."""

Block = ast.stmt | ast.ExceptHandler | ast.match_case
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Line(NamedTuple):
    """A line of documentation: the first one of a docstring, or one on an argument, attribute or constant."""

    place: str
    text: str

    def __str__(self) -> str:
        """Return place and text, as a compiler would print them."""
        return f"{self.place}: {self.text}"


class Documentation(NamedTuple):
    """The lines of a file, or of all files."""

    first_lines: tuple[Line, ...]
    descriptions: tuple[Line, ...]


@functools.cache
def documentation() -> Documentation:
    """Return the documentation of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [
        documentation_of((ROOT / name).read_text(), name)
        for name in listed.stdout.splitlines()
        if (ROOT / name).exists()  # A deleted file stays listed until the deletion is staged.
    ]
    return Documentation(
        tuple(line for file in files for line in file.first_lines),
        tuple(line for file in files for line in file.descriptions),
    )


def documentation_of(source: str, name: str) -> Documentation:
    """Return the documentation of a file."""
    first_lines: list[Line] = []
    descriptions: list[Line] = []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        # Expressions have no docstrings, and are most of a tree.
        statements = [child for child in ast.iter_child_nodes(node) if isinstance(child, Block)]
        waiting += statements
        for index, statement in enumerate(statements):
            if (text := text_of(statement)) is None or not isinstance(statement, ast.stmt):
                continue
            first, *rest = text.strip().splitlines() or [""]
            line = Line(f"{name}:{statement.lineno}", first)
            if index == 0 and isinstance(node, Documented):
                first_lines.append(line)
                descriptions += entries(rest, name, statement.lineno + 1)
            else:
                descriptions.append(line)
    return Documentation(tuple(first_lines), tuple(descriptions))


def text_of(statement: Block) -> str | None:
    """Return the text of a statement that is a literal; None for another."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return None
    return statement.value.value if isinstance(statement.value.value, str) else None


def entries(lines: Sequence[str], name: str, first_number: int) -> Iterator[Line]:
    """Yield the descriptions of arguments and attributes in a docstring."""
    indent = None
    for number, line in enumerate(lines, first_number):
        if section := SECTION.match(line):
            indent = len(section[1]) + 4
        elif line.strip() and indent is not None and not line.startswith(" " * indent):
            indent = None
        elif (entry := ENTRY.match(line)) and len(entry[1]) == indent:
            yield Line(f"{name}:{number}", entry[2])


def has_clause(line: Line) -> bool:
    """Return True if a first line has a clause, outside of code."""
    return CLAUSE.search(CODE.sub("code", line.text)) is not None


def test_no_first_line_has_a_clause() -> None:
    offenders = [str(line) for line in documentation().first_lines if has_clause(line)]
    hint = "write an imperative with its object, or a noun phrase (docs/style.md, English)"
    assert not offenders, "\n".join([*offenders, hint])


def test_few_first_lines_are_fragments() -> None:
    lines = documentation().first_lines
    fragments = [str(line) for line in lines if FRAGMENT.match(line.text)]
    assert len(fragments) < MAX_FRAGMENTS * len(lines), "\n".join(fragments)


def test_descriptions_are_noun_phrases() -> None:
    offenders = [
        str(line)
        for line in documentation().descriptions
        if FRAGMENT.match(line.text) or CLAUSE_FIRST.match(line.text)
    ]
    hint = 'write a whole noun phrase: "The namespace of the claim.", not "Of the claim."'
    assert not offenders, "\n".join([*offenders, hint])


def test_every_kind_of_docstring_is_read() -> None:
    source = '''"""What a module does."""
B: int = 1
"""Of the module."""
class A:
    """A thing, whose name is `what`.

    Attributes:
        a: Of the thing.
            Of the next line.
        b: The name.
    """
    async def b(self, c):
        """Return when it ends.

        Args:
            c: How long.

        Who knows.
        """
    def c(self):
        """Return True if `how` ends; None when it does not, that is."""
'''
    read = documentation_of(source, "a.py")
    found = [line.place for line in read.first_lines if has_clause(line)]
    assert sorted(found) == ["a.py:1", "a.py:13", "a.py:5"]
    assert sorted(line.text for line in read.descriptions) == [
        "How long.",
        "Of the module.",
        "Of the thing.",
        "The name.",
    ]
