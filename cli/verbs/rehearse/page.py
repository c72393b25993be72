"""The page of `drawbridge rehearse`: the progress of the plan, and the rules that it broke."""

from collections.abc import Iterator
from typing import Final

from cli.html.elements import Child, Markup, element
from cli.html.page import badge, build_page, lines, row, section, table, tiles
from findings.text import count_text
from migration.rehearsal.model import RehearsalAnswer

_RULES: Final = {
    "killed": "unfinished work was killed",
    "size": "a pod has other devices than it asked for",
    "quota": "a tenant is above its quota",
    "budget": "a tenant is above its DeviceQuota, or waits although there is room",
    "idle": "a device is idle while a pod waits for it",
    "left": "something was left behind",
}


def format_rehearsal_page(answer: RehearsalAnswer) -> str:
    """Return the page."""
    return build_page(
        "Rehearsal of a migration",
        "On simulated nodes of a control plane of its own; no other cluster was asked.",
        element("p", _verdicts(answer)),
        tiles(_tiles(answer)),
        *(
            section(f"Stopped at {run.script}", lines(run.output.splitlines()))
            for run in answer.stopped
        ),
        section("Broken rules", _findings(answer)) if answer.findings else None,
        section("Scripts", _scripts(answer)),
        section("Done by hand", element("ul", (element("li", text) for text in answer.by_hand)))
        if answer.by_hand
        else None,
        section(
            "Not rehearsed", element("ul", (element("li", text) for text in _left_out(answer)))
        ),
    )


def _verdicts(answer: RehearsalAnswer) -> Iterator[Child]:
    """Yield a badge for each part, so that a line may end between two."""
    if answer.is_good:
        yield badge("every wave was done, and no rule was broken", "good")
        return
    yield badge(f"{answer.waves_done} of {count_text(answer.waves, 'wave')} done", "bad")
    for run in answer.stopped:
        yield " "
        yield badge(f"{run.script} stopped", "bad")
    if answer.findings:
        yield " "
        yield badge(f"{count_text(len(answer.findings), 'rule')} broken", "bad")


def _tiles(answer: RehearsalAnswer) -> Iterator[tuple[str, Child]]:
    yield "waves done", f"{answer.waves_done} of {answer.waves}"
    yield "simulated nodes", answer.nodes
    yield "pods", answer.pods
    yield "seconds", f"{answer.seconds:.0f}"
    yield "broken rules", len(answer.findings)


def _findings(answer: RehearsalAnswer) -> Markup:
    rows = (
        row(
            entry.object,
            element("div", badge(_RULES.get(entry.rule, entry.rule), "bad")),
            entry.message,
            f"{entry.at:.0f} s",
        )
        for entry in answer.findings
    )
    return table("Broken rules", ("object", "rule", "what was found", "after"), rows)


def _scripts(answer: RehearsalAnswer) -> Markup:
    rows = (
        row(
            run.script,
            f"{run.seconds:.0f}",
            badge(f"status {run.status}", "bad") if run.status else badge("done", "good"),
        )
        for run in answer.scripts
    )
    return table("Scripts", ("script", "seconds", "result"), rows)


def _left_out(answer: RehearsalAnswer) -> Iterator[str]:
    yield "What containers do: nodes are simulated, and a pod runs as soon as it has its node."
    yield "What drivers, device plugins and schedulers of others do: they are played by their labels."
    yield "Pods without devices: the CPU and memory of those that every drain leaves on their node are in use there; others are left out."
    yield from answer.not_rehearsed
