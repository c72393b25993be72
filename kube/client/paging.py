"""The pages of a list, and their size: each is read as a whole.

Users choose how large their objects are: one that etcd stores in 1.5 MiB has up to 9 MiB as JSON, and a page of 500 of
them would end every process that lists their kind, and the next one.
"""

from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from kube.client.responses import Listing, Page, decode_response

MAX_BYTES: Final = 16 * 2**20
"""The largest page of more than one object; that of one is as large as it is."""
_FEWER: Final = 16
_MOST_GROWTH: Final = 128
_LEAST_GROWTH: Final = 2


class Paging:
    """The requests for the pages of a list: of as many objects as wanted, or as fill half of a page.

    After each page that was too large, pages grow more slowly. If large and small objects come by turns, each small one
    would otherwise be followed by a page that is too large, for which the API server gathers hundreds of objects.
    """

    def __init__(self, most: int, label_selector: str = "", field_selector: str = "") -> None:
        """Begin before the first page.

        Args:
            most: The objects of a page at most.
            label_selector: A label selector in the API's syntax.
            field_selector: A field selector in the API's syntax.
        """
        self._most = self._limit = most
        self._growth = _MOST_GROWTH
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._token = ""
        self.is_over = False

    @property
    def query(self) -> Mapping[str, str]:
        """The query for the next page."""
        return {"limit": str(self._limit), "continue": self._token, **self._selectors}

    @property
    def max_bytes(self) -> int | None:
        """The largest next page; None for no limit."""
        return MAX_BYTES if self._limit > 1 else None

    def take(self, body: bytes | None) -> Listing[msgspec.Raw] | None:
        """Return the page that was read; None if it is asked for again, since it was too large.

        Args:
            body: None for a page that was too large.

        Raises:
            KubeError: The body is no page.
        """
        if body is None:
            self._limit = max(1, self._limit // _FEWER)
            self._growth = max(_LEAST_GROWTH, self._growth // 2)
            return None
        page = decode_response(body, Page)
        items, metadata = page.items or (), page.metadata
        per_page = max(1, len(items)) * MAX_BYTES // (2 * len(body))
        self._limit = max(1, min(self._most, per_page, self._limit * self._growth))
        self._token = metadata.continue_
        self.is_over = not self._token
        return Listing(items=items, resource_version=metadata.resource_version)

    def resume(self, token: str) -> bool:
        """Go on with another token; return False without one."""
        self._token = token
        return bool(token)


async def read_within(response: aiohttp.ClientResponse, max_bytes: int | None) -> bytes | None:
    """Return the body of a response; None for a longer one.

    Args:
        max_bytes: The longest body; None for no limit.
    """
    if max_bytes is None:
        return await response.read()
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            response.close()
            return None
        chunks.append(chunk)
    return b"".join(chunks)
