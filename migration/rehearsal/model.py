"""What a rehearsal gets, and what it answers, as values; both are files between two processes."""

from collections.abc import Mapping
from typing import Any

import msgspec


class RehearsedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A simulated node.

    Attributes:
        document: The Node.
        slices: ResourceSlices that its drivers publish today.
        labels: With which its wave gives it to DRA; empty for a node without a wave.
        resources: Resource name to the amount that its device plugin offers until then.
        later_slices: ResourceSlices that its DRA driver publishes from then on.
    """

    document: Mapping[str, Any]
    slices: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = {}
    resources: Mapping[str, str] = {}
    later_slices: tuple[Mapping[str, Any], ...] = ()


class RehearsalInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster that is rehearsed.

    Attributes:
        objects: To be created before workloads, in this order.
        nodes: With devices.
        workloads: To be created when the nodes are there.
        places: `Kind/namespace/name` of a workload to the nodes of its pods.
        waves: Numbers of the waves of the plan.
        uid: Of the cluster that the plan is for; empty where it is not known.
        server: Address of its API server; empty where it is not known.
        left_out: What is not rehearsed, and why, in sentences.
        settings: Of Drawbridge's processes, from the settings file.
        binaries: A folder with the programs; empty for those that are built.
    """

    objects: tuple[Mapping[str, Any], ...]
    nodes: tuple[RehearsedNode, ...]
    workloads: tuple[Mapping[str, Any], ...]
    places: Mapping[str, tuple[str, ...]]
    waves: tuple[int, ...]
    uid: str = ""
    server: str = ""
    left_out: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}
    binaries: str = ""


class ScriptRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A script of the plan that was run.

    Attributes:
        script: Path below the plan's folder.
        seconds: How long it took.
        status: Its exit status.
        output: Its last lines, where it failed.
    """

    script: str
    seconds: float
    status: int
    output: str = ""


class RehearsalFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What broke a rule, as the checker tells it.

    Attributes:
        rule: `killed`, `size`, `quota`, `idle` or `left`.
        at: Second of the rehearsal.
        object: `namespace/name`, or a name.
        message: What was found, and what would be right.
    """

    rule: str
    at: float
    object: str
    message: str


class RehearsalAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge rehearse`.

    Attributes:
        waves: Of the plan.
        waves_done: Of them, those whose scripts all succeeded.
        nodes: Simulated.
        pods: That ran at the beginning.
        waiting_pods: That had no node at the beginning.
        seconds: Of the waves.
        scripts: In the order in which they ran.
        findings: What broke a rule, in the order in which it happened.
        not_rehearsed: What was left out, and commands that were only printed.
    """

    waves: int
    waves_done: int
    nodes: int
    pods: int
    waiting_pods: int
    seconds: float
    scripts: tuple[ScriptRun, ...]
    findings: tuple[RehearsalFinding, ...]
    not_rehearsed: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Return whether all waves were done and nothing broke a rule."""
        return self.waves_done == self.waves and not self.findings
