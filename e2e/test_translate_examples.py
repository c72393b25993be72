"""Every legacy example, applied as a user applies it, runs with the devices that its author meant.

The same folder is applied twice: in a namespace that Drawbridge serves, and in one that opted out.
What differs between a pod and its twin is what we did, and nothing else may differ. The last story
deletes everything again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from e2e.access import Access, Object
from e2e.drawbridge import command_line
from e2e.fleet import EXAMPLES, PLUGIN_NODE, sharing_node
from e2e.inventory import HAMI, NVIDIA, gpu_uuid
from e2e.older_kubernetes import needs
from e2e.translated import (
    allocated,
    containers,
    devices,
    legacy_keys,
    untranslated_rest,
)
from kube.names import MANAGED_LABEL, REQUEST_ANNOTATION, TRANSLATE_LABEL
from kube.quantity import Quantity
from testing import documents

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

ENDS: Final = ("Running", "Succeeded")
"""kwok lets the pods of Jobs succeed at once."""


class Device(NamedTuple):
    """A device that a container is to get.

    Attributes:
        consumed: Capacity's name to amount, or to percent of what the device has; nothing for a
            whole device.
        where: Whether the published device is one of those that its author would take.
    """

    driver: str
    consumed: Mapping[str, str] = {}
    where: Callable[[Object], bool] = lambda _: True

    def taken_from(self, device: Object) -> dict[str, Quantity]:
        return {
            name: of_all(amount, device["capacity"][name]["value"])
            for name, amount in self.consumed.items()
        }


def of_all(amount: str, whole: str) -> Quantity:
    """An amount, or that percentage of all there is."""
    if not amount.endswith("%"):
        return Quantity(amount)
    return Quantity(int(Quantity(whole)) * int(amount[:-1]) // 100)


class Example(NamedTuple):
    """Attributes: containers: Name to devices, none of them shared with another container."""

    name: str
    pods: int
    containers: Mapping[str, tuple[Device, ...]]


def attribute(device: Object, name: str) -> str:
    return str(device["attributes"][name]["string"])


def has_profile(profile: str) -> Callable[[Object], bool]:
    return lambda device: attribute(device, "profile") == profile


def memory_is(amount: str) -> Callable[[Object], bool]:
    return lambda device: Quantity(device["capacity"]["memory"]["value"]) == Quantity(amount)


def one_of_two_cards(device: Object) -> bool:
    return attribute(device, "uuid") in {gpu_uuid("hami-0", 0), gpu_uuid("hami-1", 1)}


def a100_but_not_40gb(device: Object) -> bool:
    name = attribute(device, "productName")
    return "A100" in name and "40GB" not in name


def share(memory: str, cores: str = "0") -> Device:
    return Device(HAMI, {"memory": memory, "cores": cores})


EXAMPLES_THAT_BECOME_CLAIMS: Final = (
    Example("by-uuid", 1, {"debug": (share("2000Mi")._replace(where=one_of_two_cards),)}),
    Example("probe", 3, {"probe": (share("256Mi", "1"),)}),
    Example(
        "exclusive-by-type",
        1,
        {"train": (share("100%", "100")._replace(where=a100_but_not_40gb),)},
    ),
    Example(
        "half-of-each",
        2,
        {"serve": (share("50%", "20"),) * 2},
    ),
    Example(
        "init-and-sidecar",
        1,
        {"warm-up": (share("4000Mi"),), "metrics": (share("500Mi"),), "serve": (share("4000Mi"),)},
    ),
    Example("blue", 1, {"serve": (share("5000Mi"),)}),
    Example("green", 1, {"serve": (share("5000Mi"),)}),
    Example("mig-job", 1, {"batch": (Device(NVIDIA, where=has_profile("1g.5gb")),) * 2}),
    Example("mig-media", 1, {"transcode": (Device(NVIDIA, where=has_profile("1g.10gb+me")),)}),
    Example("mig-mode", 1, {"serve": (Device(NVIDIA, where=memory_is("9728Mi")),)}),
    Example("mps", 1, {"serve": (Device(NVIDIA, where=memory_is("81559Mi")),)}),
    Example("nightly", 1, {"evaluate": (share("6000Mi"),)}),
    Example("numa-bind", 1, {"train": (share("4000Mi"),) * 2}),
    Example("share", 1, {"notebook": (share("3000Mi", "30"),)}),
    Example(
        "two-containers",
        1,
        {"encode": (share("2000Mi", "25"),), "decode": (share("2000Mi", "25"),)},
    ),
)
NEEDS: Final = {"mig-mode": needs(35, "a score of nodes by the alternative that they have")}
LEFT_ALONE: Final = ("opted-out", "whole-gpu")
"""One says so by its label, the other Kubernetes serves by itself."""
NOT_WORKLOADS: Final = ("ResourceClaimTemplate", "Service")
PODS: Final = sum(become_claim.pods for become_claim in EXAMPLES_THAT_BECOME_CLAIMS) + len(
    LEFT_ALONE
)


class Applied(NamedTuple):
    """The examples, applied.

    Attributes:
        pods: The pods as they run, or have run.
        twins: The same pods where nobody translates.
        claims: The claims with their allocations; those of Jobs are gone by now.
        words: The output of kubectl on standard error.
    """

    namespace: str
    pods: list[Object]
    twins: list[Object]
    claims: list[Object]
    words: str

    def pods_of(self, name: str) -> list[Object]:
        return [pod for pod in self.pods if is_of(pod, name)]


def is_of(pod: Object, name: str) -> bool:
    pod_name = str(pod["metadata"]["name"])
    return pod_name == name or pod_name.startswith(f"{name}-")


@pytest.fixture(scope="module")
def applied(cluster: Access, stage: str, twin_stage: str) -> Applied:
    with cluster.watching("resourceclaims") as (_, events):
        output = cluster.kubectl("apply", "-n", stage, "-f", EXAMPLES)
        cluster.kubectl("apply", "-n", twin_stage, "-f", EXAMPLES)
        for namespace in (stage, twin_stage):
            now = ("create", "job", "nightly-now", "--from=cronjob/nightly")
            cluster.kubectl(*now, "-n", namespace)

        def run() -> bool:
            pods = cluster.objects("pods", stage)
            claims = allocated_claims(events, stage)
            return len(pods) == PODS and all(
                pod["status"]["phase"] in ENDS
                and names_of_claims(pod) <= allocated(pod, claims).keys()
                for pod in pods
            )

        cluster.wait_until(run, f"{PODS} pods of the examples run")
    cluster.wait_until(lambda: len(cluster.objects("pods", twin_stage)) == PODS, "so do the twins")
    return Applied(
        namespace=stage,
        pods=cluster.objects("pods", stage),
        twins=cluster.objects("pods", twin_stage),
        claims=allocated_claims(events, stage),
        words=output.stderr,
    )


@pytest.fixture(scope="module")
def twin_stage(cluster: Access, stage: str) -> Iterator[str]:
    """A namespace that opted out of translation."""
    name = f"{stage}-twin"
    labels = {TRANSLATE_LABEL: "false"}
    cluster.apply(documents.namespace(name, labels))
    cluster.wait_for("serviceaccounts", "default", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def allocated_claims(events: Iterable[Object], namespace: str) -> list[Object]:
    """Every claim that a watch saw with an allocation, as it was then."""
    claims = [
        event["object"]
        for event in tuple(events)
        if event["object"]["metadata"].get("namespace") == namespace
        and "allocation" in event["object"].get("status", {})
    ]
    return list({claim["metadata"]["uid"]: claim for claim in claims}.values())


def names_of_claims(pod: Object) -> set[str]:
    """Names in a pod of the claims that were made of its templates."""
    return {status["name"] for status in pod["status"].get("resourceClaimStatuses", ())}


# --- what becomes of them -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=example.name, marks=NEEDS.get(example.name, ()))
        for example in EXAMPLES_THAT_BECOME_CLAIMS
    ],
)
def test_an_example_gets_the_devices_that_its_author_meant(
    cluster: Access, applied: Applied, example: Example
) -> None:
    pods = applied.pods_of(example.name)
    published_devices_ = published_devices(cluster)

    assert len(pods) == example.pods
    for pod in pods:
        assert legacy_keys(pod) == set()
        assert REQUEST_ANNOTATION in pod["metadata"]["annotations"]
        devices_ = devices(pod, applied.claims)
        assert {name: [w.driver for w in want] for name, want in example.containers.items()} == {
            name: [device_.driver for device_ in allocated_devices]
            for name, allocated_devices in devices_.items()
        }
        for name, want in example.containers.items():
            # No two of one container are on one device.
            assert len({(device_.pool, device_.device) for device_ in devices_[name]}) == len(want)
            for device, allocated_device in zip(want, devices_[name], strict=True):
                assert allocated_device.pool == pod["spec"]["nodeName"]
                on = published_devices_[
                    allocated_device.driver, allocated_device.pool, allocated_device.device
                ]
                assert device.where(on)
                assert device.taken_from(on) == allocated_device.amounts
        used = {
            use["name"] for container in containers(pod) for use in container["resources"]["claims"]
        }
        assert {entry["name"] for entry in pod["spec"]["resourceClaims"]} == used


def test_nothing_else_in_a_pod_changed(applied: Applied) -> None:
    pods, twins = (
        sorted(map(compared, pods_), key=msgspec.json.encode)
        for pods_ in (applied.pods, applied.twins)
    )

    assert twins == pods


def compared(pod: Object) -> Object:
    rest = untranslated_rest(pod)
    if is_of(pod, "nightly") and not legacy_keys(pod):
        (container,) = containers(rest)
        # HAMi's own webhook makes this of nvidia.com/priority.
        assert container.pop("env") == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]
    return rest


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_an_example_that_is_left_alone(applied: Applied, name: str) -> None:
    (pod,) = applied.pods_of(name)

    assert legacy_keys(pod) == {"nvidia.com/gpu"}
    assert REQUEST_ANNOTATION not in pod["metadata"].get("annotations", {})
    assert "resourceClaims" not in pod["spec"]
    assert pod["spec"]["nodeName"] in {PLUGIN_NODE, "nvidia-0"}


def test_what_is_lost_is_reported(applied: Applied) -> None:
    lines = applied.words.splitlines()

    # Three pods and two workloads are lossy; a controller's pods have no eyes to warn.
    fixes = [line for line in lines if "]: fix: " in line]
    assert len(lines) - len(fixes) == 6, applied.words
    assert len(fixes) == 1
    assert any("the 2 devices must have the same" in line for line in lines)
    assert any('the GPU policy "binpack"' in line for line in lines)
    assert any("the MPS server serves only this pod" in line for line in lines)
    assert any("only with its feature gate MPSSupport" in line for line in lines)
    assert any("shares the device of container serve" in line for line in lines)
    assert any("publishes no NUMA node" in line for line in lines)


# --- the command line says the same ---------------------------------------------------------------


@pytest.fixture(scope="module")
def printed(cluster: Access, applied: Applied) -> list[Object]:
    return translate(cluster, "--live", "-n", applied.namespace)


def test_the_command_line_prints_what_the_webhook_made(
    applied: Applied, printed: list[Object]
) -> None:
    specs = {
        document["metadata"]["name"]: document["spec"]["spec"]
        for document in printed
        if document["kind"] == "ResourceClaimTemplate"
    }

    for document in (document_ for document_ in printed if document_["kind"] not in NOT_WORKLOADS):
        for pod in applied.pods_of(document["metadata"]["name"]):
            assert translation_of(pod_template(document)) == translation_of(pod)
            templates = {
                entry["name"]: entry["resourceClaimTemplateName"]
                for entry in pod["spec"].get("resourceClaims", ())
            }
            for label, claim in allocated(pod, applied.claims).items():
                assert specs[templates[label]] == claim["spec"]


def test_only_templates_that_we_made_are_marked_as_such(
    cluster: Access, applied: Applied, printed: list[Object]
) -> None:
    objects = cluster.objects("resourceclaimtemplates", applied.namespace)

    assert objects
    assert all(object_["metadata"]["labels"][MANAGED_LABEL] == "true" for object_ in objects)
    assert not any(MANAGED_LABEL in object_["metadata"].get("labels", {}) for object_ in printed)


def test_a_recorded_state_says_the_same_as_the_cluster(
    cluster: Access, applied: Applied, printed: list[Object], tmp_path: Path
) -> None:
    state = tmp_path / "state.yaml"
    kinds = "deviceclasses,resourceslices,resourcequotas,namespaces"
    state.write_text(cluster.kubectl("get", kinds, "-A", "-o", "yaml").stdout)

    assert printed == translate(cluster, "--snapshot", state, "-n", applied.namespace)


def translate(cluster: Access, *arguments: str | Path) -> list[Object]:
    command_line_ = command_line(cluster, "translate", "-f", EXAMPLES, "-o", "json", *arguments)
    assert command_line_.returncode == 0, command_line_.stderr
    objects: list[Object] = json.loads(command_line_.stdout)["objects"]
    return objects


def pod_template(document: Object) -> Object:
    """The pod that a document is, or has inside."""
    if document["kind"] == "Pod":
        return document
    spec = document["spec"]
    template: Object = spec.get("jobTemplate", {}).get("spec", spec)["template"]
    return template


def translation_of(pod: Object) -> dict[str, Any]:
    """Return the decision of a translation about a pod."""
    return {
        "annotation": pod.get("metadata", {}).get("annotations", {}).get(REQUEST_ANNOTATION),
        "claims": pod["spec"].get("resourceClaims"),
        "uses": {
            container["name"]: container.get("resources", {}).get("claims")
            for container in containers(pod)
        },
        "environment": {container["name"]: container.get("env") for container in containers(pod)},
    }


# --- and in the end -------------------------------------------------------------------------------


def test_after_deletion_everything_is_gone(cluster: Access, applied: Applied) -> None:
    assert cluster.objects("resourceclaimtemplates", applied.namespace)

    cluster.kubectl("delete", "-n", applied.namespace, "-f", EXAMPLES, "--wait=false")

    for kind in ("pods", "resourceclaims", "resourceclaimtemplates"):
        cluster.wait_until(
            partial(is_empty, cluster, kind, applied.namespace),
            f"no {kind} are left in {applied.namespace}",
        )


def is_empty(cluster: Access, kind: str, namespace: str) -> bool:
    return not cluster.objects(kind, namespace)


# --- a cluster that shares GPUs -------------------------------------------------------------------


def test_a_replica_where_the_driver_publishes_shares(cluster: Access, namespace: str) -> None:
    node, slices = sharing_node()
    manifest = EXAMPLES / "gpu-shared" / "pod.yaml"
    dry_run = ("apply", "-n", namespace, "--dry-run=server", "-f", manifest)
    (name,) = cluster.add_nodes([node], lambda _: slices)
    try:
        cluster.wait_until(
            lambda: cluster.kubectl(*dry_run, check=False).returncode == 0,
            "the webhook knows of the shares",
        )
        cluster.kubectl("apply", "-n", namespace, "-f", manifest)
        pod = cluster.wait_running("gpu-shared", namespace)
    finally:
        cluster.remove_nodes([name])

    (notebook,) = devices(pod, cluster.objects("resourceclaims", namespace))["notebook"]
    assert (notebook.driver, notebook.pool) == (NVIDIA, name)
    # One share, and of the memory nothing: replicas are not kept apart.
    assert notebook.amounts == {"shares": Quantity(1), "memory": Quantity(0)}


def published_devices(cluster: Access) -> dict[tuple[str, str, str], Object]:
    return {
        (spec["driver"], spec["pool"]["name"], device["name"]): device
        for spec in (object_["spec"] for object_ in cluster.objects("resourceslices"))
        for device in spec.get("devices", ())
    }
