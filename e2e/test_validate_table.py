"""Objects as people apply them, and the party that says no: the API server, a policy in it, or the webhook.

All three are in force. The API server is asked first, then the policies, and what they refuse never
comes to the webhook. A dry run says the same as the real thing.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from e2e.access import Access, Object
from e2e.objects import cron_job, daemon_set, deployment, job, pod, replica_set, stateful_set
from e2e.small_inventory import (
    Who,
    add_nodes,
    amount,
    asking,
    claim,
    class_of,
    created,
    gpu,
    posted,
    refusing_party,
    shared_gpu,
    template,
    tried,
)
from kube.manifests.reader import read_paths
from testing import documents
from testing import rule_cases as cases
from testing.documents import NVIDIA, cel, config, exactly, first, gpu_config, sub

pytestmark = pytest.mark.usefixtures("drawbridge", "inventory", "policies")

POLICIES: Final = Path(__file__).parent.parent / "manifests" / "policies" / "policies.yaml"
DRIVER: Final = "table.validate.example.com"
SHARED: Final = "shared.table.validate.example.com"
GONE: Final = "gone.validate.example.com"
NODES: Final = {
    "table-a": (
        gpu("gpu-0", "40Gi"),
        gpu("gpu-1", "80Gi"),
        gpu("gpu-2", "40Gi", root="pci0000:80"),
        gpu("gpu-3", "80Gi", root="pci0000:80"),
    ),
    "table-b": (gpu("gpu-0", "40Gi"),),
}
ROOT: Final = "resource.kubernetes.io/pcieRoot"
NICS: Final = "dra.net"


class Row(NamedTuple):
    """Attributes: words: Parts of the output of kubectl; nothing at all if empty."""

    name: str
    document: Object
    who: Who = Who.NOBODY
    words: str = ""


def named(name: str, document: Object) -> Object:
    return {**document, "metadata": {**document["metadata"], "name": name}}


def requests(*entries: Object, **devices: Any) -> Object:
    return claim({"devices": {"requests": list(entries), **devices}})


def ours(name: str = "gpu", /, **fields: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": DRIVER, **fields}}


def selecting(expression: str) -> Object:
    return claim(asking(DRIVER, selectors=[cel(expression)]))


# --- what drivers and Kubernetes itself show ------------------------------------------------------

_MODEL: Final = f'device.attributes["{DRIVER}"].model == "large"'
_UUID: Final = f'device.attributes["{NVIDIA}"].uuid == "GPU-1"'
_MEMORY: Final = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
_MIG: Final = f"device.attributes['{NVIDIA}'].profile == '1g.5gb'"
_SLICING: Final = gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
_MPS: Final = gpu_config(
    strategy="MPS",
    mpsConfig={
        "defaultActiveThreadPercentage": 50,
        "defaultPinnedDeviceMemoryLimit": "10Gi",
    },
)
_NIC: Final = {
    "interface": {"name": "eth1", "addresses": ["192.0.2.10/24"]},
    "routes": [{"destination": "0.0.0.0/0", "gateway": "192.0.2.1"}],
}
_TAINTED: Final = {"key": f"{DRIVER}/unhealthy", "operator": "Exists", "effect": "NoSchedule"}

GOOD: Final = (
    Row("one device", claim(asking(DRIVER))),
    Row("as many as a node has", claim(asking(DRIVER, count=4))),
    Row("all of a node", claim(asking(DRIVER, allocationMode="All"))),
    Row("a template", template(asking(DRIVER, count=2))),
    Row("a device of a model", selecting(_MODEL)),
    Row("a device with enough memory", selecting(_MEMORY)),
    Row("two of one PCIe root", requests(ours(count=2), constraints=[{"matchAttribute": ROOT}])),
    Row(
        "two of different PCIe roots",
        requests(ours(count=2), constraints=[{"distinctAttribute": ROOT}]),
    ),
    Row(
        "two requests aligned",
        requests(
            ours("one"),
            ours("other"),
            constraints=[{"requests": ["one", "other"], "matchAttribute": ROOT}],
        ),
    ),
    Row("a toleration", claim(asking(DRIVER, tolerations=[_TAINTED]))),
    Row("an amount of a shared device", claim(asking(SHARED, capacity=amount("10Gi")))),
    Row("an amount that is rounded", claim(asking(SHARED, capacity=amount("11Gi")))),
    Row(
        "a large device or two small ones",
        requests(
            {
                "name": "gpu",
                "firstAvailable": [
                    {"name": "large", "deviceClassName": DRIVER, "selectors": [cel(_MODEL)]},
                    {"name": "small", "deviceClassName": DRIVER, "count": 2},
                ],
            }
        ),
    ),
    Row("a class", named("mine.validate.example.com", class_of(DRIVER))),
    Row(
        "a class with an extended resource",
        {
            **named("mapped.validate.example.com", class_of(DRIVER)),
            "spec": {
                **class_of(DRIVER)["spec"],
                "extendedResourceName": "validate.example.com/gpu",
            },
        },
    ),
    Row("a pod with a claim", pod("asks", claims={"gpu": "fits"})),
    Row("a Deployment", deployment("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a StatefulSet", stateful_set("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a DaemonSet", daemon_set("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a ReplicaSet", replica_set("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a Job", job("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a CronJob", cron_job("asks", pod("asks", claims={"gpu": "fits"}))),
    Row("a pod whose template comes later", pod("asks", claims={"gpu": "later"})),
)
"""Nobody says a word."""

DOCUMENTED: Final = (
    Row("NVIDIA: one GPU each", template(asking(NVIDIA))),
    Row("NVIDIA: a GPU by its UUID", claim(asking(NVIDIA, selectors=[cel(_UUID)]))),
    Row("NVIDIA: a slice", claim(asking("mig.nvidia.com", selectors=[cel(_MIG)]))),
    Row("NVIDIA: time slices", requests(exactly(), config=[config(_SLICING, "gpu")])),
    Row("NVIDIA: MPS", requests(exactly(), config=[config(_MPS, "gpu")])),
    Row(
        "NVIDIA: slices of one GPU",
        requests(
            {"name": "a", "exactly": {"deviceClassName": "mig.nvidia.com"}},
            {"name": "b", "exactly": {"deviceClassName": "mig.nvidia.com"}},
            constraints=[{"matchAttribute": f"{NVIDIA}/parentUUID"}],
        ),
    ),
    Row("NVIDIA: alternatives", requests(first(sub("two", count=2), sub("one")))),
    Row(
        "DRANET: an interface with an address",
        requests(
            {"name": "nic", "exactly": {"deviceClassName": "dranet"}},
            config=[config(_NIC, "nic", driver=NICS)],
        ),
    ),
    Row(
        "DRANET: a NIC beside a GPU",
        requests(
            exactly(),
            {"name": "nic", "exactly": {"deviceClassName": "dranet"}},
            constraints=[{"requests": ["gpu", "nic"], "matchAttribute": ROOT}],
        ),
    ),
    Row(
        "DRANET: RDMA",
        claim(asking("dranet", selectors=[cel("device.attributes['dra.net'].rdma")])),
    ),
    Row(
        "the example driver: space partitioning",
        requests(
            exactly(deviceClassName="gpu.example.com"),
            config=[
                config(
                    {
                        "apiVersion": "gpu.resource.example.com/v1alpha1",
                        "kind": "GpuConfig",
                        "sharing": {
                            "strategy": "SpacePartitioning",
                            "spacePartitioningConfig": {"partitionCount": 10},
                        },
                    },
                    driver="gpu.example.com",
                )
            ],
        ),
    ),
    Row(
        "HAMi: cores and memory",
        claim(
            asking(
                "hami-core-gpu.project-hami.io",
                capacity={"requests": {"cores": "30", "memory": "4Gi"}},
            )
        ),
    ),
)
"""Claims from the documentation of drivers that are not installed here: admitted, perhaps with a warning
that nobody publishes such devices."""

NEVER: Final = (
    Row(
        "more than a node has",
        claim(asking(DRIVER, count=5)),
        Who.WEBHOOK,
        "count 5 is more than the 4 selected devices",
    ),
    Row(
        "the same in a template",
        template(asking(DRIVER, count=5)),
        Who.WEBHOOK,
        "spec.spec.devices.requests[0].exactly.count",
    ),
    Row(
        "more memory than any device",
        claim(asking(DRIVER, capacity=amount("100Gi"))),
        Who.WEBHOOK,
        "memory 100Gi is more than the 80Gi of the largest device",
    ),
    Row(
        "more large ones than a node has",
        claim(asking(DRIVER, count=3, selectors=[cel(_MODEL)])),
        Who.WEBHOOK,
        "count 3 is more than the 2",
    ),
    Row(
        "three of one PCIe root",
        requests(ours(count=3), constraints=[{"matchAttribute": ROOT}]),
        Who.WEBHOOK,
        "no node can ever satisfy the constraints",
    ),
    Row(
        "three of different PCIe roots",
        requests(ours(count=3), constraints=[{"distinctAttribute": ROOT}]),
        Who.WEBHOOK,
        "no node can ever satisfy the constraints",
    ),
    Row(
        "two requests that a node has only one by one",
        requests(ours("a", count=3), ours("b", count=2)),
        Who.WEBHOOK,
        "together",
    ),
    Row(
        "an amount above the policy's range",
        claim(asking(SHARED, capacity=amount("39Gi"))),
        Who.WEBHOOK,
        "rounded up to 40Gi",
    ),
    Row(
        "a capacity that nobody publishes",
        claim(asking(DRIVER, capacity={"requests": {"cores": "1"}})),
        Who.WEBHOOK,
        'have a capacity "cores"',
    ),
    Row(
        "a pod that names a template that can never fit",
        pod("asks", claims={"gpu": "never"}),
        Who.WEBHOOK,
        "count 5 is more than the 4",
    ),
    Row(
        "a Deployment that does",
        deployment("asks", pod("asks", claims={"gpu": "never"})),
        Who.WEBHOOK,
        "spec.template.spec.resourceClaims[0].resourceClaimTemplateName",
    ),
    Row(
        "a CronJob that does",
        cron_job("asks", pod("asks", claims={"gpu": "never"})),
        Who.WEBHOOK,
        "spec.jobTemplate.spec.template.spec.resourceClaims[0]",
    ),
    Row(
        "a pod of two claims that each fit",
        pod("asks", claims={"one": "three", "other": "three"}),
        Who.WEBHOOK,
        "spec.resourceClaims",
    ),
)
"""Claims that the inventory can never give."""

WARNED: Final = (
    Row(
        "a policy that no scheduler evaluates",
        documents.policy({"name": "mig", "compatibilityGroups": ["mig"]}),
        words="the policy is accepted, but not enforced",
    ),
    Row(
        "devices of a driver that publishes nothing",
        claim(asking(GONE, count=9)),
        words="no published device is of class",
    ),
    Row(
        "a class that does not exist",
        claim(asking("nobody.validate.example.com")),
        words='DeviceClass "nobody.validate.example.com" does not exist',
    ),
    Row(
        "a model that nobody has",
        selecting(_MODEL.replace("large", "huge")),
        words="match the selectors",
    ),
    Row(
        "a constraint on one device",
        requests(ours(), constraints=[{"matchAttribute": ROOT}]),
        words="compares nothing",
    ),
    Row(
        "a class that fails on other drivers' devices",
        documents.device_class(_MODEL),
        words="errors on devices of other drivers",
    ),
    Row("a class of everything", documents.device_class(), words="every device of every driver"),
)
"""Created, and told."""

WHO: Final[Mapping[str, Who]] = {
    **dict.fromkeys(
        (
            "fields of v1beta1",
            "an expression that is not below cel",
        ),
        Who.DECODER,
    ),
    **dict.fromkeys(
        (
            "a request without a way to ask",
            "a request with both ways to ask",
            "a request without a class",
            "a name that stands twice",
            "an alternative that stands twice",
            "a count below zero",
            "a count beside All",
            "a mode that does not exist",
            "nine alternatives",
            "a configuration for an unknown request",
            "a constraint on an unknown request",
            "a constraint on one device and a misspelt request",
            "a constraint without an attribute",
            "a constraint without a domain",
            "a request in upper case",
            "an alternative with dots",
            "a class with a space",
            "an attribute with a hyphen",
            "an attribute without a text before its slash",
            "a driver with an underscore",
            "a toleration of a key with a space",
            "a toleration of a value with a space",
            "names of one character too many",
            "a request twice in a constraint",
            "a request twice in a configuration",
            "more constraints than a claim has",
            "more configurations than a claim has",
            "more selectors than a request has",
            "more selectors than an alternative has",
            "more alternatives in a constraint than there may be requests",
            "a configuration of nothing",
            "a toleration with a value beside Exists",
            "an operator that does not exist",
            "a selector that does not parse",
            "attributes that are not below device",
            "a text that is no answer",
            "quantities compared as numbers",
            "the device's name",
            "an attribute by its qualified name",
            "a class that does not parse",
            "an extended resource without a domain",
            "an extended resource of Kubernetes itself",
            "an extended resource with an empty part of its domain",
            "an extended resource with a hyphen before a part of its domain",
            "an extended resource with a domain that no quota could name",
            "a class in upper case",
            "a class with a driver with an underscore",
            "a class with a configuration of nothing",
            "a class of more selectors than there may be",
            "a class of more configurations than there may be",
            "two rules of one name",
            "a rule of three groups",
            "a rule without a word",
            "a claim without a source",
            "a claim with two sources",
            "a claim that stands twice",
            "a container that uses another claim",
        ),
        Who.VALIDATION,
    ),
    **dict.fromkeys(
        (
            "more devices than a claim holds",
            "more devices in all than a claim holds",
            "too many in every alternative",
            "a constraint of two attributes",
            "seventeen tolerations",
            "seventeen tolerations of an alternative",
            "an amount below zero",
            "a capacity of several slashes",
            "an attribute of several slashes",
            "two faults at once",
            "a template with a fault",
            "the member of the API's value",
            "the member of the API's value, by index",
            "an attribute by its qualified name, in the API's spelling",
            "parameters without a kind",
            "a kind that the driver has not",
            "another group",
            "an unknown field",
            "an unknown field of our own driver",
            "an unknown value of our own driver",
            "no strategy",
            "an unknown strategy",
            "an unknown interval",
            "an empty timeSlicingConfig, which ends the plugin",
            "the configuration of the other strategy",
            "more than all threads",
            "a limit below 1Mi",
            "a number of bytes below 1Mi",
            "a percentage with a fraction",
            "a strategy that is no text",
            "sharing that is no object",
            "a limit that is no quantity",
            "an interval for MIG devices",
            "a policy that VFIO has not",
            "the example driver's parameters",
            "a class that asks for a member",
            "a class with parameters that its driver refuses",
        ),
        Who.POLICY,
    ),
    **dict.fromkeys(
        (
            "a rule that asks for the device itself",
            "a rule that asks for a member",
        ),
        Who.WEBHOOK,
    ),
}
"""The first party to reject each object of testing/rule_cases.py that is an error by itself."""


@pytest.fixture(scope="module")
def inventory(cluster: Access) -> Iterator[None]:
    node_names = add_nodes(cluster, DRIVER, NODES)
    node_names += add_nodes(cluster, SHARED, {"table-c": (shared_gpu("gpu-0"),)})
    cluster.apply(class_of(GONE))
    yield
    cluster.remove_nodes(node_names)
    for name in (DRIVER, SHARED, GONE):
        cluster.kubectl("delete", "deviceclass", name, "--wait=false")


@pytest.fixture(scope="module")
def policies(cluster: Access) -> Iterator[None]:
    """The policies inside the API server, beside the webhook."""
    documents = [read_path.document for read_path in read_paths([str(POLICIES)])]
    cluster.apply(documents)
    yield
    for document in documents:
        cluster.kubectl("delete", document["kind"], document["metadata"]["name"], "--wait=false")


@pytest.fixture(scope="module")
def place(cluster: Access, stage: str, inventory: None, policies: None) -> str:
    """A namespace with templates, once all three are in force."""
    for name, count in (("fits", 1), ("three", 3)):
        template_ = template(asking(DRIVER, count=count), name)
        cluster.apply({**template_, "metadata": {"name": name, "namespace": stage}})
    never = template(asking(DRIVER, count=5), "never")
    cluster.kubectl("label", "namespace", stage, "drawbridge.internal/enforcement=off")
    cluster.wait_until(lambda: tried(cluster, never, stage) == (0, ""), "the label counts")
    cluster.apply({**never, "metadata": {"name": "never", "namespace": stage}})
    cluster.kubectl("label", "namespace", stage, "drawbridge.internal/enforcement-")
    probes = (
        (pod("probe", claims={"gpu": "never"}), Who.WEBHOOK),
        (pod("probe", claims={"a": "three", "b": "three"}), Who.WEBHOOK),
        (claim(asking(SHARED, capacity=amount("39Gi"))), Who.WEBHOOK),
        (requests(exactly(count=33)), Who.POLICY),
    )
    for document, who in probes:
        cluster.wait_until(partial(_refuses, cluster, document, stage, who), f"{who} refuses")
    return stage


def _refuses(cluster: Access, document: Object, namespace: str, who: Who) -> bool:
    return refusing_party(*posted(cluster, document, namespace)) is who


_DOTTED: Final = frozenset({"DeviceClass", "DeviceCompatibilityPolicy"})


def _both(cluster: Access, row: Row, namespace: str) -> str:
    """Return the output of kubectl about an object, tried and applied alike; it is gone afterwards."""
    kind = row.document["kind"]
    name = "validated.example.com" if kind in _DOTTED else "validated"
    document = named(name, row.document)
    dry = tried(cluster, document, namespace)
    real = created(cluster, document, namespace)
    if not real[0]:
        path = cluster.kind(kind).path(namespace, name)
        cluster.request("DELETE", path, {"propagationPolicy": "Background"})
        cluster.wait_gone(kind, name, namespace)
    assert dry == real
    assert bool(real[0]) == (row.who is not Who.NOBODY), real[1]
    return real[1]


@pytest.mark.parametrize("row", GOOD, ids=lambda row: row.name)
def test_what_is_right_is_admitted_without_a_word(cluster: Access, place: str, row: Row) -> None:
    assert _both(cluster, row, place) == ""


@pytest.mark.parametrize("row", DOCUMENTED, ids=lambda row: row.name)
def test_what_drivers_document_is_admitted(cluster: Access, place: str, row: Row) -> None:
    code, words = posted(cluster, row.document, place)

    assert refusing_party(code, words) is Who.NOBODY, words


@pytest.mark.parametrize("row", NEVER, ids=lambda row: row.name)
def test_what_can_never_fit_is_refused_by_the_webhook(
    cluster: Access, place: str, row: Row
) -> None:
    # On a busy machine the first review may find no time to evaluate a selector.
    cluster.wait_until(
        partial(_refuses, cluster, row.document, place, row.who), f"{row.who} refuses"
    )
    _, words = posted(cluster, row.document, place)

    assert row.words in words
    assert row.words in _both(cluster, row, place)


@pytest.mark.parametrize("row", WARNED, ids=lambda row: row.name)
def test_what_may_be_a_mistake_is_warned_of(cluster: Access, place: str, row: Row) -> None:
    words = _both(cluster, row, place)

    assert words.startswith("Warning: ")
    assert row.words in words


WRONG: Final = tuple(
    case
    for case in (
        *cases.CLAIMS,
        *cases.SELECTORS,
        *cases.CONFIGS,
        *cases.CLASSES,
        *cases.POLICIES,
        *cases.PODS,
    )
    if any(expected_line.startswith("error") for expected_line in case.expected_lines)
)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_what_is_wrong_by_itself_is_refused_by_who_is_asked_first(
    cluster: Access, place: str, case: cases.Case
) -> None:
    code, words = posted(cluster, case.document, place)

    assert refusing_party(code, words) is WHO[case.name], words


def test_the_table_is_whole() -> None:
    assert WHO.keys() == {case.name for case in WRONG}
    assert len(GOOD) + len(DOCUMENTED) + len(NEVER) + len(WARNED) + len(WRONG) >= 80
