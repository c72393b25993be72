"""A simulator of the allocation protocol: seeded schedules against an API server that misbehaves.

The API server and the sidecars are those of `testing.sidecar.world`. Here claims are deleted, recreated and
deallocated, and pods that share a claim are given up and tried again, and run. After each event no device
may belong to two claims, and no write of a sidecar may take a claim from a pod that runs.

A seed is a schedule: `python -m testing.sidecar.chaos --first 7 --seeds 1` plays it again. `--fault`
plants a fault, which has to be found: `no-fence` lets any process write the status of claims,
`unfenced-consumers` only who they are reserved for, `no-wait` lets a new leader begin at once, `settled-by-reading` frees devices when the old version was read again,
`same-identity` lets a process that lost the Lease lead again under its old name, `no-drain` lets one
that ends in good order say that its writes have ended when they have not, `no-wait-before` lets one say so
that has not waited for those of the leader before it, `unsettled-release` forgets a release without an
answer, and `stale-list` reads from a cache of the API server, and not from a quorum.

With `--quota` there are devices for all claims, and a DeviceQuota that allows one: no version may have more
of them allocated. The fault `promised-is-forgotten` charges only what is seen in the API.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.device_quota import QuotaLimit
from kube.api.resource import ResourceClaim
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.limits import ONE
from sidecar.commit import ledger, steps
from sidecar.commit.steps import ClaimWrite
from sidecar.commit.writes import consumers
from sidecar.plan.occupancy import counted_claim
from testing.device_quotas import device_limit, quota
from testing.sidecar.world import (
    DRIVER,
    BrokenPromise,
    ClaimKey,
    Fault,
    Process,
    World,
    allocation_with,
    candidate_of,
    consumer,
    devices_of,
)

CLAIMS: Final = 3
DEVICES: Final = 1
PODS: Final = 2
"""Pods that share each claim."""
BINDING_FAILS: Final = 0.5
"""Share of the Bindings that are refused."""
ONE_DEVICE: Final = device_limit(1)


class PodWorld(World[Process]):
    """A schedule of pods by themselves."""

    claim_names = tuple(("default", f"claim-{number}") for number in range(CLAIMS))

    def __init__(
        self, seed: int, fault: Fault = Fault.NONE, limit: QuotaLimit | None = None
    ) -> None:
        super().__init__(seed, fault)
        self._limit = limit
        self._devices = DEVICES if limit is None else CLAIMS

    def _new_process(self, name: str, offset: float, rate: float) -> Process:
        return Process(name, offset, rate)

    def _actions(self) -> Sequence[tuple[int, Callable[[Process], None]]]:
        return (
            (90, self._reserve),
            (120, self._bind),
            (24, self._unreserve),
            (16, self._release),
            (30, self._settle),
            (100, self._watch),
            (3, self._break_watch),
            (6, self._deallocate),
            (3, self._recreate),
            (4, self._freeze),
            (4, self._resign),
        )

    def _check(self) -> None:
        owners: dict[str, Name] = {}
        for name, claim in self._server.claims.items():
            for device in devices_of(claim):
                if device in owners:
                    self._fail(f"{device} belongs to {owners[device]} and {name}")
                owners[device] = name
        if self._limit is not None and len(owners) > self._limit.max.nanos // ONE:
            self._fail(
                f"{len(owners)} devices are allocated, {self._limit.max} allowed by the quota"
            )
        for pod, key in self._server.running.items():
            if not self._server.is_reserved(pod, key):
                self._fail(f"{pod} runs, and {key.name} was taken from it")

    def _reserve(self, process: Process) -> None:
        """Reserve a node for a pod that waits: with a device for its claim, unless that has one."""
        if not process.leads or not process.seen:
            return
        claim = self._random.choice(list(process.seen.values()))
        uid = claim.metadata.uid
        pod = self._waiting_pod(process, uid)
        if pod is None:
            return
        hold = process.holds.get(uid)
        if allocation_of(claim) is None:
            free = sorted({f"gpu-{n}" for n in range(self._devices)} - process.devices_in_use())
            if hold is None and not (free and self._is_within_quota(process, claim)):
                return
            allocation = allocation_with(free[0]) if hold is None else hold.allocation
            process.holds[uid] = ledger.reserve(hold, claim, allocation, pod)
        process.attempts[pod] = ClaimKey(claim_name(claim), uid)
        self.trace.append(f"         {process.name} reserves {claim_name(claim)[1]} for {pod}")

    def _is_within_quota(self, process: Process, claim: ResourceClaim) -> bool:
        """Return True if the quota leaves enough for a claim, as a sidecar counts."""
        if self._limit is None:
            return True
        book = QuotaBook(Features())
        book.replace_namespace(claim.metadata.namespace, {})
        book.replace_quota("team", quota(self._limit))
        holds = {} if self._fault is Fault.PROMISED_IS_FORGOTTEN else process.holds
        for name, seen_claim in process.seen.items():
            effective_claim = ledger.with_hold(seen_claim, holds.get(seen_claim.metadata.uid))
            if allocation_of(effective_claim) is not None:
                book.put_claim(name, counted_claim(effective_claim))
        accounts = book.accounts(claim.metadata.namespace)
        return not book.ledger.excesses(dict.fromkeys(accounts, ONE))

    def _waiting_pod(self, process: Process, uid: str) -> str | None:
        """Return a pod of a claim that neither runs nor is being scheduled; None if there is none."""
        pods = (f"pod-{uid}-{number}" for number in range(PODS))
        waiting = [
            pod for pod in pods if pod not in process.attempts and pod not in self._server.running
        ]
        return self._random.choice(waiting) if waiting else None

    def _idle_attempt(self, process: Process) -> str | None:
        """Return a pod that is being scheduled, without a write of its claim under way."""
        pods = [pod for pod, key in process.attempts.items() if key.uid not in process.busy]
        return self._random.choice(pods) if process.leads and pods else None

    def _bind(self, process: Process) -> None:
        pod = self._idle_attempt(process)
        if pod is None:
            return
        key = process.attempts[pod]
        claim = process.seen.get(key.name)
        step = steps.next_bind_step(
            claim,
            key.uid,
            process.holds.get(key.uid),
            candidate_of(pod),
            drivers={DRIVER},
            is_unsettled=claim is not None and process.unsettled.may_change(claim),
            others=[
                candidate_of(other)
                for other, of_other in process.attempts.items()
                if of_other.uid == key.uid and other != pod
            ],
        )
        if isinstance(step, ClaimWrite):
            self._send(process, step)
        elif step is not None:
            self._give_up(process, pod)
        elif self._random.random() < BINDING_FAILS:
            process.bindable.add(pod)
            self._unreserve_pod(process, pod)
        elif self._server.holder == process.identity:
            self.trace.append(f"         {process.name} binds {pod}")
            self._server.start(pod, key)
            self._give_up(process, pod)

    def _give_up(self, process: Process, pod: str) -> None:
        """End the attempt of a pod; its writes stay."""
        key = process.attempts.pop(pod)
        process.change(key.uid, lambda hold: ledger.unreserve(hold, pod))

    def _unreserve(self, process: Process) -> None:
        """Give up a pod, perhaps while its claim is being written."""
        if process.attempts:
            self._unreserve_pod(process, self._random.choice(list(process.attempts)))

    def _unreserve_pod(self, process: Process, pod: str) -> None:
        key = process.attempts[pod]
        self._give_up(process, pod)
        self._send_release(process, key, pod, deallocate=pod not in process.bindable)
        process.bindable.discard(pod)

    def _release(self, process: Process) -> None:
        """Release a claim that keeps its only pod from nodes, as PostFilter does."""
        claims = [claim for claim in process.seen.values() if allocation_of(claim) is not None]
        if not claims:
            return
        claim = self._random.choice(claims)
        pod = self._waiting_pod(process, claim.metadata.uid)
        if pod is not None and all(user.uid == pod for user in consumers(claim)):
            key = ClaimKey(claim_name(claim), claim.metadata.uid)
            self._send_release(process, key, pod, deallocate=True)

    def _send_release(self, process: Process, key: ClaimKey, pod: str, *, deallocate: bool) -> None:
        if not process.leads or key.uid in process.busy:
            return
        claim = process.seen.get(key.name)
        step = steps.next_release_step(claim, key.uid, [consumer(pod)], deallocate=deallocate)
        if step is not None:
            self._send(process, step)

    def _deallocate(self, _process: Process) -> None:
        """Release a claim, as kube-controller-manager does when its pods are gone."""
        in_use = [
            name for name, claim in self._server.claims.items() if allocation_of(claim) is not None
        ]
        if in_use:
            name = self._random.choice(sorted(in_use))
            self._server.release(name, replace(self._server.claims[name], status=None))

    def _recreate(self, _process: Process) -> None:
        name = self._random.choice(sorted(self._server.claims))
        self._server.release(name, None)
        self._server.create(name)


def play(
    seeds: range, fault: Fault = Fault.NONE, limit: QuotaLimit | None = None
) -> Mapping[int, str]:
    """Return the seeds of schedules that broke a promise, with the stories.

    Args:
        limit: The limit of a quota for all claims; None for no quota.
    """
    texts: dict[int, str] = {}
    for seed in seeds:
        try:
            PodWorld(seed, fault, limit).run()
        except BrokenPromise as broken:
            texts[seed] = str(broken)
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Play schedules; return 1 if one of them broke the protocol, or a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m testing.sidecar.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fault", type=Fault, default=Fault.NONE, choices=list(Fault))
    parser.add_argument("--quota", action="store_true", help="with a DeviceQuota")
    namespace = parser.parse_args(arguments)
    has_quota = namespace.quota or namespace.fault is Fault.PROMISED_IS_FORGOTTEN
    seeds = range(namespace.first, namespace.first + namespace.seeds)
    texts = play(seeds, namespace.fault, ONE_DEVICE if has_quota else None)
    sys.stdout.write(
        f"{namespace.seeds:,} schedules, fault {namespace.fault}: {len(texts):,} broken\n"
    )
    for story in list(texts.values())[:1]:
        sys.stdout.write(f"{story}\n")
    return int(bool(texts) is (namespace.fault is Fault.NONE))


if __name__ == "__main__":
    sys.exit(main())
