"""The answer of a rehearsal."""

from typing import Final

from migration.rehearsal.model import RehearsalAnswer, RehearsalFinding, ScriptRun

FAILED: Final = RehearsalAnswer(
    waves=2,
    waves_done=1,
    nodes=5,
    pods=6,
    waiting_pods=0,
    seconds=61.4,
    scripts=(
        ScriptRun(script="prepare.sh", seconds=1.0, status=0),
        ScriptRun(script="wave-2/switch.sh", seconds=3.2, status=1, output="stopped at: x <b>"),
    ),
    findings=(RehearsalFinding(rule="killed", at=12.0, object="a/train", message="killed on n"),),
    not_rehearsed=("helm upgrade nvidia: a chart of others",),
    by_hand=("before wave 2: Pod a/debug is deleted",),
)
"""One that stopped in its second wave, after work was killed."""
