"""Each driver has one allocator: the fence on a real API server, with the accounts' own tokens.

The policies are deleted after the last story only: if one is created again, the API server keeps the old
value of its parameter. While they are there, the bridge of other stories could write nothing, since it
owns no driver in the text of the fence.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from admission.fence import OPEN_PATCH, fence_patch, is_fence_of
from e2e.access import Access, Object, stream
from e2e.custom_kinds import wait_established
from e2e.drawbridge import ROOT, Drawbridge, command_line
from e2e.hostile_claims import long_selector, slow_selector, template
from e2e.inventory import device_class, kwok_node
from e2e.objects import claim_template, pod
from e2e.routed import routing_rules, scheduler_of
from e2e.small_inventory import add_nodes, class_of, created, gpu, published
from kube.api.own_kinds import ALLOCATOR_OWNERSHIP
from kube.names import (
    BRIDGE_ACCOUNT,
    BRIDGE_LEASE,
    DEFAULT_SCHEDULER_NAME,
    FENCE,
    FIELD_MANAGER_PREFIX,
    HOLDER_FENCE,
    NAMESPACE,
    SCHEDULER_NAME,
)
from testing.documents import api_object, claim
from tools.custom_resources import definition

OWNED: Final = "owned.example.com"
FOREIGN: Final = "foreign.example.com"
TEAM: Final = "bridge-ownership"
SCHEDULER: Final = "system:kube-scheduler"
WAIT_S: Final = 60.0
LEASE: Final = ("lease", BRIDGE_LEASE)

_numbers = itertools.count(1)


class Claims:
    """Claims without allocation, and writes of their status by different users."""

    def __init__(self, cluster: Access) -> None:
        self.cluster = cluster
        self._account = cluster.kubeconfig_for(NAMESPACE, BRIDGE_ACCOUNT)

    def create(self) -> str:
        """Create a claim for one device."""
        name = f"claim-{next(_numbers)}"
        request = {"name": "device", "exactly": {"deviceClassName": "any"}}
        self.cluster.apply(claim(request, name=name, namespace=TEAM))
        return name

    def write(
        self,
        name: str,
        status: Mapping[str, Any],
        *,
        user: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> str:
        """Write a status; return the reason of a refusal, empty without one.

        Args:
            user: The user that writes; empty for the bridge with its token.
        """
        words = ["patch", "resourceclaim", name, "-n", TEAM, "--subresource=status"]
        words += ["--type=merge", "-p", json.dumps({"status": status})]
        words += [f"--field-manager={manager}"] if manager else []
        words += [f"--as={user}"] if user else []
        words += ["--dry-run=server"] if dry_run else []
        account = None if user else self._account
        completed = self.cluster.kubectl(*words, check=False, kubeconfig=account)
        return str(completed.stderr) if completed.returncode else ""

    def wait(self, expected: str, name: str, description: str, **options: Any) -> None:
        """Wait until a dry run of an allocation is refused with these words, or not if empty."""

        def is_so() -> bool:
            refusal = self.write(name, allocation(), dry_run=True, **options)
            return expected in refusal if expected else not refusal

        self.cluster.wait_until(is_so, description, timeout_s=WAIT_S)


def allocation(driver: str = OWNED, device: str = "device-0") -> Object:
    """Return a status with a device of a driver."""
    result = {"request": "device", "driver": driver, "pool": "pool", "device": device}
    return {"allocation": {"devices": {"results": [result]}}}


def manager(identity: str) -> str:
    return f"{FIELD_MANAGER_PREFIX}{identity}"


def lease(holder: str) -> Object:
    return api_object(
        "Lease",
        BRIDGE_LEASE,
        NAMESPACE,
        spec={"holderIdentity": holder, "leaseDurationSeconds": 15},
    )


def patch_policy(cluster: Access, patch: Mapping[str, Any]) -> None:
    words = ("patch", "validatingadmissionpolicy", FENCE, "--type=merge")
    cluster.kubectl(*words, "-p", json.dumps(patch))


def account() -> list[Object]:
    """Return the bridge's account with the rights of an allocator."""
    name = {"name": BRIDGE_ACCOUNT}
    claims = ["resourceclaims", "resourceclaims/status", "resourceclaims/binding"]
    return [
        api_object("Namespace", NAMESPACE),
        api_object("Namespace", TEAM),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**name, "namespace": NAMESPACE},
        },
        api_object(
            "ClusterRole",
            "bridge-ownership",
            rules=[
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": claims,
                    "verbs": ["get", "patch", "update"],
                }
            ],
        ),
        api_object(
            "ClusterRoleBinding",
            "bridge-ownership",
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "bridge-ownership",
            },
            subjects=[{"kind": "ServiceAccount", **name, "namespace": NAMESPACE}],
        ),
    ]


