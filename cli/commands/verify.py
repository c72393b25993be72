"""`drawbridge verify`: whether allocations contradict each other."""

import sys
import time
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from cli.answers.verify import (
    ORPHANED_RESERVATION,
    ClaimWrite,
    VerifyAnswer,
    Violation,
    confirm_orphans,
    has_orphans,
    verify_history,
    verify_state,
)
from cli.inputs.audit_log import lines_of, read_claims
from cli.inputs.cluster_state import ClusterState, build_state
from cli.inputs.feature_gates import feature_gates
from cli.inputs.findings import printable
from cli.inputs.kinds import STATE_KINDS
from cli.inputs.objects import decode_objects
from cli.inputs.options import ClusterObjects, read_cluster_again, with_whole_cluster
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command

EXAMPLES: Final = """\
drawbridge verify --live
drawbridge verify --snapshot cluster.json.gz --audit-log audit.log
"""

SETTLE_S: Final = 10
"""For how long a reservation may outlive its pod."""


@click.command("verify", cls=Command, epilog=EXAMPLES)
@with_whole_cluster
@feature_gates
@click.option(
    "--audit-log",
    metavar="FILE",
    help="Check every moment of an audit log of the API server instead of the claims of the cluster; "
    "- is standard input. Responses of writes of ResourceClaims have to be in it.",
)
@text_or_document("one line per contradiction")
def verify(
    cluster_objects: ClusterObjects, features: Features, *, audit_log: str | None, output: str
) -> None:
    """Check that no device is allocated twice, over its capacity, or to tenants that exclude each other.

    Also that no claim is reserved for a pod that does not exist. Read-only.

    Exit status: 0 when all is well, 1 when something is wrong, 2 when the call is wrong.
    """
    state = _state(cluster_objects)
    if audit_log is None:
        answer = verify_state(state, features)
        if has_orphans(answer) and cluster_objects.is_live:
            # Pods and claims were not listed at one moment, and reservations end after their pods.
            click.echo(f"note: reading again after {SETTLE_S} s", err=True)
            time.sleep(SETTLE_S)
            answer = confirm_orphans(answer, verify_state(_state(read_cluster_again()), features))
    else:
        writes = (
            ClaimWrite(time=logged_claim.time, user=logged_claim.user, claim=logged_claim.claim)
            for logged_claim in read_claims(lines_of(audit_log))
        )
        answer = verify_history(writes, state, features)
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.VERIFY))
    else:
        click.echo("\n".join(map(printable, _lines(answer))))
    sys.exit(1 if answer.violations else 0)


def _state(cluster_objects: ClusterObjects) -> ClusterState:
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        click.echo(fault.line(), err=True)
    return build_state(objects)


def _lines(answer: VerifyAnswer) -> Iterator[str]:
    yield from map(_line, answer.violations)
    number = len(answer.violations)
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
