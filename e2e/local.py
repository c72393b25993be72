"""`make up` and `make down`: a local cluster with Drawbridge in it, for people.

`python -m e2e.local up` starts a control plane that outlives the command, adds simulated nodes, and
starts webhook, controllers and observer as processes of this machine. With `--examples waiting` the
nodes are those of examples/waiting. With `--node real` there is one node instead, whose containers
run: kubelet, containerd and the node driver with the devices of examples/quickstart. With `--bridge` two
replicas of the bridge run as well. With `--groups` Kubernetes has pod groups. Standard output is for the shell:
it exports PATH and, in its last line, KUBECONFIG. `python -m e2e.local down` stops exactly what was started.
State, logs and the kubeconfig are in `.local/` of the project.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from e2e import groups
from e2e.access import Object, stream
from e2e.binaries import binaries
from e2e.bridge import Bridge
from e2e.cluster import Cluster
from e2e.drawbridge import Drawbridge, install_drawbridge
from e2e.fleet import ExampleState, example_state, examples_fleet
from e2e.node.driver import DRIVER, NodeDriver
from e2e.node.namespaces import missing
from e2e.node.node import Node
from e2e.processes import recorded_names, running, stop_recorded
from findings.text import count_text
from kube.names import ENFORCEMENT_LABEL
from testing.documents import namespace

ROOT: Final = Path(__file__).parent.parent
STATE: Final = ROOT / ".local"
OBSERVER_MANIFESTS: Final = ROOT / "manifests" / "observer"
REAL_NODE: Final = "worker"
INVENTORY: Final = ROOT / "examples" / "quickstart" / "inventory.yaml"
REPLICAS: Final = ("a", "b")
"""The replicas of the bridge."""
PROFILE: Final = {"translation": {"profiles": {"hami": DRIVER}}}
"""HAMi's keys ask for devices of the node driver."""


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.local", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--state", type=Path, default=STATE, help="where its files are kept")
    parser.add_argument("--examples", metavar="FOLDER", help="nodes and devices of examples/FOLDER")
    parser.add_argument("--node", choices=("real",), help="one node whose containers really run")
    parser.add_argument("--bridge", action="store_true", help="with the scheduler bridge")
    parser.add_argument("--groups", action="store_true", help="with pod groups, which are beta")
    arguments = parser.parse_args()
    state: Path = arguments.state.absolute()
    if arguments.action == "down":
        return down(state)
    if arguments.node and arguments.examples:
        parser.error("--node and --examples exclude each other")
    if arguments.node and (why := missing()):
        say(f"make up NODE=real: {why}. `make up` alone starts a cluster with simulated nodes.")
        return 1
    try:
        chosen = example_state(arguments.examples) if arguments.examples else None
    except LookupError as error:
        say(f"make up: {error}")
        return 2
    start = _start_real if arguments.node else partial(_start_simulated, chosen)
    options: Mapping[str, Any] = {}
    flags: Sequence[str] = ()
    if arguments.groups:
        options, flags = groups.CLUSTER, groups.SCHEDULER_FLAGS
    if arguments.bridge:
        start = partial(_start_with_bridge, start, flags)
    return up(state, start, options)


def up(state: Path, start: Callable[[Cluster], None], options: Mapping[str, Any]) -> int:
    """Start the parts that do not run yet, and tell the way to reach them.

    Args:
        state: The folder of its files.
        start: Adds Drawbridge and nodes to a control plane.
        options: More keyword arguments of `Cluster`.
    """
    directory = state / "cluster"
    names = {record.name for record in running(directory)}
    if "kube-apiserver" in names:
        say(f"Already running: {', '.join(sorted(names))}. `make down` stops it.")
        if ended := sorted(recorded_names(directory) - names):
            say(f"Ended since: {', '.join(ended)}. `make down`, then `make up` starts all anew.")
    else:
        down(state, quiet=True)  # Leftovers of a run that was cut short.
        _start(directory, start, options)
    _link_kubectl(state)
    say(f"Logs: {state / 'cluster'}/*.log")
    say('kubectl, with `kubectl drawbridge`, for this cluster (or: eval "$(make up)"):')
    print(f"export PATH={state / 'bin'}:{ROOT / '.venv' / 'bin'}:$PATH")
    print(f"export KUBECONFIG={directory / 'kubeconfig'}")
    return 0


def down(state: Path, *, quiet: bool = False) -> int:
    """Stop the processes that `up` started and forget its state."""
    directory = state / "cluster"
    stopped_files = stop_recorded(directory)
    shutil.rmtree(directory, ignore_errors=True)
    if stopped_files:
        say(
            f"Stopped: {', '.join(f'{process.name} ({process.pid})' for process in stopped_files)}."
        )
    elif not quiet:
        say("Nothing to stop.")
    return 0


