"""The steps of a wave, in the order of a plan's scripts."""

from enum import StrEnum
from typing import Final

import msgspec


class StepKind(StrEnum):
    """The kind of a step; a script that has no steps is one itself."""

    PREPARE = "prepare"
    PREFLIGHT = "preflight"
    BEGIN = "begin"
    """Quotas, and marks of nodes for autoscalers; on the way back checks, and the lines that quotas had before."""
    WAIT = "wait"
    """Cordon nodes, and wait for work on one of them."""
    DRAIN = "drain"
    """Drain a node, label it, and wait for its devices."""
    UNCORDON = "uncordon"
    NAMESPACES = "namespaces"
    """Set the labels of namespaces, or take them back."""
    RESTARTS = "restarts"
    END = "end"
    """Take off the marks of nodes for autoscalers; on the way back wait for pods that its drains have evicted."""
    VERIFY = "verify"


PREPARE_SCRIPT: Final = "prepare.sh"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a script; it may be repeated.

    Attributes:
        script: The path of its script, below the plan's folder.
        kind: The kind of the step.
        node: Its node; empty for a step of the whole wave.
    """

    script: str
    kind: StepKind
    node: str = ""

    @property
    def name(self) -> str:
        """Return the step's name, as the script's flag `--step` takes it."""
        return step_name(self.kind, self.node)

    @property
    def is_whole_script(self) -> bool:
        """Return True if the step is all that its script does."""
        return self.kind in _WHOLE_SCRIPTS


_WHOLE_SCRIPTS: Final = frozenset({StepKind.PREPARE, StepKind.PREFLIGHT, StepKind.VERIFY})


def step_name(kind: StepKind, node: str) -> str:
    """Return the name of a step.

    >>> step_name(StepKind.DRAIN, "gpu-0"), step_name(StepKind.BEGIN, "")
    ('drain/gpu-0', 'begin')
    """
    return f"{kind}/{node}" if node else str(kind)
