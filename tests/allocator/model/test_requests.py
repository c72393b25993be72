"""The requests of claims, and claims that cannot be evaluated on any node."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pytest

from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import PendingClaims, Request, check_result_limits, resolve_requests
from kube.api.resource import (
    CapacityRequirements,
    DerivedAttribute,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
)
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    device_class,
    first_of,
    match,
    quantities,
    request,
    selectors,
    tolerates,
)

DEFAULT: Final = Features()
DERIVED: Final = (DerivedAttribute(name="example.com/root", expression="'x'"),)
NO_CEL: Final = (*(selectors("true") or ()), DeviceSelector())


def single_claim(
    *requests: DeviceRequest, features: Features = DEFAULT
) -> tuple[tuple[Request, ...], ...]:
    return resolve_requests((claim(*requests),), classes(), features).requests[0]


def test_exactly_is_one_alternative() -> None:
    ((got_request,),) = single_claim(
        request("req", count=3, tolerations=(tolerates("a"),), capacity={"m": "1Gi"})
    )

    assert (0, 0, "req", None, "req") == (
        got_request.claim,
        got_request.index,
        got_request.name,
        got_request.parent,
        got_request.full_name,
    )
    assert (3, False, False) == (got_request.count, got_request.all_devices, got_request.admin)
    assert (tolerates("a"),) == got_request.tolerations
    assert quantities({"m": "1Gi"}) == got_request.capacity


def test_alternatives_are_requests_of_one_parent() -> None:
    (_, requests) = single_claim(
        request("first"), first_of("req", alternative("a"), alternative("b", count=2))
    )

    assert [(1, "req/a", 1), (1, "req/b", 2)] == [(r.index, r.full_name, r.count) for r in requests]


def test_claims_are_numbered() -> None:
    pending = resolve_requests((claim(request()), claim(request())), classes(), DEFAULT)

    assert [0, 1] == [alternatives[0].claim for ((alternatives),) in pending.requests]


def test_expressions_of_the_class_come_first() -> None:
    classes_ = classes(device_class("gpu", "x", "y"))

    ((got_request,),) = resolve_requests((claim(request("req", "z")),), classes_, DEFAULT).requests[
        0
    ]

    assert [
        ("x", "class gpu: selector #0"),
        ("y", "class gpu: selector #1"),
        ("z", "claim default/claim-0, request req: selector #0"),
    ] == [(expression.text, expression.origin) for expression in got_request.expressions]


@pytest.mark.parametrize(
    ("want", "field", "device_request"),
    [
        pytest.param(True, "all_devices", request(count=None), id="mode All"),
        pytest.param(0, "count", request(count=None), id="mode All has no count"),
        pytest.param(False, "all_devices", request(allocation_mode=""), id="ExactCount by default"),
        pytest.param(
            1, "count", request(count=None, allocation_mode="ExactCount"), id="one by default"
        ),
        pytest.param(1, "count", request(count=0), id="nought is no count, so one"),
        pytest.param(2**63 - 1, "count", request(count=2**63 - 1), id="a count beyond all bounds"),
        pytest.param(True, "admin", request(admin_access=True), id="admin access"),
        pytest.param(False, "admin", request(admin_access=False), id="no admin access"),
        pytest.param(None, "capacity", request(), id="no capacity asked"),
        pytest.param(
            {}, "capacity", request(capacity={}), id="capacity asked, but none in particular"
        ),
        pytest.param(
            {},
            "capacity",
            DeviceRequest(
                name="r",
                exactly=ExactDeviceRequest(
                    device_class_name="gpu", capacity=CapacityRequirements()
                ),
            ),
            id="capacity without requests",
        ),
    ],
)
def test_fields(want: object, field: str, device_request: DeviceRequest) -> None:
    ((got_request,),) = single_claim(device_request)

    assert want == getattr(got_request, field)


def test_derived_attributes_by_name() -> None:
    features = Features(derived_attributes=True)

    ((got_request,),) = single_claim(request(derived_attributes=DERIVED), features=features)

    assert {"example.com/root": "'x'"} == got_request.derived


class Case(NamedTuple):
    name: str
    want: str
    claim: ResourceClaim
    gates: Mapping[str, Any] = {}


def fails(name: str, want: str, *requests: DeviceRequest, **gates: bool) -> Case:
    return Case(name, want, claim(*requests), gates)


CASES: Final = (
    fails(
        "alternatives without their gate",
        "request req-0: has subrequests, but the DRAPrioritizedList feature is disabled",
        first_of("req-0", alternative()),
        prioritized_list=False,
    ),
    fails(
        "capacity without its gate",
        "request req-0: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        request(capacity={"m": 1}),
        consumable_capacity=False,
    ),
    fails(
        "capacity of an alternative without its gate, before anything else of it is looked at",
        "request sub-1: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        first_of(
            "req-0",
            alternative("sub-0", device_class_name="none"),
            alternative("sub-1", capacity={"m": 1}),
        ),
        consumable_capacity=False,
    ),
    fails(
        "empty capacity without its gate",
        "has capacity requests",
        request(capacity={}),
        consumable_capacity=False,
    ),
    fails(
        "derived attributes without their gate",
        "request req-0: cannot handle request with derived attributes, the feature is disabled",
        request(derived_attributes=DERIVED),
    ),
    fails(
        "an allocator that could, but derived attributes are off",
        "derived attributes",
        first_of("req-0", alternative(derived_attributes=DERIVED)),
        compatibility_groups=True,
    ),
    fails(
        "a selector of an unknown kind",
        "request req-0, selector #1: CEL expression empty (unsupported selector type?)",
        request(selectors=NO_CEL),
    ),
    fails(
        "admin access without its gate",
        "request req-0: admin access is requested, but the feature is disabled",
        request(admin_access=True),
        admin_access=False,
    ),
    fails(
        "even admin access that is not asked for",
        "admin access is requested",
        request(admin_access=False),
        admin_access=False,
    ),
    fails(
        "no class",
        "request req-0: missing device class name (unsupported request type?)",
        request(device_class_name=""),
    ),
    fails(
        "a request of an unknown kind",
        "request new: missing device class name (unsupported request type?)",
        DeviceRequest(name="new"),
    ),
    fails(
        "a class that is not there",
        'could not retrieve device class none: deviceclass.resource.k8s.io "none" not found',
        request(device_class_name="none"),
    ),
    fails(
        "a broken alternative that would never be reached, by its own name",
        "request sub-1: could not retrieve device class none",
        first_of("req-0", alternative(), alternative("sub-1", device_class_name="none")),
    ),
    fails(
        "an unknown mode",
        "request req-0: unsupported count mode Some",
        request(allocation_mode="Some"),
    ),
    Case(
        "a constraint of an unknown kind",
        "constraint #1: empty constraint (unsupported constraint type?)",
        claim(request(), constraints=(match("a.example.com/x"), DeviceConstraint())),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resolve_requests_fails(case: Case) -> None:
    with pytest.raises(AttemptFailed) as excinfo:
        resolve_requests((case.claim,), classes(), Features(**case.gates))

    assert str(excinfo.value).startswith("claim default/claim-0, ")
    assert case.want in str(excinfo.value)


def counted(*requests: DeviceRequest, all_: int = 0) -> str:
    """Return the message of `check_result_limits` when mode All finds `all_` devices; empty when it accepts."""

    def counts(first_request: Request) -> int:
        return all_ if first_request.all_devices else first_request.count

    pending: PendingClaims = resolve_requests(
        (claim(request(count=32)), claim(*requests)), classes(), DEFAULT
    )
    try:
        check_result_limits(pending, counts)
    except AttemptFailed as fault:
        return str(fault)
    return ""


EXCEEDS: Final = "exceeds the claim limit of 32, with"


@pytest.mark.parametrize(
    ("want", "check"),
    [
        pytest.param("", counted, id="nothing asked"),
        pytest.param("", lambda: counted(request(count=32)), id="as many as fit a claim"),
        pytest.param(
            f"claim default/claim-0, request req-0: adding 33 devices {EXCEEDS} 0 already "
            "accounted for",
            lambda: counted(request(count=33)),
            id="one too many",
        ),
        pytest.param(
            f"claim default/claim-0, request b: adding 20 devices {EXCEEDS} 20 already "
            "accounted for",
            lambda: counted(request("a", count=20), request("b", count=20)),
            id="too many together",
        ),
        pytest.param(
            f"claim default/claim-0, request c: adding 12 devices {EXCEEDS} 24 already "
            "accounted for",
            lambda: counted(*(request(name, count=12) for name in "abc")),
            id="too many by the third request",
        ),
        pytest.param(
            "",
            lambda: counted(first_of("req", alternative(count=40), alternative(count=2))),
            id="the smallest alternative counts",
        ),
        pytest.param(
            f"claim default/claim-0, request req: adding 33 devices {EXCEEDS} 0 already "
            "accounted for",
            lambda: counted(first_of("req", alternative(count=40), alternative(count=33))),
            id="all alternatives are too many",
        ),
        pytest.param(
            "", lambda: counted(request(count=None), all_=32), id="All finds as many as fit"
        ),
        pytest.param(
            f"claim default/claim-0, request req-0: adding 33 devices {EXCEEDS} 0 already "
            "accounted for",
            lambda: counted(request(count=None), all_=33),
            id="All finds too many",
        ),
    ],
)
def test_check_result_limits(want: str, check: Callable[[], str]) -> None:
    assert want == check()


def test_inputs_are_not_changed() -> None:
    claim_ = claim(first_of("req", alternative(capacity={"m": 1})))
    before = repr(claim_)

    resolve_requests((claim_,), classes(), DEFAULT)

    assert before == repr(claim_)
    assert isinstance(claim_.spec.devices.requests, tuple)
    assert CapacityRequirements(requests=quantities({"m": 1})) == (
        (claim_.spec.devices.requests[0].first_available or ())[0].capacity
    )
