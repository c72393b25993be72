"""`drawbridge verify --before` with pods that would be rejected since something has changed after the plan."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import HAMI, hami_gpu
from testing.command import drawbridge
from testing.documents import namespace, node, resource_quota, resource_slice
from testing.migration import GPU, SHARE, daemon_set, device_quota, hami_node, workload
from testing.plan import call, document, failed_before, planned, waves

LABEL: Final = "drawbridge.internal/translate"
DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
HALF: Final = (
    node("hami-0", {}, {}, {}),
    resource_slice(hami_gpu(), driver=HAMI, node="hami-0", name="slice-0"),
    hami_node("hami-1"),
    DRIVER,
)
"""A switched node, and one of HAMi."""
WHOLE: Final = (hami_node("hami-0"), hami_node("hami-1"), DRIVER)
MEMORY: Final = "limits.nvidia.com/gpumem"
DEVICES: Final = f"{HAMI}.deviceclass.resource.k8s.io/devices"
WEB: Final = "Deployment/team/web"


def quota(hard: dict[str, str], name: str = "gpus", **spec: Any) -> dict[str, Any]:
    entry = resource_quota(hard)
    return {
        **entry,
        "metadata": {**entry["metadata"], "name": name},
        "spec": {"hard": hard, **spec},
    }


def early(*quotas: dict[str, Any]) -> list[dict[str, Any]]:
    """A cluster with pods that are opted in already, on a node that the first wave drains."""
    return [*HALF, namespace("team", {LABEL: "true"}), *quotas, *workload("web", SHARE, ["hami-1"])]


@pytest.mark.parametrize(
    "now",
    [
        [quota({f"requests.{GPU}": "5"}), quota({MEMORY: "100000"}, "memory")],
        [quota({f"requests.{GPU}": "5", MEMORY: "100000"})],
    ],
    ids=["a new quota", "a new line"],
)
def test_a_wave_drains_no_pods_that_a_line_without_a_conversion_rejects(
    tmp_path: Path, now: list[dict[str, Any]]
) -> None:
    """All was as expected, and the evicted pods came no more."""
    planned(tmp_path, early(quota({f"requests.{GPU}": "5"})))
    assert {} == failed_before(tmp_path, early(quota({f"requests.{GPU}": "5"})))

    failed = failed_before(tmp_path, early(*now))

    assert {WEB} == failed.keys()
    assert f"counts {MEMORY} by HAMi's scheduler" in failed[WEB]
    assert failed[WEB].startswith("with claims its pods would be rejected: ResourceQuota ")
    assert "(quotaNotCounted)" in failed[WEB]
    assert failed[WEB].endswith("; or plan again from a new snapshot")


def test_a_wave_drains_no_pods_that_a_quota_with_scopes_rejects(tmp_path: Path) -> None:
    planned(tmp_path, early())

    failed = failed_before(
        tmp_path, early(quota({f"requests.{GPU}": "5"}, scopes=["NotTerminating"]))
    )

    assert "ResourceQuota gpus counts" in failed[WEB]


@pytest.mark.parametrize(
    ("line", "broken"), [(MEMORY, WEB), (f"requests.{GPU}", "ResourceQuota/team/gpus")]
)
def test_a_wave_opts_no_namespace_in_whose_pods_would_be_rejected(
    tmp_path: Path, line: str, broken: str
) -> None:
    objects = [*WHOLE, namespace("team"), *workload("web", SHARE, ["hami-1"])]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    assert [(["hami-0"], ["team"]), (["hami-1"], [])] == waves(plan)
    assert {} == failed_before(tmp_path, objects)

    failed = failed_before(tmp_path, [*objects, quota({line: "100000"})])

    assert {broken} == failed.keys()
    assert "(quotaNotCounted)" in failed[broken]


def test_a_quota_beside_one_that_counts_the_devices_stops_no_wave(tmp_path: Path) -> None:
    """Any quota of a namespace is enough for the webhook."""
    own = quota({f"requests.{GPU}": "5"})
    planned(tmp_path, early(own))

    assert {} == failed_before(tmp_path, early(own, quota({f"requests.{GPU}": "9"}, "more")))

    planned(tmp_path, early())
    counting = quota({f"requests.{GPU}": "5", DEVICES: "5"})
    assert {} == failed_before(tmp_path, early(counting, quota({f"requests.{GPU}": "9"}, "more")))


def test_an_old_line_of_a_quota_beside_one_that_counts_the_devices_stops_no_wave(
    tmp_path: Path,
) -> None:
    planned(tmp_path, early())
    old = [quota({f"requests.{GPU}": "5"}), device_quota({"name": GPU})]
    assert ["ResourceQuota/team/gpus"] == [*failed_before(tmp_path, early(*old))]

    assert {} == failed_before(tmp_path, early(*old, quota({DEVICES: "5"}, "devices")))


def test_a_line_stops_no_wave_where_the_webhook_only_warns(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  quota: warn\n")
    assert call(tmp_path, early(), "--settings", settings).exit_code in (0, 1)
    assert document(tmp_path)["waves"]
    now = tmp_path / "now.yaml"
    now.write_text(dump_yaml(early(quota({f"requests.{GPU}": "5", MEMORY: "100000"}))))

    result = drawbridge(
        *("verify", "--snapshot", now, "--wave", tmp_path / "plan" / "wave-1", "--before"),
        *("--settings", settings, "-o", "json"),
    )

    checks = json.loads(result.stdout)["checks"]
    assert [] == [check for check in checks if check["state"] == "failed"]


FULL: Final = {GPU: "1", "nvidia.com/gpumem": "40000"}
"""A share that nothing fits beside."""


def in_parts(*quotas: dict[str, Any]) -> list[dict[str, Any]]:
    """A namespace that moves in parts, one workload with each wave."""
    shares = [workload(f"web-{number}", FULL, [f"hami-{number}"]) for number in (1, 2, 3)]
    nodes = [hami_node(f"hami-{number}", 1) for number in range(4)]
    return [*nodes, DRIVER, namespace("team"), *quotas, *(entry for own in shares for entry in own)]


def test_a_wave_moves_no_part_of_a_namespace_that_would_be_rejected(tmp_path: Path) -> None:
    """The namespace is not opted in as a whole, and the nodes of the wave are empty."""
    plan = planned(tmp_path, in_parts(), "--wave-nodes", 1)
    first = plan["waves"][0]
    assert (["hami-0"], [], ["Deployment/team/web-1"]) == (
        [node["name"] for node in first["nodes"]],
        first["namespaces"],
        [name for entry in first["partialNamespaces"] for name in entry["workloads"]],
    )
    assert {} == failed_before(tmp_path, in_parts())

    failed = failed_before(tmp_path, in_parts(quota({f"requests.{GPU}": "9"})))

    assert {"ResourceQuota/team/gpus"} == failed.keys()


def test_a_line_that_a_plan_takes_out_of_one_quota_stays_in_a_new_one(tmp_path: Path) -> None:
    old = [quota({f"requests.{GPU}": "9"}), device_quota({"name": GPU})]
    plan = planned(tmp_path, in_parts(*old), "--wave-nodes", 1)
    assert ["gpus"] == [entry["name"] for entry in plan["replacedLines"]]
    assert {} == failed_before(tmp_path, in_parts(*old))

    failed = failed_before(tmp_path, in_parts(*old, quota({f"requests.{GPU}": "9"}, "more")))

    assert {"ResourceQuota/team/more"} == failed.keys()
    assert f"take requests.{GPU} out" in failed["ResourceQuota/team/more"]
