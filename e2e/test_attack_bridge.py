"""The fence of the bridge under attack: nobody without rights over it opens it, no stolen token widens it.

On a control plane of its own, since a fence that is deleted and created again keeps an old parameter.
Nothing of ours runs: the policies stand for themselves, and the accounts have the rights of the manifests.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from admission.fence import fence_patch
from e2e.access import Object, stream
from e2e.cluster import Cluster
from e2e.custom_kinds import wait_established
from e2e.drawbridge import MANIFESTS, rendered
from e2e.users import EDITOR, NOBODY, PODS_ONLY, add_user
from kube.names import (
    BRIDGE_ACCOUNT,
    BRIDGE_LEASE,
    FENCE,
    FIELD_MANAGER_PREFIX,
    HOLDER_FENCE,
    NAMESPACE,
)
from sidecar.commit.writes import FINALIZER, SETTLED_ANNOTATION
from testing import documents
from testing.documents import api_object, owned

BRIDGE: Final = MANIFESTS.parent / "bridge"
TEAM: Final = "team"
OWNED: Final = "owned.example.com"
SCHEDULER: Final = "system:kube-scheduler"
AS_BRIDGE: Final = f"system:serviceaccount:{NAMESPACE}:{BRIDGE_ACCOUNT}"
HOLDER: Final = "sidecar-1"
TIMEOUT_S: Final = 60.0
NOT_APPLIED: Final = frozenset({"Deployment", "ConfigMap", "Service"})
OURS: Final = (
    "drawbridge-webhook",
    "drawbridge-controller",
    "drawbridge-certificates",
    BRIDGE_ACCOUNT,
)


def allocation(driver: str = OWNED) -> Object:
    """Return the status of a claim that has a device of a driver."""
    result = {"request": "device", "driver": driver, "pool": "pool", "device": "device-0"}
    return {"allocation": {"devices": {"results": [result]}}}


class Fenced:
    """A cluster with the fence of one driver, its Lease held, and a claim in a user's namespace."""

    def __init__(self, cluster: Cluster, kubeconfigs: Mapping[str, Path]) -> None:
        self.cluster = cluster
        self._kubeconfigs = kubeconfigs

    def attempt(self, who: str, *words: str, document: Object | None = None) -> str:
        """Run kubectl as a user; return the reason of a refusal, empty without one."""
        output = self.cluster.kubectl(
            *words,
            check=False,
            kubeconfig=self._kubeconfigs[who],
            **({} if document is None else {"input": stream(document)}),
        )
        return str(output.stderr) if output.returncode else ""

    def patch_claim(self, who: str, patch: Mapping[str, Any], *flags: str) -> str:
        """Patch the claim as a user; return the reason of a refusal, empty without one."""
        words = ("patch", "resourceclaim", "claim", "-n", TEAM, "--type=merge", *flags)
        return self.attempt(who, *words, "-p", json.dumps(patch))

    def allocate(self, user: str, holder: str = "", *, driver: str = OWNED) -> str:
        """Try to allocate the claim as a user; return the reason of a refusal, empty without one.

        Args:
            holder: The holder in the name of the sidecar's writes.
            driver: The driver of the device.
        """
        path = f"{self.cluster.kind('resourceclaims').path(TEAM, 'claim')}/status?dryRun=All"
        if holder:
            path += f"&fieldManager={FIELD_MANAGER_PREFIX}{holder}"
        status, body = self.cluster.request(
            "PATCH",
            path,
            {"status": allocation(driver)},
            content_type="application/merge-patch+json",
            user=user,
        )
        return "" if status == http.client.OK else body.decode()

    def assert_stands(self) -> None:
        """Show that the scheduler of Kubernetes cannot allocate devices of the driver."""
        assert "only its bridge may write it" in self.allocate(SCHEDULER)


def lease(name: str, namespace: str, holder: str) -> Object:
    return api_object(
        "Lease", name, namespace, spec={"holderIdentity": holder, "leaseDurationSeconds": 15}
    )