@pytest.fixture(scope="module")
def claims(cluster: Access) -> Iterator[Claims]:
    """Claims behind the fence of one driver; the Lease is held by `sidecar-1`."""
    cluster.tend = lambda: None  # A sidecar that is started again would take the Lease.
    cluster.apply([*account(), lease("sidecar-1")])
    if cluster.find("validatingadmissionpolicy", FENCE) is None:
        cluster.kubectl("create", "-f", ROOT / "manifests" / "bridge" / "fence.yaml")
    patch_policy(cluster, fence_patch([OWNED]))
    claims_ = Claims(cluster)
    probe = claims_.create()
    claims_.wait("only its bridge", probe, "the fence stands", user=SCHEDULER)
    claims_.wait("does not hold", probe, "the Lease is checked", manager=manager("sidecar-0"))
    yield claims_
    cluster.kubectl("delete", "-f", ROOT / "manifests" / "bridge" / "fence.yaml")
    cluster.kubectl("delete", "namespace", TEAM, "--wait=false")
    cluster.wait_gone("namespaces", TEAM)  # Or the next story sees devices that two claims hold.
    cluster.kubectl("delete", *LEASE, "-n", NAMESPACE, "--ignore-not-found")


def test_only_the_holder_of_the_lease_allocates_an_owned_driver(claims: Claims) -> None:
    name = claims.create()
    holder = manager("sidecar-1")

    # The stale holder, a holder without a name, kube-scheduler, and an administrator.
    assert "does not hold the Lease" in claims.write(
        name, allocation(), manager=manager("sidecar-0")
    )
    assert "does not hold the Lease" in claims.write(name, allocation(), manager="sidecar-1")
    assert "does not hold the Lease" in claims.write(name, allocation())
    assert "only its bridge" in claims.write(name, allocation(), user=SCHEDULER, manager=holder)
    assert "only its bridge" in _as_administrator(claims.cluster, name)
    assert not claims.write(name, allocation(), manager=holder)


def _as_administrator(cluster: Access, name: str) -> str:
    words = ["patch", "resourceclaim", name, "-n", TEAM, "--subresource=status", "--type=merge"]
    completed = cluster.kubectl(*words, "-p", json.dumps({"status": allocation()}), check=False)
    return str(completed.stderr)


def test_the_bridge_allocates_nothing_else_and_others_go_on(claims: Claims) -> None:
    name = claims.create()

    refusal = claims.write(name, allocation(FOREIGN), manager=manager("sidecar-1"))

    assert "of drivers that it owns" in refusal
    assert not claims.write(name, allocation(FOREIGN), user=SCHEDULER)


def test_a_status_without_another_allocation_and_a_deallocation_pass(claims: Claims) -> None:
    name = claims.create()
    consumer = {"resource": "pods", "name": "pod", "uid": "9d1c6b1e-0000-4000-8000-000000000000"}
    assert not claims.write(name, allocation(), manager=manager("sidecar-1"))

    assert not claims.write(name, {"reservedFor": [consumer]}, user=SCHEDULER)
    assert not claims.write(name, {"reservedFor": None}, user=SCHEDULER)
    for status in ({"allocation": None}, {"reservedFor": [consumer]}):
        stale = claims.write(name, status, manager=manager("sidecar-0"))
        assert "does not hold the Lease" in stale
    assert not claims.write(name, {"allocation": None}, user=SCHEDULER)


def test_the_fence_follows_the_lease(claims: Claims) -> None:
    cluster, name = claims.cluster, claims.create()
    new, old = manager("sidecar-2"), manager("sidecar-1")

    cluster.apply(lease("sidecar-2"))
    claims.wait("", name, "the new holder may write", manager=new)
    assert "does not hold the Lease" in claims.write(name, allocation(), manager=old)

    # Without a Lease other drivers are not affected, and owned ones are still the bridge's alone.
    cluster.kubectl("delete", *LEASE, "-n", NAMESPACE)
    claims.wait("", name, "the holder is not checked", manager=old)
    assert "only its bridge" in claims.write(name, allocation(), user=SCHEDULER)
    assert not claims.write(claims.create(), allocation(FOREIGN), user=SCHEDULER)

    cluster.apply(lease("sidecar-1"))
    claims.wait("does not hold", name, "the holder is checked again", manager=new)
    assert not claims.write(name, allocation(), manager=old)


