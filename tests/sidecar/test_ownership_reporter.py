"""The AllocatorOwnership as the sidecar serves and reports it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admission.fence import OPEN_PATCH
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from kube.client.client import PatchType
from kube.errors import Conflict
from kube.names import FENCE, HOLDER_FENCE
from sidecar.commit.writes import Patch
from sidecar.model.settings import SidecarSettings
from sidecar.reports.ownership_reporter import OwnershipReporter
from testing.allocation.builders import DRIVER
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    HOLDER,
    FakeScheduler,
    publish,
    put_claim,
    put_fence,
    put_pod,
    reported_status,
    sidecar_beside,
)

OTHER = "other.example.com"
FENCED_DRIVERS = {
    "current": [DRIVER, OTHER],
    "of more drivers": [DRIVER, OTHER, "third.example.com"],
    "of another driver": [OTHER],
}


def own(server: FakeApiServer, *drivers: str) -> None:
    spec = {"drivers": [{"name": driver} for driver in drivers]}
    stored = server.find(ALLOCATOR_OWNERSHIPS, "default") or {"metadata": {"name": "default"}}
    stored["metadata"]["generation"] = stored["metadata"].get("generation", 0) + 1
    server.put(ALLOCATOR_OWNERSHIPS, {**stored, "spec": spec})


def reasons(status: Document) -> dict[str, tuple[str, str]]:
    """Return the conditions of a status: of the whole under an empty name, and of each driver."""
    conditions: dict[str, Any] = {"": status["conditions"]}
    conditions |= {driver["name"]: driver["conditions"] for driver in status["drivers"]}
    return {
        name: (condition["status"], condition["reason"])
        for name, (condition,) in conditions.items()
    }


async def test_a_promised_device_is_not_written_once_the_fence_is_gone(tmp_path: Path) -> None:
    """kube-scheduler may have given it to somebody else since."""
    async with FakeApiServer() as server:
        own(server, DRIVER)
        put_fence(server, DRIVER)
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            await until(lambda: bool(sidecar.state.drivers))
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            await scheduler.call("postfilter", podUID="nobody")  # Brings the reservation.
            assert sidecar.state.holds
            server.remove(VALIDATING_ADMISSION_POLICY_BINDINGS, FENCE)
            await until(lambda: not sidecar.state.drivers)

            answer = await scheduler.prebind(pod)

            assert (answer["verdict"], answer["code"]) == ("unschedulable", "driverNotOwned")
            assert not sidecar.devices_of("gpu-a")


@pytest.mark.parametrize(
    ("fence", "is_served", "expected"),
    [
        ("current", True, {"": ("True", "Serving"), DRIVER: ("True", "Serving")}),
        ("of more drivers", True, {"": ("True", "Serving"), DRIVER: ("True", "Serving")}),
        ("of another driver", False, {"": ("True", "Serving"), DRIVER: ("False", "FenceDiffers")}),
        ("open", False, {"": ("False", "FenceOpen"), DRIVER: ("False", "FenceOpen")}),
        (
            "unbound",
            False,
            {"": ("False", "FenceIncomplete"), DRIVER: ("False", "FenceIncomplete")},
        ),
        ("", False, {"": ("False", "FenceMissing"), DRIVER: ("False", "FenceMissing")}),
    ],
)
async def test_owned_drivers_are_served_while_the_fence_keeps_others_out(
    tmp_path: Path, fence: str, is_served: bool, expected: Document
) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER, OTHER)
        if fence:
            put_fence(server, *FENCED_DRIVERS.get(fence, [DRIVER, OTHER]))
        if fence == "open":
            server.put(VALIDATING_ADMISSION_POLICIES, {"metadata": {"name": FENCE}, **OPEN_PATCH})
        if fence == "unbound":
            server.remove(VALIDATING_ADMISSION_POLICY_BINDINGS, FENCE)
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        settings = SidecarSettings(bridge_scheduler="theirs")
        async with sidecar_beside(server, tmp_path, settings) as sidecar:
            await until(lambda: bool(reported_status(server)))
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            answer = await scheduler.prefilter(pod)

            assert (answer.get("code") or answer["verdict"]) == (
                "fits" if is_served else "driverNotOwned"
            )
            await until(lambda: reported_status(server)["conditions"][0]["reason"] != "NotReady")
            status = reported_status(server)
            assert (status["holder"], status["observedGeneration"]) == (HOLDER, 1)
            assert status["schedulerName"] == "theirs"
            known = reasons(status)
            assert {name: known[name] for name in expected} == expected
            if is_served:
                assert known[OTHER] == ("False", "NoDevices")


async def test_pods_that_wait_are_tried_again_when_their_driver_is_owned(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        own(server)
        put_fence(server, DRIVER)
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            before = (await scheduler.hello()).get("wakeups", 0)
            assert (await scheduler.prefilter(pod))["code"] == "driverNotOwned"

            own(server, DRIVER)

            await until(lambda: sidecar.state.drivers == {DRIVER})
            assert (await scheduler.hello())["wakeups"] > before
            assert (await scheduler.prefilter(pod))["verdict"] == "fits"


@pytest.mark.parametrize("name", [FENCE, HOLDER_FENCE])
async def test_no_device_is_given_once_a_part_of_the_fence_is_deleted(
    tmp_path: Path, name: str
) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER)
        put_fence(server, DRIVER)
        publish(server, "node-1")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            before = (await scheduler.hello()).get("wakeups", 0)
            assert (await scheduler.prefilter(pod))["verdict"] == "fits"

            server.remove(VALIDATING_ADMISSION_POLICY_BINDINGS, name)

            await until(lambda: not sidecar.state.drivers)
            assert sidecar.state.unfenced_drivers == {DRIVER}
            assert (await scheduler.prefilter(pod))["code"] == "driverNotOwned"
            await until(
                lambda: reasons(reported_status(server))[""] == ("False", "FenceIncomplete")
            )
            (condition,) = reported_status(server)["conditions"]
            assert f"ValidatingAdmissionPolicyBinding/{name} " in condition["message"]

            put_fence(server, DRIVER)
            await until(lambda: sidecar.state.drivers == {DRIVER})
            assert (await scheduler.hello())["wakeups"] > before
            assert (await scheduler.prefilter(pod))["verdict"] == "fits"


async def test_pods_are_tried_again_when_a_part_is_there_that_was_never_seen(
    tmp_path: Path,
) -> None:
    """A list without objects is no event, so nothing but the scheduler's next hello notices it."""
    async with FakeApiServer() as server:
        own(server, DRIVER)
        put_fence(server, DRIVER)
        server.remove(VALIDATING_ADMISSION_POLICY_BINDINGS, FENCE)
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            before = (await scheduler.hello()).get("wakeups", 0)
            assert not sidecar.state.drivers

            put_fence(server, DRIVER)

            await until(lambda: sidecar.state.drivers == {DRIVER})
            assert (await scheduler.hello()).get("wakeups", 0) > before


