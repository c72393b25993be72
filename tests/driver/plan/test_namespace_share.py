"""The part of a checkpoint that one namespace may take."""

from collections.abc import Mapping

import pytest

from driver.model.record import Record
from driver.plan.checkpoint import Checkpoint
from driver.plan.namespace_share import NAMESPACE_BYTES, OPEN_BYTES, find_excess
from driver.plan.prepare import Preparation, Refusal, RefusalReason, prepare_claims
from kube.api.meta import encode
from testing.allocation.builders import result
from testing.driver.builders import BOOT, allocated_claim, node_state, share, shared_gpu

KIB = 1024


def record(uid: str, namespace: str, size: int) -> Record:
    """A record of so many bytes."""
    empty = Record(uid=uid, namespace=namespace, name="n")
    return Record(uid=uid, namespace=namespace, name="n" * (size - len(encode(empty)) + 1))


def records(namespace: str, total: int) -> Mapping[str, Record]:
    """Records of 64 KiB each that take so many bytes together."""
    uids = [f"{namespace}-{number}" for number in range(total // (64 * KIB))]
    return {uid: record(uid, namespace, 64 * KIB) for uid in uids}


def test_one_namespace_may_take_the_open_part_and_no_more() -> None:
    full = records("greedy", OPEN_BYTES)

    assert {} == find_excess(full.values(), [])
    assert {"more"} == find_excess([record("more", "greedy", KIB)], full.values()).keys()


def test_others_still_have_a_part_of_their_own() -> None:
    full = records("greedy", OPEN_BYTES)
    part = records("honest", NAMESPACE_BYTES)

    assert {} == find_excess(part.values(), full.values())
    excess = find_excess(
        [record("more", "honest", KIB), record("other", "third", KIB)], {**full, **part}.values()
    )
    assert {"more"} == excess.keys()


def test_what_was_refused_takes_nothing() -> None:
    full = records("greedy", OPEN_BYTES)
    new = [record("large", "honest", 2 * NAMESPACE_BYTES), record("small", "honest", KIB)]

    assert {"large"} == find_excess(new, full.values()).keys()


def test_a_claim_beyond_the_part_of_its_namespace_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("driver.plan.namespace_share.OPEN_BYTES", KIB)
    monkeypatch.setattr("driver.plan.namespace_share.NAMESPACE_BYTES", KIB)
    claims = [
        allocated_claim(share("gpu-0", "1Gi"), name=f"{number}", namespace=namespace)
        for number, namespace in enumerate(["greedy"] * 3 + ["honest"])
    ]

    outcomes = prepare_claims(
        {claim.metadata.uid: claim for claim in claims},
        node_state(shared_gpu("gpu-0"), shared_gpu("gpu-1")),
        Checkpoint(boot_id=BOOT),
    )

    *_, last, honest = outcomes.values()
    assert isinstance(last, Refusal)
    assert RefusalReason.LARGE_CLAIMS is last.reason
    assert "delete pods with large claims" in last.message
    assert () == last.failing, "nobody else is kept from the device for it"
    assert isinstance(honest, Preparation)


def test_claims_that_are_prepared_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.plan.namespace_share.OPEN_BYTES", 0)
    claim = allocated_claim(result("gpu-0"))
    node, uid = node_state(shared_gpu("gpu-0")), claim.metadata.uid
    preparation = prepare_claims({uid: claim}, node, Checkpoint(boot_id=BOOT))[uid]
    assert isinstance(preparation, Preparation)
    monkeypatch.setattr("driver.plan.namespace_share.NAMESPACE_BYTES", 0)
    checkpoint = Checkpoint(boot_id=BOOT, claims={uid: preparation.record.as_completed()})

    assert isinstance(prepare_claims({uid: claim}, node, checkpoint)[uid], Preparation)
