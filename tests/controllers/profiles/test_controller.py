"""The controller of profiles against an API server: published, kept for live pods, told in the status."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from controllers.model.settings import ControllerSettings, Settings
from controllers.profiles.controller import ProfileController
from controllers.profiles.used_versions import project_used_versions
from kube.api.urls import CONFIG_MAPS, DEVICE_CLASSES, DEVICE_TRANSLATION_PROFILES, EVENTS, PODS
from kube.names import NAMESPACE, REQUEST_ANNOTATION
from process.model.durations import PositiveDuration
from process.profiles.published_profiles import ProfileCache
from testing.builders import profiles
from testing.documents import Document
from testing.fake_api_server import (
    Call,
    FakeApiServer,
    quick_informers,
    quick_recorder,
    running,
    until,
)
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile, profile_of

DRIVER: Final = "npu.example.com"
NAME: Final = "drawbridge-profiles"
SETTINGS: Final = Settings(
    controllers=ControllerSettings(
        profile_unused_period=PositiveDuration(0.05),
        initial_backoff=PositiveDuration(0.02),
        max_backoff=PositiveDuration(0.05),
    )
)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


@asynccontextmanager
async def controlled(server: FakeApiServer) -> AsyncIterator[ProfileCache]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        cache = ProfileCache(informers, profiles(), namespace=NAMESPACE, config_map=NAME)
        controller = ProfileController(
            client,
            informers,
            recorder,
            SETTINGS,
            files=profiles(),
            shipped=profiles(),
            options=TranslationOptions(),
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        )
        async with running(
            informers.run,
            recorder.run,
            *(subcontroller.run for subcontroller in controller.controllers),
        ):
            yield cache


def document(
    generation: int = 1, resources: dict[str, Any] | None = None, driver: str = DRIVER
) -> Document:
    device = {"class": driver, "resources": resources or {"example.com/npu": {}}}
    return {
        "metadata": {
            "name": driver,
            "generation": generation,
            "creationTimestamp": "2026-11-20T00:00:00Z",
        },
        "spec": {"driver": driver, "devices": {"device": device}},
    }


def profile(object_: Document) -> Profile:
    return profile_of(object_["spec"])


def using_pod(name: str, used: Profile) -> Document:
    """A pod with a record that names a version."""
    record = {"profiles": [{"name": used.driver, "hash": used.content_hash}]}
    annotations = {REQUEST_ANNOTATION: json.dumps(record)}
    return {"metadata": {"name": name, "namespace": "team", "annotations": annotations}}


def status_of(server: FakeApiServer, driver: str = DRIVER) -> Document:
    """The status of an object; it must have one."""
    stored = server.find(DEVICE_TRANSLATION_PROFILES, driver)
    assert stored is not None
    status: Document = stored["status"]
    return status


def stored_data(server: FakeApiServer) -> Document:
    """The data of the ConfigMap; none if there is no ConfigMap."""
    data: Document = (server.find(CONFIG_MAPS, NAME, NAMESPACE) or {}).get("data", {})
    return data


def status_generation(server: FakeApiServer) -> int:
    """The generation that the status of the object is about; 0 without a status."""
    status = (server.find(DEVICE_TRANSLATION_PROFILES, DRIVER) or {}).get("status", {})
    generation: int = status.get("observedGeneration", 0)
    return generation


def conditions(server: FakeApiServer, driver: str = DRIVER) -> dict[str, tuple[str, str]]:
    """Type to status and reason."""
    status = (server.find(DEVICE_TRANSLATION_PROFILES, driver) or {}).get("status", {})
    return {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in status.get("conditions", ())
    }


async def test_an_object_is_in_force_once_it_is_stored_and_its_status_tells_it(
    server: FakeApiServer,
) -> None:
    server.put(DEVICE_CLASSES, {"metadata": {"name": DRIVER}, "spec": {}})
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, document())

        await until(lambda: DRIVER in cache.profiles)
        await until(lambda: "Accepted" in conditions(server))

    conditions_ = conditions(server)
    assert conditions_["Accepted"] == ("True", "Accepted")
    assert conditions_["DevicesFound"] == ("False", "NoDevices")
    assert conditions_["NoConflicts"] == ("True", "ServesItsNames")
    status = status_of(server)
    assert status["keys"] == ["example.com/npu"]
    assert status["version"] == profile(document()).content_hash
    assert "gpu.nvidia.com" in cache.profiles


async def test_an_edited_version_is_kept_while_a_live_pod_names_it(server: FakeApiServer) -> None:
    older, newer = document(), document(2, {"example.com/new": {}})
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, older)
        await until(lambda: DRIVER in cache.profiles)
        server.put(PODS, using_pod("a", profile(older)))
        server.put(DEVICE_TRANSLATION_PROFILES, newer)
        await until(lambda: cache.profiles[DRIVER] == profile(newer))
        server.remove(DEVICE_TRANSLATION_PROFILES, DRIVER)
        await until(lambda: DRIVER not in cache.profiles)

        await until(lambda: set(cache.published.versions) == {profile(older).content_hash})
        server.remove(PODS, "a", "team")

        await until(lambda: not cache.published.versions)


async def test_a_shipped_profile_is_back_when_the_object_is_gone(server: FakeApiServer) -> None:
    driver = "gpu.intel.com"
    async with controlled(server) as cache:
        shipped = cache.profiles[driver]
        server.put(DEVICE_TRANSLATION_PROFILES, document(driver=driver))
        await until(lambda: cache.profiles[driver] != shipped)
        await until(lambda: "Accepted" in conditions(server, driver))
        replaces = status_of(server, driver)["replaces"]
        server.remove(DEVICE_TRANSLATION_PROFILES, driver)
        await until(lambda: cache.profiles[driver] == shipped)

    assert replaces == "shipped"


async def test_what_cannot_be_accepted_is_reported_with_the_version_that_stays(
    server: FakeApiServer,
) -> None:
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, document())
        await until(lambda: DRIVER in cache.profiles)
        server.put(DEVICE_TRANSLATION_PROFILES, document(2, {"kubernetes.io/npu": {}}))

        await until(lambda: conditions(server).get("Accepted") == ("False", "Invalid"))

        status = status_of(server)
        assert cache.profiles[DRIVER] == profile(document())
    (accepted,) = [
        condition for condition in status["conditions"] if condition["type"] == "Accepted"
    ]
    assert f"version {profile(document()).content_hash} stays in force" in accepted["message"]
    assert "list the name as pods request it" in accepted["message"]


async def test_events_say_once_what_a_condition_comes_to_say(server: FakeApiServer) -> None:
    taken_name: Document = {"example.com/npu": {}, "amd.com/gpu": {}}
    async with controlled(server):
        for generation, resources in ((1, None), (2, {"kubernetes.io/npu": {}}), (3, taken_name)):
            server.put(DEVICE_TRANSLATION_PROFILES, document(generation, resources))
            await until(lambda: status_generation(server) == generation)  # noqa: B023
        server.put(DEVICE_CLASSES, {"metadata": {"name": DRIVER}, "spec": {}})
        await until(lambda: len(server.objects(EVENTS)) == 4)

    events = [
        (event["type"], event["reason"], event["regarding"]["name"])
        for event in server.objects(EVENTS)
    ]
    assert sorted(events) == [
        ("Normal", "ProfileAccepted", DRIVER),
        ("Normal", "ProfileAccepted", DRIVER),
        ("Warning", "NamesServedElsewhere", DRIVER),
        ("Warning", "ProfileNotAccepted", DRIVER),
    ]


async def test_a_config_map_that_somebody_deletes_or_damages_is_written_again(
    server: FakeApiServer,
) -> None:
    older = document()
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, older)
        server.put(PODS, using_pod("a", profile(older)))
        await until(lambda: DRIVER in cache.profiles)
        server.remove(DEVICE_TRANSLATION_PROFILES, DRIVER)
        await until(lambda: DRIVER not in cache.profiles)

        server.remove(CONFIG_MAPS, NAME, NAMESPACE)
        await until(lambda: profile(older).content_hash in stored_data(server))
        stored = server.find(CONFIG_MAPS, NAME, NAMESPACE) or {}
        server.put(CONFIG_MAPS, {**stored, "data": {"in-force": "{"}})
        await until(lambda: profile(older).content_hash in stored_data(server))

        assert stored_data(server)["in-force"] == "{}"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"profiles": [{"name": "a", "hash": "b"}]}', "[" * 5_000],
    ids=["nothing", "no JSON", "a list", "no hash", "too deep"],
)
def test_an_annotation_that_names_no_version_means_nothing(text: str) -> None:
    pod = {"metadata": {"name": "a", "annotations": {REQUEST_ANNOTATION: text}}}

    assert project_used_versions(json.dumps(pod).encode()) is None


def test_the_versions_of_a_live_pod_are_those_that_its_record_names() -> None:
    used = profile(document())
    raw = msgspec.json.encode(using_pod("a", used))
    ended = msgspec.json.encode({**using_pod("a", used), "status": {"phase": "Succeeded"}})

    assert project_used_versions(raw) == frozenset({(DRIVER, used.content_hash)})
    assert project_used_versions(ended) is None


async def test_an_object_of_the_same_name_is_published_however_late_that_is_known(
    server: FakeApiServer,
) -> None:
    """An object that was deleted and created again between two lists has the same generation."""
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, document())
        await until(lambda: DRIVER in cache.profiles and status_generation(server) == 1)
        seen_again = server.hold_events(DEVICE_TRANSLATION_PROFILES)
        server.remove(DEVICE_TRANSLATION_PROFILES, DRIVER)
        other = document(resources={"example.com/other": {}})
        server.put(DEVICE_TRANSLATION_PROFILES, other)
        server.expire()
        server.break_watches()
        seen_again.set()

        await until(lambda: cache.profiles.get(DRIVER) == profile(other))
        await until(lambda: "Accepted" in conditions(server))
        assert status_of(server)["keys"] == ["example.com/other"]


async def test_a_verdict_is_about_the_generation_that_was_published(server: FakeApiServer) -> None:
    def writes_versions(call: Call) -> bool:
        return call.method == "PATCH" and "/configmaps" in call.path

    second, third = document(2, {"example.com/second": {}}), document(3, {"kubernetes.io/npu": {}})
    async with controlled(server) as cache:
        server.put(DEVICE_TRANSLATION_PROFILES, document())
        await until(lambda: status_generation(server) == 1)
        answered = server.delay(writes_versions)
        server.put(DEVICE_TRANSLATION_PROFILES, second)
        await until(lambda: cache.profiles[DRIVER] == profile(second))
        server.put(DEVICE_TRANSLATION_PROFILES, third)
        await asyncio.sleep(0.05)  # The event arrives while the write is not answered.
        answered.set()
        await until(lambda: conditions(server).get("Accepted") == ("False", "Invalid"))

    told = {
        (condition["status"], call.body["status"]["observedGeneration"])
        for call in server.calls
        if call.method == "PATCH" and call.path.endswith("/status")
        for condition in call.body["status"]["conditions"]
        if condition["type"] == "Accepted"
    }
    assert told == {("True", 1), ("False", 3)}
