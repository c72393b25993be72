"""Claims and templates that the API server has before the caches do."""

from datetime import UTC, datetime, timedelta

import pytest

from kube.api.core import PodResourceClaim
from kube.api.meta import rfc3339
from kube.api.urls import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kube.errors import KubeError
from kube.runtime.new_claims import NEW, NewClaims
from testing.documents import Document
from testing.fake_api_server import FakeApiServer

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
CLAIM = PodResourceClaim(name="gpu", resource_claim_name="own")
TEMPLATE = PodResourceClaim(name="gpu", resource_claim_template_name="own")


def created(age: timedelta, name: str = "own") -> Document:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": rfc3339(NOW - age),
        },
        "spec": {},
    }


@pytest.mark.parametrize(
    ("entries", "age", "expected"),
    [
        pytest.param([CLAIM], timedelta(0), True, id="a claim"),
        pytest.param([TEMPLATE], timedelta(0), True, id="a template"),
        pytest.param([CLAIM], 2 * NEW, False, id="old, so that no cache will have it"),
        pytest.param(
            [PodResourceClaim(resource_claim_name="none"), CLAIM], NEW / 2, True, id="the second"
        ),
        pytest.param([PodResourceClaim(resource_claim_name="none")], NEW / 2, False, id="none"),
        pytest.param([], NEW / 2, False, id="no claims"),
    ],
)
async def test_new_claims_and_templates_are_seen(
    entries: list[PodResourceClaim], age: timedelta, *, expected: bool
) -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(RESOURCE_CLAIMS, created(age))
        server.put(RESOURCE_CLAIM_TEMPLATES, created(age))

        assert expected == await NewClaims(client, lambda: NOW).has_any("team", entries)


@pytest.mark.parametrize("name", ["", "own,metadata.namespace=other", "Own", "o" * 254, "own\n"])
async def test_a_name_that_no_claim_has_is_asked_of_nobody(name: str) -> None:
    entry = PodResourceClaim(name="gpu", resource_claim_name=name)
    async with FakeApiServer() as server, server.client() as client:
        server.put(RESOURCE_CLAIMS, created(timedelta(0)))

        assert not await NewClaims(client, lambda: NOW).has_any("team", [entry])
        assert server.calls == []


async def test_an_api_server_that_fails_is_an_error() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.fail(500)
        with pytest.raises(KubeError):
            await NewClaims(client, lambda: NOW).has_any("team", [CLAIM])
