"""`--live`: the requests to an API server, and the results if some are forbidden."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from allocator.declarations.pod_group import PodGroup
from answers.model.snapshot_kinds import KINDS
from answers.model.unread import unread_notes
from answers.model.views import decode_object
from cli.__main__ import main
from cli.reading import live
from cli.reading.live import allocation_state, cluster_state
from cli.verbs.verify import command as verify_command
from kube.api.resource import ResourceClaim
from kube.api.urls import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    VOLCANO_POD_GROUPS,
)
from kube.errors import KubeError
from kube.manifests.dump import dump_yaml
from testing import fake_api_server
from testing.builders import NVIDIA, gpus, pod
from testing.command import drawbridge
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.slept_time import SleptTime
from testing.slice_cases import MIXED_LAYOUT


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.put(NAMESPACES, {"metadata": {"name": "team", "labels": {"a": "b"}}})
        server.put(
            DEVICE_CLASSES,
            {"metadata": {"name": NVIDIA}, "spec": {"extendedResourceName": "nvidia.com/gpu"}},
        )
        for namespace in ("team", "other"):
            server.put(RESOURCE_QUOTAS, {"metadata": {"name": "gpus", "namespace": namespace}})
        yield server


async def test_only_what_counts_is_read(server: FakeApiServer) -> None:
    async with server.client() as client:
        objects, unread = await cluster_state(client, {"team", "new"})

    assert unread == []
    assert [(entry.api_version, entry.kind, entry.namespace, entry.name) for entry in objects] == [
        ("resource.k8s.io/v1", "DeviceClass", "", NVIDIA),
        ("v1", "ResourceQuota", "team", "gpus"),
        ("v1", "Namespace", "", "team"),
    ]


async def test_with_a_quota_all_namespaces_are_read(server: FakeApiServer) -> None:
    """Claims of each namespace of a tenant count for the others."""
    limits = [{"name": "gpus", "driver": NVIDIA, "devices": {}, "max": "4"}]
    spec = {"namespaceSelector": {}, "limits": limits}
    server.put(DEVICE_QUOTAS, {"metadata": {"name": "team"}, "spec": spec})
    server.put(NAMESPACES, {"metadata": {"name": "other"}})

    async with server.client() as client:
        objects, unread = await cluster_state(client, {"team"})

    assert unread == []
    assert [entry.name for entry in objects if entry.kind == "DeviceQuota"] == ["team"]
    assert sorted(entry.name for entry in objects if entry.kind == "Namespace") == ["other", "team"]


async def test_what_may_not_be_read_is_noted(server: FakeApiServer) -> None:
    server.fail(403, times=2)

    async with server.client() as client:
        objects, unread = await cluster_state(client, {"team"})

    assert [entry.kind for entry in objects] == ["ResourceQuota", "Namespace"]
    assert [kind.resource for kind in unread] == ["deviceclasses", "resourceslices"]
    (note,) = unread_notes(unread)
    assert note.startswith("deviceclasses, resourceslices cannot be read, so the answer is as if")


async def test_allocation_depends_on_claims_and_pods_of_all_namespaces(
    server: FakeApiServer,
) -> None:
    for namespace in ("team", "other"):
        for resource in (PODS, RESOURCE_CLAIMS):
            server.put(resource, {"metadata": {"name": "a", "namespace": namespace}})

    async with server.client() as client:
        objects, unread = await allocation_state(client)

    assert unread == []
    assert sorted(f"{entry.kind}/{entry.namespace}/{entry.name}" for entry in objects) == [
        "Pod/other/a", "Pod/team/a", "ResourceClaim/other/a", "ResourceClaim/team/a"
    ]  # fmt: skip


async def test_pod_groups_of_every_scheduler_are_read(server: FakeApiServer) -> None:
    for resource in (POD_GROUPS, VOLCANO_POD_GROUPS):
        server.put(resource, {"metadata": {"name": "ring", "namespace": "team"}})

    async with server.client() as client:
        objects, _ = await allocation_state(client)

    groups = [entry.value for entry in objects if isinstance(entry.value, PodGroup)]
    assert [group.group for group in groups] == ["scheduling.k8s.io", "scheduling.volcano.sh"]


async def test_pod_groups_that_may_not_be_read_are_noted(server: FakeApiServer) -> None:
    server.put(POD_GROUPS, {"metadata": {"name": "ring", "namespace": "team"}})
    server.fail(403, times=2, matches=lambda call: "scheduling.k8s.io" in call.path)

    async with server.client() as client:
        _, unread = await allocation_state(client)

    assert [kind.resource for kind in unread] == ["priorityclasses", "podgroups"]


async def test_pod_groups_that_the_cluster_does_not_know_are_not_missed(
    server: FakeApiServer,
) -> None:
    """A user without the right is refused before the API server looks for the kind."""
    server.fail(403, times=9, matches=lambda call: call.path.endswith("/podgroups"))
    server.fail(404, times=9, matches=lambda call: "/apis/scheduling." in call.path)

    async with server.client() as client:
        _, unread = await allocation_state(client)

    assert unread == []


async def test_a_user_without_discovery_misses_what_schedulers_read_alone(
    server: FakeApiServer,
) -> None:
    """Nobody knows of their groups, so they are noted, and the rest is read."""
    server.put(PODS, {"metadata": {"name": "a", "namespace": "team"}})
    server.fail(403, times=9, matches=lambda call: "/apis/scheduling." in call.path)

    async with server.client() as client:
        objects, unread = await allocation_state(client)

    assert [entry.name for entry in objects] == ["a"]
    assert {kind.resource for kind in unread} == {"podgroups", "priorityclasses"}


@pytest.mark.parametrize("depth", [300, 800, 1500])
def test_parameters_deeper_than_python_reads_end_no_command(depth: int) -> None:
    """A user with the right to create claims can nest them; the API server takes ten thousand levels."""
    head = b'{"metadata":{"name":"deep"},"spec":{"devices":{"config":[{"opaque":{"driver":"a","parameters":'
    raw = head + b'{"a":' * depth + b"1" + b"}" * depth + b"}}]}}}"
    (listed,) = (listed for listed in live._ALLOCATION if listed.kind == "ResourceClaim")

    assert listed.view(raw).name == "deep"
    assert isinstance(decode_object(listed.object(raw), ResourceClaim), ResourceClaim)


async def test_a_cluster_that_does_not_answer_ends_the_call(server: FakeApiServer) -> None:
    server.fail(500)

    async with server.client() as client:
        with pytest.raises(KubeError):
            await cluster_state(client, {"team"})


async def translated(server: FakeApiServer, folder: Path, *options: str) -> tuple[int, Any, str]:
    kubeconfig = kubeconfig_of(server, folder)
    call = ("translate", "-f", "-", "-o", "json", "--live", "--kubeconfig", kubeconfig, *options)
    result = await asyncio.to_thread(drawbridge, *call, stdin=dump_yaml([pod(gpus(1))]))
    return result.exit_code, json.loads(result.stdout or "null"), result.stderr


@pytest.mark.parametrize(("want", "options"), [("team", ()), ("other", ("-n", "other"))])
async def test_live_looks_at_the_cluster_and_namespace_of_the_context(
    want: str, options: tuple[str, ...], server: FakeApiServer, tmp_path: Path
) -> None:
    code, answer_document, _ = await translated(server, tmp_path, "--context", "here", *options)

    (finding,) = answer_document["findings"]
    assert (0, "passedThrough", f"Pod/{want}/train") == (code, finding["code"], finding["object"])
    assert server.objects(RESOURCE_CLAIM_TEMPLATES) == []


@pytest.mark.parametrize(
    ("may_read", "want"), [(True, ["deviceClassMissing"]), (False, [])], ids=["read", "forbidden"]
)
async def test_a_cluster_without_any_class_lacks_them_where_that_could_be_read(
    may_read: bool, want: list[str], server: FakeApiServer, tmp_path: Path
) -> None:
    server.remove(DEVICE_CLASSES, NVIDIA)
    if not may_read:
        server.fail(403, matches=lambda call: call.path.endswith("/deviceclasses"))

    _, answer_document, _ = await translated(server, tmp_path, "--context", "here")

    assert [*want, "tolerationMissing"] == [
        finding["code"] for finding in answer_document["findings"]
    ]


async def test_the_settings_of_the_cluster_are_read(server: FakeApiServer, tmp_path: Path) -> None:
    server.remove(DEVICE_CLASSES, NVIDIA)
    metadata = {"name": "drawbridge-settings", "namespace": "drawbridge-system"}
    text = "translation: {profiles: {nvidia: gpu.example.com}}"
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"settings.yaml": text}})

    _, answer_document, _ = await translated(server, tmp_path, "--context", "here")

    assert "gpu.example.com" in json.dumps(answer_document["objects"])


async def test_settings_that_may_not_be_read_are_noted(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, matches=lambda call: "/configmaps/" in call.path)

    code, _, notes = await translated(server, tmp_path, "--context", "here")

    assert code == 0
    assert "note: the cluster's settings cannot be read, and defaults are used" in notes


async def imported(server: FakeApiServer, folder: Path) -> tuple[int, str, str]:
    call = ("settings", "import", "--live", "--kubeconfig", kubeconfig_of(server, folder))
    result = await asyncio.to_thread(drawbridge, *call, "--context", "here")
    return result.exit_code, result.stdout, result.stderr


async def test_settings_of_legacy_systems_are_read_in_every_namespace(
    server: FakeApiServer, tmp_path: Path
) -> None:
    metadata = {"name": "hami-scheduler-device", "namespace": "gpu-system"}
    text = "nvidia: {resourceCountName: nvidia.com/gpu, defaultCores: 5}"
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"device-config.yaml": text}})

    code, printed, _ = await imported(server, tmp_path)

    assert (0, True) == (code, "defaultCores: 5" in printed)


async def test_legacy_settings_that_may_not_be_read_are_a_wrong_call(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, matches=lambda call: call.path.endswith("/configmaps"))

    code, printed, why = await imported(server, tmp_path)

    assert (2, "", True) == (code, printed, "name them with -f PATH" in why)


async def test_a_cluster_that_is_not_there_is_a_wrong_call(
    server: FakeApiServer, tmp_path: Path
) -> None:
    code, answer_document, why = await translated(server, tmp_path)

    assert (code, answer_document) == (2, None)
    assert why.startswith("Error: ")
    assert len(why.splitlines()) == 1


async def test_where_a_claim_of_the_cluster_would_go(server: FakeApiServer, tmp_path: Path) -> None:
    result = {"request": "gpu", "driver": NVIDIA, "pool": "a", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "held", "namespace": "x"}, "status": status})
    request = {"name": "gpu", "exactly": {"deviceClassName": NVIDIA}}
    waits = {"metadata": {"name": "waits", "namespace": "team"}}
    server.put(RESOURCE_CLAIMS, waits | {"spec": {"devices": {"requests": [request]}}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA, "nodeName": "a", "pool": pool}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    server.put(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": {**spec, "devices": devices}})

    answer_document = await asyncio.to_thread(
        drawbridge,
        *("why", "claim", "waits", "-o", "json", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    (claim,) = json.loads(answer_document.stdout)["simulation"]["claims"]
    assert claim["allocation"]["devices"]["results"] == [{**result, "device": "gpu-1"}]


@pytest.mark.parametrize("adopted", ["", "translation: {adoptSchedulers: {volcano: volcano}}"])
async def test_a_pod_of_the_cluster_keeps_its_keys_for_a_scheduler_that_is_not_adopted(
    adopted: str, server: FakeApiServer, tmp_path: Path
) -> None:
    if adopted:
        metadata = {"name": "drawbridge-settings", "namespace": "drawbridge-system"}
        server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"settings.yaml": adopted}})
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20480"}
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    spec = {"schedulerName": "volcano", "containers": [container]}
    place = {"name": "waits", "namespace": "team"}
    server.put(PODS, {"metadata": place, "spec": spec, "status": {"phase": "Pending"}})

    answer_document = await asyncio.to_thread(
        drawbridge,
        *("why", "pod", "waits", "-o", "json", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    reason = json.loads(answer_document.stdout)["untranslated"]
    if adopted:
        assert reason is None
    else:
        assert reason.startswith('spec.schedulerName: not translated: "volcano" may not support')


async def test_who_uses_the_devices_of_the_cluster(server: FakeApiServer, tmp_path: Path) -> None:
    result = {"request": "gpu", "driver": NVIDIA, "pool": "a", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    server.put(RESOURCE_CLAIMS, {"metadata": {"name": "held", "namespace": "x"}, "status": status})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA, "nodeName": "a", "pool": pool, "devices": [{"name": "gpu-0"}]}
    server.put(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})
    server.fail(403, matches=lambda call: call.path.endswith("/pods"))

    answer_document = await asyncio.to_thread(
        drawbridge,
        *("top", "ns", "-o", "json", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    (namespace,) = json.loads(answer_document.stdout)["namespaces"]
    assert (namespace["name"], namespace["drivers"][0]["devices"]) == ("x", 1)
    assert "pods" in answer_document.stderr


@pytest.mark.parametrize("plural", ["resourceclaims", "resourceslices", "pods", "nodes"])
async def test_nothing_is_verified_without_what_it_depends_on(
    plural: str, server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, matches=lambda call: call.path.endswith(f"/{plural}"))

    result = await asyncio.to_thread(
        drawbridge,
        *("verify", "--live", "--context", "here", "--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"allocations cannot be verified without {plural}" in result.stderr


@pytest.mark.parametrize("refused", ["", "with the group", "without the group"])
async def test_a_node_of_koordinator_and_a_driver_fails_a_live_verification(
    refused: str, server: FakeApiServer, tmp_path: Path
) -> None:
    """Its Device objects were not read from a cluster, so `verify.sh` said that all was right."""
    server.put(NODES, {"metadata": {"name": "gpu-0"}, "status": {"allocatable": {"cpu": "8"}}})
    driver = "hami-core-gpu.project-hami.io"
    pool = {"name": "gpu-0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "gpu-0", "pool": pool, "devices": [{"name": "gpu-0"}]}
    server.put(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})
    card = {"type": "gpu", "id": "GPU-0", "resources": {"koordinator.sh/gpu-memory": "40Gi"}}
    server.put(KINDS["Device"], {"metadata": {"name": "gpu-0"}, "spec": {"devices": [card]}})
    group = "scheduling.koordinator.sh"
    if refused:
        server.fail(403, times=9, matches=lambda call: call.path.endswith("v1alpha1/devices"))
        status = 404 if refused == "without the group" else 403
        server.fail(status, times=9, matches=lambda call: call.path == f"/apis/{group}")

    result = await asyncio.to_thread(
        drawbridge,
        *("verify", "--live", "--context", "here", "--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    assert (0 if refused else 1) == result.exit_code, result.stderr
    assert ("Node/gpu-0: a legacy system" in result.stdout) is not bool(refused)
    assert ("devices cannot be read" in result.stderr) is (refused == "with the group")


async def test_a_write_that_is_refused_says_what_was_done_before(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, matches=lambda call: call.method == "POST")

    result = await asyncio.to_thread(
        drawbridge,
        *("bridge", "own", NVIDIA, "--apply", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Failed: create the fence. Done before it, and left as it is: nothing." in result.stderr


@pytest.mark.parametrize("action", ["own", "release"])
async def test_ownership_that_may_not_be_read_is_not_written_anew(
    action: str, server: FakeApiServer, tmp_path: Path
) -> None:
    """Drivers that are owned already would be released in silence."""
    server.fail(403, matches=lambda call: call.path.endswith("/allocatorownerships"))

    result = await asyncio.to_thread(
        drawbridge,
        *("bridge", action, NVIDIA, "--apply", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "the right to list allocatorownerships of drawbridge.internal is missing" in result.stderr
    )
    assert [call for call in server.calls if call.method != "GET"] == []


@pytest.mark.parametrize(
    ("version", "severity"), [("v1.34.4", "warning"), ("v1.37.1", "error"), (None, "error")]
)
async def test_slices_are_validated_as_the_api_server_of_the_cluster_would(
    version: str | None,
    severity: str,
    server: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Devices beside counters are accepted by 1.34 only; without a version the newest counts."""
    if version is None:
        server.fail(403, times=9, matches=lambda call: call.path == "/version")
    else:
        monkeypatch.setattr(fake_api_server, "VERSION", version)
    path = tmp_path / "slice.yaml"
    path.write_text(dump_yaml([MIXED_LAYOUT]))

    result = await asyncio.to_thread(
        drawbridge,
        *("check", "-f", path, "-o", "json", "--live", "--context", "here"),
        *("--kubeconfig", kubeconfig_of(server, tmp_path)),
    )

    assert (severity, "invalidSlice") in {
        (finding["severity"], finding["code"]) for finding in json.loads(result.stdout)["findings"]
    }


