"""Claims and pods that exceed a DeviceQuota, for good or now."""

from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from allocator.model.feature_gates import Features
from clusterstate.kinds import Kind
from clusterstate.rule_cache import ClusterFacts, RuleCache
from findings.field_path import FieldPath
from findings.finding import Severity
from kube.api.core import Node, Pod
from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.quantity import Quantity
from rules.context.context import Context
from rules.engine.engine import Target, validate
from testing.documents import Document, claim, device_quota, first, limit, sub, template
from testing.feasibility_cases import (
    IS_SHARED,
    NODE_A,
    NODE_B,
    allocated_claim,
    claim_entry,
    example_request,
    memory,
)
from testing.rule_cases import NAMESPACE, finding_lines, findings_of, pod
from testing.rule_contexts import CLASSES

EXACT: Final = "spec.devices.requests[0].exactly"
MEMORY: Final = f"{EXACT}.capacity.requests[memory]"


def context(
    *limits: Document,
    claims: dict[str, Document] | None = None,
    autoscaler: bool = False,
    **spec: Any,
) -> Context:
    """Return two nodes, one with devices of 40Gi and 80Gi, one with a shared device, and a quota."""
    cache = RuleCache(Features())
    typed = {name: convert(document, ResourceClaim) for name, document in (claims or {}).items()}
    cache.apply(
        {
            Kind.NODE: {
                ("", name): convert({"metadata": {"name": name}}, Node)
                for name in ("node-a", "node-b")
            },
            Kind.SLICE: {
                ("", slice_["metadata"]["name"]): convert(slice_, ResourceSlice)
                for slice_ in (NODE_A, NODE_B)
            },
            Kind.CLASS: {("", class_.metadata.name): class_ for class_ in CLASSES},
            Kind.QUOTA: {("", "validated"): convert(device_quota(*limits, **spec), DeviceQuota)},
            Kind.CLAIM: {(NAMESPACE, name): claim_ for name, claim_ in typed.items()},
        }
    )
    autoscalers = {"Karpenter"} if autoscaler else set()
    return cache.context(ClusterFacts(namespaces={NAMESPACE: {}}, autoscalers=autoscalers))


class Case(NamedTuple):
    name: str
    document: Document
    there: Context
    expected_findings: tuple[str, ...] = ()


DEVICES: Final = limit("4", name="devices", devices={})
PAIR: Final = claim(example_request(count=2))
CLAIMS = (
    Case(
        "an amount within a cap",
        claim(example_request(IS_SHARED, capacity=memory("17Gi"))),
        context(limit(perRequest="20Gi")),
    ),
    Case(
        "an amount above a cap for a request",
        claim(example_request(IS_SHARED, capacity=memory("24Gi"))),
        context(limit(perRequest="20Gi")),
        (f"error exceedsPerRequestQuota {MEMORY}",),
    ),
    Case(
        "a template with an amount above a cap for a device",
        template(example_request(IS_SHARED, capacity=memory("24Gi"))),
        context(limit(perDevice="20Gi")),
        (f"error exceedsPerRequestQuota spec.{MEMORY}",),
    ),
    Case("devices within a cap", PAIR, context({**DEVICES, "perRequest": "2"})),
    Case(
        "devices above a cap",
        PAIR,
        context({**DEVICES, "perRequest": "1"}),
        (f"error exceedsPerRequestQuota {EXACT}.count",),
    ),
    Case(
        "the second request is above a cap",
        claim(example_request(), example_request(name="more", count=2)),
        context({**DEVICES, "perRequest": "1"}),
        ("error exceedsPerRequestQuota spec.devices.requests[1].exactly.count",),
    ),
    Case(
        "devices whose memory is above a cap, whichever they are",
        claim(example_request(f"!({IS_SHARED})", count=2)),
        context(limit("1Ti", perRequest="39Gi")),
        (f"error exceedsPerRequestQuota {EXACT}",),
    ),
    Case(
        "devices whose memory is above a cap, where smaller ones may come",
        claim(example_request(f"!({IS_SHARED})", count=2)),
        context(limit("1Ti", perRequest="39Gi"), autoscaler=True),
        (f"warning exceedsPerRequestQuota {EXACT}",),
    ),
    Case(
        "an alternative that is within a cap",
        claim(
            first(
                sub("two", deviceClassName="gpu.example.com", count=2),
                sub("one", deviceClassName="gpu.example.com"),
            )
        ),
        context({**DEVICES, "perRequest": "1"}),
    ),
    Case(
        "more than the whole limit",
        claim(example_request(count=3)),
        context({**DEVICES, "max": "2"}),
        (f"error exceedsDeviceQuota {EXACT}.count",),
    ),
    Case(
        "two requests with more than the whole limit together",
        claim(example_request(), example_request(name="more")),
        context({**DEVICES, "max": "1"}),
        ("error exceedsDeviceQuota spec.devices",),
    ),
    Case(
        "a limit that cannot be evaluated lets nothing through",
        claim(example_request()),
        context({**DEVICES, "selectors": [{"cel": {"expression": "nonsense"}}]}),
        (f"error exceedsDeviceQuota {EXACT}",),
    ),
    Case(
        "another tenant",
        PAIR,
        context({**DEVICES, "max": "0"}, namespaceSelector={"matchLabels": {"a": "b"}}),
    ),
    Case("a quota that only reports", PAIR, context({**DEVICES, "max": "0"}, enforcement="Audit")),
    Case(
        "a claim alone does not wait",
        PAIR,
        context({**DEVICES, "max": "2"}, claims={"holder": allocated_claim("gpu-0")}),
    ),
)


