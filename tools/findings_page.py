"""The page of all finding codes, made from the enumeration that the code uses."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from findings import finding as findings
from findings.finding import TRANSIENT_CAUSES, Code
from rules.registry import RULES
from rules.rule import KINDS, Rule

HEADER = """\
# Findings

Every code that `drawbridge` prints and the webhook gives as a cause, in the order of the source. The tables are generated from
`findings/finding.py` and `rules`. An error refuses the object, a warning says what is lost, an info is worth knowing; the message names what was found and, where there
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


RULES_HEADER = """
## Rules

What is said of objects of DRA and of pods with claims, and what to do about it. What is *wrong by itself* is an error, whatever the cluster; what *can never fit* is one where
the inventory is proof, else a warning; *not yet* and *advice* are warnings. A pod that a controller made is only warned of, and so is everything in a namespace labelled
`drawbridge.internal/enforcement: warn`. Rules that the API server enforces by itself, with us or without us, are in `manifests/policies`; of the others the last column says why not.

| code | about | class | fix | in the API server |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    causes = "".join(f"| `{code.value}` | {cause} |\n" for code, cause in documented())
    passing = "".join(f"| `{code.value}` | {how} |\n" for code, how in TRANSIENT_CAUSES.items())
    rules = "".join(_row(rule) for rule in RULES)
    return HEADER + causes + RULES_HEADER + rules + ON_WORKLOADS + passing


def _row(rule: Rule[Any]) -> str:
    kinds = KINDS[rule.scope]
    about = ", ".join(kinds) if len(kinds) <= 4 else f"{kinds[0]} and workloads"
    where = "yes" if rule.cel is not None else f"no: {rule.no_cel_reason}"
    return f"| `{rule.code}` | {about} | {rule.category} | {rule.fix} | {where} |\n"


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
