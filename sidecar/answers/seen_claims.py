"""Waits until we have seen the claims that the scheduler has seen."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from allocator.pods.claims import Name
from kube.api.resource import ResourceClaim
from kube.logs import get_logger
from kube.runtime.informers import Subscription
from sidecar.model.protocol import GroupRequest, PreFilterRequest
from sidecar.model.rejections import Code, Rejection, failed_rejection
from sidecar.plan.pod_claims import claim_names
from sidecar.reports.metrics import SidecarMetrics

log = get_logger()


class SeenClaims:
    """The claims that we have seen, compared with those that the scheduler has seen."""

    def __init__(
        self,
        claims: Subscription[ResourceClaim],
        metrics: SidecarMetrics,
        *,
        own_timeout_s: float,
        other_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            claims: Ours.
            own_timeout_s: Limit of the wait for the pod's own claims.
            other_timeout_s: Limit of the wait for the newest version of any claim.
            clock: Monotonic seconds.
        """
        self._claims = claims
        self._metrics = metrics
        self._own_timeout_s = own_timeout_s
        self._other_timeout_s = other_timeout_s
        self._clock = clock

    async def wait(self, request: PreFilterRequest | GroupRequest) -> Rejection | None:
        """Wait for the versions of a request; return a rejection if the pod or group has to be tried again."""
        began = self._clock()
        pods = request.pods if isinstance(request, GroupRequest) else (request.pod,)
        names = {name for pod in pods for name in claim_names(pod)}
        own: Mapping[Name, str] = {
            name: version
            for name in names
            if (version := request.claim_versions.get("/".join(name))) is not None
        }
        if not await self._sees(own, self._own_timeout_s):
            message = "the sidecar has not seen the pod's claims yet"
            return failed_rejection(Code.CLAIMS_BEHIND, message)
        await self.wait_newest(request.newest_claim_version)
        self._metrics.observe_wait(self._clock() - began)
        return None

    async def wait_newest(self, version: str) -> None:
        """Wait for a moment until we have seen the newest claim that the scheduler has seen."""
        if not await self._sees({("", ""): version}, self._other_timeout_s):
            log.info("claims.behind", version=version)

    async def _sees(self, versions: Mapping[Name, str], timeout_s: float) -> bool:
        """Return True if we have seen versions of claims within a time, as nearly always at once."""
        if not self._claims.has_seen(versions):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._claims.wait_seen(versions)
        return self._claims.has_seen(versions)
