"""The charges of quotas in the sidecar, from the objects that changed."""

from typing import Any

import msgspec
from msgspec.structs import replace

from allocator.model.feature_gates import Features
from kube.api.core import Pod
from kube.api.device_quota import LegacyKey
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.resource import ResourceClaim
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.ledger import Totals
from sidecar.state.projections import project_quota_pod
from sidecar.state.quota_charges import QuotaChanges, QuotaCharges, QuotaObjects, nothing
from testing.allocation.builders import (
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, device_limit, quota

ONE = 10**9
NAME = ("default", "c")
POD = ("default", "pod")
KEYS = [{"name": "main", "resources": {"requests": {f"{IMPLICIT_PREFIX}gpu": "2"}}}]


def charges() -> QuotaCharges:
    made, objects = QuotaCharges(Features()), nothing()
    objects.quotas["team"] = quota(device_limit(8))
    objects.namespaces["default"] = {}
    objects.classes.update(classes())
    objects.slices["a"] = slice_of(device("a"), device("b"))
    made.apply(QuotaChanges(objects, begins_anew=True, is_needed=True))
    return made


def apply(to: QuotaCharges, **fields: Any) -> Totals:
    objects: QuotaObjects = nothing()._replace(**fields)
    to.apply(QuotaChanges(objects, is_needed=True))
    assert to.book is not None
    (account,) = to.book.accounts("default")
    return to.book.ledger.totals(account)


def pod(*, status: dict[str, Any] | None = None, **spec: Any) -> Pod | None:
    document = {
        "metadata": {"name": "pod", "namespace": "default", "uid": "pod"},
        "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}], **spec},
        "status": status or {},
    }
    return project_quota_pod(msgspec.json.encode(document))


def open_claim() -> ResourceClaim:
    return claim(request(), name="c")


def test_a_claim_is_promised_while_a_pod_of_another_scheduler_may_get_it() -> None:
    book = charges()
    assert apply(book, claims={NAME: open_claim()}) == Totals()

    pods = {POD: pod(), ("default", "second"): pod()}
    assert apply(book, pods=pods, claims={NAME: open_claim()}) == Totals(promised=ONE)

    assert apply(book, pods={POD: None}, claims={NAME: open_claim()}) == Totals(promised=ONE)
    last = {("default", "second"): None}
    assert apply(book, pods=last, claims={NAME: open_claim()}) == Totals()


def test_what_was_promised_settles_with_the_allocation() -> None:
    book = charges()
    apply(book, pods={POD: pod()}, claims={NAME: open_claim()})

    assert apply(book, claims={NAME: allocated_claim(result("a"))}) == Totals(used=ONE)


def test_other_pods_are_promised_nothing() -> None:
    assert pod(schedulerName=SCHEDULER_NAME) is None
    assert pod(schedulingGates=[{"name": QUOTA_GATE}]) is None
    assert pod(nodeName="node-1") is None
    assert pod(status={"phase": "Succeeded"}) is None
    assert pod(resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}]) is None


def test_pods_of_a_bridge_of_another_name_are_promised_nothing() -> None:
    document = {
        "metadata": {"name": "pod", "namespace": "default", "uid": "pod"},
        "spec": {
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
            "containers": KEYS,
            "schedulerName": "gpu-scheduler",
        },
    }
    raw = msgspec.json.encode(document)
    claims = {NAME: open_claim()}

    own = {POD: project_quota_pod(raw, "gpu-scheduler")}
    assert apply(charges(), pods=own, claims=claims).promised == 0
    others = {POD: project_quota_pod(raw)}
    assert apply(charges(), pods=others, claims=claims).promised == 3 * ONE


def test_keys_of_a_class_are_promised_until_the_pod_is_bound() -> None:
    book = charges()
    keys: dict[str, Any] = {"resourceClaims": [], "containers": KEYS}
    assert apply(book, pods={POD: pod(**keys)}) == Totals(promised=2 * ONE)

    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}
    bound = pod(nodeName="node-1", status=status, **keys)
    assert apply(book, pods={POD: bound}) == Totals()


def test_keys_of_a_device_plugin_are_promised_to_a_pod_of_the_bridge_without_a_gate() -> None:
    """They were charged only once it ran."""
    book = charges()
    gpus = device_limit(8, legacy_keys=(LegacyKey(name="nvidia.com/gpu"),))
    apply(book, quotas={"team": quota(gpus)})
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    spec: dict[str, Any] = {"containers": containers, "schedulerName": SCHEDULER_NAME}

    gates = [{"name": QUOTA_GATE}]
    gated = {POD: pod(schedulingGates=gates, **spec)}
    claims = {NAME: open_claim()}
    assert apply(book, pods=gated, claims=claims) == Totals(waiting=2 * ONE)

    let_through = {POD: pod(**spec)}
    assert apply(book, pods=let_through, claims=claims) == Totals(promised=2 * ONE)

    # No claim is made for a key that a class maps, and while the bridge does not know of the class, it places the pod.
    gpu = classes()["gpu"]
    mapping = replace(gpu, spec=replace(gpu.spec, extended_resource_name="nvidia.com/gpu"))
    assert apply(book, classes={"gpu": mapping}) == Totals(promised=2 * ONE)

    assert apply(book, pods={POD: pod(nodeName="node-1", **spec)}) == Totals(used=2 * ONE)


def test_promises_follow_the_devices() -> None:
    book = charges()
    requested = {"claims": {NAME: open_claim()}, "pods": {POD: pod()}}
    assert apply(book, **requested) == Totals(promised=ONE)

    assert apply(book, slices={"a": None}) == Totals()
    assert apply(book, slices={"a": slice_of(device("a"), generation=2)}) == Totals(promised=ONE)


def test_memory_of_devices_that_are_away_counts_as_soon_as_others_are_back() -> None:
    book, cards = charges(), slice_of(device("a", capacity={"memory": "80Gi"}), pool="other")
    apply(book, quotas={"team": quota(capacity_limit("memory", "160Gi"))}, slices={"a": None})
    assert apply(book, claims={NAME: allocated_claim(result("a"), result("b"))}) == Totals()

    assert apply(book, slices={"other": cards}) == Totals(used=160 * 2**30 * ONE)
