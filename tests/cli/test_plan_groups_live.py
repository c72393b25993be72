"""The kinds that `drawbridge verify --before` reads of a live cluster: all that decide on the pods of a group."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from answers.model.snapshot_kinds import CUSTOM_KINDS, KINDS
from cli.verbs.verify.command import WORK_KINDS
from kube.manifests.source import SourceObject
from migration.plan.facts.work import read_work
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.migration import WHOLE, plugin_node, ray_cluster, workload
from testing.plan import Objects, planned

POD: Final = "Pod/team/a-0"


def owned_pod(kind: str, group: str) -> dict[str, Any]:
    """A pod on the first node, with a controller of another project."""
    (pod,) = workload("a", WHOLE, ["gpu-0"], kind=kind)[1:]
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = f"{group}/v1"
    return pod


def of_ray(creator: str) -> Objects:
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    pod = owned_pod("RayCluster", "ray.io")
    return [*nodes, namespace("team"), pod, ray_cluster("a", creator)]


def put(server: FakeApiServer, document: Mapping[str, Any]) -> None:
    kind = document["kind"]
    resource = KINDS[kind] if kind in KINDS else CUSTOM_KINDS[f"{kind}.ray.io"][0]
    server.put(resource, dict(document))


async def states(
    server: FakeApiServer, folder: Path, *flags: object
) -> dict[str, tuple[str, str, int]]:
    """Object to state, message and exit status of the checks of a live cluster."""
    cluster = ("--live", "--kubeconfig", kubeconfig_of(server, folder), "--context", "here")
    result = await asyncio.to_thread(drawbridge, "verify", *cluster, *flags, "-o", "json")
    checks = json.loads(result.stdout)["checks"]
    return {
        check["object"]: (check["state"], check["message"], result.exit_code) for check in checks
    }


@pytest.mark.parametrize(
    ("creator", "state", "verb"),
    [
        ("RayService", "ok", "it is evicted"),
        ("RayJob", "waiting", "switch.sh waits for it"),
        ("RayCronJob", "failed", "switch.sh asks about it"),
    ],
)
async def test_scripts_ask_about_pods_of_ray_as_the_plan_says(
    tmp_path: Path, creator: str, state: str, verb: str
) -> None:
    """No RayCluster was read, so switch.sh asked about pods that the plan evicts, and did not wait for those that end."""
    objects = of_ray(creator)
    plan = planned(tmp_path, objects)
    (number,) = [
        wave["wave"] for wave in plan["waves"] for node in wave["nodes"] if node["name"] == "gpu-0"
    ]
    folder = tmp_path / "plan" / f"wave-{number}"
    async with FakeApiServer() as server:
        for document in objects:
            put(server, document)
        of_node = await states(server, tmp_path, "--node=gpu-0", "--before")
        of_wave = await states(server, tmp_path, "--wave", folder, "--before")
        calls = len(server.calls)
        await states(server, tmp_path, "--wave", folder, "--node=gpu-0", "--before")
        paths = [call.path for call in server.calls[calls:]]

    ((name, (own_state, _, status)),) = of_node.items()
    assert ("Node//gpu-0" if state == "ok" else POD, state) == (name, own_state)
    assert status == (state != "ok")
    assert ("note", True) == (of_wave[POD][0], of_wave[POD][1].startswith(verb))
    assert "/apis/ray.io/v1/rayclusters" in paths


@pytest.mark.parametrize(
    ("switch", "never_ends"),
    [
        ({"shutdownAfterJobFinishes": True}, False),
        ({"shutdownAfterJobFinishes": False}, True),
        ({}, True),
    ],
)
def test_pods_that_a_ray_job_leaves_behind_never_end(
    switch: Mapping[str, bool], never_ends: bool
) -> None:
    """The plan took their devices for free after the RayJob, and scripts waited for pods that KubeRay keeps by default."""
    job = api_object("RayJob", "a", "team", api_version="ray.io/v1", spec=switch)
    documents = [*of_ray("RayJob"), job]
    objects = [SourceObject(document=dict(entry), source="test", line=0) for entry in documents]

    ((item,),) = read_work(objects, "team").values()

    assert (True, never_ends) == (item.waits, item.never_ends)
    assert "RayJob.ray.io" in WORK_KINDS


def test_every_kind_that_decides_on_pods_of_a_group_is_read_before_a_drain() -> None:
    """The kinds that a plan goes by, and those that a script asks with, were two lists."""
    documents: list[dict[str, Any]] = []
    for name, (resource, *_) in CUSTOM_KINDS.items():
        kind = name.partition(".")[0]
        for number, creator in enumerate(map(str, CUSTOM_KINDS)):
            own = f"{resource.plural}-{number}"
            owner = {"kind": creator.partition(".")[0], "name": own, "controller": True}
            owner["apiVersion"] = f"{creator.partition('.')[2]}/v1"
            version = f"{resource.group}/{resource.version}"
            made = api_object(kind, own, "team", api_version=version, ownerReferences=[owner])
            pod = owned_pod(kind, resource.group)
            pod["metadata"]["name"] = f"{own}-pod"
            pod["metadata"]["ownerReferences"][0]["name"] = own
            documents += [made, pod]
    objects = [SourceObject(document=entry, source="test", line=0) for entry in documents]
    kinds = {kind.partition(".")[0] for kind in WORK_KINDS}
    read = [source for source in objects if source.kind in kinds]

    assert len(read) < len(objects)
    assert read_work(objects, "team") == read_work(read, "team")
