"""The cost of a change of a pool that many nodes see; that answers are right is a law.

See tests/property/test_shared_pool_laws.py.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.interned_keys import InternedKeys
from allocator.cluster.inventory import Inventory
from allocator.model.requests import PendingClaims
from allocator.model.usage import gather_usage
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    match,
    node,
    request,
    result,
    slice_of,
)

NIC: Final = "nic.example.com"
DOMAIN: Final = "fabric.example.com/domain"
NAMES: Final = tuple(f"n{number}" for number in range(20))
GPU_SELECTOR: Final = f'device.driver == "{DRIVER}"'
NIC_SELECTOR: Final = f'device.driver == "{NIC}"'
GPU: Final = claim(request("gpu", GPU_SELECTOR))
NETWORK: Final = claim(request("nic", NIC_SELECTOR))
BOTH: Final = claim(request("gpu", GPU_SELECTOR), request("nic", NIC_SELECTOR))
IN_ONE_DOMAIN: Final = claim(
    request("gpu", GPU_SELECTOR), request("nic", NIC_SELECTOR), constraints=[match(DOMAIN)]
)


def new_cluster(claims: Sequence[ResourceClaim] = ()) -> Cluster:
    """Return nodes with two devices each, and two devices for all nodes; one of each per domain."""
    slices = [
        slice_of(
            *(device(f"gpu-{number}", attributes={DOMAIN: number}) for number in range(2)),
            pool=name,
        )
        for name in NAMES
    ]
    network = [device(f"nic-{number}", attributes={DOMAIN: number}) for number in range(2)]
    return Cluster(
        slices=[*slices, slice_of(*network, driver=NIC, pool="network", all_nodes=True)],
        nodes=[node(name) for name in NAMES],
        claims=claims,
        classes=classes(),
        options=AllocatorOptions(),
    )


def gpu_in_use(name: str, number: int = 0) -> ResourceClaim:
    return allocated_claim(result(f"gpu-{number}", pool=name), name=f"{name}-{number}")


def nic_in_use(number: int = 0) -> ResourceClaim:
    return allocated_claim(
        result(f"nic-{number}", driver=NIC, pool="network"), name=f"nic-{number}"
    )


def verdicts_needed(cluster: Cluster, pending: PendingClaims) -> tuple[int, int]:
    """Return the numbers of verdicts that an answer looks up, and that it searches."""
    cached, searched = cluster.costs.cached, cluster.costs.searched
    cluster.rank_nodes(pending)
    return cluster.costs.cached - cached, cluster.costs.searched - searched


def ranked(cluster: Cluster, claim_: ResourceClaim) -> list[str]:
    return [name for name, _ in cluster.rank_nodes(cluster.resolve([claim_])).nodes]


def test_an_allocation_in_a_shared_pool_costs_nothing_for_claims_that_do_not_select_it() -> None:
    cluster = new_cluster()
    pending = cluster.resolve([GPU])
    cluster.rank_nodes(pending)

    cluster.allocate(nic_in_use())

    assert (0, 0) == verdicts_needed(cluster, pending)


def test_an_allocation_on_a_node_costs_nothing_for_claims_that_select_other_devices() -> None:
    cluster = new_cluster()
    pending = cluster.resolve([NETWORK])
    cluster.rank_nodes(pending)

    cluster.allocate(gpu_in_use("n1"))

    assert (0, 0) == verdicts_needed(cluster, pending)


def test_an_allocation_in_a_shared_pool_costs_one_search_for_all_nodes() -> None:
    cluster = new_cluster([gpu_in_use("n1"), gpu_in_use("n2", 1)])
    pending = cluster.resolve([NETWORK])
    cluster.rank_nodes(pending)

    cluster.allocate(nic_in_use())

    assert (0, 1) == verdicts_needed(cluster, pending)
    assert sorted(NAMES) == ranked(cluster, NETWORK)


def test_nodes_with_as_many_free_devices_share_the_search_after_a_change_of_a_shared_pool() -> None:
    """Three states of the nodes; two of them have one free device."""
    cluster = new_cluster([gpu_in_use("n1"), gpu_in_use("n2", 1)])
    pending = cluster.resolve([BOTH])
    cluster.rank_nodes(pending)

    cluster.allocate(nic_in_use())

    assert (1, 2) == verdicts_needed(cluster, pending)


def test_devices_of_a_node_and_of_a_shared_pool_are_compared() -> None:
    """One free device on either node; only one of them is in the domain of the shared one."""
    cluster = new_cluster([gpu_in_use("n1"), gpu_in_use("n2", 1), nic_in_use(1)])

    assert sorted(set(NAMES) - {"n1"}) == ranked(cluster, IN_ONE_DOMAIN)


def test_a_shared_pool_that_is_replaced_is_seen() -> None:
    cluster = new_cluster([nic_in_use(0), nic_in_use(1)])
    assert [] == ranked(cluster, NETWORK)
    old = slice_of(
        *(device(f"nic-{number}", attributes={DOMAIN: number}) for number in range(2)),
        driver=NIC,
        pool="network",
        all_nodes=True,
    )
    further = slice_of(
        *(device(f"nic-{number}", attributes={DOMAIN: number}) for number in range(3)),
        driver=NIC,
        pool="network",
        all_nodes=True,
    )

    cluster.replace_slices([(old, further)])
    assert sorted(NAMES) == ranked(cluster, NETWORK)

    cluster.replace_slices([(further, None)])
    assert [] == ranked(cluster, NETWORK)


@pytest.mark.parametrize("count", [2, 1], ids=["incomplete", "complete"])
def test_a_release_in_a_shared_pool_concerns_no_single_node(count: int) -> None:
    held_claim = nic_in_use()
    published = slice_of(device("nic-0"), driver=NIC, pool="network", all_nodes=True, count=count)
    features = AllocatorOptions().features
    inventory = Inventory(
        slices=[published],
        nodes=[node(name) for name in NAMES],
        usage=gather_usage([held_claim], features),
        options=AllocatorOptions(),
        keys=InternedKeys(max_keys=100, max_bytes=10_000),
    )

    change = inventory.change_usage(held_claim, gather_usage((), features))

    assert (not change.nodes, len(change.shared_pools)) == (True, 1)
