"""Every rule on a history, at once."""

from collections.abc import Iterable

from e2e.checker.budgets import Budgets
from e2e.checker.history import Event, State, in_order
from e2e.checker.published import Published
from e2e.checker.rules import Allowance, Finding, Killed, Left, Rule, Sizes
from e2e.checker.tenants import Idle, Quotas


def check(
    events: Iterable[Event], allowance: Allowance, wave_ends: Iterable[float] = ()
) -> list[Finding]:
    """Return the events that broke a rule, in order of time.

    Args:
        events: The events in any order, from the start of the record.
        allowance: The deviations that the migration may make.
        wave_ends: The seconds of the history at which a wave was done, and everything had settled.
    """
    state, published = State(), Published()
    left, ends = Left(allowance), sorted(wave_ends)
    rules: tuple[Rule, ...] = (
        Killed(allowance),
        Sizes(published),
        Quotas(allowance),
        Budgets(allowance),
        Idle(allowance, published),
        left,
    )
    findings: list[Finding] = []
    at = 0.0
    for event in in_order(events):
        while ends and event.at > ends[0]:
            findings += left.wave_end(ends.pop(0), state)
        before = state.apply(event)
        published.see(event)
        # Watches of different kinds deliver at different moments.
        at = max(at, event.at)
        timed = event._replace(at=at)
        for rule in rules:
            findings += rule.see(timed, before, state)
    for end in ends:
        findings += left.wave_end(end, state)
    for rule in rules:
        findings += rule.end(at, state)
    return findings


def report(findings: Iterable[Finding]) -> str:
    """Return the findings as lines for people."""
    return "\n".join(
        f"{finding.at:8.1f} s  {finding.rule:<6}  {finding.object}: {finding.text}"
        for finding in findings
    )