def claim() -> Object:
    request = {"name": "device", "exactly": {"deviceClassName": "any"}}
    return api_object(
        "ResourceClaim",
        "claim",
        TEAM,
        labels={"team": "a"},
        annotations={"note": "a"},
        finalizers=["example.com/keep"],
        spec={"devices": {"requests": [request]}},
    )


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fenced]:
    with Cluster(tmp_path_factory.mktemp("attack-bridge")) as cluster:
        objects = [*rendered(cluster), *rendered(cluster, BRIDGE)]
        cluster.apply([object_ for object_ in objects if object_["kind"] not in NOT_APPLIED])
        for definition in ("allocatorownerships", "devicecompatibilitypolicies"):
            wait_established(cluster, f"{definition}.drawbridge.internal")
        cluster.kubectl("create", "namespace", TEAM)
        users = {who: add_user(cluster, TEAM, who) for who in (PODS_ONLY, EDITOR, NOBODY)}
        ours = {who: cluster.kubeconfig_for(NAMESPACE, who) for who in OURS}
        ownership = documents.ownership(owned(name=OWNED))
        cluster.apply([lease(BRIDGE_LEASE, NAMESPACE, HOLDER), claim(), ownership])
        cluster.kubectl("create", "-f", BRIDGE / "fence.yaml")
        patch = ("patch", "validatingadmissionpolicy", FENCE, "--type=merge")
        cluster.kubectl(*patch, "-p", json.dumps(fence_patch([OWNED])))
        fence = Fenced(cluster, {**users, **ours})
        cluster.wait_until(
            lambda: "only its bridge" in fence.allocate(SCHEDULER),
            "the fence stands",
            timeout_s=TIMEOUT_S,
        )
        cluster.wait_until(
            lambda: "does not hold the Lease" in fence.allocate(AS_BRIDGE, "sidecar-0"),
            "the Lease is checked",
            timeout_s=TIMEOUT_S,
        )
        cluster.wait_until(
            lambda: "its to change" in fence.patch_claim(BRIDGE_ACCOUNT, labelled("b")),
            "the account is bound",
            timeout_s=TIMEOUT_S,
        )
        yield fence


def labelled(value: str) -> Object:
    return {"metadata": {"labels": {"team": value}}}


