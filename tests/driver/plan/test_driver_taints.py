"""The devices that the driver keeps from schedulers."""

import msgspec

from driver.model.record import State
from driver.plan.driver_taints import IN_USE, STATE_UNKNOWN, is_released, use_taints
from driver.plan.prepare import NodeState
from driver.plan.recorded import recorded_results
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    claim,
    consumes,
    counter_set,
    device,
    result,
    tolerates,
)
from testing.driver.builders import (
    allocated_claim,
    node_state,
    prepared_checkpoint,
    record_of,
    share,
    shared_gpu,
)

WHOLE = node_state(device("gpu-0"), device("gpu-1"), shared_gpu("shared"))
PARTS = node_state(
    device("whole", consumes(memory="80Gi")),
    device("half-a", consumes(memory="40Gi")),
    device("half-b", consumes(memory="40Gi")),
    device("other", consumes("set-1", memory="80Gi")),
    counters=[counter_set("set-0", memory="80Gi"), counter_set("set-1", memory="80Gi")],
)


def tainted(node: NodeState, *claims: ResourceClaim, released: set[str]) -> set[str]:
    devices = [device_.device for device_ in node.inventory.devices()]
    checkpoint = prepared_checkpoint(*claims, devices=devices)
    taints_by_device = use_taints(node, checkpoint, released, is_state_known=True)
    assert set(taints_by_device.values()) <= {IN_USE}
    return set(taints_by_device)


def test_devices_of_claims_that_are_allocated_are_not_tainted() -> None:
    assert set() == tainted(WHOLE, allocated_claim(result("gpu-0")), released=set())


def test_devices_of_released_claims_are_tainted() -> None:
    allocated_claim_, here = (
        allocated_claim(result("gpu-0")),
        allocated_claim(result("gpu-1"), name="here"),
    )

    assert {"gpu-0"} == tainted(
        WHOLE, allocated_claim_, here, released={allocated_claim_.metadata.uid}
    )


def test_a_device_of_which_a_share_was_released_is_tainted() -> None:
    allocated_claim_ = allocated_claim(share("shared", "1Gi"))

    assert {"shared"} == tainted(WHOLE, allocated_claim_, released={allocated_claim_.metadata.uid})


def test_parts_of_a_card_that_cannot_be_used_beside_it_are_tainted() -> None:
    whole, half = (allocated_claim(result(name), name=name) for name in ("whole", "half-a"))

    assert {"whole", "half-a", "half-b"} == tainted(PARTS, whole, released={whole.metadata.uid})
    assert {"whole", "half-a"} == tainted(PARTS, half, released={half.metadata.uid})


def contested(node: NodeState, *claims: ResourceClaim, names: set[str]) -> set[str]:
    checkpoint = prepared_checkpoint(
        *claims, devices=[device_.device for device_ in node.inventory.devices()]
    )
    return set(use_taints(node, checkpoint, set(), contested_devices=names, is_state_known=True))


def test_a_device_that_was_refused_is_tainted_as_long_as_somebody_has_it() -> None:
    tenant = allocated_claim(result("gpu-0"), name="tenant")

    assert {"gpu-0"} == contested(WHOLE, tenant, names={"gpu-0"})
    assert set() == contested(WHOLE, names={"gpu-0"})
    assert set() == contested(WHOLE, tenant, names={"gpu-1"})


def test_a_part_that_was_refused_is_tainted_as_long_as_its_card_is_in_use() -> None:
    tenant = allocated_claim(result("whole"), name="tenant")

    assert {"half-a"} == contested(PARTS, tenant, names={"half-a"})


def test_a_shared_device_that_was_refused_may_fit_others() -> None:
    tenant = allocated_claim(share("shared", "50Gi"), name="tenant")

    assert set() == contested(WHOLE, tenant, names={"shared"})


def test_all_devices_are_tainted_while_nobody_knows_what_is_in_use() -> None:
    taints_by_device = use_taints(WHOLE, prepared_checkpoint(), set(), is_state_known=False)

    assert {"gpu-0", "gpu-1", "shared"} == set(taints_by_device)
    assert {STATE_UNKNOWN} == set(taints_by_device.values())


def test_when_a_claim_is_released() -> None:
    allocated_claim_ = allocated_claim(result("gpu-0"))
    record = record_of(allocated_claim_, {}, State.COMPLETED)

    assert not is_released(record, allocated_claim_)
    assert is_released(record, allocated_claim(result("gpu-0"), uid="another"))
    assert is_released(record, allocated_claim(result("gpu-1")))
    assert is_released(record, claim(name="claim-0"))


def test_a_claim_is_not_released_by_the_fields_that_a_record_leaves_out() -> None:
    """A toleration in one request closed a shared device to all others."""
    held = result(
        "gpu-0",
        tolerations=(tolerates("maintenance", operator="Exists"),),
        binding_conditions=("attached",),
        binding_failure_conditions=("failed",),
    )
    claim_ = allocated_claim(held)
    record = record_of(claim_, {}, State.COMPLETED)
    stripped = msgspec.structs.replace(record, results=recorded_results(record.results))

    assert not is_released(stripped, claim_)
    assert not is_released(record, claim_)
    assert is_released(stripped, allocated_claim(result("gpu-1")))


def test_admin_access_that_is_released_taints_nothing() -> None:
    """A monitoring pod that was deleted by force closed the whole node."""
    monitor = allocated_claim(
        result("gpu-0", admin_access=True), result("shared", admin_access=True), name="monitor"
    )
    uid = monitor.metadata.uid

    taints_by_device = use_taints(WHOLE, prepared_checkpoint(monitor), {uid}, is_state_known=True)

    assert {} == taints_by_device


def test_a_contested_device_is_tainted_while_it_is_in_use_under_another_pool() -> None:
    tenant = allocated_claim(result("gpu-0", pool="before"), name="tenant")

    assert {"gpu-0"} == contested(WHOLE, tenant, names={"gpu-0"})
