"""Lists of objects that users made as large as the API server stores them."""

import pytest

from kube.api.urls import PODS
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
