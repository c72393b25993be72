"""Lists of objects that users made as large as the API server stores them."""

import pytest

from kube.api.urls import PODS
from kube.client import paging
from kube.client.client import PAGE_SIZE
from kube.client.paging import MAX_BYTES
from kube.runtime.stores import read_identity
from testing.documents import api_object
from testing.fake_api_server import FakeApiServer

MIB = 2**20


@pytest.mark.parametrize(
    ("sizes", "most_calls"),
    [
        pytest.param([100] * 1000, 2, id="small ones"),
        pytest.param([9 * MIB] * 3, 5, id="large ones, each alone"),
        pytest.param([MIB] * 40, 9, id="some of them fill a page"),
        pytest.param([100, MAX_BYTES + 1, 100], 7, id="one larger than a page may be"),
        pytest.param([9 * MIB] * 2 + [100] * 1000, 8, id="then small ones, many at a time again"),
    ],
)
async def test_a_page_has_as_many_objects_as_memory_allows(
    sizes: list[int], most_calls: int
) -> None:
    async with FakeApiServer() as server, server.client(timeout_s=30.0) as client:
        names = [f"p{number:04}" for number in range(len(sizes))]
        for name, size in zip(names, sizes, strict=True):
            spec = {"containers": [{"name": "c", "image": "x" * size}]}
            server.put(PODS, api_object("Pod", name, "default", spec=spec))

        pages = [page.items async for page in client.pages(PODS)]

    assert names == [read_identity(bytes(raw)).name for page in pages for raw in page]
    assert all(len(page) == 1 or sum(map(len, page)) <= MAX_BYTES for page in pages)
    assert max(map(len, pages)) <= PAGE_SIZE
    assert len(server.calls) <= most_calls


async def test_large_and_small_objects_by_turns_need_few_pages_that_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There were two for each small object; the API server gathered 500 objects and 31 for them."""
    monkeypatch.setattr(paging, "MAX_BYTES", 16 * 1024)
    async with FakeApiServer() as server, server.client(timeout_s=30.0) as client:
        for number in range(80):
            spec = {"containers": [{"name": "c", "image": "x" * (number % 2 * 9 * 1024)}]}
            server.put(PODS, api_object("Pod", f"p{number:04}", "default", spec=spec))

        pages = [page.items async for page in client.pages(PODS)]

    assert 80 == sum(map(len, pages))
    assert len(server.calls) - len(pages) <= 8
