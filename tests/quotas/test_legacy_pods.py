"""The charges of pods with keys of device plugins and other schedulers, beside claims."""

from typing import Any

import msgspec
import pytest

from allocator.model.feature_gates import Features
from kube.api.core import Pod
from kube.api.device_quota import LegacyKey
from kube.api.meta import decode
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from kube.quantity import Quantity
from quotas.device_quotas.ledger import Totals
from quotas.device_quotas.legacy_pods import largest_legacy_request, legacy_charge
from quotas.device_quotas.limits import compile_limits
from quotas.gates.admission_order import decide
from quotas.gates.counted_objects import counted_claim, counted_pod
from quotas.gates.usage import QuotaUsage
from testing.allocation.builders import allocated_claim, classes, device, result, slice_of
from testing.device_quotas import capacity_limit, device_limit, quota

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
MIB = LegacyKey(name=MEMORY, per_unit=Quantity("1Mi"), multiplied_by=GPU)
GIBI = 2**30 * 10**9
ONE = 10**9


def container(sidecar: bool = False, **amounts: int) -> dict[str, Any]:
    names = {"gpu": GPU, "mem": MEMORY, "cores": CORES}
    limits = {names[name]: str(amount) for name, amount in amounts.items()}
    return {"resources": {"limits": limits}, **({"restartPolicy": "Always"} if sidecar else {})}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    document = {
        "metadata": {"name": "pod", "namespace": "default", "uid": "pod"},
        "spec": {"containers": containers, "initContainers": init, **spec},
    }
    return decode(msgspec.json.encode(document), Pod)


def charge(made: Pod, *keys: LegacyKey, mapped: tuple[str, ...] = ()) -> int:
    (limit,) = compile_limits(quota(capacity_limit("memory", "80Gi", legacy_keys=keys)))
    return legacy_charge(made.spec, limit, mapped)


@pytest.mark.parametrize(
    ("gibi", "made"),
    [
        (10, pod(container(gpu=1, mem=10240))),
        (20, pod(container(gpu=2, mem=10240))),
        # The translation gives a container without a number one device.
        (10, pod(container(mem=10240))),
        (0, pod(container(gpu=1))),
        (0, pod(container())),
        (30, pod(container(gpu=2, mem=10240), container(gpu=1, mem=10240))),
        # The number of one container is not that of another.
        (11, pod(container(gpu=1, mem=10240), container(mem=1024))),
        (10, pod(container(mem=10240), init=(container(mem=8192),))),
        (16, pod(container(mem=10240), init=(container(gpu=2, mem=8192),))),
        (12, pod(container(mem=10240), init=(container(sidecar=True, mem=2048),))),
        (
            12,
            pod(
                container(mem=1024),
                init=(container(sidecar=True, mem=2048), container(mem=10240)),
            ),
        ),
        (
            11,
            pod(
                container(mem=1024),
                init=(container(mem=10240), container(sidecar=True, mem=10240)),
            ),
        ),
    ],
)
def test_the_effective_amount_of_a_pod_counts(gibi: int, made: Pod) -> None:
    assert charge(made, MIB) == gibi * GIBI


def test_requests_count_where_they_are_given() -> None:
    made = pod({"resources": {"requests": {MEMORY: "1024"}}})

    assert charge(made, MIB) == GIBI


@pytest.mark.parametrize(
    ("number", "key", "made"),
    [
        (1, LegacyKey(name=GPU), pod(container(gpu=1))),
        (1, LegacyKey(name=GPU, without=(MEMORY,)), pod(container(gpu=1))),
        (0, LegacyKey(name=GPU, without=(MEMORY,)), pod(container(gpu=1, mem=1))),
        # Another container of the pod has it.
        (0, LegacyKey(name=GPU, without=(MEMORY,)), pod(container(gpu=1), container(mem=1))),
        (1, LegacyKey(name=GPU, without=(MEMORY,)), pod(container(gpu=1, mem=0))),
        (0, LegacyKey(name=GPU, only_with=(MEMORY, CORES)), pod(container(gpu=1))),
        (2, LegacyKey(name=GPU, only_with=(MEMORY, CORES)), pod(container(gpu=2, cores=1))),
    ],
)
def test_other_keys_tell_whose_devices_a_key_means(number: int, key: LegacyKey, made: Pod) -> None:
    assert charge(made, key) == number * ONE


