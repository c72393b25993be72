"""Usage of DeviceQuotas as quotas, namespaces, devices and claims come, change and go."""

import pytest

from allocator.model.feature_gates import Features
from kube.api.device_quota import Budget, DeviceQuota, QuotaEnforcement
from kube.api.resource import AllocationResult, DeviceAllocationResult, DeviceRequest, ResourceSlice
from kube.cel.scope import BudgetSpent, Meter, evaluating
from kube.quantity import Quantity
from quotas.device_quotas.book import QuotaBook, leaving_outstanding
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.ledger import Totals
from quotas.device_quotas.tenants import Account
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    device,
    first_of,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, device_limit, quota

SMALL = device("small", capacity={"memory": "40Gi"})
LARGE = device("large", capacity={"memory": "80Gi"})
ONE = 10**9


def book(*quotas: DeviceQuota, **namespaces: dict[str, str]) -> QuotaBook:
    made = QuotaBook(Features())
    for each in quotas:
        made.replace_quota(each.metadata.name, each)
    made.replace_namespace("default", {})
    for name, labels in namespaces.items():
        made.replace_namespace(name, labels)
    for name, device_class in classes().items():
        made.replace_class(name, device_class)
    made.replace_slices({"a": slice_of(SMALL, LARGE)})
    return made


def counted(
    *requests: DeviceRequest,
    namespace: str = "default",
    of: tuple[str, ...] = (),
    is_let_through: bool = True,
) -> CountedClaim:
    allocation = AllocationResult(devices=DeviceAllocationResult(results=tuple(map(result, of))))
    return CountedClaim(
        namespace,
        claim(*requests or (request(),)).spec.devices,
        allocation if of else None,
        is_let_through=is_let_through,
    )


def only_account(of: QuotaBook, namespace: str = "default") -> Account:
    (account,) = of.accounts(namespace)
    return account


def totals(of: QuotaBook, namespace: str = "default") -> Totals:
    return of.ledger.totals(only_account(of, namespace))


def gi(amount: int) -> int:
    return Quantity(f"{amount}Gi").nanos


def test_an_allocation_settles_the_charge() -> None:
    filled = book(quota(capacity_limit("memory", "200Gi")))

    filled.put_claim("c", counted())
    assert totals(filled) == Totals(promised=gi(80))

    filled.put_claim("c", counted(of=("small",)))
    assert totals(filled) == Totals(used=gi(40))

    filled.remove_claim("c")
    assert totals(filled) == Totals()


def test_what_waits_is_not_charged() -> None:
    filled = book(quota(device_limit(1)))

    filled.put_claim("c", counted(is_let_through=False))

    assert totals(filled) == Totals(waiting=ONE)
    assert not filled.excesses_of_claims("default", [claim(request()).spec.devices])


def test_a_full_quota_says_what_is_missing() -> None:
    filled = book(quota(device_limit(4)))
    filled.put_claim("c", counted(request(count=3)))

    (excess,) = filled.excesses_of_claims("default", [claim(request(count=2)).spec.devices])

    assert excess.message == (
        "DeviceQuota team, limit devices: 2 devices needed, 1 of 4 devices left"
    )


def test_the_pod_itself_does_not_count() -> None:
    filled = book(quota(device_limit(1)))
    filled.put_claim("c", counted())

    assert not filled.excesses_of_claims("default", [claim(request()).spec.devices], besides=["c"])


@pytest.mark.parametrize("enforcement", list(QuotaEnforcement))
def test_audit_exceeds_nothing(enforcement: QuotaEnforcement) -> None:
    filled = book(quota(device_limit(0), enforcement=enforcement))

    excesses = filled.excesses_of_claims("default", [claim(request()).spec.devices])

    assert bool(excesses) is (enforcement is QuotaEnforcement.ENFORCE)


def test_namespaces_of_a_tenant_share() -> None:
    filled = book(
        quota(device_limit(2), labels={"team": "a"}), x={"team": "a"}, y={"team": "a"}, z={}
    )
    filled.put_claim(1, counted(namespace="x"))
    filled.put_claim(2, counted(namespace="y"))
    filled.put_claim(3, counted(namespace="z"))

    assert totals(filled, "x") == totals(filled, "y") == Totals(promised=2 * ONE)
    assert filled.accounts("z") == ()
    assert dict(filled.ledger.by_namespace(only_account(filled, "x"))) == {
        "x": Totals(promised=ONE),
        "y": Totals(promised=ONE),
    }


