"""Usage of DeviceQuotas is the sum over present claims, after any history in any order."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from allocator.search.attempt import AllocatorOptions
from kube.api.device_quota import Budget, DeviceQuota, QuotaLimit
from kube.api.resource import AllocationResult, DeviceAllocationResult
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.charges import ClaimCharges
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.ledger import Totals
from quotas.device_quotas.limits import compile_limits
from quotas.device_quotas.published import PublishedDevices
from testing.allocation.builders import (
    alternative,
    amount,
    claim,
    classes,
    consumes,
    device,
    first_of,
    request,
    result,
    slice_of,
)
from testing.allocation.clusters import world
from testing.device_quotas import capacity_limit, claim_limit, counter_limit, device_limit, quota

pytestmark = pytest.mark.property

NAMESPACES: Final = ("x", "y", "z")
MODEL: Final = "device.attributes['gpu.example.com'].model"
MEMORY: Final = amount("80Gi", "4Gi", min="1Gi", step="1Gi")

LIMITS: Final = (
    device_limit(3),
    claim_limit(2),
    capacity_limit("memory", "100Gi"),
    capacity_limit("gpu.example.com/memory", "100Gi", name="large", where=f"{MODEL} == 'large'"),
    counter_limit("slices", 5),
    device_limit(2, name="of-class", classes=("other",)),
    device_limit(2, name="broken", where="device.attributes["),
)
DEVICES: Final = (
    device("small", capacity={"memory": "40Gi"}, attributes={"model": "small"}),
    device("large", capacity={"memory": "80Gi"}, attributes={"model": "large"}),
    device("shared", capacity={"memory": MEMORY}, attributes={"model": "large"}, shared=True),
    device(
        "part",
        consumes("set-0", slices=3),
        capacity={"memory": "10Gi"},
        attributes={"model": "part"},
    ),
)
REQUESTS: Final = (
    request(),
    request(count=2),
    request(count=None),
    request("req-0", f"{MODEL} == 'large'"),
    request(capacity={"memory": "3500Mi"}),
    request(admin_access=True),
    first_of("req-0", alternative("two", count=2), alternative("one", f"{MODEL} == 'part'")),
)


MEASURES: Final[Sequence[Callable[[str], QuotaLimit]]] = (
    lambda driver: device_limit(3, driver=driver),
    lambda driver: claim_limit(3, driver=driver),
    lambda driver: capacity_limit("memory", "1Gi", driver=driver),
    lambda driver: counter_limit("memory", "1Gi", driver=driver),
)


class Step(NamedTuple):
    """A change: its object, its value, and its effect on a book."""

    kind: str
    key: Hashable
    value: Any


def allocation(devices: Sequence[str]) -> AllocationResult | None:
    if not devices:
        return None
    results = tuple(
        result(name, share="s", consumed={"memory": "4Gi"}) if name == "shared" else result(name)
        for name in devices
    )
    return AllocationResult(devices=DeviceAllocationResult(results=results))


claims: Final = st.builds(
    lambda namespace, asked, devices, let_through: CountedClaim(
        namespace, claim(asked).spec.devices, allocation(devices), let_through
    ),
    st.sampled_from(NAMESPACES),
    st.sampled_from(REQUESTS),
    st.lists(
        st.sampled_from(("small", "large", "shared", "part", "gone")), unique=True, max_size=2
    ),
    st.booleans(),
)
quotas: Final = st.builds(
    lambda limits, labels, budget: quota(*limits, labels=labels, budget=budget),
    st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3, unique_by=lambda limit: limit.name),
    st.sampled_from(({}, {"team": "a"}, {"team": "b"})),
    st.sampled_from(list(Budget)),
)
slices: Final = st.lists(st.sampled_from(DEVICES), unique_by=lambda each: each.name).map(
    lambda devices: slice_of(*devices)
)
others: Final = st.lists(st.sampled_from(DEVICES), unique_by=lambda each: each.name).map(
    lambda devices: slice_of(*devices, pool="other")
)
steps: Final = st.one_of(
    st.builds(Step, st.just("claim"), st.integers(0, 3), st.one_of(st.none(), claims)),
    st.builds(Step, st.just("quota"), st.sampled_from(("q", "r")), st.one_of(st.none(), quotas)),
    st.builds(
        Step,
        st.just("namespace"),
        st.sampled_from(NAMESPACES),
        st.sampled_from((None, {}, {"team": "a"}, {"team": "b"})),
    ),
    st.builds(Step, st.just("slice"), st.just("s"), st.one_of(st.none(), slices)),
    st.builds(Step, st.just("slice"), st.just("other"), st.one_of(st.none(), others)),
    st.builds(Step, st.just("class"), st.just("gpu"), st.sampled_from((None, classes()["gpu"]))),
)


def named(found: DeviceQuota | None, name: str) -> DeviceQuota | None:
    return None if found is None else quota(*found.spec.limits, name=name, **_rest(found))


def _rest(found: DeviceQuota) -> Mapping[str, Any]:
    return {"labels": found.spec.namespace_selector.match_labels, "budget": found.spec.budget}


def apply(book: QuotaBook, step: Step) -> None:
    match step:
        case Step("claim", key, None):
            book.remove_claim(key)
        case Step("claim", key, value):
            book.put_claim(key, value)
        case Step("quota", str(key), value):
            book.replace_quota(key, named(value, key))
        case Step("namespace", str(key), value):
            book.replace_namespace(key, value)
        case Step("slice", str(key), value):
            book.replace_slices({key: value})
        case Step("class", str(key), value):
            book.replace_class(key, value)
        case _:
            raise AssertionError(step)


def usage(book: QuotaBook) -> Mapping[tuple[str, str, str], Totals]:
    """The totals of all accounts, by names."""
    return {
        (account.limit.quota, account.limit.name, account.namespace): book.ledger.totals(account)
        for namespace in NAMESPACES
        for account in book.accounts(namespace)
    }


@given(st.lists(steps, max_size=25), st.randoms(use_true_random=False))
def test_usage_depends_on_what_there_is_and_not_on_the_history(
    history: list[Step], random: Any
) -> None:
    book, recount = QuotaBook(Features()), QuotaBook(Features())
    for step in history:
        apply(book, step)
    latest = list({(step.kind, step.key): step for step in history}.values())
    random.shuffle(latest)
    for step in latest:
        apply(recount, step)

    assert usage(book) == usage(recount)
    keys = [account for namespace in NAMESPACES for account in book.accounts(namespace)]
    assert all(
        sum(part.committed for _, part in book.ledger.by_namespace(account))
        == book.ledger.totals(account).committed
        for account in keys
    )


@given(st.lists(st.tuples(st.integers(0, 3), claims), max_size=10))
def test_nothing_remains_when_all_claims_are_gone(put: list[tuple[int, CountedClaim]]) -> None:
    book = QuotaBook(Features())
    for step in (
        Step("quota", "q", quota(*LIMITS)),
        *(Step("namespace", name, {}) for name in NAMESPACES),
        Step("class", "gpu", classes()["gpu"]),
        Step("slice", "s", slice_of(*DEVICES)),
    ):
        apply(book, step)
    for key, value in put:
        book.put_claim(key, value)
    for key in {key for key, _ in put}:
        book.remove_claim(key)

    assert set(usage(book).values()) == {Totals()}
    assert not book.ledger.entries


@given(st.integers(0, 5_000), st.sampled_from(MEASURES))
def test_what_is_allocated_is_between_the_bounds_of_what_was_promised(
    seed: int, measure: Callable[[str], QuotaLimit]
) -> None:
    """Settling never raises a charge above the worst case of the devices that it was computed on."""
    objects = world(seed)
    published = PublishedDevices(objects.slices)
    charges = ClaimCharges(published, objects.classes, objects.features)
    cluster = Cluster(
        slices=objects.slices,
        nodes=objects.nodes,
        claims=objects.allocated_claims,
        classes=objects.classes,
        options=AllocatorOptions(features=objects.features),
    )
    try:
        pending = cluster.resolve(objects.claims)
        outcomes = [cluster.verdict(pending, node) for node in cluster.nodes]
    except AttemptFailed:
        return
    plans = [outcome for outcome in outcomes if isinstance(outcome, Plan)]
    for driver in {each.id.driver for each in published.devices}:
        (limit,) = compile_limits(quota(measure(driver)))
        for plan, (index, asked) in product(plans, enumerate(objects.claims)):
            charge = charges.planned(plan.choices[index], limit)
            bounds = charges.estimate(asked.spec.devices, limit)

            assert bounds.total.least <= charge.total <= bounds.total.most
            assert charge.request <= bounds.request.most