@pytest.mark.parametrize("kind", ["pod", "claim"])
async def test_nodes_that_may_not_be_read_are_not_nodes_that_are_not_there(
    kind: str, server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(403, times=2, matches=lambda call: call.path.endswith("/nodes"))
    request = {"name": "gpu", "exactly": {"deviceClassName": NVIDIA}}
    metadata = {"name": "waits", "namespace": "team"}
    server.put(
        RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    )
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "waits"}]}
    server.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    path = kubeconfig_of(server, tmp_path)
    call = ("why", kind, "waits", "--live", "--context", "here", "--kubeconfig", path)

    result = await asyncio.to_thread(drawbridge, *call)
    text = " ".join(result.stdout.split())

    assert result.exit_code == 0
    assert "cannot be told, since nodes cannot be read" in text
    assert "the right to list nodes of the cluster is missing" in text
    assert "has no nodes" not in text

    document = json.loads((await asyncio.to_thread(drawbridge, *call, "-o", "json")).stdout)

    assert (["nodes"], None) == (document["unreadable"], document["event"])


KUBECONFIG = "the kubeconfig of the test"


class Called(NamedTuple):
    """A call, by its program name, and True if the cluster is read."""

    program: str
    options: tuple[str, ...]
    has_kubeconfig: bool
    is_read: bool


