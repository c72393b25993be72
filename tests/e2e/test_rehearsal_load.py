"""The pods that a rehearsal counts."""

from typing import Any

from e2e.rehearsal_load import without_vendors
from testing.migration import daemon_set


def pod(name: str, kind: str, owner: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "ownerReferences": [{"kind": kind, "name": owner}],
        }
    }


def test_pods_of_device_plugins_do_not_count() -> None:
    """A cluster of 8 nodes had 8 pods more than its plan."""
    agents = [pod("plugin-0", "DaemonSet", "plugin"), pod("agent-0", "DaemonSet", "agent")]
    replica = pod("web-0", "ReplicaSet", "plugin")
    bare = {"metadata": {"name": "bare", "namespace": "kube-system"}}

    counted = without_vendors([*agents, replica, bare], [daemon_set("plugin")])

    assert ["agent-0", "web-0", "bare"] == [entry["metadata"]["name"] for entry in counted]
