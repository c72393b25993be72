"""Verdicts about the inventory: proof denies, doubt warns, and no controller is ever refused.

Each story has a driver of its own and tells how its inventory gets smaller or larger.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, Drawbridge
from e2e.objects import deployment, pod, replica_set
from e2e.small_inventory import (
    MARK,
    add_nodes,
    amount,
    asking,
    claim,
    created,
    gpu,
    published,
    template,
    tried,
)
from kube.names import ENFORCEMENT_LABEL
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("drawbridge")

NODE: Final = "validated-node"
_numbers = itertools.count(1)
DEVICES: Final = (gpu("gpu-0", "80Gi"), gpu("gpu-1", "80Gi"))


class Site:
    """A driver with one node of two devices, and the words about claims there."""

    def __init__(self, cluster: Access, namespace: str, driver: str) -> None:
        self.cluster, self.namespace, self.driver = cluster, namespace, driver
        self.node = f"{NODE}-{driver.partition('.')[0]}"
        self.slice = published(driver, self.node, DEVICES)

    @property
    def too_many(self) -> Object:
        """A claim of three devices."""
        return claim(asking(self.driver, count=3))

    def words(self, document: Object | None = None) -> str:
        """Return the exit code and the output of kubectl for an object."""
        code, words = tried(self.cluster, document or self.too_many, self.namespace)
        return f"{code} {words}"

    def wait_for_words(self, *words: str, document: Object | None = None) -> str:
        """Return the output of kubectl once it has all the words."""
        output = ""

        def has_words() -> bool:
            nonlocal output
            output = self.words(document)
            return all(word in output for word in words)

        try:
            self.cluster.wait_until(has_words, f"kubectl says {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nits output: {output}") from None
        return output

    def wait_denied(self) -> None:
        """Wait until three devices are more than any node has."""
        self.wait_for_words("1 ", "count 3 is more than the 2")

    def publish(self, *slices: Object) -> None:
        """Publish slices in place of all others."""
        self.withdraw()
        self.cluster.apply(slices)

    def withdraw(self) -> None:
        """Withdraw all slices, as a driver does when its pod is replaced."""
        self.cluster.kubectl(
            "delete", "resourceslices", f"--field-selector=spec.nodeName={self.node}"
        )


@pytest.fixture
def site(cluster: Access, namespace: str) -> Iterator[Site]:
    site_ = Site(cluster, namespace, f"d{next(_numbers)}.validate.example.com")
    nodes = add_nodes(cluster, site_.driver, {site_.node: DEVICES})
    site_.wait_denied()
    yield site_
    cluster.remove_nodes(nodes)
    cluster.kubectl("delete", "deviceclass", site_.driver, "--wait=false")


def _wait_marked(cluster: Access, drawbridge: Drawbridge, driver: str) -> None:
    """Wait until the controller has seen the driver's devices."""

    def is_marked() -> bool:
        stored = cluster.find("configmaps", MARK, drawbridge.namespace)
        return driver in json.loads((stored or {}).get("data", {}).get("seen", "{}")).get(
            "classes", {}
        ).get(driver, {})

    cluster.wait_until(is_marked, "the mark is raised")


# --- proof ----------------------------------------------------------------------------------------


def test_what_no_node_has_is_denied_whoever_asks_for_it(site: Site) -> None:
    template_ = template(asking(site.driver, count=3))
    pod_ = pod("asks", claims={"gpu": "small"})
    site.cluster.apply(
        {
            **template(asking(site.driver)),
            "metadata": {"name": "small", "namespace": site.namespace},
        }
    )

    assert site.words(template_).startswith("1 ")
    assert "count 3 is more than the 2 selected devices" in site.words(template_)
    assert "request 2 devices to fit" in site.words(template_)
    assert site.words(pod_).startswith("0 ")
    assert site.words(deployment("asks", pod_)).startswith("0 ")


