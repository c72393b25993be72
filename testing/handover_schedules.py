"""Schedules of handovers between the gates of DeviceQuotas and the bridge: both decide, and neither knows all.

To own a driver an administrator writes the fence, pauses, and writes the ownership; to release it the ownership, a
pause, and the fence. In a pause everybody sees what was written, and what is under way arrives or is lost; otherwise
every order of events may happen. The decisions are those of the controllers and of the sidecar. No version may have
more devices promised or in use than the quota allows.

A seed is a schedule, and `--fault` plants a fault, as in `testing.gate_schedules`: `gates-let-go` lets pods through
uncharged that use a driver of the bridge, `fence-is-ignored` lets the gates decide until the bridge owns the driver,
`promised-is-not-counted` lets the bridge count its own pods only, and `no-pause` has no pauses.
"""

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from allocator.model.feature_gates import Features
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.resource import ResourceClaim
from kube.names import SCHEDULER_NAME
from quotas.gates.counted_objects import counted_pod, is_gated, is_of_bridge
from quotas.gates.usage import Key
from sidecar.state.quota_charges import QuotaChanges, QuotaCharges, QuotaObjects, nothing
from testing import gate_schedules as gates
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    classes,
    device,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota

STEPS: Final = 160
CLUSTER: Final[Key] = ("", DRIVER)
FENCE: Final = "fence"
OWNERSHIP: Final = "ownership"


class Fault(StrEnum):
    """A fault that is planted."""

    NONE = "none"
    GATES_LET_GO = "gates-let-go"
    FENCE_IS_IGNORED = "fence-is-ignored"
    PROMISED_IS_NOT_COUNTED = "promised-is-not-counted"
    NO_PAUSE = "no-pause"


class Allocation(NamedTuple):
    """A write of the bridge for one very claim."""

    key: Key
    claim: ResourceClaim


