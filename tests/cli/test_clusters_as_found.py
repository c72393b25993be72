"""Clusters as they are found are translated with no setting but the schedulers to adopt.

Each has the DeviceClasses and ResourceSlices of its drivers only, as they install them; its pods are
written for the legacy system, with the schedulerName that its webhook or its guides set.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.builders import (
    DRANET,
    HAMI,
    container,
    gpus,
    koordinator_annotations,
    koordinator_container,
    pod,
)
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document

ADOPTED: Final = {"hami-scheduler": "default-scheduler", "koord-scheduler": "default-scheduler"}
ACCELERATORS: Final = "accelerators/cluster.yaml"
JOINT: Final = koordinator_annotations(
    joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
)


class Cluster(NamedTuple):
    """A cluster and its pods.

    Attributes:
        state: The example that has its objects.
        drivers: Its drivers; objects of others are left out.
        pods: Name to a pod, each of which fits on the idle cluster.
        infos: Codes of findings that its pods may have: what the legacy system does otherwise.
    """

    state: str
    drivers: frozenset[str]
    scheduler: str
    pods: dict[str, Document]
    infos: frozenset[str] = frozenset()


CLUSTERS: Final = {
    "hami": Cluster(
        "cluster/cluster.yaml",
        frozenset({HAMI}),
        "hami-scheduler",
        {
            "whole": pod(gpus(1)),
            "share": pod(gpus(1, mem=3000, cores=30)),
            "memory-alone": pod(gpus(mem=3000)),
            "percentage": pod(gpus(1, pct=50)),
            "model": pod(gpus(1, mem=3000), annotations={"nvidia.com/use-gputype": "A100"}),
            "mutex": pod(gpus(1, mem=3000), annotations={"hami.io/gpu-scheduler-policy": "mutex"}),
            "init": pod(gpus(1, mem=1000), init=(gpus(1, mem=2000, name="first"),)),
        },
        frozenset({"uncappedCores", "wholeDevice", "initRaisesLimit"}),
    ),
    "koordinator": Cluster(
        "koordinator/cluster.yaml",
        frozenset({HAMI, DRANET}),
        "koord-scheduler",
        {
            "half": pod(koordinator_container(gpu=50)),
            "memory": pod(koordinator_container(core=30, memory="8Gi")),
            "whole": pod(koordinator_container(gpu=100)),
            "plugin": pod(koordinator_container(nvidia=1)),
            "joint": pod(koordinator_container(gpu=200, rdma=100), annotations=JOINT),
        },
        frozenset({"limitsEnforced"}),
    ),
    "amd": Cluster(
        ACCELERATORS,
        frozenset({"gpu.amd.com"}),
        "",
        {
            "whole": pod(container("main", {"amd.com/gpu": 2})),
            "partition": pod(container("main", {"amd.com/cpx_nps4": 1})),
        },
    ),
    "intel": Cluster(
        ACCELERATORS,
        frozenset({"gpu.intel.com", "gaudi.intel.com"}),
        "",
        {
            "i915": pod(container("main", {"gpu.intel.com/i915": 1})),
            "gaudi": pod(container("main", {"habana.ai/gaudi": 1})),
        },
    ),
}


def objects_of(cluster: Cluster) -> Iterable[Document]:
    """Yield the nodes of a cluster, and the classes and slices of its drivers."""
    for item in read_paths([str(EXAMPLES / cluster.state)]):
        document: Document = item.document
        match document["kind"]:
            case "ResourceSlice":
                is_own = document["spec"]["driver"] in cluster.drivers
            case "DeviceClass":
                is_own = any(f"'{driver}'" in json.dumps(document) for driver in cluster.drivers)
            case _:
                is_own = True
        if is_own:
            yield document


@pytest.fixture
def options(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Cluster, list[object]]:
    """A cluster, and the arguments that every command gets about it."""
    cluster = CLUSTERS[request.param]
    state, settings = tmp_path / "state.yaml", tmp_path / "settings.yaml"
    state.write_text(dump_yaml(objects_of(cluster)))
    settings.write_text(json.dumps({"translation": {"adoptSchedulers": ADOPTED}}))
    return cluster, ["--snapshot", state, "--settings", settings]


def manifests(cluster: Cluster) -> list[Document]:
    """The pods of a cluster with names, a namespace and their scheduler."""
    scheduler = {"schedulerName": cluster.scheduler} if cluster.scheduler else {}
    return [
        {
            **document,
            "metadata": {**document["metadata"], "name": name, "namespace": "team"},
            "spec": {**document["spec"], **scheduler},
        }
        for name, document in cluster.pods.items()
    ]


@pytest.mark.parametrize("options", CLUSTERS, indirect=True)
def test_every_pod_is_translated_to_devices_of_its_cluster(
    options: tuple[Cluster, list[object]],
) -> None:
    cluster, arguments = options

    result = drawbridge(
        *("translate", "-f", "-", *arguments, "-o", "json"), stdin=dump_yaml(manifests(cluster))
    )

    assert result.exit_code == 0, result.stdout
    answer = json.loads(result.stdout)
    assert {finding["code"] for finding in answer["findings"]} <= cluster.infos
    pods = [document for document in answer["objects"] if document["kind"] == "Pod"]
    assert {document["metadata"]["name"] for document in pods} == set(cluster.pods)
    for document in pods:
        assert document["spec"]["resourceClaims"]
        assert document["spec"].get("schedulerName") in (None, "default-scheduler")


@pytest.mark.parametrize("options", CLUSTERS, indirect=True)
def test_every_pod_gets_its_devices(options: tuple[Cluster, list[object]]) -> None:
    cluster, arguments = options

    for document in manifests(cluster):
        result = drawbridge("simulate", "-f", "-", *arguments, stdin=dump_yaml([document]))

        assert result.exit_code == 0, (document["metadata"]["name"], result.stdout)