def test_each_namespace_alone() -> None:
    filled = book(quota(device_limit(1), budget=Budget.PER_NAMESPACE), x={}, y={})
    filled.put_claim(1, counted(namespace="x"))

    assert totals(filled, "x") == Totals(promised=ONE)
    assert totals(filled, "y") == Totals()


def test_usage_moves_with_a_label() -> None:
    filled = book(quota(device_limit(2), labels={"team": "a"}), x={"team": "a"}, y={"team": "a"})
    filled.put_claim(1, counted(namespace="x"))

    filled.replace_namespace("x", {"team": "b"})
    assert totals(filled, "y") == Totals()

    filled.replace_namespace("x", {"team": "a"})
    assert totals(filled, "y") == Totals(promised=ONE)


def test_a_quota_that_comes_late_finds_the_usage() -> None:
    filled = book()
    filled.put_claim(1, counted(of=("small", "large")))

    filled.replace_quota("team", quota(device_limit(1)))

    assert totals(filled) == Totals(used=2 * ONE)
    assert filled.excesses_of_claims("default", [claim(request()).spec.devices])


def test_a_larger_device_raises_what_is_promised() -> None:
    filled = book(quota(capacity_limit("memory", "200Gi")))
    filled.put_claim(1, counted())

    filled.replace_slices(
        {"b": slice_of(device("huge", capacity={"memory": "141Gi"}), pool="b", name="b")}
    )
    assert totals(filled) == Totals(promised=gi(141))


def test_a_device_that_is_gone_is_charged_as_the_largest() -> None:
    filled = book(quota(capacity_limit("memory", "200Gi")))
    filled.put_claim(1, counted(of=("small",)))

    filled.replace_slices({"a": slice_of(LARGE)})

    assert totals(filled) == Totals(used=gi(80))
    assert not filled.ledger.is_complete(only_account(filled))

    filled.replace_slices({"a": slice_of(SMALL)})
    assert filled.ledger.is_complete(only_account(filled))


def memory_slice(pool: str, amount: str = "80Gi", number: int = 1) -> ResourceSlice:
    devices = (device(f"gpu-{index}", capacity={"memory": amount}) for index in range(number))
    return slice_of(*devices, pool=pool, name=pool)


def in_pool(pool: str, number: int = 1) -> CountedClaim:
    results = tuple(result(f"gpu-{index}", pool=pool) for index in range(number))
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results))
    return CountedClaim("default", claim(request()).spec.devices, allocation)


SELECTORS = [None, "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))"]


@pytest.mark.parametrize("where", SELECTORS, ids=["all", "selected"])
def test_devices_that_are_away_are_charged_as_soon_as_another_pool_is_back(
    where: str | None,
) -> None:
    """A restart of a driver on all nodes: the first pool that is back has devices for others."""
    filled = book(quota(capacity_limit("memory", "160Gi", where=where)))
    filled.replace_slices({"a": memory_slice("a"), "b": memory_slice("b", number=2)})
    filled.put_claim("holder", in_pool("b", 2))
    filled.replace_slices({"a": None})
    filled.replace_slices({"b": None})
    assert totals(filled) == Totals()

    filled.replace_slices({"a": memory_slice("a")})

    assert totals(filled) == Totals(used=gi(160))
    assert filled.excesses_of_claims("default", [claim(request()).spec.devices])

    filled.replace_slices({"b": memory_slice("b", "40Gi", number=2)})
    assert totals(filled) == Totals(used=gi(80))
    assert filled.ledger.is_complete(only_account(filled))


