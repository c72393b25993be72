"""The claims that are prepared on a node, and the words for refused ones."""

from typing import NamedTuple

import msgspec
import pytest

from allocator.model.outcome import Reason
from driver.model.record import State
from driver.plan.checkpoint import Checkpoint
from driver.plan.config import TimeSlice
from driver.plan.prepare import (
    NodeState,
    Preparation,
    Refusal,
    RefusalReason,
    prepare_claim,
    prepare_claims,
    read_claim,
)
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    consumes,
    counter_set,
    device,
    policy,
    result,
    rule,
)
from testing.driver.builders import (
    BOOT,
    allocated_claim,
    configured_configuration,
    node_state,
    prepared_checkpoint,
    share,
    shared_gpu,
)

NOTHING = Checkpoint(boot_id=BOOT)
NODE = node_state(device("gpu-0"), device("gpu-1"), shared_gpu("shared"))
PARTS = node_state(
    device("whole", consumes(memory="80Gi")),
    device("half-a", consumes(memory="40Gi")),
    device("half-b", consumes(memory="40Gi")),
    counters=[counter_set(memory="80Gi")],
)


def outcome(
    claim: ResourceClaim, *others: ResourceClaim, node: NodeState = NODE
) -> Preparation | Refusal:
    checkpoint = prepared_checkpoint(
        *others, devices=[device_.device for device_ in node.inventory.devices()]
    )
    return prepare_claim(claim, claim.metadata.uid, node, checkpoint)


def refusal(claim: ResourceClaim, *others: ResourceClaim, node: NodeState = NODE) -> Refusal:
    outcome_ = outcome(claim, *others, node=node)
    assert isinstance(outcome_, Refusal), "the claim can be prepared"
    return outcome_


def preparation(
    claim: ResourceClaim, *others: ResourceClaim, node: NodeState = NODE
) -> Preparation:
    outcome_ = outcome(claim, *others, node=node)
    assert isinstance(outcome_, Preparation), outcome_
    return outcome_


# --- devices in other pools -----------------------------------------------------------------------


def test_a_device_that_moved_to_another_pool_is_given_to_nobody_else() -> None:
    """To kube-scheduler it is a new and free device."""
    tenant = allocated_claim(result("gpu-0", pool="before"), name="tenant")

    refusal_ = refusal(allocated_claim(result("gpu-0"), name="next"), tenant)

    assert (Reason.ALLOCATED, ("gpu-0",)) == (refusal_.reason, refusal_.contested)
    assert "gpu-0: in use since it was published in pool before" == refusal_.message
    preparation(allocated_claim(result("gpu-1"), name="next"), tenant)
    preparation(allocated_claim(result("gpu-0", admin_access=True), name="monitor"), tenant)


# --- what is prepared -----------------------------------------------------------------------------


def test_a_claim_is_remembered_with_all_that_is_needed_later() -> None:
    claim = allocated_claim(result("gpu-0"), pods=["b", "a"])

    record = preparation(claim).record

    assert (claim.metadata.uid, "default", "claim-0") == (record.uid, record.namespace, record.name)
    assert State.STARTED is record.state
    assert ("a", "b") == record.pods
    assert {"gpu-0": device("gpu-0")} == record.devices


def test_devices_of_other_drivers_are_theirs() -> None:
    claim = allocated_claim(
        result("eth0", driver="nic.example.com", pool="nics"),
        result("gpu-0", request="gpu"),
        config=[configured_configuration(driver="nic.example.com", anything=1)],
    )

    preparation_ = preparation(claim)

    assert ["gpu-0"] == [device_.result.device for device_ in preparation_.devices]
    assert () == preparation_.record.config


def test_a_claim_that_is_prepared_is_not_compared_again() -> None:
    """Policies and devices may have changed since, and its containers run."""
    claim = allocated_claim(result("gpu-0"))
    never = policy(rule("never", "true", only="false"))

    preparation_ = preparation(claim, claim, node=node_state(device("gpu-0"), policies=[never]))

    assert State.COMPLETED is preparation_.record.state


