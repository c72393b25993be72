"""Quotas of other schedulers: read in place, and told to the namespaces that they limit."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from kube.api.urls import NAMESPACE_QUOTA_RESOURCES
from kube.manifests.dump import dump_yaml
from testing.builders import gpus, pod
from testing.command import drawbridge
from testing.documents import api_object
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of

QUOTAS: Final = NAMESPACE_QUOTA_RESOURCES["scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota"]
GPU: Final = "nvidia.com/gpu"
TEAM: Final = "ElasticQuota/team/gpus"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        for namespace in ("team", "other"):
            server.put(QUOTAS, _quota(namespace))
        yield server


def _quota(namespace: str, **annotations: str) -> dict[str, Any]:
    return api_object(
        "ElasticQuota", "gpus", namespace, annotations=annotations, spec={"max": {GPU: "4"}}
    )


async def checked(server: FakeApiServer, folder: Path) -> tuple[set[tuple[str, str]], str]:
    """Return code and object of the findings on a pod of namespace team, and the notes."""
    call = ("check", "-f", "-", "-o", "json", "--live", "--context", "here")
    kubeconfig = ("--kubeconfig", kubeconfig_of(server, folder))
    result = await asyncio.to_thread(
        drawbridge, *call, *kubeconfig, stdin=dump_yaml([pod(gpus(1))])
    )
    findings = json.loads(result.stdout)["findings"]
    return {(entry["code"], entry["object"]) for entry in findings}, result.stderr


async def test_check_lists_those_of_the_cluster(server: FakeApiServer, tmp_path: Path) -> None:
    findings, notes = await checked(server, tmp_path)

    told = {entry for entry in findings if entry[0] == "claimsNotSeen"}
    assert {("claimsNotSeen", TEAM), ("claimsNotSeen", "Pod/team/train")} == told
    assert "cannot be read" not in notes


async def test_one_of_another_namespace_may_limit_this_one(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.remove(QUOTAS, "gpus", namespace="team")
    annotations = {"quota.scheduling.koordinator.sh/namespaces": '["team"]'}
    server.put(QUOTAS, _quota("other", **annotations))

    findings, _ = await checked(server, tmp_path)

    assert ("claimsNotSeen", "ElasticQuota/other/gpus") in findings


async def test_whoever_may_read_one_namespace_only_is_told_of_it(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, times=9, matches=lambda call: call.path.endswith("v1alpha1/elasticquotas"))

    findings, _ = await checked(server, tmp_path)

    assert ("claimsNotSeen", TEAM) in findings


async def test_without_the_right_it_is_a_note(server: FakeApiServer, tmp_path: Path) -> None:
    server.fail(403, times=9, matches=lambda call: "/elasticquotas" in call.path)

    findings, notes = await checked(server, tmp_path)

    assert "claimsNotSeen" not in {code for code, _ in findings}
    assert "elasticquotas of namespace team cannot be read" in notes


async def test_a_cluster_without_such_kinds_needs_no_note(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """A user without the right is refused before the API server looks for the kind."""
    for namespace in ("team", "other"):
        server.remove(QUOTAS, "gpus", namespace=namespace)
    server.fail(403, times=9, matches=lambda call: "/gpuresourcequotas" in call.path)

    _, notes = await checked(server, tmp_path)

    assert "gpuresourcequotas" not in notes


def test_assess_tells_the_workloads_of_the_namespace(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    legacy = pod(gpus(1, mem=8000))
    legacy["metadata"]["namespace"] = "team"
    free = {**legacy, "metadata": {"name": "free", "namespace": "free"}}
    file.write_text(dump_yaml([_quota("team"), legacy, free]))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    codes = {
        workload["object"]: workload["codes"] for workload in json.loads(result.stdout)["workloads"]
    }
    assert "claimsNotSeen" in codes["Pod/team/train"]
    assert "claimsNotSeen" not in codes["Pod/free/free"]