CALLED = (
    Called("kubectl drawbridge", ("--kubeconfig", KUBECONFIG, "--context", "here"), True, True),
    Called("kubectl drawbridge", ("--offline",), True, False),
    Called("kubectl drawbridge", ("--snapshot", "-"), True, False),
    Called("kubectl drawbridge", (), False, False),
    Called("drawbridge", (), True, False),
)


@pytest.mark.parametrize("case", CALLED, ids=lambda case: f"{case.program} {case.options[:1]}")
async def test_a_plugin_of_kubectl_reads_the_cluster_of_the_context(
    case: Called, server: FakeApiServer, tmp_path: Path
) -> None:
    path = kubeconfig_of(server, tmp_path) if case.has_kubeconfig else tmp_path / "absent"
    arguments = [str(path) if option == KUBECONFIG else option for option in case.options]
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(dump_yaml([pod(gpus(1))]))

    result = await asyncio.to_thread(
        CliRunner().invoke,
        main,
        ["translate", "-f", str(manifest), "-o", "json", *arguments],
        env={"KUBECONFIG": str(path)},
        prog_name=case.program,
        catch_exceptions=False,
    )

    assert result.exit_code == 0, result.stderr
    codes = [finding["code"] for finding in json.loads(result.stdout)["findings"]]
    assert case.is_read == ("passedThrough" in codes)
    assert case.has_kubeconfig == ("there is no kubeconfig" not in result.stderr)