@pytest.mark.parametrize("case", CLAIMS, ids=lambda case: case.name)
def test_claims(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.there)


def test_the_message_names_quota_limit_and_amounts_and_the_fix_an_amount() -> None:
    there = context(limit(perRequest="22Gi"))

    (finding,) = findings_of(claim(example_request(IS_SHARED, capacity=memory("24Gi"))), there)

    assert finding.message == (
        "DeviceQuota validated, limit memory: 25Gi of memory for a request, at most 22Gi of memory allowed"
    )
    assert finding.fix == "request at most 22Gi of memory, or raise the DeviceQuota"
    assert finding.fitting is not None
    assert [amount.amount for amount in finding.fitting.amounts] == [Quantity("22Gi")]


@pytest.mark.parametrize(
    ("cap", "fits"), [("1500m", "1"), ("500m", None), ("0", None), ("-2", None)]
)
def test_a_fix_is_a_whole_number_of_devices(cap: str, fits: str | None) -> None:
    there = context({**DEVICES, "perRequest": cap})

    (finding,) = findings_of(claim(example_request(count=3)), there)

    amounts = finding.fitting.amounts if finding.fitting is not None else ()
    assert [str(entry.amount) for entry in amounts] == ([fits] if fits else [])


def test_an_amount_that_is_rounded_up_above_a_cap_is_no_fix() -> None:
    there = context(limit(perRequest="20Gi"))

    (finding,) = findings_of(claim(example_request(IS_SHARED, capacity=memory("24Gi"))), there)

    assert finding.fitting is None


def test_what_several_limits_say_of_one_place_is_one_finding() -> None:
    there = context({**DEVICES, "perRequest": "1"}, {**DEVICES, "name": "more", "perRequest": "1"})

    (finding,) = (f for f in findings_of(PAIR, there) if f.code == "exceedsPerRequestQuota")

    assert "limit devices:" in finding.message
    assert "limit more:" in finding.message


# --- pods -----------------------------------------------------------------------------------------

HOLDER: Final = {"holder": allocated_claim("gpu-0"), "two": PAIR}
FULL: Final = {**DEVICES, "max": "2"}
REFERENCE: Final = "spec.resourceClaims[0].resourceClaimName"


def workload_lines(document: Document, there: Context) -> tuple[str, ...]:
    """Return the findings on a pod template."""
    path = FieldPath.of("spec", "template")
    target = Target(view=convert(document, Pod), raw=document, path=path, namespace=NAMESPACE)
    return tuple(
        f"{finding.severity} {finding.code} {finding.path}"
        for finding in validate(target, there)
        if finding.severity is not Severity.INFO
    )


TWO: Final = pod(claim_entry("two"))


