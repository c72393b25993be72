"""`drawbridge bridge` on files: the writes that give a driver to the bridge, and their effect."""

import asyncio
import json
import subprocess
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from msgspec.structs import replace

from admission.fence import OPEN_PATCH, fence_documents, part_patch
from answers.cluster.bridge import bridge_status, plan_change
from answers.cluster.fence_steps import Step
from answers.model.bridge import BridgeObjects
from answers.model.cluster_state import ClusterState, build_state
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from kube.client.client import PatchType
from kube.errors import Invalid
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from kube.names import SCHEDULER_NAME
from testing.command import drawbridge
from testing.documents import Document, api_object
from testing.fake_api_server import FakeApiServer
from testing.simulated_cluster import DRIVER, node, slice_of

OTHER = "other.example.com"


def device_class(name: str, *drivers: str) -> Document:
    texts = " || ".join(f"device.driver == '{driver}'" for driver in drivers)
    return api_object("DeviceClass", name, spec={"selectors": [{"cel": {"expression": texts}}]})


def claim(name: str, device_class: str, *, driver: str = "") -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    result = {"request": "gpu", "driver": driver, "pool": "node-a", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}} if driver else {}
    return api_object(
        "ResourceClaim", name, "team", spec={"devices": {"requests": [request]}}, status=status
    )


