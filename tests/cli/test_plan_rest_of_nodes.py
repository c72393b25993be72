"""`drawbridge plan`: nodes without a wave for some of their pods, and with devices for others by device keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace, resource_quota
from testing.migration import SHARE, hami_node, workload
from testing.plan import Objects, held_objects, planned, waves

_CLAIMS: Final = "count/resourceclaims.resource.k8s.io"
_BOUND: Final = {"type": "Container", "max": {"memory": "8Gi"}}
_LIMIT_RANGE: Final = api_object("LimitRange", "main", "team", spec={"limits": [_BOUND]})


def pods(memory: str = "1Gi", **spec: Any) -> Objects:
    """A workload with a pod on the node that is held, and one of another namespace on the node beside it."""
    own = workload("web", SHARE, ["hami-0"], **spec)
    for entry in own:
        container = entry["spec"].get("template", entry)["spec"]["containers"][0]
        container["resources"]["limits"]["memory"] = memory
    return [*own, *workload("chat", SHARE, ["hami-1"] * 2, namespace="lab")]


@pytest.mark.parametrize(
    "objects",
    [
        [*pods("16Gi"), _LIMIT_RANGE],
        [*pods(), resource_quota({_CLAIMS: "0"})],
        pods(nodeSelector={"gpu": "on"}),
    ],
    ids=["a LimitRange", "a ResourceQuota", "a label that the switch changes"],
)
def test_a_node_that_is_held_for_some_pods_takes_others_with_device_keys(
    tmp_path: Path, objects: list[Mapping[str, Any]]
) -> None:
    """It counted as full, so the node beside it was held for pods that have room there."""
    nodes = [hami_node(name, 8) for name in ("hami-0", "hami-1")]
    namespaces = [namespace("team"), namespace("lab")]

    plan = planned(tmp_path, [*nodes, *namespaces, *objects], "--spare-nodes", 0)

    assert ["hami-1"] == [name for names, _ in waves(plan) for name in names]
    assert {"Deployment/team/web", "Node//hami-0", "Namespace//team"} == held_objects(plan).keys()
    assert plan["waves"][0]["freeForKeys"]["before"] > 8
