"""Schedules of the removal of gates: leaders that are replaced, frozen or late, beside pods that come and go.

The decision is the controllers' own; the API server, its admission policies and its watches are a model, in
which every order of events may happen. No version may have more devices promised or in use than the quota
allows: claims that are allocated, or whose pod has no gate.

A seed is a schedule: `python -m testing.gate_schedules --first 7 --seeds 1` plays it again. `--fault` plants a
fault, which has to be found: `removal-without-holder` lets a process remove gates that does not hold the Lease,
`promised-is-forgotten` charges only what a process has seen, `no-settling` lets a new leader decide before the
policy knows of it, and `same-identity` lets a process lead for a second time under the identity of the first.
"""

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from allocator.model.feature_gates import Features
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.resource import ResourceClaim
from kube.names import QUOTA_GATE
from quotas.gates.admission_order import decide
from quotas.gates.counted_objects import counted_claim, counted_pod, is_gated
from quotas.gates.usage import Key, QuotaUsage
from testing.allocation.builders import (
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota

STEPS: Final = 120
PODS: Final = 8
DEVICES: Final = 8
PROCESSES: Final = 3
NOW_S: Final = 1_795_000_000.0


class Fault(StrEnum):
    """A fault that is planted."""

    NONE = "none"
    REMOVAL_WITHOUT_HOLDER = "removal-without-holder"
    PROMISED_IS_FORGOTTEN = "promised-is-forgotten"
    NO_SETTLING = "no-settling"
    SAME_IDENTITY = "same-identity"


class LimitExceeded(Exception):
    """More devices are promised or in use than the quota allows."""


class Version(NamedTuple):
    """An object as of one version; None for one that was deleted."""

    kind: str
    key: Key
    value: Pod | ResourceClaim | bool | None


class Removal(NamedTuple):
    """The removal of a pod's gate that is under way.

    Attributes:
        writer: The identity of the process when it decided.
    """

    key: Key
    uid: str
    writer: int


class Server:
    """The API server: versions, and the holder of the Lease.

    Attributes:
        holder: The identity that holds the Lease.
        holder_of_policy: The identity that the admission policy believes to hold it, which follows.
    """

    def __init__(self, limit: int, fault: Fault) -> None:
        self.log: list[Version] = []
        self.holder = 0
        self.holder_of_policy = 0
        self.pods: dict[Key, Pod] = {}
        self.claims: dict[Key, ResourceClaim] = {}
        self._limit = limit
        self._fault = fault

    def put(self, kind: str, key: Key, value: Any) -> None:
        """Store an object, or delete it with None, and check the new version."""
        objects: dict[Key, Any] = self.pods if kind == "pod" else self.claims
        objects.pop(key, None)
        if value is not None:
            objects[key] = value
        self.log.append(Version(kind, key, value))
        charged = [key for key, stored in self.claims.items() if self._is_charged(key, stored)]
        if len(charged) > self._limit:
            raise LimitExceeded(f"{charged} have devices or may get them, {self._limit} allowed")

    def remove_gate(self, removal: Removal) -> None:
        """Remove a gate, if the policy lets the writer do it and it is still there."""
        pod = self.pods.get(removal.key)
        is_holder = removal.writer == self.holder_of_policy
        if not (is_holder or self._fault is Fault.REMOVAL_WITHOUT_HOLDER):
            return
        if pod is not None and pod.metadata.uid == removal.uid and is_gated(pod):
            self.put("pod", removal.key, pod_of(removal.key, removal.uid, is_gated=False))

    def _is_charged(self, key: Key, stored: ResourceClaim) -> bool:
        pod = self.pods.get(key)
        is_allocated = stored.status is not None and stored.status.allocation is not None
        return is_allocated or (pod is not None and not is_gated(pod))


class Process:
    """A replica of the controllers, with the versions that it has seen and its beliefs.

    Attributes:
        identity: The identity of its latest term.
        leads: It believes that it holds the Lease.
        withheld: The drivers about which another decides.
        seen: The number of versions that it has seen.
        settles_at: The number that it has to have seen before it decides; None before it knows.
    """

    def __init__(self, number: int, limit: int) -> None:
        self.identity = number
        self._limit = limit
        self.seen = 0
        self.leads = number == 0
        self.withheld: Mapping[str, str] = {}
        self.settles_at: int | None = 0 if self.leads else None
        self.usage = self._begin()

    def _begin(self) -> QuotaUsage:
        usage = QuotaUsage(Features(), lambda: 0.0)
        usage.replace_quota("team", quota(device_limit(self._limit)))
        usage.replace_namespace("default", {})
        for name, device_class in classes().items():
            usage.replace_class(name, device_class)
        usage.replace_slices({"a": slice_of(*(device(f"gpu-{n}") for n in range(DEVICES)))})
        return usage

    def observe(self, log: Sequence[Version], count: int) -> None:
        """See some more versions."""
        for version in log[self.seen : self.seen + count]:
            self.take(version)
        self.seen = min(self.seen + count, len(log))

    def take(self, version: Version) -> None:
        """Take a version of an object."""
        kind, key, value = version
        if kind == "pod":
            assert value is None or isinstance(value, Pod)
            self.usage.replace_pod(key, None if value is None else counted_pod(value))
        elif kind == "claim":
            assert value is None or isinstance(value, ResourceClaim)
            self.usage.replace_claim(key, None if value is None else counted_claim(value))

    def forget(self, log: Sequence[Version]) -> None:
        """Begin anew with the versions seen: pods let through since are not known any more."""
        seen, self.seen, self.usage = self.seen, 0, self._begin()
        self.observe(log, seen)

    def lead(self, server: Server, fault: Fault) -> None:
        """Settle as far as possible: wait for the policy, then for all that is stored by then."""
        if self.settles_at is None:
            if fault is Fault.NO_SETTLING:
                self.settles_at = self.seen
            elif server.holder_of_policy == self.identity:
                self.settles_at = len(server.log)

    def decide(self) -> list[Removal]:
        """Let pods through."""
        for key in tuple(self.usage.book.outstanding):
            self.usage.book.charge(key)
        return [
            Removal(key, self.usage.pods[key].metadata.uid, self.identity)
            for key in decide(self.usage, self.withheld, NOW_S).let_through
        ]


class Schedule:
    """One order of events."""

    def __init__(self, seed: int, fault: Fault) -> None:
        self._random = random.Random(seed)
        self._fault = fault
        limit = self._random.randint(1, 3)
        self._server = Server(limit, fault)
        self._processes: Sequence[Process] = [Process(number, limit) for number in range(PROCESSES)]
        self._removals: list[Removal] = []
        self._created = 0
        self._terms = PROCESSES

    def play(self) -> None:
        """Let everything happen.

        Raises:
            LimitExceeded: A version breaks the quota.
        """
        steps = {
            self._create: 4,
            self._observe: 12,
            self._decide: 8,
            self._write: 5,
            self._allocate: 4,
            self._delete: 3,
            self._take_over: 2,
            self._tell_policy: 4,
            self._notice: 1,
        }
        for step in self._random.choices([*steps], [*steps.values()], k=STEPS):
            step()

    def _create(self) -> None:
        if len(self._server.pods) < PODS:
            key, uid = ("default", f"pod-{self._random.randrange(PODS)}"), str(self._created)
            if key in self._server.pods or key in self._server.claims:
                return
            self._created += 1
            self._server.put("claim", key, claim(request(), name=key[1]))
            self._server.put("pod", key, pod_of(key, uid, is_gated=True))

    def _observe(self) -> None:
        process = self._random.choice(self._processes)
        process.observe(self._server.log, self._random.randint(1, 12))

    def _decide(self) -> None:
        for process in self._processes:
            if not process.leads:
                continue
            process.lead(self._server, self._fault)
            if process.settles_at is None or process.seen < process.settles_at:
                continue
            if self._fault is Fault.PROMISED_IS_FORGOTTEN:
                process.forget(self._server.log)
            self._removals += process.decide()

    def _write(self) -> None:
        """Let a write arrive, or lose it; the process goes on charging the pods it let through."""
        if self._removals:
            removal = self._removals.pop(self._random.randrange(len(self._removals)))
            if self._random.random() < 0.9:
                self._server.remove_gate(removal)

    def _allocate(self) -> None:
        for key, stored in self._server.claims.items():
            pod = self._server.pods.get(key)
            is_open = stored.status is None or stored.status.allocation is None
            if is_open and pod is not None and not is_gated(pod):
                devices = [result(f"gpu-{self._random.randrange(DEVICES)}")]
                allocated = allocated_claim(*devices)
                metadata = msgspec.structs.replace(allocated.metadata, name=key[1])
                self._server.put(
                    "claim", key, msgspec.structs.replace(allocated, metadata=metadata)
                )
                return

    def _delete(self) -> None:
        """Delete a pod, and its claim with it or later."""
        keys = sorted({*self._server.pods, *self._server.claims})
        if not keys:
            return
        key = self._random.choice(keys)
        if key in self._server.pods:
            self._server.put("pod", key, None)
        else:
            self._server.put("claim", key, None)

    def _take_over(self) -> None:
        """Give the Lease to another process; the former holder may believe for long that it still has it."""
        others = [p for p in self._processes if p.identity != self._server.holder and not p.leads]
        if others:
            process = self._random.choice(others)
            if self._fault is not Fault.SAME_IDENTITY:
                process.identity, self._terms = self._terms, self._terms + 1
            self._server.holder = process.identity
            process.leads, process.settles_at = True, None
            process.forget(self._server.log)

    def _tell_policy(self) -> None:
        self._server.holder_of_policy = self._server.holder

    def _notice(self) -> None:
        """Let a process notice that it does not lead any more."""
        for process in self._processes:
            if process.leads and process.identity != self._server.holder:
                process.leads, process.settles_at = False, None
                return


def pod_of(key: Key, uid: str, *, is_gated: bool) -> Pod:
    """Return a pod with a claim of its name."""
    document = {
        "metadata": {"name": key[1], "namespace": key[0], "uid": uid},
        "spec": {
            "schedulingGates": [{"name": QUOTA_GATE}] if is_gated else [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": key[1]}],
        },
    }
    return decode(msgspec.json.encode(document), Pod)


class Playable(Protocol):
    """One order of events."""

    def play(self) -> None:
        """Let everything happen.

        Raises:
            LimitExceeded: A version breaks the quota.
        """


F = TypeVar("F", bound=StrEnum)


def play_schedules(schedule: Callable[[int, F], Playable], seeds: range, fault: F) -> list[str]:
    """Return the failures of a model's schedules, with their seeds."""
    texts = []
    for seed in seeds:
        try:
            schedule(seed, fault).play()
        except LimitExceeded as error:
            texts.append(f"seed {seed}: {error}")
    return texts


def run(
    subject: str,
    schedule: Callable[[int, F], Playable],
    faults: type[F],
    arguments: Sequence[str] | None,
) -> int:
    """Play schedules of a model; return 1 if one broke the quota, or a planted fault was not found.

    Args:
        subject: The subject of the schedules, and of the module, in a word.
        schedule: Returns the schedule of a seed with a fault.
        faults: The faults, `none` among them.
        arguments: Those of the command line; None for those of this process.
    """
    none = faults("none")
    parser = argparse.ArgumentParser(prog=f"python -m testing.{subject}_schedules")
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fault", type=faults, default=none, choices=list(faults))
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    texts = play_schedules(schedule, seeds, options.fault)
    sys.stdout.write(
        f"{options.seeds:,} schedules of {subject}s, fault {options.fault}: {len(texts):,} broken\n"
    )
    if options.fault is none:
        sys.stdout.writelines(f"{text}\n" for text in texts[:3])
    return int(bool(texts) is (options.fault is none))


def play(seeds: range, fault: Fault = Fault.NONE) -> list[str]:
    """Return the failures, with their seeds."""
    return play_schedules(Schedule, seeds, fault)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 if one of them broke the quota, or a planted fault was not found."""
    return run("gate", Schedule, Fault, arguments)


if __name__ == "__main__":
    sys.exit(main())