def pod(name: str, claim: str, *, owner: str = "", **spec: Any) -> Document:
    references = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u", "controller": True}]  # fmt: skip
    return api_object(
        "Pod",
        name,
        "team",
        ownerReferences=references if owner else [],
        spec={
            "containers": [{"name": "main"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            **spec,
        },
    )


def ownership(*drivers: str) -> Document:
    return api_object(
        "AllocatorOwnership", "default", spec={"drivers": [{"name": driver} for driver in drivers]}
    )


def reporting(document: Document, reason: str, message: str) -> Document:
    """Return an ownership with a report of the bridge that it allocates nothing."""
    condition = {"type": "Serving", "status": "False", "reason": reason, "message": message}
    return {**document, "status": {"conditions": [condition]}}


CLUSTER = (
    node("node-a"),
    slice_of("node-a"),
    device_class("gpu", DRIVER),
    device_class("other", OTHER),
    device_class("both", DRIVER, OTHER),
    claim("waiting", "gpu"),
    claim("held", "gpu", driver=DRIVER),
    claim("elsewhere", "other"),
    pod("bare", "waiting"),
    pod("replica", "waiting", owner="web"),
    pod("bound", "waiting", nodeName="node-a"),
    pod("foreign", "elsewhere"),
    pod("uses-held", "held"),
)


def state(*documents: Document) -> ClusterState:
    sources = [SourceObject(document=document, source="test", line=0) for document in documents]
    views, _ = decode_objects(sources, STATE_KINDS, "default")
    return build_state(views)


def bridge(*words: str, documents: tuple[Document, ...] = CLUSTER) -> Result:
    return drawbridge("bridge", *words, "--snapshot", "-", stdin=dump_yaml(documents))


def stored(*drivers: str) -> BridgeObjects:
    fence, *_ = fence_documents(drivers)
    return BridgeObjects(is_read=True, has_ownership=True, fence=fence)


def kinds(steps: tuple[Step, ...]) -> list[str]:
    return [step.resource or "pause" for step in steps]


def test_to_own_the_fence_stands_before_anybody_allocates() -> None:
    plan = plan_change(state(*CLUSTER), stored(), added_drivers=[DRIVER])

    assert ["validatingadmissionpolicies", "pause", "allocatorownerships"] == kinds(plan.steps)
    assert ((DRIVER,), (DRIVER,), ()) == (plan.drivers, plan.added, plan.removed)


def test_to_release_nobody_allocates_before_the_fence_opens() -> None:
    plan = plan_change(state(*CLUSTER, ownership(DRIVER)), stored(DRIVER), removed_drivers=[DRIVER])

    assert ["allocatorownerships", "pause", "validatingadmissionpolicies"] == kinds(plan.steps)
    assert ((), (), (DRIVER,)) == (plan.drivers, plan.added, plan.removed)
    assert all(step.operations for step in plan.steps if step.resource)


@pytest.mark.parametrize("owned", [(), ("third.example.com",)])
def test_a_driver_that_only_the_fence_lists_is_released(owned: tuple[str, ...]) -> None:
    """Its ownership was deleted with its kind, or a release ended before the fence was changed."""
    objects = replace(stored(*owned, DRIVER, OTHER), has_ownership=bool(owned))
    routed = pod("routed", "waiting", schedulerName=SCHEDULER_NAME)
    documents = (*CLUSTER, routed, *([ownership(*owned)] if owned else ()))

    plan = plan_change(state(*documents), objects, removed_drivers=[OTHER])

    # What publishes devices, and nothing owns, goes back as well: the fence has the owned drivers alone.
    assert plan.removed == (DRIVER, OTHER)
    assert kinds(plan.steps) == ["pause", "validatingadmissionpolicies"]
    fence, *_ = fence_documents(owned)
    assert plan.steps[1].operations[-1]["value"] == fence["spec"]
    assert [waiting.name for waiting in plan.pending_pods] == ["routed"]


def test_of_two_drivers_the_ownership_loses_the_one_that_it_has() -> None:
    plan = plan_change(
        state(*CLUSTER, ownership(DRIVER)), stored(DRIVER, OTHER), removed_drivers=[DRIVER, OTHER]
    )

    assert plan.removed == (DRIVER, OTHER)
    assert kinds(plan.steps) == ["allocatorownerships", "pause", "validatingadmissionpolicies"]


def test_settings_of_drivers_stay_as_they_are() -> None:
    stored_ownership = ownership(DRIVER)
    pools = ({"name": "a", "nodeSelector": {}, "maxConsumersPerNode": 0},)
    settings = {"capacityWeights": {"memory": 2}, "maxConsumersPerNode": 8, "pools": pools}
    stored_ownership["spec"]["drivers"][0] |= settings

    plan = plan_change(state(*CLUSTER, stored_ownership), stored(DRIVER), added_drivers=[OTHER])

    (operations,) = [
        step.operations for step in plan.steps if step.resource == "allocatorownerships"
    ]
    drivers = [{"name": DRIVER, **settings}, {"name": OTHER}]
    assert operations == ({"op": "add", "path": "/spec/drivers", "value": drivers},)


def changed(document: Document, generation: int) -> Document:
    """Return an object with another generation, as after changes of its spec."""
    return {**document, "metadata": {**document["metadata"], "generation": generation}}


@pytest.mark.parametrize(("words", "drivers"), [(("own", OTHER), 2), (("release", DRIVER), 0)])
@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_change_of_the_drivers_in_between_is_not_lost(
    is_changed: bool, words: tuple[str, ...], drivers: int, tmp_path: Path
) -> None:
    """The steps were printed; then the bridge reports, and somebody may have set a limit of a driver."""
    fence, *parts = fence_documents([DRIVER])
    async with FakeApiServer() as server:
        server.put(VALIDATING_ADMISSION_POLICIES, changed(dict(fence), 7))
        for part in parts:
            server.put(FENCE_RESOURCES[part["kind"]], dict(part))
        server.put(ALLOCATOR_OWNERSHIPS, changed(ownership(DRIVER), 3))
        printed = await call(server, tmp_path, *words, "-o", "json")
        stored_ownership = reporting(changed(ownership(DRIVER), 3), "NotReady", "a new status")
        if is_changed:
            stored_ownership = changed(stored_ownership, 4)
            stored_ownership["spec"]["drivers"][0]["maxConsumersPerDevice"] = 2
            server.put(VALIDATING_ADMISSION_POLICIES, changed(dict(fence), 8))
        server.put(ALLOCATOR_OWNERSHIPS, stored_ownership)

        rejections = []
        async with server.client() as client:
            for step in json.loads(printed.stdout)["steps"]:
                if step["resource"]:
                    resource = RESOURCES[step["resource"]]
                    patch = (resource, step["name"], step["operations"], PatchType.JSON)
                    try:
                        await client.patch(*patch, dict[str, Any])
                    except Invalid:
                        rejections.append(step["name"])

        now_stored = server.find(ALLOCATOR_OWNERSHIPS, "default")
        assert now_stored is not None
        assert len(rejections) == (2 if is_changed else 0)
        if is_changed:
            assert now_stored["spec"] == stored_ownership["spec"]
        assert len(now_stored["spec"]["drivers"]) == (1 if is_changed else drivers)


async def test_a_change_while_the_steps_are_made_asks_for_another_call(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        for document in fence_documents([DRIVER]):
            server.put(FENCE_RESOURCES[document["kind"]], dict(document))
        server.put(ALLOCATOR_OWNERSHIPS, changed(ownership(DRIVER), 3))
        server.fail(422, matches=lambda call: call.method == "PATCH")

        result = await call(server, tmp_path, "release", DRIVER, "--apply")

        assert result.exit_code == 2
        assert "default may have changed since it was read: run the command again" in result.stderr
        patched = [call.path for call in server.calls if call.method == "PATCH"]
        assert [path.rpartition("/")[2] for path in patched] == ["default"]


@pytest.mark.parametrize(("status", "calls"), [(0, ["create", "create"]), (1, ["create"])])
async def test_no_step_of_the_first_script_is_made_after_one_that_failed(
    status: int, calls: list[str], tmp_path: Path
) -> None:
    async with FakeApiServer() as server:
        script = (await call(server, tmp_path, "own", DRIVER)).stdout

    assert calls == calls_of(script, status, tmp_path)


@pytest.mark.parametrize(("status", "calls"), [(0, ["patch", "patch"]), (1, ["patch"])])
def test_no_step_of_the_script_is_made_after_one_that_failed(
    status: int, calls: list[str], tmp_path: Path
) -> None:
    script = bridge("own", DRIVER, documents=CLUSTER[:4]).stdout

    assert calls == calls_of(script, status, tmp_path)


def calls_of(script: str, status: int, folder: Path) -> list[str]:
    """Return the verbs of the calls of a kubectl with this exit status."""
    for name, text in (("kubectl", f"echo $1 >> calls; exit {status}"), ("sleep", "true")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o700)
    subprocess.run(["sh", "-uc", f"PATH={folder}:$PATH\n{script}"], cwd=folder, check=False)
    return (folder / "calls").read_text().split()


FENCE_PARTS = tuple(
    f"{document['kind']}/{document['metadata']['name']}" for document in fence_documents(())
)
FENCE_RESOURCES = {
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": VALIDATING_ADMISSION_POLICY_BINDINGS,
}
RESOURCES = {
    resource.plural: resource for resource in (ALLOCATOR_OWNERSHIPS, *FENCE_RESOURCES.values())
}
EMPTY = BridgeObjects(is_read=True, missing_parts=FENCE_PARTS[1:])
"""A cluster without a fence and an ownership."""


def test_what_does_not_exist_is_created_and_what_is_current_is_left() -> None:
    fence, _, created = plan_change(state(*CLUSTER), EMPTY, added_drivers=[DRIVER]).steps

    assert ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] * 2 == [
        document["kind"] for document in fence.documents
    ]
    assert ["AllocatorOwnership"] == [document["kind"] for document in created.documents]
    again = plan_change(state(*CLUSTER, ownership(DRIVER)), stored(DRIVER), added_drivers=[DRIVER])
    assert again.steps == ()


def test_the_fence_of_an_owned_driver_is_repaired() -> None:
    plan = plan_change(state(*CLUSTER, ownership(DRIVER)), stored(), added_drivers=[DRIVER])

    assert "validatingadmissionpolicies" in kinds(plan.steps)


@pytest.mark.parametrize("part", FENCE_PARTS[1:])
def test_a_missing_part_of_the_fence_is_created(part: str) -> None:
    objects = replace(stored(DRIVER), missing_parts=(part,))

    plan = plan_change(state(*CLUSTER, ownership(DRIVER)), objects, added_drivers=[DRIVER])

    created, *others = plan.steps
    (document,) = created.documents
    assert f"{document['kind']}/{document['metadata']['name']}" == part
    assert not any(step.documents for step in others)


def outdated(part: str) -> Document:
    """Return a part of the fence as the API server stores it, written by an earlier version."""
    (document,) = [
        document
        for document in map(deepcopy, fence_documents(()))
        if f"{document['kind']}/{document['metadata']['name']}" == part
    ]
    if "validations" in document["spec"]:
        document["spec"]["validations"][0]["expression"] = "false"
        document["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = "*"
    else:
        document["spec"]["validationActions"] = ["Warn"]
    return dict(document)


@pytest.mark.parametrize("part", FENCE_PARTS[1:])
def test_a_part_of_the_fence_with_the_text_of_an_earlier_version_is_brought_up_to_date(
    part: str,
) -> None:
    objects = replace(stored(DRIVER), holder="a", parts={part: outdated(part)})
    owned = state(*CLUSTER[:4], ownership(DRIVER))

    steps = plan_change(owned, objects, added_drivers=[DRIVER]).steps
    status = bridge_status(owned, objects)

    kind, _, name = part.partition("/")
    (step,) = [step for step in steps if step.title == f"bring {part} up to date"]
    (document,) = [
        document
        for document in fence_documents(())
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    ]
    assert step.patch == part_patch(document)
    assert step.command.startswith(f"kubectl patch {kind.lower()} {name} --type=merge -p ")
    assert (status.fence, [part in problem for problem in status.problems]) == ("different", [True])
    current = replace(objects, parts={part: document})
    assert plan_change(owned, current, added_drivers=[DRIVER]).steps == ()


def test_a_list_of_drivers_as_an_earlier_version_wrote_it_is_brought_up_to_date() -> None:
    """It had a name of an owned driver in lower case only."""
    fence, *_ = fence_documents([DRIVER])
    text = json.dumps(fence)
    assert ".lowerAscii()" in text
    earlier_fence = json.loads(text.replace(".lowerAscii()", ""))
    objects = replace(stored(DRIVER), holder="a", fence=earlier_fence)
    owned = state(*CLUSTER[:4], ownership(DRIVER))

    steps = plan_change(owned, objects, added_drivers=[DRIVER]).steps
    status = bridge_status(owned, objects)

    assert "validatingadmissionpolicies" == kinds(steps)[0]
    fence, *_ = fence_documents([DRIVER])
    assert steps[0].operations == ({"op": "replace", "path": "/spec", "value": fence["spec"]},)
    (problem,) = status.problems
    assert (status.fence, "this version of drawbridge" in problem) == ("different", True)


@pytest.mark.parametrize(
    ("part", "restriction"),
    [
        (FENCE_PARTS[1], {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        (FENCE_PARTS[1], {"paramRef": {"name": "other", "parameterNotFoundAction": "Allow"}}),
        (FENCE_PARTS[3], {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        *(
            (part, {"matchConstraints": {"excludeResourceRules": [{"resources": ["*"]}]}})
            for part in (FENCE_PARTS[0], FENCE_PARTS[2])
        ),
        (FENCE_PARTS[0], {"matchConstraints": {"matchPolicy": "Exact"}}),
        *(
            (part, {"matchConstraints": {field: {"matchLabels": {"a": "b"}}}})
            for part in (FENCE_PARTS[0], FENCE_PARTS[2])
            for field in ("namespaceSelector", "objectSelector")
        ),
    ],
)
@pytest.mark.usefixtures("settled")
async def test_own_takes_back_what_leaves_writes_out(
    part: str, restriction: Document, tmp_path: Path
) -> None:
    documents = dict(zip(FENCE_PARTS, fence_documents([DRIVER]), strict=True))
    whole_spec = documents[part]["spec"]
    restricted_spec = whole_spec | {
        field: whole_spec.get(field, {}) | value for field, value in restriction.items()
    }
    async with FakeApiServer() as server:
        for document in documents.values():
            server.put(FENCE_RESOURCES[document["kind"]], dict(document))
        resource = FENCE_RESOURCES[documents[part]["kind"]]
        server.put(resource, {**documents[part], "spec": restricted_spec})
        server.put(ALLOCATOR_OWNERSHIPS, ownership(DRIVER))

        applied = await call(server, tmp_path, "own", DRIVER, "--apply")
        again = await call(server, tmp_path, "own", DRIVER, "--apply")

        assert applied.exit_code == 0, applied.stderr
        stored_part = server.find(resource, documents[part]["metadata"]["name"])
        assert stored_part is not None
        assert stored_part["spec"] == whole_spec
        assert "# Nothing has to be changed." in again.stdout


@pytest.mark.usefixtures("settled")
async def test_own_writes_the_text_of_every_part_of_the_fence(tmp_path: Path) -> None:
    """With --apply only; before that, the commands are printed."""
    async with FakeApiServer() as server:
        for document in fence_documents([DRIVER]):
            part = f"{document['kind']}/{document['metadata']['name']}"
            is_holder_policy = part == FENCE_PARTS[2]
            server.put(
                FENCE_RESOURCES[document["kind"]],
                outdated(part) if is_holder_policy else dict(document),
            )
        server.put(ALLOCATOR_OWNERSHIPS, ownership(DRIVER))

        printed = await call(server, tmp_path, "own", DRIVER, "--dry-run")
        before = [call.path for call in server.calls if call.method != "GET"]
        applied = await call(server, tmp_path, "own", DRIVER, "--apply")
        again = await call(server, tmp_path, "own", DRIVER, "--apply")

        assert f"# bring {FENCE_PARTS[2]} up to date" in printed.stdout
        assert before == []
        assert applied.exit_code == 0, applied.stderr
        assert f"# bring {FENCE_PARTS[2]} up to date (done)" in applied.stdout
        assert "# Nothing has to be changed." in again.stdout


def test_without_its_definition_the_ownership_cannot_be_written() -> None:
    objects = replace(EMPTY, is_ownership_served=False, holder="a")

    (warning,) = plan_change(state(*CLUSTER), objects, added_drivers=[DRIVER]).warnings

    assert "kubectl apply -f manifests/base/allocatorownerships.yaml" in warning


def test_pods_that_wait_for_the_other_scheduler_are_listed() -> None:
    plan = plan_change(state(*CLUSTER), stored(), added_drivers=[DRIVER])

    assert {("bare", ""), ("replica", "ReplicaSet/web")} == {
        (waiting.name, waiting.controller) for waiting in plan.pending_pods
    }
    assert ("team/held",) == plan.kept_claims
    (mixed,) = plan.mixed_classes
    assert ("both", (DRIVER,), (OTHER,)) == (mixed.name, mixed.owned, mixed.others)


def test_after_a_release_pods_of_the_bridge_are_listed() -> None:
    routed = pod("routed", "waiting", schedulerName=SCHEDULER_NAME)
    plan = plan_change(
        state(*CLUSTER, routed, ownership(DRIVER)), stored(DRIVER), removed_drivers=[DRIVER]
    )

    assert [("routed", SCHEDULER_NAME)] == [
        (waiting.name, waiting.scheduler) for waiting in plan.pending_pods
    ]


def test_after_a_release_pods_of_the_bridge_with_allocated_claims_are_listed() -> None:
    """Should the claim be freed before they are bound, the bridge could not allocate it again."""
    sharing = pod("sharing", "held", schedulerName=SCHEDULER_NAME)
    documents = (*CLUSTER, sharing, ownership(DRIVER, OTHER))

    released, of_other = (
        plan_change(state(*documents), stored(DRIVER, OTHER), removed_drivers=[driver])
        for driver in (DRIVER, OTHER)
    )

    assert ["sharing"] == [waiting.name for waiting in released.pending_pods]
    assert not of_other.pending_pods


def test_the_text_is_a_script() -> None:
    result = bridge("own", DRIVER)

    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert {"#", "kubectl", "sleep"} == {line.split()[0] for line in lines}
    assert "kubectl delete pod replica -n team  # ReplicaSet/web creates it again" in lines
    assert any(line.startswith("# kubectl delete pod bare -n team") for line in lines)
    assert "fence" in result.stderr


def test_the_json_has_every_write() -> None:
    plan = json.loads(bridge("own", DRIVER, "-o", "json").stdout)

    assert [DRIVER] == plan["drivers"]
    assert all(step["command"] for step in plan["steps"])
    assert "allocatorownership default" in plan["steps"][2]["command"]


def test_several_drivers_are_released_one_by_one() -> None:
    plan = json.loads(
        bridge(
            "release", OTHER, "-o", "json", documents=(*CLUSTER, ownership(DRIVER, OTHER))
        ).stdout
    )

    assert ([DRIVER], [OTHER]) == (plan["drivers"], plan["removed"])
    assert OTHER not in plan["steps"][2]["command"]
    assert DRIVER in plan["steps"][2]["command"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("own",), "Which drivers?"),
        (("status", DRIVER), "status takes neither"),
        (("own", DRIVER, "--apply"), "a snapshot is none"),
        (("own", DRIVER, "--apply", "--dry-run"), "mutually exclusive"),
        (("own", "Not A Driver\x1b[2J"), "is not the name of a driver"),
        (("own", 'x"] || true || ["'), "is not the name of a driver"),
        (("own", "a" * 64), "is not the name of a driver"),
    ],
)
def test_a_wrong_call_ends_with_2(words: tuple[str, ...], expected: str) -> None:
    result = bridge(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("words", "owned", "expected"),
    [
        (("release", DRIVER), (), f"the bridge does not own {DRIVER}; it owns no driver"),
        (("release", DRIVER + "m"), (DRIVER,),
         f"the bridge does not own {DRIVER}m, did you mean {DRIVER}? It owns {DRIVER}"),
        (("release", "xq", DRIVER), (DRIVER, OTHER),
         f"the bridge does not own xq; it owns {', '.join(sorted((DRIVER, OTHER)))}"),
        (("own", *(f"d{number}" for number in range(65))), (),
         "the bridge owns at most 64 drivers, and it would own 65"),
    ],
    ids=["nothing is owned", "a slip of the pen", "one of two", "too many"],
)  # fmt: skip
def test_what_the_cluster_refuses_is_one_line_without_usage(
    words: tuple[str, ...], owned: tuple[str, ...], expected: str
) -> None:
    result = bridge(*words, documents=(*CLUSTER, ownership(*owned)))

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {expected}\n" in result.stderr
    assert "Usage:" not in result.stderr


@pytest.mark.parametrize(
    ("name", "documents", "objects", "problem"),
    [
        ("nothing is owned and nothing is there", CLUSTER, BridgeObjects(is_read=True), ""),
        ("a driver without a fence", (*CLUSTER[:4], ownership(DRIVER)),
         BridgeObjects(is_read=True, has_ownership=True, holder="a"), "there is no Validating"),
        ("the fence of another driver", (*CLUSTER[:4], ownership(DRIVER)), stored(OTHER), "as this version of drawbridge writes it for the owned drivers"),
        ("a driver that only the fence lists", CLUSTER[:4], replace(stored(DRIVER), has_ownership=False),
         f"the fence lists {DRIVER}, which the bridge does not own, so nobody may allocate the devices: `drawbridge bridge release {DRIVER}` gives"),
        ("no leader", (*CLUSTER[:4], ownership(DRIVER)), stored(DRIVER), "no bridge holds the Lease"),
        ("a leader that is gone", (*CLUSTER[:4], ownership(DRIVER)),
         replace(stored(DRIVER), holder="a", renewed="2026-01-01T00:00:00.000000Z", lease_duration_s=15,
                 read_at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC)), "a has not renewed the Lease"),
        ("a fence that is open", (*CLUSTER[:4], ownership(DRIVER)),
         replace(stored(DRIVER), holder="a", fence=OPEN_PATCH), f"`drawbridge bridge own {DRIVER}` closes it"),
        ("an open fence of nobody", CLUSTER[:4], replace(stored(), fence=OPEN_PATCH), ""),
        ("a policy without its binding", (*CLUSTER[:4], ownership(DRIVER)),
         replace(stored(DRIVER), holder="a", missing_parts=("ValidatingAdmissionPolicyBinding/drawbridge-fence",)),
         "the fence lacks ValidatingAdmissionPolicyBinding/drawbridge-fence"),
        ("a leader that is not ready",
         (*CLUSTER[:4], reporting(ownership(DRIVER), "NotReady", "feature gates differ")),
         replace(stored(DRIVER), holder="a"), "allocates nothing (NotReady): feature gates differ"),
        ("a mixed class", (*CLUSTER, ownership(DRIVER)), stored(DRIVER), "pods with it are rejected"),
    ],
)  # fmt: skip
def test_status_says_what_is_wrong(
    name: str, documents: tuple[Document, ...], objects: BridgeObjects, problem: str
) -> None:
    status = bridge_status(state(*documents), objects)

    assert bool(status.problems) == bool(problem), name
    assert problem in "; ".join(status.problems)


def test_what_the_last_leader_said_is_old_once_its_lease_is_over() -> None:
    led = replace(stored(DRIVER), holder="a", renewed="2026-01-01T00:00:00Z", lease_duration_s=15)

    ages = [
        bridge_status(
            state(*CLUSTER), replace(led, read_at=datetime(2026, 1, 1, 0, minute, tzinfo=UTC))
        )
        for minute in (0, 1)
    ]

    assert [status.is_old for status in ages] == [False, True]


@pytest.mark.parametrize(
    ("driver", "warning"),
    [
        (DRIVER, ""),
        (f"{DRIVER}x", f"{DRIVER}x publishes no devices; did you mean {DRIVER}?"),
        ("zzz", f"zzz publishes no devices; drivers with devices: {DRIVER}"),
    ],
)
def test_a_driver_without_devices_is_owned_with_a_warning(driver: str, warning: str) -> None:
    result = bridge("own", driver)

    assert result.exit_code == 0
    assert (f"# Warning: {warning}" in result.stdout.splitlines()) is bool(warning)
    assert ("# Warning" in result.stdout) is bool(warning)


def test_to_own_without_a_bridge_warns_of_pods_that_would_stay_pending() -> None:
    leading = replace(stored(), holder="a")

    without, with_leader = (
        plan_change(state(*CLUSTER), objects, added_drivers=[DRIVER]).warnings
        for objects in (stored(), leading)
    )

    assert ["no bridge leads" in warning for warning in without] == [True]
    assert with_leader == ()


def test_the_first_script_runs_in_every_shell(tmp_path: Path) -> None:
    steps = plan_change(state(*CLUSTER), EMPTY, added_drivers=[DRIVER]).steps
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@" >> calls\n(echo ---; cat) >> documents\n')
    kubectl.chmod(0o700)
    script = "\n".join(step.command for step in steps if not step.pause_seconds)

    subprocess.run(["sh", "-euc", f"PATH={tmp_path}:$PATH\n{script}"], cwd=tmp_path, check=True)

    assert (tmp_path / "calls").read_text() == "create -f -\n" * 2
    documents = [document for step in steps for document in step.documents]
    assert (
        list(yaml.load_all((tmp_path / "documents").read_text(), Loader=yaml.CSafeLoader))
        == documents
    )


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have API servers that know a policy at once, so that no step waits until all do."""
    monkeypatch.setattr("answers.cluster.bridge.SETTLE_S", 0)


async def call(server: FakeApiServer, folder: Path, *words: str) -> Result:
    """Call the command on a cluster, as a user without credentials."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(json.dumps(document))
    return await asyncio.to_thread(drawbridge, "bridge", *words, "--kubeconfig", path)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("is_kind_served", [True, False])
async def test_what_an_uninstall_left_in_the_fence_is_released(
    is_kind_served: bool, tmp_path: Path
) -> None:
    async with FakeApiServer() as server:
        for document in fence_documents([DRIVER]):
            server.put(FENCE_RESOURCES[document["kind"]], dict(document))
        if not is_kind_served:
            server.fail(404, times=100, matches=lambda call: "allocatorownerships" in call.path)

        stranger = await call(server, tmp_path, "release", OTHER, "--apply")
        released = await call(server, tmp_path, "release", DRIVER, "--apply")
        again = await call(server, tmp_path, "release", DRIVER, "--apply")

        assert (stranger.exit_code, released.exit_code, again.exit_code) == (2, 0, 2)
        assert released.stdout.startswith("# The bridge owns: no driver\n")
        stored_fence = server.find(VALIDATING_ADMISSION_POLICIES, "drawbridge-fence")
        assert stored_fence is not None
        assert stored_fence["spec"] == fence_documents(())[0]["spec"]
        assert server.find(ALLOCATOR_OWNERSHIPS, "default") is None


async def test_nothing_is_written_where_the_ownership_cannot_be(tmp_path: Path) -> None:
    """The fence alone would leave the driver without an allocator."""
    async with FakeApiServer() as server:
        server.fail(404, times=100, matches=lambda call: "allocatorownerships" in call.path)

        printed = await call(server, tmp_path, "own", DRIVER)
        applied = await call(server, tmp_path, "own", DRIVER, "--apply")

        assert (printed.exit_code, applied.exit_code) == (0, 2), applied.stderr
        assert "# Warning: the API server does not serve AllocatorOwnerships" in printed.stdout
        assert "kubectl apply -f manifests/base/allocatorownerships.yaml" in applied.stderr
        assert not [call.path for call in server.calls if call.method != "GET"]


def test_live_is_what_bridge_reads_anyway() -> None:
    result = bridge("own", DRIVER, "--live")

    assert result.exit_code == 2
    assert "mutually exclusive" in result.stderr


def test_status_prints_and_ends_with_1_on_a_problem() -> None:
    fine = bridge("status", documents=(*CLUSTER[:4], ownership(DRIVER)))
    mixed = bridge("status", documents=(*CLUSTER, ownership(DRIVER)))

    assert (fine.exit_code, mixed.exit_code) == (0, 1), fine.stdout
    assert f"drivers:  {DRIVER}" in fine.stdout
    assert "problem:  DeviceClass both" in mixed.stdout


def test_status_names_the_groups_that_devices_are_kept_for() -> None:
    kept = {"groupUID": "1", "namespace": "team", "group": "ring", "since": "2026-11-20T23:00:00Z",
            "devices": 1, "nodes": ["node-a"]}  # fmt: skip
    document = {**ownership(DRIVER), "status": {"keptForGroups": [kept]}}
    sentence = (
        "1 device on node-a for PodGroup team/ring, which has waited since 2026-11-20T23:00:00Z"
    )

    result = bridge("status", documents=(*CLUSTER[:4], document))
    answer = bridge("status", "-o", "json", documents=(*CLUSTER[:4], document))

    assert f"kept:     {sentence}\n" in result.stdout
    assert json.loads(answer.stdout)["keptForGroups"] == [sentence]


def test_a_claim_that_several_pods_hold_back_is_one_claim() -> None:
    held_claims = [
        {"claimUID": claim_uid, "namespace": "team", "pod": pod, "podUID": pod, "node": "node-a",
         "until": "2026-01-01T00:00:00Z", "devices": []}
        for claim_uid, pod in (("shared", "a"), ("shared", "b"), ("other", "c"))
    ]  # fmt: skip
    document = {**ownership(DRIVER), "status": {"heldBack": held_claims}}

    result = bridge("status", documents=(*CLUSTER[:4], document))

    assert "held back: devices of 2 claims;" in result.stdout
