import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from kube.api.meta import ObjectMeta
from kube.client.client import Client
from kube.errors import ConfigError
from kube.runtime.leader import (
    HANDED_OVER,
    LEASES,
    Leader,
    LeaderSettings,
    Lease,
    LeaseLost,
    LeaseSpec,
    Step,
    is_handed_over,
    lease_document,
    next_step,
    pause_s,
)
from testing.fake_api_server import Call, FakeApiServer, running, until


def lease(
    holder: str | None,
    lasts_s: int | None = 15,
    transitions: int | None = None,
    mark: str | None = None,
) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=lasts_s, lease_transitions=transitions
    )
    annotations = None if mark is None else {HANDED_OVER: mark}
    return Lease(metadata=ObjectMeta(resource_version="1", annotations=annotations), spec=spec)


class Case(NamedTuple):
    name: str
    lease: Lease | None
    unchanged_s: float
    want: Step


CASES = (
    Case("no lease yet", None, 0, Step.TAKE),
    Case("nobody holds it", lease(None), 0, Step.TAKE),
    Case("given back by an elector that writes an empty name", lease(""), 0, Step.TAKE),
    Case("ours", lease("us"), 0, Step.RENEW),
    Case("ours, and long not renewed", lease("us"), 99, Step.RENEW),
    Case("another's, just seen for the first time", lease("them"), 0, Step.WAIT),
    Case("another's, renewed a moment ago", lease("them"), 14.9, Step.WAIT),
    Case("another's, and not renewed for as long as it says", lease("them"), 15, Step.TAKE),
    Case("another's, who asked for longer than we would", lease("them", 60), 30, Step.WAIT),
    Case("another's, who asked for less", lease("them", 5), 6, Step.TAKE),
    Case("another's, who does not say for how long", lease("them", None), 14, Step.WAIT),
    Case("another's, who does not say, past our own duration", lease("them", None), 15, Step.TAKE),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_validated(case: Case) -> None:
    assert case.want is next_step(case.lease, "us", case.unchanged_s, 15)


@pytest.mark.parametrize(
    ("remaining_s", "jitter", "want"),
    [
        pytest.param(12.0, 0.0, 2.0, id="the Lease holds for long"),
        pytest.param(12.0, 1.0, 2.4, id="spread"),
        pytest.param(0.5, 0.0, 0.5, id="it runs out before the next attempt"),
        pytest.param(0.5, 1.0, 0.6, id="likewise, spread"),
        pytest.param(0.0, 0.0, 2.0, id="it has run out, and another took it"),
    ],
)
def test_a_candidate_comes_when_the_lease_runs_out(
    remaining_s: float, jitter: float, want: float
) -> None:
    assert pause_s(2.0, remaining_s, jitter) == pytest.approx(want)


@pytest.mark.parametrize(
    ("name", "held_lease", "want"),
    [
        ("there is none, perhaps since somebody deleted it", None, False),
        ("given back after the last write", lease(None, transitions=3, mark="3"), True),
        ("the first term was given back", lease(None, mark="0"), True),
        ("given back without a word", lease(None, transitions=3), False),
        ("the mark is of an earlier term", lease(None, transitions=4, mark="3"), False),
        ("held again", lease("them", transitions=3, mark="3"), False),
    ],
)
def test_a_mark_counts_for_its_own_term(name: str, held_lease: Lease | None, want: bool) -> None:
    assert want is is_handed_over(held_lease), name


@pytest.mark.parametrize(
    ("name", "held_lease", "want"),
    [
        ("the first holder", None, 0),
        ("taken from another", lease("them", transitions=3), 4),
        ("taken when nobody had it", lease(None, transitions=3), 4),
        ("taken from one who does not count", lease("them"), 1),
        ("renewed", lease("us", transitions=3), None),
    ],
)
def test_written(name: str, held_lease: Lease | None, want: int | None) -> None:
    spec = lease_document(held_lease, "us", 15, 1.5)

    assert want == spec.get("leaseTransitions"), name
    assert ("acquireTime" in spec) == (want is not None)
    assert spec["renewTime"] == "1970-01-01T00:00:01.500000Z"
    assert spec["leaseDurationSeconds"] == 15


@pytest.mark.parametrize(
    "times",
    [
        {"lease_s": 10},
        {"renew_deadline_s": 2.0},
        {"retry_s": 0.0},
        {"identity": ""},
    ],
)
def test_settings_that_make_no_sense(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LeaderSettings(**{"namespace": "ns", "name": "lease", "identity": "us", **times})


class Candidate:
    """A leader with short times, work that notes its runs, and a clock that can be set."""

    def __init__(
        self, server: FakeApiServer, client: Client, identity: str, *, lease_s: int
    ) -> None:
        settings = LeaderSettings(
            namespace="ns",
            name="lease",
            identity=identity,
            lease_s=lease_s,
            renew_deadline_s=0.6 * lease_s,
            retry_s=0.05,
        )
        self.server = server
        self.leader = Leader(
            client,
            settings,
            wall_clock=lambda: 1.5,
            clock=lambda: time.monotonic() + self.skew_s,
            jitter=lambda: 0.0,
            notes=lambda: self.notes,
        )
        self.notes: dict[str, str | None] = {}
        self.skew_s = 0.0
        self.is_working = False
        self.terms = 0

    async def work(self) -> None:
        self.is_working = True
        self.terms += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.is_working = False

    async def run(self) -> None:
        await self.leader.run(self.work)


@asynccontextmanager
async def candidates(*identities: str, lease_s: int = 1) -> AsyncIterator[list[Candidate]]:
    """Give candidates that do not run yet; with a short Lease a slow machine may lose it."""
    async with FakeApiServer() as server, server.client() as client:
        yield [Candidate(server, client, name, lease_s=lease_s) for name in identities]


def spec(server: FakeApiServer) -> dict[str, Any]:
    stored_object = server.find(LEASES, "lease", "ns")
    assert stored_object is not None
    spec_: dict[str, Any] = stored_object["spec"]
    return spec_


def is_write(call: Call) -> bool:
    return call.method in {"POST", "PATCH"}


async def test_the_first_takes_the_lease_renews_it_and_gives_it_back() -> None:
    async with candidates("us", lease_s=60) as [us]:
        async with running(us.run):
            await until(lambda: us.is_working)
            assert us.leader.leading
            assert spec(us.server) == {
                "holderIdentity": "us",
                "leaseDurationSeconds": 60,
                "acquireTime": "1970-01-01T00:00:01.500000Z",
                "renewTime": "1970-01-01T00:00:01.500000Z",
                "leaseTransitions": 0,
            }
            await until(lambda: us.server.counts["PATCH"] >= 3)

        assert "holderIdentity" not in spec(us.server)
        assert (us.is_working, us.leader.leading, us.terms) == (False, False, 1)
        patches = [call.body for call in us.server.calls if call.method == "PATCH"]
        assert all(patch["metadata"]["resourceVersion"] for patch in patches)


async def test_the_second_waits_and_follows_at_once_when_the_lease_is_given_back() -> None:
    async with candidates("us", "them", lease_s=60) as [us, other]:
        enough = asyncio.Event()

        async def first() -> None:
            await us.leader.run(enough.wait)

        async def second() -> None:
            await until(lambda: us.leader.leading)
            await other.run()

        async with running(first, second):
            await until(lambda: us.server.counts["GET"] > 20)
            assert (us.leader.leading, other.leader.leading) == (True, False)
            enough.set()
            await until(lambda: other.is_working, timeout_s=30)

            assert spec(other.server)["holderIdentity"] == "them"
            assert spec(other.server)["leaseTransitions"] == 1


@pytest.mark.parametrize("is_drained", [True, False])
async def test_the_lease_says_whether_the_last_write_of_its_holder_has_ended(
    is_drained: bool,
) -> None:
    async with FakeApiServer() as server, server.client() as client:
        heard: list[tuple[bool, bool]] = []

        async def drain() -> bool:
            stored_spec = spec(server)
            heard.append((first.leading, stored_spec.get("holderIdentity") == "first"))
            return is_drained

        async def work() -> None:
            assert second.leading

        async def done() -> None:
            pass

        settings = [
            LeaderSettings(namespace="ns", name="lease", identity=name, retry_s=0.05)
            for name in ("first", "second")
        ]
        first = Leader(client, settings[0], wall_clock=lambda: 1.5, drain=drain)
        second = Leader(client, settings[1], wall_clock=lambda: 1.5)
        await first.run(done)
        await second.run(work)

        assert [(False, True)] == heard
        assert (first.is_successor, second.is_successor) == (False, is_drained)


async def test_a_lease_of_one_who_died_is_taken_when_it_has_run_out() -> None:
    async with candidates("us") as [us]:
        held_document = {
            "holderIdentity": "dead",
            "leaseDurationSeconds": 60,
            "leaseTransitions": 7,
        }
        us.server.put(
            LEASES, {"metadata": {"name": "lease", "namespace": "ns"}, "spec": held_document}
        )
        async with running(us.run):
            await until(lambda: us.server.counts["GET"] >= 2)
            us.skew_s, reads = 30.0, us.server.counts["GET"]
            await until(lambda: us.server.counts["GET"] >= reads + 2)
            assert not us.is_working
            us.skew_s = 60.0
            await until(lambda: us.is_working)

            # A slow machine may lose it once more, and takes it by another name then.
            assert spec(us.server)["holderIdentity"] == us.leader.identity
            assert spec(us.server)["leaseTransitions"] >= 8


Trouble = Callable[[FakeApiServer], Awaitable[None]]


async def _refuses(server: FakeApiServer) -> None:
    await server.refuse()


async def _hangs(server: FakeApiServer) -> None:
    server.hang()


async def _answers_500(server: FakeApiServer) -> None:
    server.fail(500, times=10**6)


async def _answers_nonsense(server: FakeApiServer) -> None:
    server.put(LEASES, {"metadata": {"name": "lease", "namespace": "ns"}, "spec": "nonsense"})


@pytest.mark.parametrize("trouble", [_refuses, _hangs, _answers_500, _answers_nonsense])
async def test_work_stops_within_the_renew_deadline_whatever_goes_wrong(trouble: Trouble) -> None:
    async with candidates("us", lease_s=3) as [us], running(us.run):
        await until(lambda: us.is_working)
        await trouble(us.server)
        began = time.monotonic()
        await until(lambda: not us.is_working)

        # Before anybody else may take the lease, which is what matters.
        assert time.monotonic() - began < 3.0
        assert not us.leader.leading


async def test_work_stops_at_once_when_another_holds_the_lease() -> None:
    async with candidates("us") as [us], running(us.run):
        await until(lambda: us.is_working)
        held_document = {"holderIdentity": "thief", "leaseDurationSeconds": 60}
        us.server.put(
            LEASES, {"metadata": {"name": "lease", "namespace": "ns"}, "spec": held_document}
        )
        await until(lambda: not us.is_working)
        await asyncio.sleep(0.2)

        assert not us.is_working
        assert spec(us.server)["holderIdentity"] == "thief"
    # What is not ours is not given back either.
    assert spec(us.server)["holderIdentity"] == "thief"


async def test_who_is_fenced_by_its_identity_never_stands_again() -> None:
    async with FakeApiServer() as server, server.client() as client:
        settings = LeaderSettings(
            namespace="ns",
            name="lease",
            identity="us",
            lease_s=1,
            renew_deadline_s=0.6,
            retry_s=0.05,
            ends_with_lease=True,
        )
        leader = Leader(client, settings, wall_clock=lambda: 1.5)

        async def lose() -> None:
            stored_document = server.find(LEASES, "lease", "ns")
            assert stored_document is not None
            stored_document["spec"]["holderIdentity"] = "them"
            server.put(LEASES, stored_document)
            await asyncio.Event().wait()

        with pytest.raises(LeaseLost, match="the Lease lease was lost"):
            await leader.run(lose)


async def test_a_few_failed_renewals_are_no_loss() -> None:
    async with candidates("us", lease_s=60) as [us], running(us.run):
        await until(lambda: us.is_working)
        us.server.fail(503, times=2)
        us.server.fail(409, times=1, matches=is_write)
        await asyncio.sleep(0.5)

        assert (us.is_working, us.terms) == (True, 1)


async def test_leadership_comes_back_with_the_server() -> None:
    async with candidates("us", lease_s=3) as [us], running(us.run):
        await until(lambda: us.is_working)
        assert spec(us.server)["holderIdentity"] == us.leader.identity == "us"
        await us.server.refuse()
        await until(lambda: not us.is_working)
        await us.server.accept()
        await until(lambda: us.is_working)

        assert us.terms == 2
        # A late write of the first term must not pass for one of the second.
        assert spec(us.server)["holderIdentity"] == us.leader.identity == "us_2"


async def test_of_two_that_take_at_once_one_wins() -> None:
    async with (
        candidates("a", "b", "c", lease_s=60) as candidates_,
        running(*(candidate.run for candidate in candidates_)),
    ):
        await until(lambda: any(candidate.is_working for candidate in candidates_))
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert sum(candidate.is_working for candidate in candidates_) == 1


async def test_when_the_work_ends_so_does_the_run_and_the_lease_is_given_back() -> None:
    async with candidates("us") as [us]:

        async def work() -> None:
            assert us.leader.leading

        await us.leader.run(work)

        assert "holderIdentity" not in spec(us.server)


async def test_work_that_fails_ends_the_run_and_the_lease_is_given_back() -> None:
    async with candidates("us") as [us]:

        async def fail() -> None:
            raise RuntimeError("a bug")

        with pytest.raises(ExceptionGroup) as failure:
            await us.leader.run(fail)

        assert failure.group_contains(RuntimeError, match="a bug")
        assert "holderIdentity" not in spec(us.server)


async def test_the_next_term_waits_for_the_work_of_the_last_to_end() -> None:
    async with candidates("us") as [us]:
        running_now = 0
        most = 0
        terms = 0

        async def slow_to_stop() -> None:
            nonlocal running_now, most, terms
            running_now += 1
            terms += 1
            most = max(most, running_now)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.3)
                running_now -= 1

        async with running(lambda: us.leader.run(slow_to_stop)):
            await until(lambda: terms == 1)
            us.server.fail(500, times=12)
            await until(lambda: terms == 2)

        assert most == 1


async def test_attempts_at_a_server_that_refuses_are_bounded() -> None:
    async with candidates("us") as [us]:
        us.server.fail(503, times=10**6)
        began = time.monotonic()
        async with running(us.run):
            await until(lambda: len(us.server.calls) >= 5)

        assert time.monotonic() - began >= 4 * 0.05


async def test_shutdown_is_bounded_when_the_server_hangs() -> None:
    async with candidates("us") as [us]:
        async with running(us.run):
            await until(lambda: us.is_working)
            us.server.hang()
            began = time.monotonic()

        assert time.monotonic() - began < 30


async def test_the_next_holder_finds_what_the_last_one_noted() -> None:
    def annotations(candidate: Candidate) -> dict[str, str]:
        found: Any = candidate.server.find(LEASES, "lease", "ns")
        return found["metadata"].get("annotations") or {}

    async with candidates("first", "second") as (first, second):
        async with running(first.run):
            await until(lambda: first.is_working)
            first.notes = {"example.com/last": "pod", "example.com/gone": None}
            await until(lambda: annotations(first) == {"example.com/last": "pod"})
        async with running(second.run):
            await until(lambda: second.is_working)

            assert second.leader.found_notes["example.com/last"] == "pod"
            second.notes = {"example.com/last": None}
            await until(lambda: "example.com/last" not in annotations(second))