def test_a_key_that_a_class_maps_counts_by_its_claim() -> None:
    assert charge(pod(container(gpu=1)), LegacyKey(name=GPU), mapped=(GPU,)) == 0


def test_a_quota_without_legacy_keys_counts_claims_only() -> None:
    assert charge(pod(container(gpu=1, mem=1024))) == 0


@pytest.mark.parametrize(
    ("request_gibi", "device_gibi", "made"),
    [
        (20, 10, pod(container(gpu=2, mem=10240))),
        (10, 10, pod(container(mem=10240))),
        # A cap is on one container, and the pod has more.
        (20, 12, pod(container(gpu=2, mem=10240), container(mem=12288))),
        (30, 30, pod(container(mem=10240), init=(container(mem=30720),))),
        (0, 0, pod(container(gpu=1))),
    ],
)
def test_the_largest_request_of_a_container_counts_for_caps(
    request_gibi: int, device_gibi: int, made: Pod
) -> None:
    (limit,) = compile_limits(quota(capacity_limit("memory", "80Gi", legacy_keys=(MIB,))))

    assert largest_legacy_request(made.spec, limit) == (request_gibi * GIBI, device_gibi * GIBI)


def test_a_key_that_does_not_tell_devices_has_no_amount_on_one() -> None:
    key = LegacyKey(name="koordinator.sh/gpu-memory")
    (limit,) = compile_limits(quota(capacity_limit("memory", "80Gi", legacy_keys=(key,))))
    limits = {"koordinator.sh/gpu-memory": "30Gi"}
    made = pod({"resources": {"limits": limits}})

    assert largest_legacy_request(made.spec, limit) == (30 * GIBI, 0)


# --- the life of a pod ----------------------------------------------------------------------------

GATES = [{"name": QUOTA_GATE}]


def usage(most: int = 4, **fields: Any) -> QuotaUsage:
    followed = QuotaUsage(Features(), lambda: 0.0)
    limit = device_limit(most, legacy_keys=(LegacyKey(name=GPU),), **fields)
    followed.replace_quota("team", quota(limit))
    followed.replace_namespace("default", {})
    for name, device_class in classes().items():
        followed.replace_class(name, device_class)
    followed.replace_slices({"a": slice_of(*map(device, "abcd"))})
    return followed


def put(followed: QuotaUsage, name: str, number: int = 1, **spec: Any) -> None:
    made = counted_pod(pod(container(gpu=number), **spec))
    assert made is not None
    metadata = msgspec.structs.replace(made.metadata, name=name, uid=name)
    followed.replace_pod(("default", name), msgspec.structs.replace(made, metadata=metadata))


def totals(followed: QuotaUsage) -> Totals:
    for key in tuple(followed.book.outstanding):
        followed.book.charge(key)
    (account,) = followed.book.accounts("default")
    return followed.book.ledger.totals(account)


def test_a_pod_waits_is_promised_has_and_releases() -> None:
    followed = usage()
    put(followed, "pod", schedulingGates=GATES)
    assert totals(followed) == Totals(waiting=ONE)

    put(followed, "pod")
    assert totals(followed) == Totals(promised=ONE)

    put(followed, "pod", nodeName="node")
    assert totals(followed) == Totals(used=ONE)

    followed.replace_pod(("default", "pod"), None)
    assert totals(followed) == Totals()


