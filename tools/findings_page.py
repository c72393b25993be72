"""The page of all finding codes, made from the enumeration that the code uses."""

import ast
import inspect
from collections.abc import Iterator

from webhook import findings
from webhook.findings import MAY_PASS, Code

HEADER = """\
# Findings

Every code that `drawbridge` prints and the webhook gives as a cause, in the order of the source. The table is generated from
`webhook/findings.py`. An error refuses the object, a warning says what is lost, an info is worth knowing; the message names what was found and, where there
is one, the fix.

| code | what it says |
| --- | --- |
"""


ON_WORKLOADS = """
## On workloads

The pods of a workload come after it. So these errors, whose cause is the cluster of the moment, are only warnings there; every other one is wrong by itself and refuses it.

| code | how it passes |
| --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    causes = "".join(f"| `{code.value}` | {cause} |\n" for code, cause in documented())
    passing = "".join(f"| `{code.value}` | {how} |\n" for code, how in MAY_PASS.items())
    return HEADER + causes + ON_WORKLOADS + passing


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
