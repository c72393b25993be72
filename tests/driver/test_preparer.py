"""Preparing and unpreparing on a node's folders, with failures and deaths in between."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from driver.model.steps import Step
from driver.plan.prepare import Preparation, Refusal, RefusalReason
from driver.prepare.preparer import ClaimRef, Preparer
from kube.api.resource import ResourceClaim
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client
from testing.allocation.builders import device, result
from testing.driver.builders import (
    allocated_claim,
    configured_configuration,
    document_of,
    node_state,
    share,
    shared_gpu,
)
from testing.driver.nodes import FolderNode, Killed, killed_at, ref_of
from testing.driver.steps import OF_PREPARE, OF_UNPREPARE
from testing.fake_api_server import FakeApiServer

A: Final = allocated_claim(result("gpu-0"), name="a")
B: Final = allocated_claim(result("gpu-1"), name="b")
UID: Final = A.metadata.uid


@pytest.fixture
def node(tmp_path: Path) -> FolderNode:
    return FolderNode(tmp_path, node_state(device("gpu-0"), device("gpu-1"), shared_gpu("shared")))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as running:
        for claim in (A, B):
            running.put(RESOURCE_CLAIMS, document_of(claim))
        yield running


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with server.client(timeout_s=30) as client_:
        yield client_


async def prepare(preparer: Preparer, *claims: ResourceClaim) -> list[str]:
    """Prepare claims; return their faults, empty if there is none."""
    outcomes = await preparer.prepare([ref_of(claim) for claim in claims])
    assert {claim.metadata.uid for claim in claims} == outcomes.keys()
    return [
        outcome.message if isinstance(outcome := outcomes[claim.metadata.uid], Refusal) else ""
        for claim in claims
    ]


async def unprepare(preparer: Preparer, *claims: ResourceClaim) -> list[str]:
    outcomes = await preparer.unprepare([ref_of(claim) for claim in claims])
    return [outcomes[claim.metadata.uid] for claim in claims]


async def test_a_claim_is_prepared_and_unprepared(node: FolderNode, client: Client) -> None:
    preparer = node.preparer(client)

    assert [""] == await prepare(preparer, A)
    assert {"a": "Completed"} == node.states
    assert {UID} == node.specs
    assert [""] == await unprepare(preparer, A)
    assert {} == node.states
    assert set() == node.specs


async def test_a_call_that_is_cancelled_ends_before_the_next_one_begins(
    node: FolderNode, client: Client
) -> None:
    """The kubelet gave up, unprepared, and was told that it was done; then the claim was prepared."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    def hold_at(step: Step) -> None:
        if step is Step.STARTED_WRITTEN:
            has_begun.set()
            may_go_on.wait()

    preparing = asyncio.ensure_future(prepare(node.preparer(client, at_step=hold_at), A))
    await asyncio.to_thread(has_begun.wait)
    preparing.cancel()
    await asyncio.sleep(0)

    (fault,) = await unprepare(node.preparer(client, lock_timeout_s=0.05), A)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await preparing

    assert "has been locked" in fault
    assert [""] == await unprepare(node.preparer(client), A)
    assert {} == node.states
    assert set() == node.specs


async def test_both_calls_can_be_repeated(node: FolderNode, client: Client) -> None:
    preparer = node.preparer(client)
    await prepare(preparer, A)
    before = (node.state / "checkpoint").stat().st_ino

    first, second = await preparer.prepare([ref_of(A)]), await preparer.prepare([ref_of(A)])

    assert first == second
    assert before == (node.state / "checkpoint").stat().st_ino, "it was written again"
    assert [""] == await unprepare(preparer, A)
    assert [""] == await unprepare(preparer, A)


async def test_every_claim_of_a_call_has_an_answer(node: FolderNode, client: Client) -> None:
    conflict = allocated_claim(result("gpu-0"), name="conflict")
    unknown = ClaimRef(namespace="default", name="unknown", uid="uid-of-unknown")
    await client.create(RESOURCE_CLAIMS, document_of(conflict), dict, namespace="default")

    outcomes = await node.preparer(client).prepare(
        [ref_of(A), ref_of(conflict), unknown, ref_of(B)]
    )

    reasons = [
        outcome.reason.value if isinstance(outcome, Refusal) else "prepared"
        for outcome in (outcomes[uid] for uid in (UID, conflict.metadata.uid, unknown.uid))
    ]
    assert ["prepared", "allocated", "claimGone"] == reasons
    assert isinstance(outcomes[B.metadata.uid], Preparation)
    assert {"a": "Completed", "b": "Completed"} == node.states


