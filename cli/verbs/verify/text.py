"""The texts of `drawbridge verify`: contradictions of allocations, and checks of a wave."""

from collections.abc import Iterator, Mapping
from typing import Final

from answers.cluster.verify import ORPHANED_RESERVATION, VerifyAnswer, Violation
from cli.output.layout import format_table
from findings.text import join_names, reference_text
from migration.assessment.doubled import DOUBLED, DoubledReason
from migration.plan.checks.checks import State, WaveAnswer

NOT_RIGHT: Final = frozenset({State.WAITING, State.FAILED})


def format_checks(answer: WaveAnswer) -> str:
    """Return the table of the checks, with the number of those that are not as expected."""
    table = format_table(
        ("STATE", "OBJECT", "WHAT"),
        (
            (check.state.value, reference_text(check.object), check.message)
            for check in answer.checks
        ),
    )
    wrong = sum(check.state in NOT_RIGHT for check in answer.checks)
    end = (
        "all is as expected"
        if not wrong
        else f"{wrong} of {len(answer.checks)} are not as expected"
    )
    return f"{table}\n\n{end}"


def lines_of_answer(answer: VerifyAnswer, doubled: Mapping[str, DoubledReason]) -> Iterator[str]:
    """Yield a line for each contradiction, one for nodes of two systems with one fix, and the last line with their number.

    Args:
        answer: The answer.
        doubled: Each node of two systems to the reason.
    """
    yield from map(_line, answer.violations)
    nodes_of: dict[str, list[str]] = {}
    for name in answer.doubled_nodes:
        nodes_of.setdefault(doubled[name].fix, []).append(f"Node/{name}")
    for fix, nodes in nodes_of.items():
        yield f"{join_names(nodes)}: {DOUBLED}: {fix}"
    for entry in answer.unpublished:
        yield (
            f"note: claim {entry.claim} has {entry.device}, which no complete pool of ResourceSlices publishes: look "
            "at its node and its driver"
        )
    number = len(answer.violations) + len(answer.doubled_nodes)
    wrong = "nothing is wrong" if not number else f"{number} {'is' if number == 1 else 'are'} wrong"
    yield f"{answer.allocations} allocations compared, {wrong}"


def _line(violation: Violation) -> str:
    time_ = f"{violation.time} " if violation.time else ""
    if violation.code == ORPHANED_RESERVATION:
        return f"{time_}{violation.code}: claim {violation.claim} is {violation.message}"
    others = f"; used by {', '.join(violation.others)}" if violation.others else ""
    user = f" (written by {violation.user})" if violation.user else ""
    return (
        f"{time_}{violation.code}: claim {violation.claim} has {violation.device}: "
        f"{violation.message}{others}{user}"
    )
