"""The devices of reserved pods of a group: as planned while that holds, else as of a pod by itself."""

from msgspec.structs import replace

from kube.api.resource import ResourceClaim
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.groups.placing import place_member
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.placement import Placement, with_allocation
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    claim,
    device,
    device_class,
    match,
    node,
    request,
    slice_of,
)
from testing.device_quotas import device_limit, quota
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import snapshot

SMALL, PAIR = member("small", "small"), member("pair", "pair")


def rooted(*claims: ResourceClaim, **fields: object) -> Snapshot:
    """A node with two GPUs under root a, and one under root b."""
    published = [device(f"gpu-{root}", attributes={"root": root[0]}) for root in ("aa", "ab", "b")]
    return snapshot(
        *claims,
        nodes=[node("node-1")],
        slices=[slice_of(*published, pool="node-1", node="node-1")],
        **fields,  # type: ignore[arg-type]
    )


def claims() -> list[ResourceClaim]:
    aligned = (match(f"{DRIVER}/root"),)
    return [
        claim(request(), name="small"),
        claim(request(count=2), name="pair", constraints=aligned),
    ]


def planned(world: Snapshot) -> Places:
    outcome = decide(group_request(SMALL, PAIR), world, Attempt())
    assert isinstance(outcome, Places)
    return outcome


def devices_of(placement: Placement | Rejection) -> list[str]:
    assert isinstance(placement, Placement), placement
    return [
        result.device
        for _, allocation in placement.allocations
        for result in allocation.devices.results or ()
    ]


def with_placement(world: Snapshot, placement: Placement | Rejection) -> Snapshot:
    """The cluster after a placement."""
    assert isinstance(placement, Placement)
    by_name = dict(world.claims)
    for open_claim, result in placement.allocations:
        allocated = with_allocation(open_claim, result)
        by_name["default", open_claim.metadata.name] = allocated
        world.cluster.allocate(allocated)
    return replace(world, claims=by_name)


def test_each_pod_gets_the_devices_of_the_plan() -> None:
    world = rooted(*claims())
    places = planned(world)

    small = place_member(SMALL, "node-1", world, places)
    assert devices_of(small) == ["gpu-b"]
    pair = place_member(PAIR, "node-1", with_placement(world, small), places)
    assert devices_of(pair) == ["gpu-aa", "gpu-ab"]


def test_a_pod_without_a_plan_is_placed_by_itself() -> None:
    world = rooted(*claims())

    assert devices_of(place_member(SMALL, "node-1", world, None)) == ["gpu-aa"]
    assert devices_of(place_member(SMALL, "node-1", world, Places())) == ["gpu-aa"]


def test_devices_that_are_gone_are_replaced_by_others() -> None:
    world = rooted(*claims(), claim(request(), name="other"))
    places = planned(world)
    other = place_member(member("other", "other"), "node-1", world, None)
    assert devices_of(other) == ["gpu-aa"]
    world = with_placement(world, other)

    assert devices_of(place_member(SMALL, "node-1", world, places)) == ["gpu-b"]
    rejection = place_member(PAIR, "node-1", world, places)
    assert isinstance(rejection, Rejection)
    assert rejection.code is Code.NO_DEVICES


def test_a_claim_that_was_created_again_is_not_the_planned_one() -> None:
    world = rooted(*claims())
    places = planned(world)
    small = world.claims["default", "small"]
    again = replace(small, metadata=replace(small.metadata, uid="another"))

    world = replace(world, claims={**world.claims, ("default", "small"): again})

    assert devices_of(place_member(SMALL, "node-1", world, places)) == ["gpu-aa"]


def test_a_claim_that_requests_something_else_is_searched_anew() -> None:
    world = rooted(*claims())
    places = planned(world)
    small = world.claims["default", "small"]
    changed = replace(small, spec=claim(request(count=2)).spec)

    world = replace(world, claims={**world.claims, ("default", "small"): changed})

    assert devices_of(place_member(SMALL, "node-1", world, places)) == ["gpu-aa", "gpu-ab"]


def test_a_quota_that_others_used_up_meanwhile_counts() -> None:
    world = rooted(*claims(), quotas=[quota(device_limit(3))])
    places = planned(world)
    lowered = rooted(*claims(), quotas=[quota(device_limit(1))])

    assert devices_of(place_member(SMALL, "node-1", lowered, places)) == ["gpu-b"]
    rejection = place_member(PAIR, "node-1", lowered, places)
    assert isinstance(rejection, Rejection)
    assert rejection.code is Code.EXCEEDS_DEVICE_QUOTA


def test_a_driver_that_is_given_up_meanwhile_counts() -> None:
    world = rooted(*claims())
    places = planned(world)
    released = replace(world, drivers=frozenset({"nic.example.com"}))

    rejection = place_member(SMALL, "node-1", released, places)

    assert isinstance(rejection, Rejection)
    assert rejection.code is Code.DRIVER_NOT_OWNED


def test_a_device_that_is_published_no_more_is_not_given() -> None:
    places = planned(rooted(*claims()))
    rest = [device("gpu-aa", attributes={"root": "a"}), device("gpu-ab", attributes={"root": "a"})]
    world = snapshot(
        *claims(),
        nodes=[node("node-1")],
        slices=[slice_of(*rest, pool="node-1", node="node-1")],
        classes=[device_class()],
    )

    assert devices_of(place_member(SMALL, "node-1", world, places)) == ["gpu-aa"]
