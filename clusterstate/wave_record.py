"""The progress of a migration, as the ConfigMap of `drawbridge wave` stores it. Pure.

Whoever may write the ConfigMap can write anything, so it holds a position in a plan and no more: what
is run comes from the files of the plan.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from kube.errors import ConfigError
from kube.names import NAME

WAVE_RECORD: Final = f"{NAME}-wave"
"""The name of the ConfigMap."""
MAX_COUNT: Final = 1_000_000
FIRST_CHANGE: Final = 2
"""The number of the step after the checks before a wave, which change nothing."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
Text = Annotated[str, msgspec.Meta(max_length=512)]


class Direction(StrEnum):
    """The direction of a wave: being switched, or taken back."""

    NEXT = "next"
    BACK = "back"


class StepState(StrEnum):
    """The state of a step: begun or ended. A step that was killed stays begun."""

    BEGUN = "begun"
    DONE = "done"


class WaveRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The position of a cluster in a plan.

    Attributes:
        digest: The digest of the plan's files.
        direction: The direction of the steps below.
        wave: The number of the wave; 0 for the preparation.
        step: The name of the step.
        node: Its node; empty for a step of the whole wave.
        number: The step's place among those of the wave in this direction, from 1.
        steps: The number of the wave's steps in this direction.
        reached: The furthest step of the wave that has begun in the direction `next`.
        state: The state of the step.
        who: The user that has begun it, as the API server knows them, and their account and
            machine.
        when: The time of the last change, in RFC 3339.
        waves: The number of waves in the plan.
        nodes: The number of nodes that are switched.
        nodes_total: The number of nodes in all waves.
        workloads: The number of workloads whose pods have changed.
        workloads_total: The number of workloads in all waves.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    direction: Direction
    wave: Count
    step: Text
    node: Text
    number: Positive
    steps: Positive
    reached: Count
    state: StepState
    who: Text
    when: Text
    waves: Count
    nodes: Count
    nodes_total: Count
    workloads: Count
    workloads_total: Count

    @property
    def is_finished(self) -> bool:
        """Return True if the wave has no further step in this direction."""
        return self.state is StepState.DONE and self.number == self.steps

    @property
    def is_between_waves(self) -> bool:
        """Return True if no wave has begun to change something and is unfinished."""
        is_checked_only = self.direction is Direction.NEXT and self.reached < FIRST_CHANGE
        return self.is_finished or self.wave == 0 or is_checked_only


def parse_record(data: Mapping[str, str]) -> WaveRecord:
    """Return the record in the `data` of a ConfigMap.

    Raises:
        ConfigError: It is no record.
    """
    try:
        return msgspec.convert(data, WaveRecord, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"ConfigMap {WAVE_RECORD} is not of drawbridge wave: {error}") from error


def record_data(record: WaveRecord) -> dict[str, str]:
    """Return the `data` of the ConfigMap; every value is a string."""
    return {key: str(value) for key, value in msgspec.to_builtins(record).items()}


def describe_progress(record: WaveRecord) -> str:
    """Return the progress of a migration, in one line."""
    switched = f"{record.nodes} of {record.nodes_total} nodes"
    changed = f"{record.workloads} of {record.workloads_total} workloads"
    return f"wave {record.wave} of {record.waves}, {switched}, {changed}"


def describe_state(record: WaveRecord) -> str:
    """Return the last step, its author and its time."""
    back = record.direction is Direction.BACK
    if record.is_finished and back:
        done = f"wave {record.wave} was taken back"
    elif record.is_finished:
        done = "the preparation is done" if record.wave == 0 else f"wave {record.wave} is done"
    else:
        verb = "taking it back, " if back else ""
        state = "is done" if record.state is StepState.DONE else "has begun"
        done = f"{verb}step {record.number} of {record.steps}, {record.step}, {state}"
    return f"{done}; by {record.who}, {record.when}"
