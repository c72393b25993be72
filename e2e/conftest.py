"""The cluster of all stories.

It ends before other tests begin. `DRAWBRIDGE_E2E_KUBECONFIG` names a kubeconfig of a cluster to use instead of starting one; stories
that need flags of the API server are skipped there. With `CI=1` a skip is a failure.
`DRAWBRIDGE_E2E_LOGS` names a folder where the components' logs stay, with one more for each process of
`make test`.
"""

import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from e2e import inventory
from e2e.access import Access
from e2e.bridge import IMPARTIAL, NO_USUAL_PODS, Bridge
from e2e.cluster import Cluster, ExistingCluster
from e2e.drawbridge import Drawbridge, install_drawbridge
from e2e.fleet import examples_fleet
from e2e.node.driver import NodeDriver
from e2e.node.namespaces import missing
from e2e.node.node import Node
from e2e.node.product_image import missing as missing_for_image
from e2e.node.product_image import write_product_image
from e2e.node.scheduler_image import write_scheduler_image
from e2e.older_kubernetes import MINOR, NEWEST_MINOR, SPARE_NODES, lacking
from e2e.owned import Owned, owned
from testing.documents import api_object

HERE = Path(__file__).parent
# Control planes of stories are small and short-lived: collecting garbage less often saves a tenth of their CPU.
os.environ.setdefault("GOGC", "400")
DRIVERS: Final = (inventory.NVIDIA, inventory.HAMI, inventory.EXAMPLE, inventory.DRANET)
"""The drivers of the inventory, whose devices the bridge gives."""
ELECTION: Final = {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}
IMPATIENT: Final[dict[str, Any]] = {
    "certificateController": {
        "leaderElection": ELECTION,
        "endpointCheckPeriod": "500ms",
        "configurationGracePeriod": "500ms",
        "maxBackoff": "2s",
    },
    "controllers": {
        "leaderElection": ELECTION,
        "templateUnusedPeriod": "2s",
        "templateCollectPeriod": "500ms",
        "maxBackoff": "2s",
        "policySyncPeriod": "500ms",
        "policyCountsPeriod": "500ms",
        "inventoryUpdatePeriod": "500ms",
        "auditPeriod": "3s",
        "quotaStatusPeriod": "500ms",
        "quotaGateTimeout": "500ms",
        "quotaGateCheckPeriod": "2s",
    },
    "signing": {"keyPublishPeriod": "200ms"},
}
"""Settings of Drawbridge, so that no story waits for a grace period of minutes.

Shorter periods would cost more than they save: four clusters at a time that look five times a second took a third of
the machine.
"""

_numbers = itertools.count(1)
_CLUSTER = pytest.StashKey[Access]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("e2e")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return the turn of a story: those that change the cluster for all that follow come last."""
    if not isinstance(item, pytest.Function):
        return 0
    # The cluster is made anew when its parameter changes.
    if hasattr(item, "callspec") and "cluster" in item.callspec.params:
        return 2
    # The real node stays for the stories that follow, with devices and a driver that reports all the time.
    return int("real_node" in item.fixturenames)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Older versions lack what some stories are about, and `make test` does not run on them.
    must_run = os.environ.get("CI") and MINOR == NEWEST_MINOR
    # What a clone or a machine may lack; everything else has to be there.
    may_lack = any(item.get_closest_marker(name) is not None for name in ("gpu", "history"))
    if must_run and report.skipped and not may_lack and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a story must not be skipped in CI: {report.longrepr}"
    running = item.session.stash.get(_CLUSTER, None)
    if report.failed and running is not None:
        report.sections.append(("logs of the cluster", running.log_tails()))
    return report


@pytest.fixture(scope="package")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Access]:
    """A control plane without nodes and device classes, or the one that the environment names.

    Stories with equal arguments on one worker share a control plane, so one that leaves things behind needs
    arguments that no other has.

    A story that needs other flags parametrizes it with keyword arguments of `Cluster`::

        @pytest.mark.parametrize(
            "cluster", [{"feature_gates": {"DRADeviceCompatibilityGroups": True}}], indirect=True
        )
    """
    options: dict[str, Any] = getattr(request, "param", {})
    value = os.environ.get("DRAWBRIDGE_E2E_LOGS")
    directory = (
        Path(value).absolute() / os.environ.get("PYTEST_XDIST_WORKER", "")
        if value
        else tmp_path_factory.mktemp("cluster")
    )
    existing = os.environ.get("DRAWBRIDGE_E2E_KUBECONFIG")
    if reason := lacking(options.get("feature_gates", {})):
        pytest.skip(reason)
    if existing and options:
        pytest.skip(f"needs a control plane started with {options}")
    cluster_ = (
        ExistingCluster(Path(existing), directory) if existing else Cluster(directory, **options)
    )
    with cluster_ as running:
        request.session.stash[_CLUSTER] = running
        yield running
        del request.session.stash[_CLUSTER]


@pytest.fixture
def own_cluster(cluster: Access) -> Cluster:
    """The cluster, if its components and flags are ours to change."""
    if not isinstance(cluster, Cluster):
        pytest.skip("needs a control plane whose flags and components are the test's to change")
    return cluster


@pytest.fixture(scope="package")
def drawbridge(cluster: Access) -> Iterator[Drawbridge]:
    """Drawbridge, installed from its manifests with webhook and controller running."""
    drawbridge_ = install_drawbridge(cluster, settings=IMPATIENT)
    yield drawbridge_
    drawbridge_.uninstall()


@pytest.fixture(scope="package")
def installed_bridge(cluster: Access) -> Iterator[Bridge]:
    """The bridge, installed from its manifests, for the devices of all drivers of the inventory."""
    bridge = Bridge(cluster, drivers=DRIVERS)
    bridge.install()
    yield bridge
    bridge.uninstall()


@pytest.fixture
def bridge(installed_bridge: Bridge) -> Iterator[Bridge]:
    """The bridge with one replica at work, `a`."""
    installed_bridge.ensure()
    yield installed_bridge
    installed_bridge.leave()  # Stories of other files take the Lease for themselves.


@pytest.fixture(scope="package")
def _impartial(cluster: Access) -> Bridge:
    return Bridge(cluster, drivers=DRIVERS, settings=NO_USUAL_PODS)


@pytest.fixture(scope="module")
def impartial_bridge(installed_bridge: Bridge, _impartial: Bridge) -> Iterator[Bridge]:
    """The bridge with one replica, `IMPARTIAL`, and strategies that keep no room for pods of other stories."""
    for name in ("a", "b"):
        installed_bridge.stop(name)
    _impartial.start(IMPARTIAL)
    _impartial.wait_working(IMPARTIAL)
    yield _impartial
    _impartial.leave()
    _impartial.stop(IMPARTIAL)


@pytest.fixture(scope="package")
def owned_bridge(cluster: Access) -> Iterator[Owned]:
    """The bridge on a cluster of its own, `e2e.owned.AUDITED`, as the owner of drivers by the fence."""
    if not isinstance(cluster, Cluster):
        pytest.skip("needs a control plane of its own")
    with owned(cluster) as owned_stage:
        yield owned_stage


@pytest.fixture(scope="package")
def real_node(cluster: Access) -> Iterator[Node]:
    """A node with a real kubelet and containerd."""
    if MINOR != NEWEST_MINOR:
        pytest.skip(f"the kubelet is of 1.{NEWEST_MINOR}, newer than an API server of 1.{MINOR}")
    if why := missing():
        pytest.skip(why)
    if not isinstance(cluster, Cluster):
        pytest.skip("needs a control plane of its own")
    node = Node(cluster, f"real-{os.getpid()}")
    with ExitStack() as undo:
        undo.callback(node.stop)
        node.start()
        yield node


@pytest.fixture(scope="package")
def product_image(real_node: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The product's own image on the real node."""
    if why := missing_for_image():
        pytest.skip(why)
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    write_product_image(archive)
    real_node.import_image(archive)
    archive.unlink()