OPEN: Final = json.dumps({"spec": {"failurePolicy": "Ignore", "matchConditions": []}})
STEAL: Final = json.dumps({"spec": {"holderIdentity": "attacker"}})
RELEASE: Final = json.dumps({"spec": {"drivers": []}})
ATTEMPTS: Final = {
    "open the fence": ("patch", "validatingadmissionpolicy", FENCE, "--type=merge", "-p", OPEN),
    "delete the fence": ("delete", "validatingadmissionpolicy", FENCE),
    "unbind the fence": ("delete", "validatingadmissionpolicybinding", FENCE),
    "unbind the holder": ("delete", "validatingadmissionpolicybinding", HOLDER_FENCE),
    "delete the Lease": ("delete", "lease", BRIDGE_LEASE, "-n", NAMESPACE),
    "take the Lease": (
        *("patch", "lease", BRIDGE_LEASE, "-n", NAMESPACE, "--type=merge"),
        *("-p", STEAL),
    ),
    "release the driver": ("patch", "aown", "default", "--type=merge", "-p", RELEASE),
    "delete the ownership": ("delete", "aown", "default"),
    "report what is held back": (
        *("patch", "aown", "default", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": {"holder": "attacker"}})),
    ),
    "allocate a claim": (
        *("patch", "resourceclaim", "claim", "-n", TEAM, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": allocation()})),
    ),
}
OF_THE_BRIDGE: Final = {"take the Lease", "report what is held back"}
"""The tasks of its account; with its token anybody can pose as the sidecar that leads."""


@pytest.mark.parametrize("who", [PODS_ONLY, EDITOR, NOBODY, *OURS])
def test_the_fence_is_nobodys_to_open(fenced: Fenced, who: str) -> None:
    for attempt, words in ATTEMPTS.items():
        if who != BRIDGE_ACCOUNT or attempt not in OF_THE_BRIDGE:
            refused = (
                fenced.attempt(who, *words, "--dry-run=server")
                if (words[0] == "delete")
                else fenced.attempt(who, *words)
            )
            assert "orbidden" in refused or "does not hold the Lease" in refused, (
                f"{attempt}: {refused}"
            )

    fenced.assert_stands()


@pytest.mark.parametrize("driver", [OWNED.upper(), OWNED.capitalize()])
def test_no_spelling_of_an_owned_driver_passes_the_fence(fenced: Fenced, driver: str) -> None:
    """The API server accepts capitals in the driver of a result."""
    assert not fenced.allocate(SCHEDULER, driver="Other.example.com")

    assert "only its bridge may write it" in fenced.allocate(SCHEDULER, driver=driver)
    # To the bridge it is the same driver, and nobody else's is.
    assert not fenced.allocate(AS_BRIDGE, HOLDER, driver=driver)
    assert "drivers that it owns" in fenced.allocate(AS_BRIDGE, HOLDER, driver="Other.example.com")


def test_objects_of_the_same_names_elsewhere_open_nothing(fenced: Fenced) -> None:
    mine = lease(BRIDGE_LEASE, TEAM, "attacker")
    flags = ("create", "-n", TEAM, "-f", "-")
    # A Lease of the name in a namespace of the attacker is the parameter of nothing.
    assert "orbidden" in fenced.attempt(PODS_ONLY, *flags, document=mine)
    fenced.cluster.apply(mine)

    assert "does not hold the Lease" in fenced.allocate(AS_BRIDGE, "attacker")
    assert not fenced.allocate(AS_BRIDGE, HOLDER)
    fenced.assert_stands()


class Change(NamedTuple):
    """A change of the claim's metadata, and True if it is the bridge's to make."""

    name: str
    metadata: Mapping[str, Any]
    is_allowed: bool


CHANGES: Final = (
    Change("a label", {"labels": {"team": "b"}}, is_allowed=False),
    Change("no label", {"labels": {"team": None}}, is_allowed=False),
    Change("an annotation", {"annotations": {"note": "b"}}, is_allowed=False),
    Change("no annotation", {"annotations": {"note": None}}, is_allowed=False),
    Change("one more annotation", {"annotations": {"b": "c"}}, is_allowed=False),
    Change("its mark", {"annotations": {SETTLED_ANNOTATION: "1"}}, is_allowed=True),
    Change("its finalizer", {"finalizers": ["example.com/keep", FINALIZER]}, is_allowed=True),
    Change("no finalizer of others", {"finalizers": [FINALIZER]}, is_allowed=False),
    Change("a finalizer of others", {"finalizers": ["example.com/keep", "a/b"]}, is_allowed=False),
    Change("an owner", {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "u"}]}, is_allowed=False),
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_stolen_token_of_the_bridge_changes_no_metadata_of_claims(
    fenced: Fenced, change: Change
) -> None:
    refused = fenced.patch_claim(BRIDGE_ACCOUNT, {"metadata": change.metadata}, "--dry-run=server")

    if change.is_allowed:
        assert not refused
    else:
        assert "are its to change" in refused


@pytest.mark.parametrize("name", ["drawbridge-controller", "drawbridge-certificates", "other"])
def test_a_stolen_token_of_the_bridge_holds_no_other_lease(fenced: Fenced, name: str) -> None:
    document = lease(name, NAMESPACE, "attacker")

    refused = fenced.attempt(BRIDGE_ACCOUNT, "create", "-f", "-", document=document)

    assert f"its Lease is {BRIDGE_LEASE}" in refused


@pytest.mark.parametrize(
    "words",
    [
        "get secrets -n drawbridge-system",
        "get configmaps -A",
        "create deployment a --image=a -n drawbridge-system",
        "delete resourceclaim claim -n team",
        "delete node a",
        "create token drawbridge-bridge -n drawbridge-system",
    ],
)
def test_a_stolen_token_of_the_bridge_is_no_more_than_a_schedulers(
    fenced: Fenced, words: str
) -> None:
    assert "orbidden" in fenced.attempt(BRIDGE_ACCOUNT, *words.split())
