"""The page of statements about other components, made from the table that warnings use."""

from typing import Final

from translation.cluster.component_statements import READ, STATEMENTS, Component, Statement

PATH: Final = "docs/neighbours.md"
HEADER: Final = f"""\
# Autoscalers, queues, schedulers and operators beside Drawbridge

What other components do with pods that were translated, or that are served natively, version by version. The
table is that of the warnings and of `assess` and `plan` (`translation/cluster/component_statements.py`), read in
{READ}. It is about released versions only. The last column says how each statement is known.
"""


def page() -> str:
    """Return the page's text."""
    return HEADER + "".join(_section(component) for component in Component)


def _section(component: Component) -> str:
    rows = "".join(_row(entry) for entry in STATEMENTS if entry.component is component)
    head = "| about | versions | provider or integration | statement | source |\n| --- | --- | --- | --- | --- |\n"
    return f"\n## {component}\n\n{head}{rows}"


def _row(entry: Statement) -> str:
    source = f"{entry.source}; {entry.evidence}, {entry.date}"
    provider = entry.provider or "all"
    return f"| {entry.topic} | {entry.versions} | {provider} | {entry.text} | {source} |\n"