def say(words: str) -> None:
    """Tell a person; standard output is for text that a shell may evaluate."""
    print(words, file=sys.stderr, flush=True)


def _start(directory: Path, start: Callable[[Cluster], None], options: Mapping[str, Any]) -> None:
    cluster = Cluster(directory, detached=True, **options)
    with ExitStack() as undo:
        undo.callback(cluster.stop)
        say("Starting a control plane ...")
        cluster.start()
        say(f"Kubernetes is up after {cluster.started_in_s:.1f} s: {cluster.server}")
        start(cluster)
        undo.pop_all()
    cluster.leave()


def _start_simulated(chosen: ExampleState | None, cluster: Cluster) -> None:
    installed = _install(cluster, {})
    if chosen is None:
        _fill(cluster)
    else:
        _fill_with_example(cluster, chosen)
    _say_metrics(installed)


def _start_real(cluster: Cluster) -> None:
    installed = _install(cluster, PROFILE)
    node = Node(cluster, REAL_NODE)
    node.start()
    say(f"  {node.name}: a kubelet and containerd, in namespaces of their own")
    driver = NodeDriver(
        cluster, node, settings={"bootIdFile": str(node.boot_id), "inventoryReloadPeriod": "1s"}
    )
    driver.install()
    driver.declare(yaml.load(INVENTORY.read_text(), Loader=yaml.CSafeLoader)["pools"])
    driver.start()
    driver.wait_ready()
    say(f"  {node.name}: {count_text(len(driver.published()), 'device')} of {driver.name}")
    _say_metrics(installed)


def _start_with_bridge(
    start: Callable[[Cluster], None], flags: Sequence[str], cluster: Cluster
) -> None:
    """Start the rest and two replicas of the bridge without owned drivers.

    Args:
        start: Starts the rest.
        flags: More flags of the bridge's scheduler.
        cluster: The control plane.
    """
    start(cluster)
    bridge = Bridge(cluster, drivers=(), scheduler_flags=flags)
    bridge.install()
    for replica in REPLICAS:
        bridge.start(replica)
    bridge.wait_working(*REPLICAS)
    say(
        f"The bridge runs with {len(REPLICAS)} replicas and owns no driver yet: docs/bridge.md, Try it"
    )
    for replica in REPLICAS:
        records = (bridge.child(part, replica).record for part in ("sidecar", "scheduler"))
        processes = [f"{record.name} is process {record.pid}" for record in records if record]
        say(f"  {', '.join(processes)}")


def _install(cluster: Cluster, settings: Mapping[str, object]) -> list[Drawbridge]:
    """Install webhook, controllers and observer."""
    return [
        install_drawbridge(cluster, settings=settings),
        install_drawbridge(cluster, manifests=OBSERVER_MANIFESTS),
    ]


def _say_metrics(installed: Sequence[Drawbridge]) -> None:
    say("Drawbridge runs as processes of this machine, not as pods, with metrics at")
    for drawbridge in installed:
        for name, port in drawbridge.endpoints.metrics.items():
            say(f"  {name}: http://{drawbridge.endpoints.host}:{port}/metrics")


def _fill(cluster: Cluster) -> None:
    classes, nodes, slices = examples_fleet()
    cluster.apply(classes)
    _add_nodes(cluster, nodes, slices)


def _fill_with_example(cluster: Cluster, example: ExampleState) -> None:
    """Add the cluster for the examples of a folder; nothing is rejected in its namespaces."""
    cluster.apply(example.objects)
    _add_nodes(cluster, example.nodes, example.slices)
    cluster.apply(
        namespace(name, {**labels, ENFORCEMENT_LABEL: "off"})
        for name, labels in example.namespaces.items()
    )
    if example.claims:
        cluster.apply(example.claims)
        status = ("apply", "--server-side", "--subresource=status", "-f", "-")
        cluster.kubectl(*status, input=stream(example.claims))


def _add_nodes(
    cluster: Cluster, nodes: Sequence[Object], slices: Mapping[str, Sequence[Object]]
) -> None:
    cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    for node, slice_ in slices.items():
        devices = [device for piece in slice_ for device in piece["spec"]["devices"]]
        say(f"  {node}: {count_text(len(devices), 'device')} of {slice_[0]['spec']['driver']}")


def _link_kubectl(state: Path) -> None:
    link = state / "bin" / "kubectl"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(binaries().kubectl)


if __name__ == "__main__":
    sys.exit(main())
