"""RDMA pools and cloud NICs: the request of each key, and refusals or warnings."""

from typing import NamedTuple

import msgspec
import pytest

from testing.builders import container, finding_texts, legacy_view
from testing.documents import Document
from translation.model.intents import DeviceKind, Intent
from translation.vocabularies.rdma import VOCABULARY, translate

LIMITS = "spec.containers[0].resources.limits"
POOL = "rdma/hca_shared_devices_a"
EFA = "vpc.amazonaws.com/efa"
ERDMA = "aliyun/erdma"
GKE = "networking.gke.io.networks/rdma-0"


class IntentFields(msgspec.Struct, frozen=True):
    """The fields of an intent that this vocabulary sets."""

    container: str
    resource: str | None
    count: int
    pool: bool = False
    also: tuple[str, ...] = ()


def intent_fields(intent: Intent) -> IntentFields:
    assert intent.kind is DeviceKind.NIC
    assert intent.exclusive is not intent.pool
    return IntentFields(
        intent.container, intent.filter.resource, intent.count, intent.pool, tuple(intent.also)
    )


def share(resource: str = POOL, name: str = "main", *also: str) -> IntentFields:
    return IntentFields(name, resource, 1, pool=True, also=also)


def whole(resource: str, count: int = 1, name: str = "main") -> IntentFields:
    return IntentFields(name, resource, count)


class Case(NamedTuple):
    name: str
    containers: tuple[Document, ...]
    want: tuple[IntentFields, ...] = ()
    findings: tuple[str, ...] = ()
    init: tuple[Document, ...] = ()


SIDECAR = container("proxy", {POOL: 1}, restartPolicy="Always")

WISHES = (
    Case("other resources are not ours", (container("main", {"cpu": 2}),)),
    Case("a share of a pool", (container("main", {POOL: 1}),), (share(),)),
    Case("no share is asked by zero", (container("main", {POOL: 0}),)),
    Case(
        "several shares are no number of NICs",
        (container("main", {POOL: 4}),),
        (share(),),
        (f"warning clamped {LIMITS}[{POOL}]",),
    ),
    Case(
        "a container may have shares of several pools",
        (container("main", {"rdma/ib": 1, "rdma/roce": 1}),),
        (share("rdma/ib"), share("rdma/roce")),
    ),
    Case(
        "containers with shares of one pool use the same devices",
        (container("a", {POOL: 1}), container("b"), container("c", {POOL: 1})),
        (share(POOL, "a", "c"),),
    ),
    Case(
        "an init container uses those of an app container",
        (container("a", {POOL: 1}), container("b", {POOL: 1})),
        (share(POOL, "a", "prepare", "b"),),
        init=(container("prepare", {POOL: 1}),),
    ),
    Case(
        "or of a sidecar, which stays",
        (container("main"),),
        (share(POOL, "proxy", "prepare"),),
        init=(container("prepare", {POOL: 1}), SIDECAR),
    ),
    Case(
        "or has its own",
        (container("main"),),
        (share(POOL, "prepare"),),
        init=(container("prepare", {POOL: 1}),),
    ),
    Case("eRDMA is handed out in shares, too", (container("main", {ERDMA: 1}),), (share(ERDMA),)),
    Case("EFA devices are counted", (container("main", {EFA: 4}),), (whole(EFA, 4),)),
    Case(
        "k is a thousand, as for the API server",
        (container("main", {EFA: "1k"}),),
        (whole(EFA, 1000),),
    ),
    Case(
        "each container has EFA devices of its own",
        (container("a", {EFA: 1}), container("b", {EFA: 2})),
        (whole(EFA, 1, "a"), whole(EFA, 2, "b")),
    ),
    Case("an interface to one of GKE's networks", (container("main", {GKE: 1}),), (whole(GKE),)),
    Case(
        "whose address is no device of its own",
        (container("main", {GKE: 1, f"{GKE}.IP": 1}),),
        (whole(GKE),),
    ),
    Case("an address alone is no device", (container("main", {f"{GKE}.IP": 1}),)),
)

REFUSALS = (
    Case(
        "half a share",
        (container("main", {POOL: "500m"}),),
        findings=(f"error notAnInteger {LIMITS}[{POOL}]",),
    ),
    Case(
        "less than none",
        (container("main", {EFA: -1}),),
        findings=(f"error negative {LIMITS}[{EFA}]",),
    ),
    Case(
        "half an address",
        (container("main", {GKE: 1, f"{GKE}.IP": "1500m"}),),
        (whole(GKE),),
        (f"error notAnInteger {LIMITS}[{GKE}.IP]",),
    ),
    Case(
        "two faults are both told",
        (container("main", {POOL: "1.5", EFA: -4}),),
        findings=(f"error notAnInteger {LIMITS}[{POOL}]", f"error negative {LIMITS}[{EFA}]"),
    ),
)


@pytest.mark.parametrize("case", WISHES + REFUSALS, ids=lambda case: case.name)
def test_translate(case: Case) -> None:
    got = translate(legacy_view(*case.containers, init=case.init))

    assert case.want == tuple(map(intent_fields, got.intents))
    assert case.findings == tuple(finding_texts(got.findings))


@pytest.mark.parametrize(
    ("names", "want"),
    [
        ({POOL, "cpu", EFA}, {POOL, EFA}),
        ({"rdma"}, set()),
        ({"example.com/rdma"}, set()),
        ({"aliyun/eni"}, set()),
        ({"vpc.amazonaws.com/pod-eni"}, set()),
        ({GKE, f"{GKE}.IP"}, {GKE, f"{GKE}.IP"}),
        ({f"{GKE}.IP"}, set()),
        ({GKE, "networking.gke.io.networks/blue.IP"}, {GKE}),
    ],
)
def test_keys_that_are_read(names: set[str], want: set[str]) -> None:
    assert want == {name for name in names if VOCABULARY.reads(name, names)}