def test_a_rescue_is_one_patch_and_the_fence_comes_back_in_place(claims: Claims) -> None:
    cluster, name = claims.cluster, claims.create()

    patch_policy(cluster, OPEN_PATCH)
    claims.wait("", name, "kube-scheduler may write", user=SCHEDULER)
    assert not claims.write(name, allocation(), user=SCHEDULER)

    another = claims.create()
    patch_policy(cluster, fence_patch([OWNED]))
    claims.wait("only its bridge", another, "the fence stands again", user=SCHEDULER)
    cluster.apply(lease("sidecar-3"))
    claims.wait("", another, "it still follows the Lease", manager=manager("sidecar-3"))
    cluster.apply(lease("sidecar-1"))
    claims.wait("", another, "it still follows the Lease", manager=manager("sidecar-1"))


def test_the_api_server_finds_no_fault_in_the_policies(claims: Claims) -> None:
    assert is_fence_of(claims.cluster.get("validatingadmissionpolicy", FENCE), [OWNED])
    for name in (FENCE, HOLDER_FENCE):
        policy = claims.cluster.get("validatingadmissionpolicy", name)
        assert not policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings")


def test_a_device_that_was_allocated_twice_is_found(claims: Claims) -> None:
    """The API server stores both; nothing but the allocator prevents it."""
    first, second = claims.create(), claims.create()
    for name in (first, second):
        status = allocation(device="planted")
        assert not claims.write(name, status, manager=manager("sidecar-1"))

    completed = command_line(claims.cluster, "verify", "--live", "-o", "json")

    assert completed.returncode == 1, completed.stderr
    (planted,) = (
        violation
        for violation in json.loads(completed.stdout)["violations"]
        if violation["device"].endswith("/planted")
    )
    assert {planted["claim"], *planted["others"]} == {f"{TEAM}/{first}", f"{TEAM}/{second}"}


def test_there_is_one_ownership_and_it_is_printed(cluster: Access) -> None:
    cluster.apply([definition(ALLOCATOR_OWNERSHIP)])
    wait_established(cluster, "allocatorownerships.drawbridge.internal")
    stray = {**ownership("stray"), "spec": {"drivers": [{"name": OWNED}]}}

    refused = cluster.kubectl("create", "-f", "-", input=stream(stray), check=False).stderr
    assert "there is one AllocatorOwnership, and its name is default" in refused

    # With kubectl alone: created empty, then patched.
    cluster.kubectl("create", "-f", ROOT / "manifests" / "bridge" / "ownership.yaml")
    try:
        drivers = json.dumps({"spec": {"drivers": [{"name": OWNED}]}})
        cluster.kubectl("patch", "allocatorownership", "default", "--type=merge", "-p", drivers)
        shown = cluster.kubectl("get", "aown").stdout.split()
        assert ["NAME", "DRIVERS", "HOLDER", "SERVING", "AGE"] == shown[:5]
        assert shown[5:7] == ["default", OWNED]
    finally:
        cluster.kubectl("delete", "aown", "default")


def ownership(name: str) -> Object:
    return api_object("AllocatorOwnership", name)


# --- own and release ------------------------------------------------------------------------------

DRIVER: Final = "handover.example.com"
HANDOVER: Final = "bridge-handover"
EXEMPT: Final = "kube-system"
"""Our webhooks are not asked about its pods, so they keep the default scheduler."""


def enforced(cluster: Access, name: str) -> tuple[str, str]:
    """Return status and reason of a policy's condition Enforced."""
    conditions = cluster.get("dcp", name).get("status", {}).get("conditions", ())
    return next(
        (
            (condition["status"], condition["reason"])
            for condition in conditions
            if condition["type"] == "Enforced"
        ),
        ("", ""),
    )


@pytest.fixture
def handover(cluster: Access, drawbridge: Drawbridge) -> Iterator[Drawbridge]:
    """A node with devices of a driver, its class, a policy, and templates in two namespaces."""
    nodes = add_nodes(cluster, DRIVER, {"handover-0": [gpu("gpu-0", "40Gi"), gpu("gpu-1", "40Gi")]})
    rule = {"name": "one", "compatibilityGroups": ["one"]}
    cluster.apply(
        [
            api_object("Namespace", HANDOVER),
            class_of("elsewhere.example.com"),
            claim_template("other", "elsewhere.example.com")
            | {"metadata": {"name": "other", "namespace": HANDOVER}},
            *(
                claim_template("owned", DRIVER)
                | {"metadata": {"name": "owned", "namespace": namespace}}
                for namespace in (HANDOVER, EXEMPT)
            ),
            api_object(
                "DeviceCompatibilityPolicy", "handover", spec={"driver": DRIVER, "rules": [rule]}
            ),
        ]
    )
    yield drawbridge
    command_line(cluster, "bridge", "release", DRIVER, "--apply")
    for kind, name in (("dcp", "handover"), ("namespace", HANDOVER), ("deviceclass", DRIVER)):
        cluster.kubectl("delete", kind, name, "--wait=false", "--ignore-not-found")
    for kind, name in (("pod", "past-us"), ("resourceclaimtemplate", "owned")):
        cluster.kubectl("delete", kind, name, "-n", EXEMPT, "--wait=false", "--ignore-not-found")
    cluster.remove_nodes(nodes)
    cluster.wait_gone("namespaces", HANDOVER, timeout_s=WAIT_S)  # The next story makes it anew.