def test_a_pod_waits_where_too_little_is_left() -> None:
    there = context(FULL, claims=HOLDER)

    assert finding_lines(TWO, there) == (f"warning deviceQuotaFull {REFERENCE}",)
    (finding,) = findings_of(TWO, there)
    assert finding.message == (
        "requests[0].exactly.count: DeviceQuota validated, limit devices: 2 devices needed, 1 of 2 devices left; where the quota is enforced, the pod waits"
    )
    assert finding.fix == "request at most 1 device, wait, or raise the DeviceQuota"
    assert finding.fitting is not None
    assert [(str(amount.field), str(amount.amount)) for amount in finding.fitting.amounts] == [
        ("requests[0].exactly.count", "1")
    ]


def test_no_number_is_named_where_several_requests_share_what_is_left() -> None:
    there = context({**FULL, "max": "3"}, claims=HOLDER)
    several = pod(claim_entry("two"), {"name": "more", "resourceClaimTemplateName": "two"})

    for finding in findings_of(several, there):
        if finding.code == "deviceQuotaFull":
            assert finding.fitting is None


def test_a_quota_that_denies_denies_pods_and_warns_workloads() -> None:
    there = context(FULL, claims=HOLDER, whenFull="Deny")

    assert finding_lines(TWO, there) == (f"error deviceQuotaFull {REFERENCE}",)
    assert workload_lines(TWO, there) == (f"warning deviceQuotaFull spec.template.{REFERENCE}",)


def test_a_pod_for_which_enough_is_left_is_right() -> None:
    assert finding_lines(TWO, context({**DEVICES, "max": "3"}, claims=HOLDER)) == ()


def test_a_pod_that_never_fits_is_denied_at_its_reference() -> None:
    there = context({**DEVICES, "max": "1"}, claims=HOLDER)

    assert finding_lines(TWO, there) == (f"error exceedsDeviceQuota {REFERENCE}",)
    (finding,) = findings_of(TWO, there)
    assert finding.message.startswith("requests[0].exactly.count: DeviceQuota validated")


def test_without_quotas_no_book_is_kept() -> None:
    cache = RuleCache(Features())
    cache.apply({Kind.CLASS: {("", class_.metadata.name): class_ for class_ in CLASSES}})

    assert cache.context().quota_book is None


def test_quotas_and_namespaces_come_and_go() -> None:
    cache = RuleCache(Features())
    quota = convert(device_quota(DEVICES), DeviceQuota)
    cache.apply({Kind.QUOTA: {("", "validated"): quota}})

    book = cache.context(ClusterFacts(namespaces={"a": {}, "b": {}})).quota_book
    assert book is not None
    assert book.tenants.selected("validated") == {"a", "b"}

    assert cache.context(ClusterFacts(namespaces={"b": {}})).quota_book is book
    assert book.tenants.selected("validated") == {"b"}

    cache.apply({Kind.QUOTA: {("", "validated"): None}})
    assert cache.context().quota_book is None


@pytest.mark.parametrize(
    ("entry", "pods", "needed"),
    [
        ({"name": "own", "resourceClaimTemplateName": "two"}, 1, None),
        ({"name": "own", "resourceClaimTemplateName": "two"}, 2, "4 devices needed"),
        # All pods share it, so it is charged once.
        ({"name": "shared", "resourceClaimName": "two"}, 3, None),
    ],
)
def test_all_pods_of_a_new_workload_count(entry: Document, pods: int, needed: str | None) -> None:
    there = context({**DEVICES, "max": "4"}, claims=HOLDER)
    templates = {(NAMESPACE, "two"): convert(PAIR, ResourceClaim).spec.devices}
    there = replace(there, templates=templates)
    view, path = convert(pod(entry), Pod), FieldPath.of("spec", "template")
    target = Target(view=view, raw=pod(entry), path=path, namespace=NAMESPACE, pods=pods)

    messages = [finding.message for finding in validate(target, there)]

    told = (
        f"DeviceQuota validated, limit devices: {needed}, 3 of 4 devices left for {pods} pods; "
        "where the quota is enforced, some of them wait"
    )
    assert messages == ([] if needed is None else [told])