@pytest.mark.parametrize(
    "ref",
    [
        ClaimRef(namespace="default", name="a", uid="../../../etc/cron.d/x"),
        ClaimRef(namespace="default", name="../../../api/v1/secrets", uid="1"),
        ClaimRef(namespace="kube-system/secrets", name="a", uid="1"),
        ClaimRef(namespace="", name="", uid=""),
    ],
    ids=["uid", "name", "namespace", "nothing"],
)
async def test_names_that_would_lead_elsewhere_are_refused(
    node: FolderNode, client: Client, server: FakeApiServer, ref: ClaimRef
) -> None:
    (outcome,) = (await node.preparer(client).prepare([ref])).values()

    assert isinstance(outcome, Refusal)
    assert RefusalReason.CLAIM_GONE is outcome.reason
    assert [] == server.calls


async def test_unprepare_needs_no_claim(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    preparer = node.preparer(client)
    await prepare(preparer, A)
    await server.refuse()

    assert [""] == await unprepare(preparer, A)
    assert set() == node.specs


async def test_a_uid_that_would_leave_the_folder_is_not_unprepared(
    node: FolderNode, client: Client
) -> None:
    ref = ClaimRef(namespace="default", name="a", uid="../../a")

    assert {"../../a": "it is no uid of a claim"} == await node.preparer(client).unprepare([ref])


@pytest.mark.parametrize("depth", [500, 900, 950, 970, 990, 1_000, 5_000])
async def test_no_parameters_are_nested_too_deeply_for_the_next_call(
    node: FolderNode,
    client: Client,
    server: FakeApiServer,
    monkeypatch: pytest.MonkeyPatch,
    depth: int,
) -> None:
    """The author of a claim chooses them, and the checkpoint is read in calls for others."""
    read = client.get

    async def read_deep(*arguments: Any, **options: Any) -> msgspec.Raw:
        text = bytes(await read(*arguments, **options))
        return msgspec.Raw(text.replace(b'"?"', b"[" * depth + b"]" * depth))

    monkeypatch.setattr(client, "get", read_deep)
    preparer = node.preparer(client)
    results = (result("gpu-0", request="gpu"), result("x", request="nic", driver="nic.example.com"))
    for request in ("gpu", "nic"):
        config = configured_configuration(request, sharing="?")
        claim = allocated_claim(*results, name=request, config=[config])
        server.put(RESOURCE_CLAIMS, document_of(claim))

        (message,) = await prepare(preparer, claim)

        assert ("sharing" in message) == (request == "gpu")
    await preparer.recover()
    assert {"nic": "Completed"} == node.states
    assert [""] == await prepare(preparer, B)


async def test_thousands_of_unknown_claims_in_a_call_have_an_answer_each(
    node: FolderNode, client: Client
) -> None:
    refs = [ClaimRef(namespace="default", name=f"x-{n}", uid=f"uid-{n}") for n in range(1_000)]
    preparer = node.preparer(client)

    outcomes = await preparer.prepare([*refs, *refs, ref_of(A)])

    assert {*(ref.uid for ref in refs), UID} == outcomes.keys()
    assert {"a": "Completed"} == node.states
    assert not any((await preparer.unprepare([*refs, ref_of(A)])).values())
    assert {} == node.states


# --- what fails -----------------------------------------------------------------------------------


async def test_without_the_api_server_nothing_is_changed(
    node: FolderNode, client: Client, server: FakeApiServer
) -> None:
    preparer = node.preparer(client)
    await server.refuse()

    (message,) = await prepare(preparer, A)

    assert "the claim cannot be read" in message
    assert {} == node.states
    await server.accept()
    assert [""] == await prepare(preparer, A)


async def test_a_checkpoint_that_cannot_be_written_is_reported(
    node: FolderNode, client: Client
) -> None:
    preparer = node.preparer(client)
    (node.state / "checkpoint.partial").mkdir()

    (message,) = await prepare(preparer, A)

    assert "checkpoint.partial" in message
    assert {} == node.states
    (node.state / "checkpoint.partial").rmdir()
    assert [""] == await prepare(preparer, A)


async def test_a_node_that_cannot_prepare_names_the_devices_that_fail(
    node: FolderNode, client: Client
) -> None:
    """They are counted, and tainted after a bound of attempts; nobody else has them."""
    preparer = node.preparer(client)
    (node.state / "checkpoint.partial").mkdir()

    outcomes = await preparer.prepare([ref_of(A), ref_of(B)])

    refusals = [outcome for outcome in outcomes.values() if isinstance(outcome, Refusal)]
    assert [("gpu-0",), ("gpu-1",)] == [refusal.failing for refusal in refusals]
    assert frozenset() == node.current.contested_devices


async def test_a_spec_that_cannot_be_written_is_no_other_claims_trouble(
    node: FolderNode, client: Client
) -> None:
    preparer = node.preparer(client)
    spec = node.cdi / f"gpu.example.com-claim_{UID}.json.partial"
    spec.mkdir(parents=True)

    first, second = await prepare(preparer, A, B)

    assert "json.partial" in first
    assert second == ""
    assert {"a": "Started", "b": "Completed"} == node.states
    spec.rmdir()
    assert [""] == await prepare(preparer, A)
    assert {"a": "Completed", "b": "Completed"} == node.states


async def test_a_lock_that_another_process_holds_is_reported(
    node: FolderNode, client: Client
) -> None:
    from driver.node.lock import file_lock  # noqa: PLC0415

    async with file_lock(node.state / "lock", timeout_s=None):
        (message,) = await prepare(node.preparer(client, lock_timeout_s=0.01), A)

    assert "has been locked for" in message


async def test_nothing_is_prepared_while_nobody_knows_what_is(
    node: FolderNode, client: Client
) -> None:
    (node.state / "checkpoint").write_text("broken")
    preparer = node.preparer(client)
    await preparer.recover()

    (message,) = await prepare(preparer, A)

    (aside,) = node.checkpoint_file().set_aside()
    assert f"because {aside} cannot be read" in message
    aside.unlink()
    assert [""] == await prepare(preparer, A)


async def test_a_pod_that_ended_beside_an_unreadable_checkpoint_stays_ended(
    node: FolderNode, client: Client
) -> None:
    await prepare(node.preparer(client), A, B)
    path = node.state / "checkpoint"
    of_later_version = path.read_bytes()
    path.write_bytes(b"of a later version")
    older = node.preparer(client)
    await older.recover()
    assert [""] == await unprepare(older, A)
    (aside,) = node.checkpoint_file().set_aside()
    aside.write_bytes(of_later_version)  # As the later version reads it.

    await node.preparer(client).recover()

    assert {"b": "Completed"} == node.states
    assert {B.metadata.uid} == node.specs


# --- two processes --------------------------------------------------------------------------------


async def test_two_instances_never_give_a_device_twice(node: FolderNode, client: Client) -> None:
    rivals = [allocated_claim(result("gpu-0"), name=f"rival-{number}") for number in range(8)]
    for rival in rivals:
        await client.create(RESOURCE_CLAIMS, document_of(rival), dict, namespace="default")
    instances = [node.preparer(client), node.preparer(client)]

    outcomes = await asyncio.gather(
        *(prepare(instances[number % 2], rival) for number, rival in enumerate(rivals))
    )

    assert 1 == outcomes.count([""])
    assert ["Completed"] == list(node.states.values())


async def test_claims_are_prepared_at_the_same_time(node: FolderNode, client: Client) -> None:
    shares = [allocated_claim(share("shared", "1Gi"), name=f"share-{n}") for n in range(32)]
    for claim in shares:
        await client.create(RESOURCE_CLAIMS, document_of(claim), dict, namespace="default")
    preparer = node.preparer(client)

    outcomes = await asyncio.gather(*(prepare(preparer, claim) for claim in shares))

    assert [[""]] * 32 == outcomes
    assert 32 == len(node.states)


# --- a process that dies --------------------------------------------------------------------------


def test_the_steps_are_all_of_them() -> None:
    assert set(Step) == {step for step, _ in (*OF_PREPARE, *OF_UNPREPARE)}


async def test_the_steps_come_in_this_order(node: FolderNode, client: Client) -> None:
    reached: list[Step] = []
    preparer = node.preparer(client, reached.append)

    await prepare(preparer, A)
    assert [step for step, _ in OF_PREPARE] == reached
    reached.clear()
    await unprepare(preparer, A)
    assert [step for step, _ in OF_UNPREPARE] == reached


@pytest.mark.parametrize("step", OF_PREPARE, ids=str)
async def test_whoever_dies_while_preparing_is_replaced(
    node: FolderNode, client: Client, step: tuple[Step, int]
) -> None:
    with pytest.raises(Killed):
        await node.preparer(client, killed_at(*step)).prepare([ref_of(A)])
    replacement = node.preparer(client)
    await replacement.recover()

    conflict = allocated_claim(result("gpu-0"), name="conflict")
    await client.create(RESOURCE_CLAIMS, document_of(conflict), dict, namespace="default")
    is_remembered = bool(node.states)
    (refusal_reason,) = await prepare(replacement, conflict)
    assert is_remembered == bool(refusal_reason)
    await unprepare(replacement, conflict)

    assert [""] == await prepare(replacement, A)
    assert {"a": "Completed"} == node.states
    assert {UID} == node.specs
    assert [""] == await unprepare(replacement, A)
    assert ({}, set()) == (node.states, node.specs)


@pytest.mark.parametrize("step", OF_PREPARE, ids=str)
async def test_nothing_stays_of_a_pod_that_is_deleted_meanwhile(
    node: FolderNode, client: Client, step: tuple[Step, int]
) -> None:
    with pytest.raises(Killed):
        await node.preparer(client, killed_at(*step)).prepare([ref_of(A)])
    replacement = node.preparer(client)
    await replacement.recover()

    assert [""] == await unprepare(replacement, A)

    assert ({}, set()) == (node.states, node.specs)
    assert [] == list(node.cdi.glob("*.json")) if node.cdi.exists() else True


@pytest.mark.parametrize("step", OF_UNPREPARE, ids=str)
async def test_whoever_dies_while_unpreparing_is_replaced(
    node: FolderNode, client: Client, step: tuple[Step, int]
) -> None:
    await prepare(node.preparer(client), A)
    with pytest.raises(Killed):
        await node.preparer(client, killed_at(*step)).unprepare([ref_of(A)])
    replacement = node.preparer(client)
    await replacement.recover()

    assert [""] == await unprepare(replacement, A)

    assert ({}, set()) == (node.states, node.specs)


async def test_a_reboot_forgets_what_was_prepared(node: FolderNode, client: Client) -> None:
    await prepare(node.preparer(client), A)
    node.boot = "boot-2"
    preparer = node.preparer(client)

    await preparer.recover()

    assert ({}, set()) == (node.states, node.specs)
    assert [""] == await prepare(preparer, A)


async def test_specs_that_are_lost_are_written_again(node: FolderNode, client: Client) -> None:
    await prepare(node.preparer(client), A)
    for spec in node.cdi.iterdir():
        spec.unlink()

    await node.preparer(client).recover()

    assert {UID} == node.specs


async def test_specs_of_claims_that_are_not_prepared_are_removed(
    node: FolderNode, client: Client
) -> None:
    await prepare(node.preparer(client), A, B)
    checkpoint = node.checkpoint
    node.checkpoint_file().store(checkpoint.without(UID))
    foreign = node.cdi / "nvidia.json"
    foreign.write_text("{}")

    await node.preparer(client).recover()

    assert {B.metadata.uid} == node.specs
    assert foreign.exists()


async def test_only_unfinished_claims_are_unprepared_without_the_kubelet(
    node: FolderNode, client: Client
) -> None:
    preparer = node.preparer(client)
    await prepare(preparer, A)
    with pytest.raises(Killed):
        await node.preparer(client, killed_at(Step.STARTED_WRITTEN)).prepare([ref_of(B)])

    await preparer.unprepare_unfinished([UID, B.metadata.uid, "unknown"])

    assert {"a": "Completed"} == node.states