async def test_the_status_has_the_settings_that_are_in_force(tmp_path: Path) -> None:
    settings = {
        "capacityWeights": {"memory": 3},
        "maxConsumersPerDevice": 4,
        "pools": [{"name": "a", "nodeSelector": {}, "defaultStrategy": "BestFit"}],
    }
    async with FakeApiServer() as server:
        server.put(
            ALLOCATOR_OWNERSHIPS,
            {
                "metadata": {"name": "default", "generation": 1},
                "spec": {"drivers": [{"name": DRIVER, **settings}, {"name": OTHER}]},
            },
        )
        async with sidecar_beside(server, tmp_path, SidecarSettings()):
            await until(lambda: bool(reported_status(server)))
            own(server, DRIVER)
            await until(lambda: reported_status(server)["observedGeneration"] == 2)
        statuses = [
            [
                {key: driver[key] for key in ("name", *settings) if key in driver}
                for driver in call.body["status"]["drivers"]
            ]
            for call in server.calls
            if call.method == "PATCH"
        ]

        assert statuses[0] == [{"name": DRIVER, **settings}, {"name": OTHER}]
        assert statuses[-1] == [{"name": DRIVER}]


async def test_a_status_that_is_so_already_is_not_written_again(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER)
        async with sidecar_beside(server, tmp_path, SidecarSettings()):
            await until(lambda: bool(reported_status(server)))
        writes = len([call for call in server.calls if call.method == "PATCH"])
        assert writes == 1

        async with sidecar_beside(server, tmp_path, SidecarSettings(), instance="second") as again:
            await until(lambda: again.state.ownership is not None)
            own(server, DRIVER, OTHER)
            await until(lambda: reported_status(server)["observedGeneration"] == 2)
        assert len([call for call in server.calls if call.method == "PATCH"]) == writes + 1


async def test_a_late_status_of_an_earlier_leader_does_not_replace_what_is_held_back(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER)
        async with sidecar_beside(server, tmp_path):
            await until(lambda: bool(reported_status(server)))
        (first,) = (call for call in server.calls if call.method == "PATCH")
        own(server, DRIVER, OTHER)  # As the next leader has seen it.

        async with server.client() as client:
            with pytest.raises(Conflict):
                await client.patch(
                    ALLOCATOR_OWNERSHIPS,
                    "default",
                    first.body,
                    PatchType.MERGE,
                    dict,
                    subresource="status",
                )


async def test_a_status_that_met_another_version_is_decided_anew(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER)
        server.fail(409, times=2, matches=lambda call: call.method == "PATCH")
        async with sidecar_beside(server, tmp_path):
            await until(lambda: bool(reported_status(server)))

        reads = [call for call in server.calls if call.path.endswith("/default")]
        assert [call.method for call in reads] == ["GET", "GET"]


class OlderApiServer:
    """An API server with an earlier definition, without the fields that a patch adds."""

    def __init__(self, stored: Document) -> None:
        self.patches: list[Patch] = []
        self._stored = stored

    async def patch_ownership(self, name: str, patch: Patch) -> bytes:
        self.patches.append(patch)
        return await self.read_ownership(name)

    async def read_ownership(self, _: str) -> bytes:
        return msgspec.json.encode(self._stored)


async def test_what_the_api_server_drops_is_written_once(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        own(server, DRIVER)
        async with sidecar_beside(server, tmp_path) as sidecar:
            await until(lambda: bool(reported_status(server)))
            # The sidecar's own reporter writes no more after that.
            await until(lambda: reported_status(server)["conditions"][0]["reason"] != "NotReady")
            writer = OlderApiServer(server.find(ALLOCATOR_OWNERSHIPS, "default") or {})
            problems = ["first", "first", "second"]
            reporter = OwnershipReporter(
                sidecar.state,
                writer,
                holder=HOLDER,
                scheduler_name="theirs",
                problem=lambda: problems[0],
                keeps=lambda: (),
                now=lambda: datetime(2026, 11, 25, tzinfo=UTC),
            )
            for _ in range(3):
                await reporter.report()
                problems.pop(0)

    assert len(writer.patches) == 2