def test_pods_and_workloads_are_denied_for_a_template_that_can_never_fit(site: Site) -> None:
    """The template came when nobody looked; a pod that names it is told."""
    cluster, namespace = site.cluster, site.namespace
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=off")
    template_ = template(asking(site.driver, count=3))
    site.wait_for_words("0 ")
    assert created(cluster, template_, namespace)[0] == 0
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}-")
    site.wait_denied()
    pod_ = pod("asks", claims={"gpu": "wanted"})

    for document in (pod_, deployment("asks", pod_), replica_set("asks", pod_)):
        output = site.wait_for_words("1 ", "count 3 is more than the 2", document=document)
        assert "resourceClaims[0].resourceClaimTemplateName" in output


def test_an_amount_above_the_largest_device_is_denied(site: Site) -> None:
    words = site.words(claim(asking(site.driver, capacity=amount("100Gi"))))

    assert words.startswith("1 ")
    assert "memory 100Gi is more than the 80Gi of the largest device" in words


@pytest.mark.parametrize(("label", "code"), [("warn", "0 Warning: "), ("off", "0 ")])
def test_a_namespace_may_be_lenient(site: Site, label: str, code: str) -> None:
    site.cluster.kubectl("label", "namespace", site.namespace, f"{ENFORCEMENT_LABEL}={label}")

    output = site.wait_for_words("0 ")

    assert output.startswith(code)
    assert ("the namespace is labelled to warn" in output) == (label == "warn")


# --- doubt ----------------------------------------------------------------------------------------


def _to_zero(site: Site) -> str:
    site.withdraw()
    return ""


def _half_published(site: Site) -> str:
    half = published(site.driver, site.node, DEVICES[:1], parts=2, generation=2)
    site.publish(half)
    return "is incomplete"


def _one_device_fails(site: Site) -> str:
    site.publish(published(site.driver, site.node, DEVICES[:1], generation=3))
    return "had 2 devices"


@pytest.mark.parametrize(
    "shrinks",
    [_to_zero, _half_published, _one_device_fails],
    ids=["a pool at zero", "a pool that is half published", "a device that fails"],
)
def test_less_than_there_was_is_no_proof(
    site: Site, drawbridge: Drawbridge, shrinks: Callable[[Site], str]
) -> None:
    """A ReplicaSet gets its pods all the while, and when the driver is back, denials are."""
    _wait_marked(site.cluster, drawbridge, site.driver)
    cluster, namespace = site.cluster, site.namespace
    cluster.apply(
        {
            **template(asking(site.driver, count=2)),
            "metadata": {"name": "two", "namespace": namespace},
        }
    )
    serving = replica_set("serving", pod("serving", claims={"gpu": "two"}))
    assert created(cluster, serving, namespace)[0] == 0

    why = shrinks(site)
    output = site.wait_for_words("0 ", why)
    cluster.kubectl("scale", "replicaset", "serving", "-n", namespace, "--replicas=3")

    assert not why or "]: spec.devices.requests[0]" in output
    cluster.wait_for(
        "replicasets",
        "serving",
        namespace,
        until=lambda set_: set_.get("status", {}).get("replicas") == 3,
    )
    again = replica_set("more", pod("more", claims={"gpu": "two"}), replicas=2)
    assert created(cluster, again, namespace)[0] == 0

    site.publish({**site.slice, "spec": _of_generation(site.slice["spec"], 9)})
    site.wait_denied()


def _of_generation(spec: Object, generation: int) -> Object:
    return {**spec, "pool": {**spec["pool"], "generation": generation}}


def test_a_new_model_is_declared_before_it_comes(site: Site, drawbridge: Drawbridge) -> None:
    large = claim(asking(site.driver, capacity=amount("192Gi")))
    assert site.words(large).startswith("1 ")
    _wait_marked(site.cluster, drawbridge, site.driver)

    declared = {"nodes": 2, "devices": 10, "onOneNode": 8, "capacity": {"memory": "192Gi"}}
    _declare(site, drawbridge, {"classes": {site.driver: {site.driver: declared}}})
    output = site.wait_for_words("0 ", "only a warning, since", document=large)

    assert "class" in output
    site.publish(published(site.driver, site.node, [*DEVICES, gpu("gpu-2", "192Gi")], generation=2))
    site.cluster.wait_until(lambda: site.words(large) == "0 ", "it fits")
    _declare(site, drawbridge, None)