class Server(gates.Server):
    """The API server, with the fence and the ownership.

    Attributes:
        is_fenced: Its admission keeps others from the driver; it follows what is stored.
        flags: The fence and the ownership list the driver, as they are stored.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit, gates.Fault.NONE)
        self.is_fenced = False
        self.flags = {FENCE: False, OWNERSHIP: False}

    def set_flag(self, kind: str, value: bool) -> None:
        """Write the fence or the ownership."""
        self.flags[kind] = value
        self.log.append(gates.Version(kind, CLUSTER, value))

    def allocate(self, key: Key, device_name: str, *, is_bridge: bool) -> bool:
        """Allocate a claim, if the fence lets the writer; return True if it did."""
        stored = self.claims.get(key)
        if self.is_fenced is not is_bridge or stored is None or is_allocated(stored):
            return False
        allocated = allocated_claim(result(device_name))
        metadata = msgspec.structs.replace(allocated.metadata, name=key[1])
        self.put("claim", key, msgspec.structs.replace(allocated, metadata=metadata))
        return True

    def _is_charged(self, key: Key, stored: ResourceClaim) -> bool:
        pod = self.pods.get(key)
        is_promised = pod is not None and not is_gated(pod) and not is_of_bridge(pod)
        return is_allocated(stored) or is_promised


class Process(gates.Process):
    """A replica of the controllers."""

    def __init__(self, number: int, limit: int, fault: Fault) -> None:
        self._flags = {FENCE: False, OWNERSHIP: False}
        self._fault = fault
        super().__init__(number, limit)

    def take(self, version: gates.Version) -> None:
        """Take a version of an object, of the fence or of the ownership."""
        super().take(version)
        if version.kind in self._flags:
            self._flags[version.kind] = bool(version.value)
        ignores_fence = self._fault is Fault.FENCE_IS_IGNORED
        is_withheld = self._flags[OWNERSHIP] or (self._flags[FENCE] and not ignores_fence)
        self.withheld = {DRIVER: "another decides"} if is_withheld else {}

    def decide(self) -> list[gates.Removal]:
        """Let pods through."""
        if not (self._fault is Fault.GATES_LET_GO and self._flags[OWNERSHIP]):
            return super().decide()
        waiting = [key for key, pod in self.usage.pods.items() if self.usage.waits(pod)]
        for key in waiting:
            self.usage.let_through(key)
        return [
            gates.Removal(key, self.usage.pods[key].metadata.uid, self.identity) for key in waiting
        ]


class Bridge:
    """The leading sidecar, with the versions that it has seen and the devices that it has promised.

    Attributes:
        seen: The number of versions that it has seen.
        writes: The allocations that are under way.
    """

    def __init__(self, limit: int, fault: Fault) -> None:
        self.seen = 0
        self.writes: list[Allocation] = []
        self._fault = fault
        self._flags = {FENCE: False, OWNERSHIP: False}
        self._claims: dict[Key, ResourceClaim] = {}
        self._pods: dict[Key, Pod] = {}
        self._holds: dict[Key, ResourceClaim] = {}
        self._charges = QuotaCharges(Features())
        begin = nothing()
        begin.quotas["team"] = quota(device_limit(limit))
        begin.namespaces["default"] = {}
        begin.classes.update(classes())
        begin.slices["a"] = slice_of(*(device(f"gpu-{n}") for n in range(gates.DEVICES)))
        self._apply(begin, begins_anew=True)

    def _apply(self, objects: QuotaObjects, *, begins_anew: bool = False) -> None:
        self._charges.apply(QuotaChanges(objects, begins_anew=begins_anew, is_needed=True))

    def observe(self, log: Sequence[gates.Version], count: int) -> None:
        """See some more versions."""
        for kind, key, value in log[self.seen : self.seen + count]:
            changes = nothing()
            if kind in self._flags:
                self._flags[kind] = bool(value)
            elif kind == "pod":
                assert value is None or isinstance(value, Pod)
                pod = counted_pod(value) if value is not None else None
                if self._fault is not Fault.PROMISED_IS_NOT_COUNTED:
                    changes.pods[key] = pod
                self._pods.pop(key, None)
                if value is not None:
                    self._pods[key] = value
                changes.claims[key] = self._effective(key)
            else:
                assert value is None or isinstance(value, ResourceClaim)
                self._claims.pop(key, None)
                if value is not None:
                    self._claims[key] = value
                if value is None or is_allocated(value):
                    self._holds.pop(key, None)
                changes.claims[key] = self._effective(key)
            self._apply(changes)
        self.seen = min(self.seen + count, len(log))

    def _effective(self, key: Key) -> ResourceClaim | None:
        stored = self._claims.get(key)
        return allocated_claim(result("gpu-0")) if key in self._holds else stored

    def decide(self) -> None:
        """Promise devices to a pod of its own, if some are left."""
        book = self._charges.book
        assert book is not None
        (account,) = book.accounts("default")
        if not (self._flags[OWNERSHIP] and self._flags[FENCE]) or book.ledger.left(account) <= 0:
            return
        for key, pod in self._pods.items():
            stored = self._claims.get(key)
            if stored is None or is_allocated(stored) or key in self._holds:
                continue
            if is_of_bridge(pod):
                self._holds[key] = stored
                self.writes.append(Allocation(key, stored))
                self._charges.charge({key: self._effective(key)})
                return

    def forget_hold(self, write: Allocation) -> None:
        """Take back a promise after its write was refused."""
        if self._holds.get(write.key) is write.claim:
            del self._holds[write.key]
            self._charges.charge({write.key: self._effective(write.key)})


class Schedule(gates.Schedule):
    """One order of events."""

    def __init__(self, seed: int, fault: Fault) -> None:
        super().__init__(seed, gates.Fault.NONE)
        self._planted = fault
        limit = self._random.randint(1, 3)
        self._server: Server = Server(limit)
        self._processes: Sequence[Process] = [
            Process(number, limit, fault) for number in range(gates.PROCESSES)
        ]
        self._bridge = Bridge(limit, fault)
        self._plan: list[Callable[[], None]] = []

    def play(self) -> None:
        """Let everything happen.

        Raises:
            LimitExceeded: A version breaks the quota.
        """
        steps = {
            self._create: 4,
            self._observe: 12,
            self._observe_bridge: 6,
            self._decide: 8,
            self._decide_bridge: 6,
            self._write: 5,
            self._write_bridge: 4,
            self._allocate: 4,
            self._delete: 4,
            self._take_over: 1,
            self._tell_policy: 4,
            self._tell_fence: 3,
            self._notice: 1,
            self._administer: 4,
        }
        for step in self._random.choices([*steps], [*steps.values()], k=STEPS):
            step()

    def _create(self) -> None:
        before = set(self._server.pods)
        super()._create()
        for key in set(self._server.pods) - before:
            if self._random.random() < 0.5:
                uid = self._server.pods[key].metadata.uid
                self._server.put("pod", key, bridge_pod(key, uid))

    def _observe_bridge(self) -> None:
        self._bridge.observe(self._server.log, self._random.randint(1, 12))

    def _decide_bridge(self) -> None:
        self._bridge.decide()

    def _write_bridge(self) -> None:
        if self._bridge.writes:
            write = self._bridge.writes.pop(self._random.randrange(len(self._bridge.writes)))
            # A claim that was made again under its name is another one, and the write names its UID.
            is_there = self._server.claims.get(write.key) is write.claim
            if not (is_there and self._server.allocate(write.key, self._device(), is_bridge=True)):
                self._bridge.forget_hold(write)

    def _device(self) -> str:
        return f"gpu-{self._random.randrange(gates.DEVICES)}"

    def _allocate(self) -> None:
        """Let kube-scheduler allocate the claim of a pod that was let through."""
        for key, pod in list(self._server.pods.items()):
            if is_gated(pod) or is_of_bridge(pod):
                continue
            if self._server.allocate(key, self._device(), is_bridge=False):
                return

    def _tell_fence(self) -> None:
        self._server.is_fenced = self._server.flags[FENCE]

    def _administer(self) -> None:
        """Take the next step of a handover, or begin one."""
        if not self._plan:
            to = not self._server.flags[OWNERSHIP]
            order = (FENCE, OWNERSHIP) if to else (OWNERSHIP, FENCE)
            self._plan = [
                lambda: self._server.set_flag(order[0], to),
                self._pause,
                lambda: self._server.set_flag(order[1], to),
                self._pause,
            ]
        self._plan.pop(0)()

    def _pause(self) -> None:
        if self._planted is Fault.NO_PAUSE:
            return
        self._tell_fence()
        self._observe_all()
        while self._removals:
            self._write()
        while self._bridge.writes:
            self._write_bridge()
        self._observe_all()

    def _observe_all(self) -> None:
        log = self._server.log
        for process in self._processes:
            process.observe(log, len(log))
        self._bridge.observe(log, len(log))


def is_allocated(stored: ResourceClaim) -> bool:
    """Return True if a claim has devices."""
    return stored.status is not None and stored.status.allocation is not None


def bridge_pod(key: Key, uid: str) -> Pod:
    """Return a pod of the bridge with a claim of its name."""
    document: dict[str, Any] = msgspec.to_builtins(
        gates.pod_of(key, uid, is_gated=False), enc_hook=str
    )
    document["spec"]["schedulerName"] = SCHEDULER_NAME
    return decode(msgspec.json.encode(document), Pod)


def play(seeds: range, fault: Fault = Fault.NONE) -> list[str]:
    """Return the failures, with their seeds."""
    return gates.play_schedules(Schedule, seeds, fault)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 if one of them broke the quota, or a planted fault was not found."""
    return gates.run("handover", Schedule, Fault, arguments)


if __name__ == "__main__":
    sys.exit(main())
