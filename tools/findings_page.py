"""The page of all finding codes, made from the enumeration that the code uses."""

from typing import Any

from findings.finding import Code
from findings.transient_causes import TRANSIENT_CAUSES
from rules.context.rule import KINDS, Rule
from rules.engine.registry import RULES
from tools.docstrings import member_rows

HEADER = """\
# Findings

Every code of `drawbridge`, of denials and of warnings, in the order of the source. The tables are
generated from `findings/finding.py` and `rules`. An error rejects the object, a warning reports a loss or
a risk, an info is for your information. The message says what was found and, where there is one, the fix. Each code
leads to its cause, its fix and an example, which `drawbridge explain CODE` prints, too.

| code | meaning |
| --- | --- |
"""


ON_WORKLOADS = """
## On workloads

The pods of a workload are created later. So errors whose cause is the present state of the cluster are
only warnings on workloads; all other errors reject them.

| code | how the cause may pass |
| --- | --- |
"""


RULES_HEADER = """
## Rules

Rules about objects of DRA and pods with claims. An *invalid* object is an error in every cluster. An
*infeasible* one is an error if the inventory proves it, else a warning. *Not yet* and *advice* are
warnings. Pods that a controller created, and objects in a namespace labelled
`drawbridge.internal/enforcement: warn`, only get warnings. Rules that the API server can enforce by itself
are in `manifests/policies`; for the others the last column says why it cannot.

| code | about | category | fix | in the API server |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    passing = "".join(f"| `{code.value}` | {how} |\n" for code, how in TRANSIENT_CAUSES.items())
    rules = "".join(_row(rule) for rule in RULES)
    return (
        HEADER
        + member_rows(Code, "reference/codes.md")
        + RULES_HEADER
        + rules
        + ON_WORKLOADS
        + passing
    )


def _row(rule: Rule[Any]) -> str:
    kinds = KINDS[rule.scope]
    about = ", ".join(kinds) if len(kinds) <= 4 else f"{kinds[0]} and workloads"
    where = "yes" if rule.cel is not None else f"no: {rule.no_cel_reason}"
    return f"| `{rule.code}` | {about} | {rule.category} | {rule.fix} | {where} |\n"
