"""The page of all finding codes, made from the enumeration that the code uses."""

import ast
import inspect
from collections.abc import Iterator

from webhook import findings
from webhook.findings import Code

HEADER = """\
# Findings

Every code that `drawbridge` prints and the webhook gives as a cause, in the order of the source. The table is generated from
`webhook/findings.py`. An error refuses the object, a warning says what is lost, an info is worth knowing; the message names what was found and, where there
is one, the fix.

| code | what it says |
| --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    return HEADER + "".join(f"| `{code.value}` | {cause} |\n" for code, cause in documented())


def documented() -> Iterator[tuple[Code, str]]:
    """Yield each code with the sentence that stands under it in the source.

    Raises:
        LookupError: A code has no sentence.
    """
    tree = ast.parse(inspect.getsource(findings))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Code"
    )
    causes: dict[str, str] = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                causes[name] = " ".join(text.split())
            case _:
                pass
    for code in Code:
        if code.name not in causes:
            raise LookupError(f"{code.name} has no sentence under it")
        yield code, causes[code.name]
