"""A cluster first forgets the partition and the ranking that was not used for the longest time.

A question is used twice, with another one in between, so that the one that came first is not the one
that was used first.
"""

import pytest

from allocator.cluster.cluster import Cluster
from allocator.cluster.ranking import Limits, RankedNodes
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import ResourceSlice
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    devices,
    node,
    request,
    result,
    slice_of,
)

NODES = ("n1", "n2", "n3")
USED = "abac"
"""Questions in the order in which they are asked."""
NO_COST = Limits(nodes=0, searches=0, steps=0)


def new_cluster() -> Cluster:
    return Cluster(
        slices=[slice_of(*devices("gpu-0", "gpu-1", "gpu-2"), pool=name) for name in NODES],
        nodes=[node(name) for name in NODES],
        claims=(),
        classes=classes(),
        options=AllocatorOptions(),
    )


def rank_by_selector(cluster: Cluster, name: str, limits: Limits | None = None) -> RankedNodes:
    """Ask with a selector of the question's own, so that it has a partition of its own."""
    text = f'device.driver == "{DRIVER}" && "{name}" != ""'
    return cluster.rank_nodes(cluster.resolve([claim(request("r", text))]), limits=limits)


def rank_by_count(cluster: Cluster, name: str) -> RankedNodes:
    """Ask for a number of devices, so that the question has a ranking of its own."""
    count = 1 + "abc".index(name)
    return cluster.rank_nodes(cluster.resolve([claim(request(count=count))]))


def test_the_partition_that_was_not_used_for_the_longest_time_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allocator.cluster.cluster.MAX_PARTITIONS", 2)

    def is_cached(name: str) -> bool:
        """Return True if the nodes are in classes; it costs nothing then."""
        cluster = new_cluster()
        for used_name in USED:
            rank_by_selector(cluster, used_name)
        return rank_by_selector(cluster, name, NO_COST).is_known

    assert ["a", "c"] == list(filter(is_cached, "abc"))


def test_the_ranking_that_was_not_used_for_the_longest_time_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allocator.cluster.cluster.MAX_RANKINGS", 2)

    def is_cached(name: str) -> bool:
        """Return True if no verdict about a class has to be looked up."""
        cluster = new_cluster()
        for used_name in USED:
            rank_by_count(cluster, used_name)
        before = cluster.costs.cached
        rank_by_count(cluster, name)
        return cluster.costs.cached == before

    assert ["a", "c"] == list(filter(is_cached, "abc"))


def test_verdicts_are_dropped_once_as_many_nodes_have_other_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They keep the devices that were searched."""
    monkeypatch.setattr("allocator.cluster.cluster.MIN_REPLACED", 4)
    cluster = new_cluster()
    pending = cluster.resolve([claim(request())])
    cluster.rank_nodes(pending)
    few, many = slice_of(device("gpu-0"), pool="n1"), slice_of(*devices(*"abcd"), pool="n1")

    def searches_of(slice_: ResourceSlice) -> int:
        before = cluster.costs.searched
        cluster.replace_slices([(few, slice_)])
        cluster.rank_nodes(pending)
        return cluster.costs.searched - before

    searches = [searches_of(slice_) for slice_ in (few, many) * 3]

    assert searches == [1, 1, 0, 0, 1, 1]


def test_a_ranking_that_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change leaves keys in it, so that it would grow for ever."""
    monkeypatch.setattr("allocator.cluster.verdict_cache.MIN_OUTDATED", 3)
    cluster = new_cluster()
    asked, other = (cluster.resolve([claim(request(count=count))]) for count in (1, 2))
    cluster.rank_nodes(other)
    (partition,) = cluster._partitions.values()

    def lags() -> list[int]:
        cluster.rank_nodes(asked)
        return [ranking.lag for ranking in partition.rankings.values()]

    assert len(lags()) == 2
    for number, name in enumerate(NODES):
        cluster.allocate(allocated_claim(result(f"gpu-{number}", pool=name), name=name))
        assert max(lags()) <= 3
    assert lags() == [0]
    assert [name for name, _ in cluster.rank_nodes(other).nodes] == list(NODES)