def test_a_driver_is_owned_and_released_again(cluster: Access, handover: Drawbridge) -> None:
    """Own, route, refuse, enforce; then release, and in-tree allocates the claims that were refused before."""
    del handover
    assert routing_rules(cluster) == []
    planned = command_line(cluster, "bridge", "own", DRIVER)
    assert (planned.returncode, "kubectl" in planned.stdout) == (0, True), planned.stderr
    assert cluster.find("aown", "default") is None

    owned = command_line(cluster, "bridge", "own", DRIVER, "--apply")
    assert owned.returncode == 0, owned.stderr
    cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=WAIT_S)

    # A step that was printed before a change of the drivers changes nothing.
    printed = json.loads(command_line(cluster, "bridge", "release", DRIVER, "-o", "json").stdout)
    operations = json.dumps(printed["steps"][0]["operations"])
    drivers = [{"name": DRIVER, "maxConsumersPerDevice": 2}]
    patch = ("patch", "allocatorownership", "default", "-p")
    cluster.kubectl(*patch, json.dumps({"spec": {"drivers": drivers}}), "--type=merge")
    late_step = cluster.kubectl(*patch, operations, "--type=json", check=False)
    assert (late_step.returncode, "request is invalid" in late_step.stderr) == (1, True), late_step
    assert drivers == cluster.get("aown", "default")["spec"]["drivers"]

    # Its pods are routed, those of others are not, and both at once are rejected.
    cluster.wait_until(
        lambda: (
            scheduler_of(cluster, HANDOVER, pod("a", claims={"gpu": "owned"})) == SCHEDULER_NAME
        ),
        "a pod of the driver is routed",
        timeout_s=WAIT_S,
    )
    assert (
        scheduler_of(cluster, HANDOVER, pod("a", claims={"gpu": "other"})) == DEFAULT_SCHEDULER_NAME
    )
    both = created(cluster, pod("a", claims={"gpu": "owned", "nic": "other"}), HANDOVER)
    # Nothing of the other driver is published, so it is only known by name.
    assert (both[0], "no scheduler allocates both" in both[1]) == (0, True)

    # Policies are enforced, and kube-scheduler is refused.
    cluster.wait_until(
        lambda: enforced(cluster, "handover") == ("True", "OwnedDriver"),
        "the policy reads Enforced",
        timeout_s=WAIT_S,
    )
    cluster.apply(
        pod("past-us", claims={"gpu": "owned"})
        | {"metadata": {"name": "past-us", "namespace": EXEMPT}}
    )
    cluster.wait_until(
        lambda: any(
            "only its bridge may write it" in str(event.get("message", event.get("note", "")))
            for event in cluster.objects("events", EXEMPT)
        ),
        "kube-scheduler is refused by the fence",
        timeout_s=WAIT_S,
    )
    status = command_line(cluster, "bridge", "status", "-o", "json")
    shown = json.loads(status.stdout)
    assert (shown["drivers"], shown["fence"]) == ([DRIVER], "current"), status.stderr

    released = command_line(cluster, "bridge", "release", DRIVER, "--apply")
    assert released.returncode == 0, released.stderr
    cluster.wait_until(lambda: not routing_rules(cluster), "none is routed", timeout_s=WAIT_S)
    cluster.wait_running("past-us", EXEMPT, timeout_s=90)
    cluster.wait_until(
        lambda: enforced(cluster, "handover")[0] == "False",
        "the policy reads not Enforced",
        timeout_s=WAIT_S,
    )
    assert cluster.find("validatingadmissionpolicy", FENCE) is not None


