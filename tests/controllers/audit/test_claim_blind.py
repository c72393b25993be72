"""Stored objects that name device keys: listed by the audit, as far as it may."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from controllers.audit.claim_blind import (
    MAX_LOGGED,
    count_claim_blind_objects,
    list_claim_blind_objects,
    log_claim_blind_objects,
    report_claim_blind_object,
)
from controllers.audit.unsearched_kinds import TRIES, UnsearchedKinds
from kube.api.urls import (
    FOREIGN_QUOTA_RESOURCES,
    LIMIT_RANGES,
    RESOURCE_QUOTAS,
    VALIDATING_ADMISSION_POLICIES,
)
from kube.errors import KubeError
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from translation.reading.arbiter import VOCABULARIES

GPU = "nvidia.com/gpu"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


def named(name: str, namespace: str = "", **spec: Any) -> Document:
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **place}, "spec": spec}


async def test_the_audit_finds_what_does_not_see_claims(server: FakeApiServer) -> None:
    server.put(RESOURCE_QUOTAS, named("gpus", "team", hard={f"requests.{GPU}": "4"}))
    server.put(RESOURCE_QUOTAS, named("cpus", "team", hard={"requests.cpu": "4"}))
    limits = [{"type": "Container", "max": {GPU: "1"}}]
    server.put(LIMIT_RANGES, named("bounds", "team", limits=limits))
    validations = [{"expression": f'!("{GPU}" in object.spec.containers[0].resources.limits)'}]
    server.put(VALIDATING_ADMISSION_POLICIES, named("no-gpus", validations=validations))

    async with server.client() as client:
        claim_blind_objects = await list_claim_blind_objects(
            client, VOCABULARIES, UnsearchedKinds()
        )

    assert [(blind.kind, blind.namespace, blind.name) for blind in claim_blind_objects] == [
        ("LimitRange", "team", "bounds"),
        ("ResourceQuota", "team", "gpus"),
        ("ValidatingAdmissionPolicy", "", "no-gpus"),
    ]
    assert count_claim_blind_objects(claim_blind_objects) == {
        (kind, "warning", "claimsNotSeen"): 1
        for kind in ("LimitRange", "ResourceQuota", "ValidatingAdmissionPolicy")
    }


async def test_kinds_that_may_not_be_listed_are_left_out(server: FakeApiServer) -> None:
    server.put(RESOURCE_QUOTAS, named("gpus", "team", hard={f"requests.{GPU}": "4"}))
    server.fail(403, times=10, matches=lambda call: "admissionpolicies" in call.path)

    async with server.client() as client:
        claim_blind_objects = await list_claim_blind_objects(
            client, VOCABULARIES, UnsearchedKinds()
        )

    assert [blind.name for blind in claim_blind_objects] == ["gpus"]


async def test_a_kind_that_was_never_listed_is_tried_again_before_it_is_left_out(
    server: FakeApiServer,
) -> None:
    """A new leader does not know the findings of the one before, and must not take them back."""
    server.put(RESOURCE_QUOTAS, named("gpus", "team", hard={f"requests.{GPU}": "4"}))
    server.fail(500, times=TRIES, matches=lambda call: "limitranges" in call.path)
    unsearched_kinds = UnsearchedKinds()

    async with server.client() as client:
        for _ in range(TRIES - 1):
            with pytest.raises(KubeError):
                await list_claim_blind_objects(client, VOCABULARIES, unsearched_kinds)
        claim_blind_objects = await list_claim_blind_objects(client, VOCABULARIES, unsearched_kinds)

    assert [blind.name for blind in claim_blind_objects] == ["gpus"]


async def test_a_kind_that_may_not_be_listed_is_logged_once_until_that_changes(
    server: FakeApiServer,
) -> None:
    unsearched_kinds = UnsearchedKinds()

    async def audit() -> list[tuple[str, str]]:
        with capture_logs() as lines:
            await list_claim_blind_objects(client, VOCABULARIES, unsearched_kinds)
        return [
            (line["event"], line["kind"]) for line in lines if line["event"].startswith("claims.")
        ]

    server.fail(403, times=2, matches=lambda call: "limitranges" in call.path)
    async with server.client() as client:
        audits = [await audit() for _ in range(4)]

    assert audits == [
        [("claims.not_searched", "LimitRange")],
        [],
        [("claims.searched_again", "LimitRange")],
        [],
    ]


async def test_the_log_of_one_audit_is_bounded(server: FakeApiServer) -> None:
    for number in range(MAX_LOGGED + 10):
        server.put(RESOURCE_QUOTAS, named("gpus", f"n{number}", hard={f"requests.{GPU}": "4"}))

    async with server.client() as client:
        claim_blind_objects = await list_claim_blind_objects(
            client, VOCABULARIES, UnsearchedKinds()
        )
    with capture_logs() as lines:
        log_claim_blind_objects(claim_blind_objects)

    assert len(claim_blind_objects) == MAX_LOGGED + 10
    assert len(lines) == MAX_LOGGED
    assert lines[0]["object"].endswith("/gpus")


async def test_queues_of_two_projects_are_told_apart(server: FakeApiServer) -> None:
    volcano, kai = (
        FOREIGN_QUOTA_RESOURCES[api_version, "Queue"]
        for api_version in ("scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2")
    )
    server.put(volcano, named("research", capability={GPU: "4"}))
    server.put(kai, named("research", resources={"gpu": {"quota": 4}}))

    async with server.client() as client:
        blind_objects = await list_claim_blind_objects(client, VOCABULARIES, UnsearchedKinds())

    subjects = [report_claim_blind_object(blind).subject for blind in blind_objects]
    assert {(subject.api_version, subject.kind) for subject in subjects} == {
        ("scheduling.volcano.sh/v1beta1", "Queue"),
        ("scheduling.run.ai/v2", "Queue"),
    }