def test_a_declaration_that_cannot_be_read_denies_nothing(
    site: Site, drawbridge: Drawbridge
) -> None:
    _wait_marked(site.cluster, drawbridge, site.driver)

    _declare(site, drawbridge, {"classes": "many"})
    site.wait_for_words("0 ", "a declaration that cannot be read may add nodes")

    _declare(site, drawbridge, None)
    site.wait_denied()


def _declare(site: Site, drawbridge: Drawbridge, declared: Object | None) -> None:
    text = None if declared is None else json.dumps(declared)
    site.cluster.kubectl(
        *("patch", "configmap", MARK, "-n", drawbridge.namespace, "--type=merge", "-p"),
        json.dumps({"data": {"declared": text}}),
    )


@pytest.mark.usefixtures("drawbridge")
def test_where_an_autoscaler_is_at_work_nothing_is_proof(site: Site) -> None:
    name = "cluster-autoscaler-status"
    site.cluster.apply(api_object("ConfigMap", name, "kube-system"))
    try:
        site.wait_for_words("0 ", "a cluster autoscaler may add nodes")
    finally:
        site.cluster.kubectl("delete", "configmap", name, "-n", "kube-system")
    site.wait_denied()


# --- what is there --------------------------------------------------------------------------------


def test_what_was_admitted_before_can_be_changed_finished_and_removed(
    site: Site, drawbridge: Drawbridge
) -> None:
    """And the audit tells of it."""
    cluster, namespace = site.cluster, site.namespace
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}=off")
    site.wait_for_words("0 ")
    old = claim(asking(site.driver, count=3), "old", finalizers=["drawbridge.internal/story"])
    cluster.apply({**old, "metadata": {**old["metadata"], "namespace": namespace}})
    template_ = template(asking(site.driver, count=3))
    assert created(cluster, template_, namespace)[0] == 0
    deployment_ = deployment("old", pod("old", claims={"gpu": "wanted"}))
    assert created(cluster, deployment_, namespace)[0] == 0
    cluster.kubectl("label", "namespace", namespace, f"{ENFORCEMENT_LABEL}-")
    site.wait_denied()
    site.wait_for_words("1 ", document=deployment("new", pod("new", claims={"gpu": "wanted"})))

    event = _audited(cluster, namespace, "old")
    assert event["reason"] == "ExceedsLargestNode"
    assert "count 3 is more than the 2" in event["note"]

    cluster.kubectl("label", "resourceclaim", "old", "-n", namespace, "a=b")
    cluster.kubectl("annotate", "deployment", "old", "-n", namespace, "a=b")
    cluster.kubectl(
        "set", "image", "deployment/old", "-n", namespace, "main=registry.internal/app:2"
    )
    cluster.kubectl("scale", "deployment", "old", "-n", namespace, "--replicas=0")
    cluster.kubectl(
        *("patch", "resourceclaim", "old", "-n", namespace, "--type=merge", "-p"),
        json.dumps({"metadata": {"finalizers": None}}),
    )
    cluster.kubectl("delete", "deployment/old", "resourceclaim/old", "-n", namespace)
    assert drawbridge.log(CONTROLLER).count("Traceback") == 0


def _audited(cluster: Access, namespace: str, name: str) -> Object:
    """The audit's event about an object."""
    events: list[Object] = []

    def has_event() -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        _, body = cluster.request("GET", path)
        events[:] = [
            item
            for item in json.loads(body)["items"]
            if item.get("action") == "Audit" and item["regarding"]["name"] == name
        ]
        return bool(events)

    cluster.wait_until(has_event, f"the audit tells of {name}")
    return events[0]


def test_what_waits_for_others_is_told_so(site: Site) -> None:
    """All devices are in use: a warning, and nothing is refused."""
    cluster, namespace = site.cluster, site.namespace
    cluster.apply(
        {
            **template(asking(site.driver, count=2)),
            "metadata": {"name": "two", "namespace": namespace},
        }
    )
    cluster.kubectl(
        *("create", "-n", namespace, "-f", "-"),
        input=stream(pod("first", claims={"gpu": "two"})),
    )
    cluster.wait_running("first", namespace)

    output = site.wait_for_words(
        "0 ", "no node can satisfy this now", document=claim(asking(site.driver))
    )

    assert "Warning: drawbridge[doesNotFitNow]: spec.devices" in output
