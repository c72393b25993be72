"""`make up` and `make down`: a local cluster with Drawbridge in it, for people.

`python -m e2e.local up` starts a control plane that outlives the command, fills it with three
simulated nodes and installs Drawbridge. The last line of its output, and the only one on standard
output, is the `export` that points kubectl at it. `python -m e2e.local down` stops exactly what
was started. State, logs and the kubeconfig are in `.local/` of the project.
"""

import argparse
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from e2e.binaries import binaries
from e2e.cluster import Cluster
from e2e.drawbridge import install_drawbridge
from e2e.fleet import examples_fleet
from e2e.processes import running, stop_recorded

ROOT: Final = Path(__file__).parent.parent
STATE: Final = ROOT / ".local"


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.local", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--state", type=Path, default=STATE, help="where its files are kept")
    arguments = parser.parse_args()
    state: Path = arguments.state.absolute()
    return up(state) if arguments.action == "up" else down(state)


def up(state: Path) -> int:
    """Start what does not run yet, and say how to reach it."""
    directory = state / "cluster"
    names = {record.name for record in running(directory)}
    if "kube-apiserver" in names:
        say(f"It runs already: {', '.join(sorted(names))}. `make down` stops it.")
    else:
        down(state, quiet=True)  # Leftovers of a run that was cut short.
        _start(directory)
    _link_kubectl(state)
    _explain(state)
    print(f"export KUBECONFIG={directory / 'kubeconfig'}")
    return 0


def down(state: Path, *, quiet: bool = False) -> int:
    """Stop what `up` started and forget its state."""
    directory = state / "cluster"
    stopped = stop_recorded(directory)
    shutil.rmtree(directory, ignore_errors=True)
    if stopped:
        say(f"Stopped: {', '.join(f'{each.name} ({each.pid})' for each in stopped)}.")
    elif not quiet:
        say("Nothing runs.")
    return 0


def say(words: str) -> None:
    """Tell a person; standard output is for the one line that a shell may evaluate."""
    print(words, file=sys.stderr, flush=True)


def _start(directory: Path) -> None:
    cluster = Cluster(directory, detached=True)
    with ExitStack() as undo:
        undo.callback(cluster.stop)
        say("Starting a control plane ...")
        cluster.start()
        say(f"Kubernetes is up after {cluster.started_in_s:.1f} s: {cluster.server}")
        _fill(cluster)
        install_drawbridge(cluster)
        say("Drawbridge is installed: webhook and controller run with their own accounts.")
        undo.pop_all()
    cluster.leave()


def _fill(cluster: Cluster) -> None:
    classes, nodes, slices = examples_fleet()
    cluster.apply(classes)
    cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    for node, published in slices.items():
        devices = [device for piece in published for device in piece["spec"]["devices"]]
        say(f"  {node}: {len(devices)} devices of {published[0]['spec']['driver']}")


def _link_kubectl(state: Path) -> None:
    link = state / "bin" / "kubectl"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(binaries().kubectl)


def _explain(state: Path) -> None:
    say(f"Logs: {state / 'cluster'}/*.log")
    say("kubectl of the same version, with `kubectl drawbridge`, comes with")
    say(f"  export PATH={state / 'bin'}:{ROOT / '.venv' / 'bin'}:$PATH")
    say("and the cluster with")


if __name__ == "__main__":
    sys.exit(main())