def test_admin_access_is_possible_beside_everybody() -> None:
    tenant = allocated_claim(result("gpu-0"), name="tenant")
    monitor = allocated_claim(result("gpu-0", admin_access=True), name="monitor")

    preparation(monitor, tenant)
    preparation(tenant, monitor)


def test_shares_that_fit_are_prepared_together() -> None:
    tenant = allocated_claim(share("shared", "40Gi"), name="tenant")

    preparation(allocated_claim(share("shared", "40Gi")), tenant)


def test_an_allocation_for_nodes_with_a_label_is_for_this_one() -> None:
    preparation(allocated_claim(result("gpu-0"), node=None))


@pytest.mark.parametrize("requests", [(), ("gpu",), ("gpu/large",)], ids=["all", "parent", "own"])
def test_configuration_of_a_request_is_for_the_alternative_that_was_chosen(
    requests: tuple[str, ...],
) -> None:
    config = configured_configuration(*requests, sharing={"timeSlice": "Long"})

    (device_,) = preparation(
        allocated_claim(result("gpu-0", request="gpu/large"), config=[config])
    ).devices

    assert TimeSlice.LONG is device_.settings.time_slice


def test_configuration_of_other_requests_does_not_matter() -> None:
    config = configured_configuration("nic", "gpu/small", sharing={"timeSlice": "Long"})

    (device_,) = preparation(
        allocated_claim(result("gpu-0", request="gpu/large"), config=[config])
    ).devices

    assert device_.settings.time_slice is None


def test_configuration_of_other_requests_is_not_remembered() -> None:
    """Nobody has read its parameters, so they may be anything."""
    others = configured_configuration("nic", sharing=[[[[]]]])
    own = configured_configuration("gpu", "nic", sharing={"timeSlice": "Long"})

    record = preparation(
        allocated_claim(result("gpu-0", request="gpu/large"), config=[others, own])
    ).record

    assert (configured_configuration(sharing={"timeSlice": "Long"}),) == record.config


def test_a_claim_stays_prepared_whatever_an_older_driver_remembered_of_it() -> None:
    config = [configured_configuration("nic"), configured_configuration("gpu")]
    claim = allocated_claim(result("gpu-0", request="gpu"), config=config)

    assert State.COMPLETED is preparation(claim, claim).record.state


def test_the_claim_overrides_its_class() -> None:
    config = [configured_configuration(sharing={"timeSlice": time}) for time in ("Short", "Long")]

    (device_,) = preparation(allocated_claim(result("gpu-0"), config=config)).devices

    assert TimeSlice.LONG is device_.settings.time_slice


# --- what is refused ------------------------------------------------------------------------------


class Case(NamedTuple):
    name: str
    claim: ResourceClaim
    others: tuple[ResourceClaim, ...]
    reason: RefusalReason | Reason
    words: str
    node: NodeState = NODE


