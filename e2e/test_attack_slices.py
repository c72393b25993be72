"""ResourceSlices under attack: nobody publishes devices into the pool of another node of the driver.

Root on a node has two tokens: the kubelet's credentials and that of the node driver. A slice of a newer
generation in the pool of another node hides all devices of that node from every scheduler. On a control
plane of its own; nothing of ours runs, the policies of `manifests/driver` stand for themselves.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from driver.model.settings import DRIVER_NAME
from e2e import inventory
from e2e.access import Object, stream
from e2e.cluster import Cluster
from e2e.credentials import kubeconfig, write_secret
from e2e.drawbridge import MANIFESTS, rendered
from testing.documents import api_object

DRIVER: Final = MANIFESTS.parent / "driver"
NAMESPACE: Final = "drawbridge-driver"
NODE: Final = "example-0"
VICTIM: Final = "hami-0"
OTHER_DRIVER: Final = "gpu.example.com"
KUBELET: Final = "the kubelet of the node"
OURS: Final = "the driver of the node"
VENDOR: Final = "the driver of a vendor"
ADMIN: Final = "an administrator"
POLICY: Final = "drawbridge-driver-pools"
TIMEOUT_S: Final = 60.0
PLACED: Final = "has the nodeName of its node, and a pool of the same name"
KUBELETS: Final = f"system:node:{NODE} may not write slices of pool"
NAMED: Final = f"system:node:{NODE} may not create a slice called"
DRIVERS: Final = f"the driver on node {NODE} may not write slices"


def slice_of(
    pool: str,
    *,
    node: str = NODE,
    driver: str = DRIVER_NAME,
    name: str = "forged",
    generation: int = 9999,
    **spec: Any,
) -> Object:
    """Return a slice; of no node if the name of the node is empty."""
    return api_object(
        "ResourceSlice",
        name,
        spec={
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "forged"}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    )


class Published:
    """A cluster with the policies of the driver, and everybody with the right to write slices."""

    def __init__(self, cluster: Cluster, kubeconfigs: Mapping[str, Path | None]) -> None:
        self.cluster = cluster
        self._kubeconfigs = kubeconfigs

    def attempt(self, who: str, *words: str, document: Object | None = None) -> str:
        """Run kubectl as a user; return the reason of a refusal, empty without one."""
        output = self.cluster.kubectl(
            *words,
            check=False,
            kubeconfig=self._kubeconfigs[who],
            input=None if document is None else stream(document),
        )
        return str(output.stderr) if output.returncode else ""

    def create(self, who: str, document: Object) -> str:
        """Try to create a slice; return the reason of a refusal, empty without one."""
        return self.attempt(who, "create", "--dry-run=server", "-f", "-", document=document)

    def wait_refused(self, who: str, refusal: str, **fields: Any) -> None:
        """Wait until the API server knows the policy that refuses a user a slice with these fields."""
        self.cluster.wait_until(
            lambda: refusal in self.create(who, slice_of(VICTIM, **fields)),
            f"the policy about {who} is in force",
            timeout_s=TIMEOUT_S,
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    with Cluster(tmp_path_factory.mktemp("attack-slices")) as cluster:
        cluster.apply([*map(inventory.kwok_node, (NODE, VICTIM)), *before_the_policies()])
        cluster.apply(
            [object_ for object_ in rendered(cluster, DRIVER) if object_["kind"] != "DaemonSet"]
        )
        cluster.kubectl("create", "serviceaccount", "vendor")
        verbs = "--verb=get,list,create,update,patch,delete"
        cluster.kubectl("create", "clusterrole", "vendor", verbs, "--resource=resourceslices")
        grant = ("--clusterrole=vendor", "--serviceaccount=default:vendor")
        cluster.kubectl("create", "clusterrolebinding", "vendor", *grant)
        folder = cluster.directory / "kubelet-of-the-node"
        folder.mkdir()
        cluster.write_kubelet_credentials(folder, NODE, "127.0.0.1")
        bound = ("--bound-object-kind=Node", f"--bound-object-name={NODE}")
        token = cluster.kubectl("create", "token", "-n", NAMESPACE, NAMESPACE, *bound).stdout
        own_token = cluster.directory / "driver-of-the-node.kubeconfig"
        write_secret(own_token, kubeconfig(cluster.entry(), {"token": token.strip()}))
        everybody = Published(
            cluster,
            {
                KUBELET: folder / "kubelet.kubeconfig",
                OURS: own_token,
                VENDOR: cluster.kubeconfig_for("default", "vendor"),
                ADMIN: None,
            },
        )
        everybody.wait_refused(ADMIN, PLACED)
        everybody.wait_refused(OURS, DRIVERS)
        everybody.wait_refused(KUBELET, KUBELETS, driver=OTHER_DRIVER)
        yield everybody


class Case(NamedTuple):
    name: str
    who: str
    document: Object
    refusal: str = ""


OWN_NAME: Final = f"{NODE}-0123456789-0000"
NAME_OF_VICTIM: Final = f"{VICTIM}-0123456789-0000"
OF_ALL_NODES: Final = slice_of("anywhere", node="", allNodes=True)
CASES: Final = (
    # Root on a node is trusted with the node.
    Case("its own pool", KUBELET, slice_of(NODE)),
    Case("a further pool of its own", KUBELET, slice_of(f"{NODE}/nics")),
    Case("a slice that is named as the driver does", KUBELET, slice_of(NODE, name=OWN_NAME)),
    Case("a pool of another node", KUBELET, slice_of(VICTIM), VICTIM),
    Case("a further pool of another node", KUBELET, slice_of(f"{VICTIM}/nics"), f"{VICTIM}/nics"),
    Case("a pool whose name begins alike", KUBELET, slice_of(f"{NODE}1"), f"{NODE}1"),
    Case("another spelling", KUBELET, slice_of(VICTIM, driver=DRIVER_NAME.upper()), VICTIM),
    Case("another node", KUBELET, slice_of(VICTIM, node=VICTIM), "orbidden"),
    Case("no node", KUBELET, OF_ALL_NODES, "orbidden"),
    Case("a name of another node", KUBELET, slice_of(NODE, name=NAME_OF_VICTIM), NAMED),
    # Of other drivers, too.
    Case("its own pool of a vendor", KUBELET, slice_of(NODE, driver=OTHER_DRIVER)),
    Case("a pool of a vendor's", KUBELET, slice_of(VICTIM, driver=OTHER_DRIVER), KUBELETS),
    Case(
        "a further pool of a vendor's",
        KUBELET,
        slice_of(f"{VICTIM}/nics", driver=OTHER_DRIVER),
        KUBELETS,
    ),
    Case(
        "a name as vendors give",
        KUBELET,
        slice_of(NODE, driver=OTHER_DRIVER, name=f"{NODE}-{OTHER_DRIVER}-x7k2p"),
    ),
    Case(
        "the name of our slice for a vendor's",
        KUBELET,
        slice_of(NODE, driver=OTHER_DRIVER, name=NAME_OF_VICTIM),
        NAMED,
    ),
    # Whoever else may write slices.
    Case("a pool of ours", VENDOR, slice_of(VICTIM, node=VICTIM)),
    Case("a pool of ours from elsewhere", VENDOR, slice_of(VICTIM), PLACED),
    Case("ours for all nodes", VENDOR, OF_ALL_NODES, PLACED),
    Case("ours in capitals", VENDOR, slice_of(VICTIM, driver=DRIVER_NAME.upper()), PLACED),
    Case("a pool of its own name", VENDOR, slice_of("rack-7", driver=OTHER_DRIVER)),
    Case(
        "its own for all nodes",
        VENDOR,
        slice_of("rack-7", node="", driver=OTHER_DRIVER, allNodes=True),
    ),
    Case("a pool of ours", ADMIN, slice_of(f"{VICTIM}/nics", node=VICTIM)),
    Case("a pool of ours from elsewhere", ADMIN, slice_of(VICTIM), PLACED),
    # The driver has a policy of its own, which says more.
    Case("its pool", OURS, slice_of(NODE, name=OWN_NAME)),
    Case("its further pool", OURS, slice_of(f"{NODE}/nics", name=OWN_NAME)),
    Case("a pool of another node", OURS, slice_of(VICTIM, name=OWN_NAME), DRIVERS),
    Case("a vendor's", OURS, slice_of(NODE, driver=OTHER_DRIVER, name=OWN_NAME), "of driver"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.who}: {case.name}")
def test_creation(published: Published, case: Case) -> None:
    refused = published.create(case.who, case.document)

    assert case.refusal in refused if case.refusal else not refused


# --- a slice that was there before the policies ---------------------------------------------------

LATE: Final = "from-before"


def before_the_policies() -> list[Object]:
    slice_ = slice_of(VICTIM, name=LATE, generation=1)
    slice_["metadata"]["finalizers"] = ["example.com/keep"]
    return [slice_]


RAISED: Final = json.dumps(
    {"spec": {"pool": {"name": VICTIM, "generation": 2, "resourceSliceCount": 1}}}
)
LABELLED: Final = json.dumps({"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize("who", [KUBELET, VENDOR, ADMIN])
def test_a_slice_from_before_gets_no_newer_generation_and_can_be_deleted(
    published: Published, who: str
) -> None:
    def patch(text: str) -> str:
        words = ("patch", "resourceslice", LATE, "--type=merge", "--dry-run=server", "-p", text)
        return published.attempt(who, *words)

    assert PLACED in patch(RAISED)
    assert not patch(LABELLED)
    assert not published.attempt(who, "delete", "resourceslice", LATE, "--dry-run=server")


def test_an_administrator_publishes_otherwise_while_the_binding_only_warns(
    published: Published,
) -> None:
    """As docs/driver.md says."""
    cluster = published.cluster

    def set_actions(action: str) -> None:
        patch = json.dumps({"spec": {"validationActions": [action]}})
        binding = ("validatingadmissionpolicybinding", POLICY)
        cluster.kubectl("patch", *binding, "--type=merge", "-p", patch)

    set_actions("Warn")
    cluster.wait_until(
        lambda: not published.create(ADMIN, OF_ALL_NODES), "it warns", timeout_s=TIMEOUT_S
    )
    set_actions("Deny")
    published.wait_refused(ADMIN, PLACED)


def test_the_garbage_collector_deletes_the_slices_of_a_node(published: Published) -> None:
    cluster = published.cluster
    doomed = inventory.kwok_node("doomed")
    cluster.apply([doomed])
    uid = cluster.get("nodes", "doomed")["metadata"]["uid"]
    slice_ = slice_of("doomed", node="doomed", name="doomed")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "doomed", "uid": uid}
    slice_["metadata"]["ownerReferences"] = [owner]
    cluster.apply([slice_])

    cluster.delete("node", "doomed")

    cluster.wait_gone("resourceslices", "doomed", timeout_s=TIMEOUT_S)