def test_a_plugin_of_kubectl_names_the_kubeconfig_that_is_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main,
        ["inventory"],
        env={"KUBECONFIG": str(tmp_path / "absent")},
        prog_name="kubectl drawbridge",
    )

    assert result.exit_code == 2
    assert "There is no kubeconfig" in result.stderr


def test_offline_and_live_contradict_each_other() -> None:
    result = drawbridge("translate", "-f", "-", "--offline", "--live")

    assert result.exit_code == 2
    assert "--offline excludes --live" in result.stderr


async def test_a_check_that_waits_says_what_for_and_outlives_an_error(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_command, "time", SleptTime())
    server.put(NODES, {"metadata": {"name": "a"}, "status": {"allocatable": {}}})
    server.fail(500, times=1, matches=lambda call: call.path.endswith("/nodes"))
    call = (
        "verify",
        "--live",
        "--kubeconfig",
        kubeconfig_of(server, tmp_path),
        "--context",
        "here",
    )

    result = await asyncio.to_thread(drawbridge, *call, "--node", "a", "--wait", "3s")

    assert 1 == result.exit_code, result.stderr
    cluster, node = result.stderr.splitlines()
    assert cluster.startswith("waiting for the cluster: ")
    assert node.startswith("waiting for 1 of 1 check, first Node/a: 0 of 1 devices are published")