def test_pods_with_an_allocated_claim_are_routed_while_its_driver_is_owned(
    cluster: Access, handover: Drawbridge
) -> None:
    """kube-scheduler allocated it before the driver was owned."""
    del handover
    shared = claim({"name": "gpu", "exactly": {"deviceClassName": DRIVER}}, name="shared")
    entries = [{"name": "gpu", "resourceClaimName": "shared"}]
    objects = stream([shared, pod("first", resourceClaims=entries)])
    cluster.kubectl("apply", "-n", HANDOVER, "-f", "-", input=objects)
    cluster.wait_running("first", HANDOVER, timeout_s=90)
    later = pod("later", resourceClaims=entries)
    of_another = pod("later", resourceClaims=entries, schedulerName="another")
    assert scheduler_of(cluster, HANDOVER, later) == DEFAULT_SCHEDULER_NAME

    owned = command_line(cluster, "bridge", "own", DRIVER, "--apply")
    assert owned.returncode == 0, owned.stderr

    cluster.wait_until(
        lambda: scheduler_of(cluster, HANDOVER, later) == SCHEDULER_NAME,
        "a pod of an allocated claim is routed",
        timeout_s=WAIT_S,
    )
    assert scheduler_of(cluster, HANDOVER, of_another) == "another"
    released = command_line(cluster, "bridge", "release", DRIVER, "--apply")
    assert released.returncode == 0, released.stderr
    cluster.wait_until(
        lambda: scheduler_of(cluster, HANDOVER, later) == DEFAULT_SCHEDULER_NAME,
        "it is left with kube-scheduler",
        timeout_s=WAIT_S,
    )


def test_pods_that_are_routed_tolerate_the_taint_of_the_bridges_nodes(
    cluster: Access, handover: Drawbridge
) -> None:
    taint = "example.com/bridge"
    applied = command_line(cluster, "bridge", "own", DRIVER, "--apply")
    assert applied.returncode == 0, applied.stderr
    with handover.configured({"validation": {"bridgeTaint": taint}}):
        words = ("create", "--dry-run=server", "-n", HANDOVER, "-f", "-", "-o", "json")
        manifest = stream(pod("a", claims={"gpu": "owned"}))

        def tolerated_taints() -> list[str]:
            spec = json.loads(cluster.kubectl(*words, input=manifest).stdout)["spec"]
            return [toleration["key"] for toleration in spec["tolerations"]]

        cluster.wait_until(
            lambda: taint in tolerated_taints(), "a routed pod tolerates it", timeout_s=WAIT_S
        )
        assert tolerated_taints().count(taint) == 1


# --- costly selectors -----------------------------------------------------------------------------

BOTH: Final = "both.example.com"
SELECTORS: Final = 8
TRIES: Final = 5
ATTRIBUTE: Final = 'device.attributes["resource.kubernetes.io"].pcieRoot'
DEVICES: Final = tuple(gpu(f"gpu-{number}", "40Gi", root=f"pci{number}") for number in range(128))


@pytest.fixture
def crowded(cluster: Access, handover: Drawbridge) -> Iterator[None]:
    """The driver is owned; nodes have many devices of it and of another, and a class reaches both."""
    del handover
    drivers = (DRIVER, "elsewhere.example.com")
    expression = " || ".join(f"device.driver == '{driver}'" for driver in drivers)
    cluster.apply(device_class(BOTH, expression))
    nodes = cluster.add_nodes(
        [kwok_node(f"crowded-{number}") for number in range(2)],
        lambda name: [published(driver, name, DEVICES) for driver in drivers],
    )
    owned = command_line(cluster, "bridge", "own", DRIVER, "--apply")
    assert owned.returncode == 0, owned.stderr
    cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=WAIT_S)
    yield
    cluster.remove_nodes(nodes)
    cluster.delete("deviceclass", BOTH)


@pytest.mark.long
@pytest.mark.usefixtures("crowded")
def test_pods_with_costly_selectors_are_routed(cluster: Access) -> None:
    """At once if the class tells the driver; within five tries if their selectors decide."""
    slow = [slow_selector(ATTRIBUTE, number) for number in range(SELECTORS)]
    long = [long_selector(ATTRIBUTE, number) for number in range(SELECTORS - 1)]
    templates = [
        template("slow", DRIVER, [slow]),
        template("long", BOTH, [[f"device.driver == '{DRIVER}'", *long]]),
    ]
    cluster.kubectl("apply", "-n", HANDOVER, "-f", "-", input=stream(templates))

    assert scheduler_of(cluster, HANDOVER, pod("slow", claims={"gpu": "slow"})) == SCHEDULER_NAME
    refusals = []
    for _ in range(TRIES):
        code, message = created(cluster, pod("long", claims={"gpu": "long"}), HANDOVER)
        if not code:
            break
        refusals.append(message)
    assert cluster.get("pods", "long", HANDOVER)["spec"]["schedulerName"] == SCHEDULER_NAME
    assert all("webhook is busy" in refusal for refusal in refusals)