TENANT = allocated_claim(result("gpu-0"), name="tenant")
CASES = (
    Case("a claim without allocation", ResourceClaim(), (), RefusalReason.NOT_ALLOCATED, "not allocated"),
    Case("a claim for another node", allocated_claim(result("gpu-0"), node="node-2"), (), RefusalReason.OTHER_NODE, "another node than node-1"),
    Case("a claim without a device of the driver", allocated_claim(result("x", driver="other")), (), RefusalReason.NOT_ALLOCATED, "without a device of gpu.example.com"),
    Case("a device that does not exist", allocated_claim(result("gpu-9")), (), RefusalReason.UNKNOWN_DEVICE, "node-1/gpu-9 is not on this node"),
    Case("a pool that does not exist", allocated_claim(result("gpu-0", pool="node-2")), (), RefusalReason.UNKNOWN_DEVICE, "node-2/gpu-0 is not on this node"),
    Case("a name that would leave a folder", allocated_claim(result("../../etc")), (), RefusalReason.UNKNOWN_DEVICE, "not on this node"),
    Case("a share of a device that has none", allocated_claim(share("gpu-0")), (), Reason.ALLOCATED, "gpu-0: not shareable"),
    Case("a share of more than there is", allocated_claim(share("shared", "90Gi")), (), Reason.CAPACITY, "memory 80Gi (< 90Gi)"),
    Case("a device that a claim of the namespace has", allocated_claim(result("gpu-0")), (TENANT,), Reason.ALLOCATED, "gpu-0: in use (used by claim tenant)"),
    Case(
        "a device that a claim of another namespace has",
        allocated_claim(result("gpu-0")),
        (allocated_claim(result("gpu-0"), name="secret", namespace="other"),),
        Reason.ALLOCATED,
        "gpu-0: in use (used by 1 claim of other namespaces)",
    ),
    Case(
        "shares that are too much together",
        allocated_claim(share("shared", "50Gi")),
        (allocated_claim(share("shared", "50Gi"), name="tenant"),),
        Reason.CAPACITY,
        "memory 30Gi of 80Gi left (< 50Gi) (used by claim tenant)",
    ),
    Case(
        "parts of a card that is in use as a whole",
        allocated_claim(result("half-a")),
        (allocated_claim(result("whole"), name="tenant"),),
        Reason.COUNTERS,
        "half-a: ",
        PARTS,
    ),
    Case(
        "another time slice than that of who is there",
        allocated_claim(share("shared"), config=[configured_configuration(sharing={"timeSlice": "Long"})]),
        (allocated_claim(share("shared"), name="tenant", config=[configured_configuration(sharing={"timeSlice": "Short"})]),),
        Reason.CONFLICTING_SHARING_CONFIG,
        "a co-tenant with a conflicting DeviceConfig",
    ),
    Case(
        "an unknown kind of parameters",
        allocated_claim(result("gpu-0"), config=[configured_configuration(kind="GpuConfig")]),
        (),
        RefusalReason.CONFIGURATION,
        "allocation.devices.config[0].opaque.parameters is 'GpuConfig' of 'drawbridge.internal/v1alpha1', which this driver does not know; write DeviceConfig",
    ),
    Case(
        "parameters of a later version",
        allocated_claim(result("gpu-0"), config=[configured_configuration(apiVersion="drawbridge.internal/v9")]),
        (),
        RefusalReason.CONFIGURATION,
        "which this driver does not know",
    ),
    Case(
        "an unknown field of the parameters",
        allocated_claim(result("gpu-0"), config=[configured_configuration(sharing={"timeslice": "Long"})]),
        (),
        RefusalReason.CONFIGURATION,
        "parameters.sharing.timeslice is an unknown field; did you mean timeSlice?",
    ),
    Case(
        "an unknown value of the parameters",
        allocated_claim(result("gpu-0"), config=[configured_configuration(sharing={"timeSlice": "Forever"})]),
        (),
        RefusalReason.CONFIGURATION,
        "parameters.sharing.timeSlice Invalid enum value 'Forever'",
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refusal_says_why(case: Case) -> None:
    refusal_ = refusal(case.claim, *case.others, node=case.node)

    assert case.reason == refusal_.reason
    assert case.words in refusal_.message
    assert "secret" not in refusal_.message


def test_a_refusal_names_devices_that_are_contested_or_failing() -> None:
    """A fault in an allocation or in parameters brings no device into disrepute."""
    refusals = {case.name: refusal(case.claim, *case.others, node=case.node) for case in CASES}
    devices = {name: (refusal_.contested, refusal_.failing) for name, refusal_ in refusals.items()}

    assert (("gpu-0",), ()) == devices["a device that a claim of the namespace has"]
    assert (("half-a",), ()) == devices["parts of a card that is in use as a whole"]
    assert ((), ("shared",)) == devices["shares that are too much together"]
    assert ((), ()) == devices["an unknown field of the parameters"]
    assert ((), ()) == devices["a device that does not exist"]


def test_a_claim_whose_name_another_one_has_now_is_refused() -> None:
    preparation = prepare_claim(allocated_claim(result("gpu-0")), "another-uid", NODE, NOTHING)

    assert isinstance(preparation, Refusal)
    assert RefusalReason.CLAIM_GONE is preparation.reason


def test_a_claim_that_is_prepared_for_an_earlier_allocation_is_refused() -> None:
    refusal_ = refusal(allocated_claim(result("gpu-1")), allocated_claim(result("gpu-0")))

    assert RefusalReason.STILL_PREPARED is refusal_.reason


def test_a_policy_is_obeyed() -> None:
    mode = 'device.attributes["gpu.example.com"].mode'
    apart = policy(rule("whole", f'{mode} == "whole"', only=f'{mode} == "whole"'))
    node = node_state(
        *(device(mode_, attributes={"mode": mode_, "uuid": "1"}) for mode_ in ("whole", "part")),
        policies=[apart],
    )

    refusal_ = refusal(
        allocated_claim(result("part")), allocated_claim(result("whole"), name="a"), node=node
    )

    assert Reason.POLICY is refusal_.reason
    assert refusal_.message == (
        "part: is not accepted by device whole "
        "(rule whole of DeviceCompatibilityPolicy policy; used by claim a)"
    )


def test_a_device_that_has_vanished_still_counts() -> None:
    tenant = allocated_claim(result("whole"), name="tenant")
    checkpoint = prepared_checkpoint(
        tenant, devices=[device_.device for device_ in PARTS.inventory.devices()]
    )
    rest = node_state(
        device("half-a", consumes(memory="40Gi")), counters=[counter_set(memory="80Gi")]
    )
    claim = allocated_claim(result("half-a"))

    preparation = prepare_claim(claim, claim.metadata.uid, rest, checkpoint)

    assert isinstance(preparation, Refusal)
    assert Reason.COUNTERS is preparation.reason


def test_a_device_that_has_vanished_with_its_counters_is_in_nobodys_way() -> None:
    tenant = allocated_claim(result("whole"), name="tenant")
    checkpoint = prepared_checkpoint(
        tenant, devices=[device_.device for device_ in PARTS.inventory.devices()]
    )
    claim = allocated_claim(result("gpu-0"))

    preparation = prepare_claim(claim, claim.metadata.uid, node_state(device("gpu-0")), checkpoint)

    assert isinstance(preparation, Preparation)


# --- several claims of one call -------------------------------------------------------------------


def test_the_second_of_two_claims_of_a_call_is_refused() -> None:
    claims = {
        name: allocated_claim(results, name=name, uid=name)
        for name, results in (
            ("a", result("gpu-0")),
            ("b", result("gpu-0")),
            ("c", result("gpu-1")),
            ("d", share("shared", "50Gi")),
            ("e", share("shared", "50Gi")),
            ("f", share("shared", "30Gi")),
        )
    }

    outcomes = prepare_claims(claims, NODE, NOTHING)

    assert list(claims) == list(outcomes)
    refusals = {
        uid: outcome.message for uid, outcome in outcomes.items() if isinstance(outcome, Refusal)
    }
    assert {
        "b": "gpu-0: in use (used by claim a)",
        "e": "shared: has memory 30Gi of 80Gi left (< 50Gi) (used by claim d)",
    } == refusals


# --- claims as they come --------------------------------------------------------------------------


def test_a_claim_survives_the_way() -> None:
    claim = allocated_claim(share("shared"), config=[configured_configuration()])

    assert claim == read_claim(encode(claim))


@pytest.mark.parametrize(
    "parameters",
    [b"null", b"[]", b'"text"', b"1"],
    ids=["null", "a list", "a text", "a number"],
)
def test_parameters_that_are_no_object_are_refused(parameters: bytes) -> None:
    text = encode(allocated_claim(result("gpu-0"), config=[configured_configuration()]))
    parameters_of_ours = msgspec.json.encode(
        {"apiVersion": "drawbridge.internal/v1alpha1", "kind": "DeviceConfig"}
    )
    assert parameters_of_ours in text

    claim = read_claim(text.replace(parameters_of_ours, parameters))

    assert isinstance(claim, Refusal)
    assert RefusalReason.CLAIM_UNREADABLE is claim.reason
    assert "parameters" in claim.message


def test_parameters_that_are_nested_too_deeply_are_refused() -> None:
    deep = b'{"a":' * 4000 + b"1" + b"}" * 4000
    text = encode(allocated_claim(result("gpu-0"), config=[configured_configuration(sharing="?")]))

    claim = read_claim(text.replace(b'"?"', deep))

    assert isinstance(claim, ResourceClaim)
    assert RefusalReason.CONFIGURATION is refusal(claim).reason