def test_the_mirror_of_a_static_pod_counts() -> None:
    """Its kubelet runs the pod, so that its devices are in use; Kubernetes' ResourceQuotas count it, too."""
    followed = usage()
    static = pod(container(gpu=2), nodeName="node")
    annotations = {"kubernetes.io/config.mirror": "hash"}
    metadata = msgspec.structs.replace(static.metadata, annotations=annotations)
    mirror = counted_pod(msgspec.structs.replace(static, metadata=metadata))
    assert mirror is not None

    followed.replace_pod(("default", "static-node"), mirror)

    assert totals(followed) == Totals(used=2 * ONE)


def test_a_pod_above_a_cap_never_gets_through() -> None:
    followed = usage(4, per_request="2")
    put(followed, "large", 3, schedulingGates=GATES)
    put(followed, "small", 2, schedulingGates=GATES)
    assert totals(followed) == Totals(waiting=5 * ONE)

    decisions = decide(followed, {}, 0.0)

    assert decisions.let_through == (("default", "small"),)
    (waiting,) = decisions.waiting
    assert waiting.excesses[0].message.endswith(
        "3 devices for a request, at most 2 devices allowed"
    )


def test_claims_and_pods_with_keys_share_one_limit() -> None:
    followed = usage(2)
    allocated = allocated_claim(result("a"))
    followed.replace_claim(("default", "c"), counted_claim(allocated))
    put(followed, "old", nodeName="node")
    put(followed, "next", schedulingGates=GATES)

    assert totals(followed) == Totals(used=2 * ONE, waiting=ONE)
    decisions = decide(followed, {}, 0.0)
    assert decisions.let_through == ()
    (waiting,) = decisions.waiting
    assert waiting.excesses[0].message.endswith("1 device needed, 0 of 2 devices left")

    followed.replace_pod(("default", "old"), None)
    assert decide(followed, {}, 0.0).let_through == (("default", "next"),)
    assert totals(followed) == Totals(used=ONE, promised=ONE)


def test_a_move_to_claims_changes_no_total() -> None:
    """A pod with a key goes, and its successor has a claim instead: at no time are both budgets open."""
    followed = usage(1)
    put(followed, "old", nodeName="node")
    put(followed, "other", schedulingGates=GATES)
    assert decide(followed, {}, 0.0).let_through == ()
    totals(followed)
    followed.replace_pod(("default", "old"), None)
    followed.replace_claim(("default", "c"), counted_claim(allocated_claim(result("a"))))

    assert totals(followed) == Totals(used=ONE, waiting=ONE)
    assert decide(followed, {}, 0.0).let_through == ()


def test_a_pod_with_a_mapped_key_counts_once() -> None:
    followed = usage()
    gpu = classes()["gpu"]
    spec = msgspec.structs.replace(gpu.spec, extended_resource_name=GPU)
    followed.replace_class("gpu", msgspec.structs.replace(gpu, spec=spec))
    put(followed, "pod")
    assert totals(followed) == Totals(promised=ONE)

    # A device plugin of its node serves the key, so the scheduler has made no claim.
    put(followed, "pod", nodeName="node")
    assert totals(followed) == Totals(used=ONE)


def test_of_an_owned_driver_pods_with_keys_still_wait() -> None:
    followed = usage(1)
    put(followed, "old", nodeName="node")
    put(followed, "next", schedulingGates=GATES)
    totals(followed)
    (account,) = followed.book.accounts("default")

    assert decide(followed, {account.limit.driver: "the bridge decides"}, 0.0).let_through == ()


def test_keys_of_a_pod_of_the_bridge_are_promised_until_it_has_a_node() -> None:
    followed = usage()
    put(followed, "pod", schedulerName=SCHEDULER_NAME)
    assert totals(followed) == Totals(promised=ONE)

    put(followed, "pod", schedulerName=SCHEDULER_NAME, nodeName="node")
    assert totals(followed) == Totals(used=ONE)