@pytest.mark.parametrize("where", SELECTORS, ids=["all", "selected"])
def test_a_device_that_is_away_follows_the_largest_of_other_pools(where: str | None) -> None:
    filled = book(quota(capacity_limit("memory", "400Gi", where=where)))
    filled.put_claim("holder", in_pool("b"))
    assert totals(filled) == Totals(used=gi(80))

    filled.replace_slices({"c": memory_slice("c", "141Gi")})
    assert totals(filled) == Totals(used=gi(141))

    filled.replace_slices({"c": None})
    assert totals(filled) == Totals(used=gi(80))


def test_slices_that_change_no_largest_device_charge_nothing_again() -> None:
    """Else each node that comes back costs as much as all claims of a cluster."""
    filled = book(quota(capacity_limit("memory", "400Gi")))
    for number in range(3):
        filled.put_claim(number, in_pool("b"))

    with evaluating(meter=(meter := Meter())):
        filled.replace_slices({"c": memory_slice("c", "40Gi")})
        assert meter.steps == 0
        filled.replace_slices({"d": memory_slice("d", "141Gi")})
    assert meter.steps == 3


def test_devices_that_are_away_stay_outstanding_until_they_are_charged() -> None:
    filled = book(quota(capacity_limit("memory", "400Gi")))
    filled.put_claim("holder", in_pool("b"))

    with leaving_outstanding():
        filled.replace_slices({"c": memory_slice("c", "141Gi")})
    assert list(filled.outstanding) == ["holder"]

    filled.charge("holder")
    assert totals(filled) == Totals(used=gi(141))


def test_a_request_that_no_device_keeps_small_enough_is_impossible() -> None:
    filled = book(quota(capacity_limit("memory", "200Gi", per_request="60Gi", per_device="50Gi")))

    fits = filled.impossible("default", claim(request()).spec.devices)
    breaches = filled.impossible("default", claim(request(count=2)).spec.devices)

    assert fits == ()
    assert [breach.message for breach in breaches] == [
        "DeviceQuota team, limit memory: 80Gi of memory for a request, at most 60Gi of memory allowed"
    ]


def test_more_than_the_whole_limit_is_impossible() -> None:
    filled = book(quota(capacity_limit("memory", "100Gi")))

    (excess,) = filled.impossible("default", claim(request(count=3)).spec.devices)

    assert excess.message.startswith("DeviceQuota team, limit memory: 120Gi of memory needed")


def test_alternatives_are_charged_at_most_with_the_largest() -> None:
    filled = book(quota(device_limit(3)))
    asked = claim(first_of("req-0", alternative("two", count=2), alternative("one")))
    filled.put_claim(1, CountedClaim("default", asked.spec.devices))

    assert totals(filled) == Totals(promised=2 * ONE)


def test_an_interrupted_charge_stays_outstanding() -> None:
    filled = book(quota(device_limit(4)))
    with evaluating(meter=Meter(0)), pytest.raises(BudgetSpent):
        filled.put_claim("c", counted())
    assert list(filled.outstanding) == ["c"]

    filled.charge("c")

    assert not filled.outstanding
    assert totals(filled) == Totals(promised=ONE)


def test_an_interrupted_quota_leaves_the_claims_of_all_its_namespaces_outstanding() -> None:
    filled = book(quota(device_limit(4)), x={}, y={})
    filled.put_claim(1, counted(namespace="x"))
    filled.put_claim(2, counted(namespace="y"))

    with evaluating(meter=Meter(1)), pytest.raises(BudgetSpent):
        filled.replace_quota("more", quota(device_limit(2), name="more"))
    assert list(filled.outstanding) == [2]

    filled.remove_claim(2)
    assert not filled.outstanding


def test_usage_is_incomplete_without_any_published_device() -> None:
    filled = book(quota(capacity_limit("memory", "200Gi")))
    filled.put_claim("c", counted(of=("small",)))

    filled.replace_slices({"a": None})

    assert not filled.ledger.is_complete(only_account(filled))
    filled.remove_claim("c")
    assert filled.ledger.is_complete(only_account(filled))


def test_letting_a_claim_through_needs_no_evaluation() -> None:
    filled = book(quota(device_limit(4)))
    filled.put_claim("c", counted(is_let_through=False))

    with evaluating(meter=Meter(0)):
        filled.put_claim("c", counted())

    assert not filled.outstanding
    assert totals(filled) == Totals(promised=ONE)
