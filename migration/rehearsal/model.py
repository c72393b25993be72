"""The input and the answer of a rehearsal, as values; both are files between two processes."""

from collections.abc import Mapping
from typing import Any

import msgspec


class RehearsedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A simulated node.

    Attributes:
        document: The Node.
        slices: ResourceSlices that its drivers publish today.
        labels: The labels by which its wave gives it to DRA; empty for a node without a wave.
        resources: Resource name to the amount that its device plugin offers until then.
        later_slices: ResourceSlices that its DRA driver publishes from then on.
    """

    document: Mapping[str, Any]
    slices: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = {}
    resources: Mapping[str, str] = {}
    later_slices: tuple[Mapping[str, Any], ...] = ()


class RehearsedWave(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wave of the plan.

    Attributes:
        wave: Its number.
        nodes: The names of the nodes that it drains.
        by_hand: The pods that a person creates again after its switch, as `namespace/name`.
    """

    wave: int
    nodes: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()


class RehearsalInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster that is rehearsed.

    Attributes:
        objects: The objects to create before workloads, in this order.
        nodes: The nodes with devices.
        workloads: The workloads to create when the nodes are there.
        places: `Kind/namespace/name` of a workload to the nodes of its pods; of a StatefulSet, whose pods keep their
            names, each pod to its node.
        waves: The waves of the plan.
        device_quotas: The DeviceQuotas that replace lines of ResourceQuotas, created when pods are where they
            were, since pods with a gate have no place.
        evict_jobs: Pods that would lose work are evicted, and not waited for.
        uid: The UID of the cluster that the plan is for; empty if it is not known.
        server: Address of its API server; empty where it is not known.
        left_out: The parts that are not rehearsed, with the reasons, in sentences.
        settings: The settings of Drawbridge's processes, from the settings file.
        binaries: A folder with the programs; empty for those that are built.
    """

    objects: tuple[Mapping[str, Any], ...]
    nodes: tuple[RehearsedNode, ...]
    workloads: tuple[Mapping[str, Any], ...]
    places: Mapping[str, tuple[str, ...]]
    waves: tuple[RehearsedWave, ...]
    device_quotas: tuple[Mapping[str, Any], ...] = ()
    evict_jobs: bool = False
    uid: str = ""
    server: str = ""
    left_out: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}
    binaries: str = ""


class ScriptRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A script of the plan that was run.

    Attributes:
        script: Path below the plan's folder.
        seconds: The duration in seconds.
        status: Its exit status.
        output: Its last lines, where it failed.
    """

    script: str
    seconds: float
    status: int
    output: str = ""


class RehearsalFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of a rule, as the checker reports it.

    Attributes:
        rule: `killed`, `size`, `quota`, `budget`, `idle`, `waits` or `left`.
        at: Second of the rehearsal.
        object: `namespace/name`, or a name.
        message: The observation, and the expected state.
    """

    rule: str
    at: float
    object: str
    message: str


class RehearsalAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge rehearse`.

    Attributes:
        waves: The number of the plan's waves.
        waves_done: The number of waves whose scripts all succeeded.
        nodes: Simulated.
        pods: The number of pods that ran at the beginning, without those of device plugins.
        waiting_pods: The number of pods without a node at the beginning.
        seconds: The duration of the waves, in seconds.
        scripts: The scripts in the order in which they ran.
        findings: The violations of rules, in the order in which they happened.
        not_rehearsed: The parts that were left out, the waves that were not begun, and the commands that were only printed.
        by_hand: The things that the rehearsal did as a person would whom the plan asks to, in sentences.
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
    by_hand: tuple[str, ...] = ()

    @property
    def stopped(self) -> tuple[ScriptRun, ...]:
        """Return the last run of each script that failed in it."""
        last_runs = {run.script: run for run in self.scripts}
        return tuple(run for run in last_runs.values() if run.status)

    @property
    def is_good(self) -> bool:
        """Return True if all waves were done and nothing broke a rule."""
        return self.waves_done == self.waves and not self.findings