@pytest.fixture(scope="package")
def scheduler_image(real_node: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image of the bridge's scheduler on the real node."""
    archive = tmp_path_factory.mktemp("scheduler-image") / "image.tar"
    write_scheduler_image(archive)
    real_node.import_image(archive)
    archive.unlink()


@pytest.fixture(scope="package")
def installed_driver(cluster: Access, real_node: Node) -> Iterator[NodeDriver]:
    """The node driver, installed from its manifests."""
    settings = {
        "claimCheckPeriod": "1s",
        "inventoryReloadPeriod": "200ms",
        "recoveryPeriod": "1s",
        "bootIdFile": str(real_node.boot_id),
    }
    driver = NodeDriver(cluster, real_node, settings=settings)
    driver.install()
    yield driver
    driver.stop()
    driver.uninstall()


@pytest.fixture
def driver(installed_driver: NodeDriver) -> NodeDriver:
    """The node driver, ready, with the inventory `e2e.node.driver.INVENTORY`."""
    installed_driver.ensure()
    return installed_driver


@pytest.fixture(scope="package")
def fleet(cluster: Access) -> Iterator[list[str]]:
    """The nodes of examples/cluster/cluster.yaml and some more, as `examples_fleet` tells."""
    classes, nodes, slices = examples_fleet(SPARE_NODES)
    cluster.apply(classes)
    nodes_added = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    yield nodes_added
    cluster.remove_nodes(nodes_added)


@pytest.fixture(scope="package")
def workshop(cluster: Access) -> Iterator[str]:
    """A namespace for all stories, of those that leave nothing behind."""
    yield from _fresh_namespace(cluster, "workshop")


@pytest.fixture(scope="module")
def stage(cluster: Access) -> Iterator[str]:
    """A namespace for the stories of one file that share the objects they applied."""
    yield from _fresh_namespace(cluster, "stage")


@pytest.fixture
def namespace(cluster: Access) -> Iterator[str]:
    """A fresh namespace, deleted afterwards with all that is in it."""
    yield from _fresh_namespace(cluster, "story")


def _fresh_namespace(cluster: Access, prefix: str) -> Iterator[str]:
    name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
    cluster.apply(api_object("Namespace", name))
    # Pods are refused until the controller manager has made the account that they run under.
    cluster.wait_for("serviceaccounts", "default", name)
    yield name
    # kwok ends pods at once; the rest of the namespace's end need not hold up the next story.
    cluster.delete("namespace", name)


@pytest.fixture
def nodes(cluster: Access) -> Iterator[list[str]]:
    """Two simulated nodes with four gpu.example.com devices each, and all device classes."""
    cluster.apply(inventory.device_classes())
    prefix = f"node-{os.getpid()}-{next(_numbers)}"
    nodes_added = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix=prefix),
        lambda node: inventory.example_gpus(node, gpus=4),
    )
    yield nodes_added
    cluster.remove_nodes(nodes_added)
