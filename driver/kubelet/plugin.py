"""The DRAPlugin service: the kubelet's calls to prepare and unprepare claims."""

import time
from collections.abc import Callable, Iterable, Mapping

import grpc

from driver.faults.prepare_failures import PrepareFailures
from driver.kubelet.api import dra_v1_pb2 as api
from driver.kubelet.servers import service
from driver.plan.cdi import cdi_names
from driver.plan.prepare import Preparation, Refusal
from driver.prepare.metrics import OK, DriverMetrics
from driver.prepare.preparer import ClaimRef, Preparer
from kube.logs import get_logger

_PREPARE = "NodePrepareResources"
_UNPREPARE = "NodeUnprepareResources"

log = get_logger()


class Plugin:
    """The DRA plugin service: passes calls to the preparer, and answers for each claim."""

    def __init__(
        self,
        driver: str,
        preparer: Preparer,
        metrics: DriverMetrics,
        *,
        on_prepared: Callable[[Preparation], None],
        failures: PrepareFailures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize the service.

        Args:
            driver: The driver's name.
            on_prepared: Called with every claim that was prepared; must not block.
            failures: Counts devices that could not be prepared.
            clock: Monotonic seconds.
        """
        self._driver = driver
        self._preparer = preparer
        self._metrics = metrics
        self._on_prepared = on_prepared
        self._failures = failures
        self._clock = clock

    def service(self) -> grpc.GenericRpcHandler:
        """Return the gRPC service."""
        return service(
            api.DESCRIPTOR.services_by_name["DRAPlugin"],
            unary={_PREPARE: self._prepare, _UNPREPARE: self._unprepare},
        )

    async def _prepare(
        self, request: api.NodePrepareResourcesRequest
    ) -> api.NodePrepareResourcesResponse:
        began = self._clock()
        refs = [_ref(claim) for claim in request.claims]
        names = _names_by_uid(refs)
        answers: dict[str, api.NodePrepareResourceResponse] = {}
        for uid, outcome in (await self._preparer.prepare(refs)).items():
            if isinstance(outcome, Refusal):
                answers[uid] = api.NodePrepareResourceResponse(error=outcome.message)
                self._metrics.claim(_PREPARE, outcome.reason.value)
                self._failures.record_failure(outcome.failing, outcome.reason.value)
            else:
                answers[uid] = _answer(self._driver, outcome)
                self._metrics.claim(_PREPARE, OK)
                self._on_prepared(outcome)
                self._failures.record_success(outcome.record.device_names())
            _log_outcome(_PREPARE, names[uid], uid, answers[uid].error)
        self._metrics.observe_call(_PREPARE, self._clock() - began)
        return api.NodePrepareResourcesResponse(claims=answers)

    async def _unprepare(
        self, request: api.NodeUnprepareResourcesRequest
    ) -> api.NodeUnprepareResourcesResponse:
        began = self._clock()
        refs = [_ref(claim) for claim in request.claims]
        names = _names_by_uid(refs)
        outcomes = await self._preparer.unprepare(refs)
        for uid, error in outcomes.items():
            self._metrics.claim(_UNPREPARE, "failed" if error else OK)
            _log_outcome(_UNPREPARE, names[uid], uid, error)
        self._metrics.observe_call(_UNPREPARE, self._clock() - began)
        answers = {
            uid: api.NodeUnprepareResourceResponse(error=error) for uid, error in outcomes.items()
        }
        return api.NodeUnprepareResourcesResponse(claims=answers)


def _names_by_uid(refs: Iterable[ClaimRef]) -> Mapping[str, str]:
    return {ref.uid: f"{ref.namespace}/{ref.name}" for ref in refs}


def _log_outcome(method: str, name: str, uid: str, error: str) -> None:
    fields = {"method": method, "claim": name, "uid": uid}
    if error:
        log.warning("claim.refused", **fields, error=error)
    else:
        log.info("claim.done", **fields)


def _ref(claim: api.Claim) -> ClaimRef:
    return ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def _answer(driver: str, preparation: Preparation) -> api.NodePrepareResourceResponse:
    return api.NodePrepareResourceResponse(
        devices=[
            api.Device(
                request_names=[device.result.request.partition("/")[0]],
                pool_name=device.result.pool,
                device_name=device.result.device,
                cdi_device_ids=cdi_names(driver, preparation, number),
                share_id=device.result.share_id,
            )
            for number, device in enumerate(preparation.devices)
        ]
    )
