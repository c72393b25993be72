"""`drawbridge plan`: pods of streams, as of Flink, do not end by themselves."""

from pathlib import Path

from testing.documents import namespace
from testing.migration import GPU, plugin_node, workload
from testing.plan import planned


def test_a_task_manager_of_flink_is_not_said_to_end(tmp_path: Path) -> None:
    """It has restartPolicy Never, and the words said that it runs to its end; a stream has none."""
    deployment, pod = workload("stream", {GPU: "1"}, ["gpu-0"])
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "stream", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    pod["spec"]["restartPolicy"] = "Never"
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]

    plan = planned(tmp_path, [*nodes, namespace("team"), deployment, pod])

    (work,) = [entry for wave in plan["waves"] for entry in wave["work"]]
    text = str(work)
    assert "runs to its end" not in text
    assert "that of a stream never ends by itself" in text
