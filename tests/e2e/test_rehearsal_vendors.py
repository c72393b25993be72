"""The stand-in for HAMi of a rehearsal: the annotations of a node that its plugin leaves, and comes back to."""

from typing import Any, Final

from e2e.rehearsal_vendors import RehearsedVendors
from migration.rehearsal.model import RehearsalInput, RehearsedNode
from testing.migration import GPU, hami_node

HANDSHAKE: Final = "hami.io/node-handshake"
REGISTER: Final = "hami.io/node-nvidia-register"
LABEL: Final = {"gpu": "off"}


class HamiCluster:
    """A cluster with one node, and the changes of its annotations."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node = node

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return [self.node] if kind == "nodes" else []

    def request(self, method: str, path: str, body: Any, **_: Any) -> tuple[int, bytes]:
        if (method, path) == ("PATCH", "/api/v1/nodes/hami-0"):
            self.node["metadata"]["annotations"] |= body["metadata"]["annotations"]
        return 200, b""

    @property
    def annotations(self) -> dict[str, str]:
        annotations: dict[str, str] = self.node["metadata"]["annotations"]
        return annotations


def vendors_of(cluster: Any, node: dict[str, Any]) -> RehearsedVendors:
    rehearsed = RehearsedNode(document=node, labels=LABEL, resources={GPU: "20"})
    rehearsal = RehearsalInput(objects=(), nodes=(rehearsed,), workloads=(), places={}, waves=())
    return RehearsedVendors(cluster, rehearsal)


def switch(vendors: RehearsedVendors, cluster: HamiCluster, label: str) -> None:
    cluster.node["metadata"]["labels"]["gpu"] = label
    vendors._turn()


def test_a_node_that_the_plugin_leaves_is_marked_and_registered_again_when_it_is_back() -> None:
    """`switch.sh` waits for the mark, and deletes the register."""
    before = hami_node("hami-0")
    before["metadata"]["annotations"][HANDSHAKE] = "Deleted_2026-11-01 10:00:00"
    cluster = HamiCluster(hami_node("hami-0"))
    cluster.annotations[HANDSHAKE] = before["metadata"]["annotations"][HANDSHAKE]
    vendors = vendors_of(cluster, before)

    switch(vendors, cluster, "off")

    mark = cluster.annotations[HANDSHAKE]
    assert mark.startswith("Deleted_2")
    assert mark != before["metadata"]["annotations"][HANDSHAKE]
    del cluster.annotations[REGISTER]
    switch(vendors, cluster, "on")
    assert cluster.annotations[HANDSHAKE].startswith("Requesting_")
    assert before["metadata"]["annotations"][REGISTER] == cluster.annotations[REGISTER]


def test_a_node_without_a_handshake_is_marked() -> None:
    """HAMi 2.8 asks no plugin, and `switch.sh` waits 20 seconds on each such node without a mark."""
    cluster = HamiCluster(hami_node("hami-0"))
    vendors = vendors_of(cluster, hami_node("hami-0"))

    switch(vendors, cluster, "off")

    assert cluster.annotations[HANDSHAKE].startswith("Deleted_2")
    del cluster.annotations[REGISTER]
    switch(vendors, cluster, "on")
    assert cluster.annotations[HANDSHAKE].startswith("Deleted_2")
    assert hami_node("hami-0")["metadata"]["annotations"][REGISTER] == cluster.annotations[REGISTER]


def test_a_node_that_hami_has_not_registered_gets_no_mark() -> None:
    node = hami_node("hami-0")
    del node["metadata"]["annotations"][REGISTER]
    cluster = HamiCluster(node)
    vendors = vendors_of(cluster, hami_node("hami-0") | {"metadata": {"name": "hami-0"}})

    switch(vendors, cluster, "off")

    assert {} == cluster.annotations
