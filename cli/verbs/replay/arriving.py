"""The pods of a replay, read from the sources that the flags name."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from allocator.replay.csv_pods import MAX_FAULTS, CsvFault, read_pods
from allocator.replay.workload import ReplayPod
from answers.manifests.replay_pods import ArrivingPods, drawn_pods, manifest_pods
from answers.manifests.simulate import build_request, pods_within_quotas, quota_findings
from answers.model.cluster_state import ClusterState, build_state
from answers.model.inputs import ClusterObjects, Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.output.standard_error import print_line
from cli.verbs.replay.checks import cluster_notes, find_csv_faults, pod_notes
from findings.finding import Severity
from kube.manifests.compressed import decompress
from kube.manifests.source import MAX_BYTES

DEFAULT_DEMAND: Final = 1.3
"""The share of all devices that drawn pods request."""
FROM_SNAPSHOT: Final = "from-snapshot"


def read_arriving(
    cluster_objects: ClusterObjects,
    inputs: Inputs | None,
    pods_file: str | None,
    demand: float | None,
    draw_seed: int | None,
) -> ArrivingPods:
    """Return the pods and the cluster before the first one, with notes on both; faults of a CSV end the program.

    Args:
        cluster_objects: The cluster.
        inputs: The manifests with the cluster; None without.
        pods_file: A CSV, or FROM_SNAPSHOT; None with manifests.
        demand: The share of all devices that drawn pods request; None for the default.
        draw_seed: The seed of the draw; None for the default.

    Raises:
        click.UsageError: The flags contradict each other, or there are no pods or no nodes.
    """
    _check_flags(inputs, pods_file, demand, draw_seed)
    if inputs is not None:
        arriving = _manifest_pods(inputs)
        _check_nodes(arriving.state)
    else:
        # Faults in pods are told before a large cluster is decoded.
        csv_pods = () if pods_file in {None, FROM_SNAPSHOT} else _read_pods(str(pods_file))
        objects, faults = decode_objects(
            cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
        )
        for fault in faults:
            print_line(fault.line())
        arriving = ArrivingPods(pods=csv_pods, state=build_state(objects))
        _check_nodes(arriving.state)
        _end_with_faults(str(pods_file), tuple(find_csv_faults(csv_pods, arriving.state)))
        if pods_file == FROM_SNAPSHOT:
            share = DEFAULT_DEMAND if demand is None else demand
            arriving = drawn_pods(arriving.state, share, draw_seed or 0)
    if not arriving.pods and pods_file == FROM_SNAPSHOT:
        raise click.UsageError(
            "No pod that requests devices by a claim runs in this cluster, so none can be drawn from; pods with devices "
            "of device plugins are not drawn. Give pods by --pods FILE.csv, or manifests by -f; what a migration would "
            "bring says drawbridge rehearse."
        )
    if not arriving.pods and pods_file is None:
        raise click.UsageError(
            "There are no pods to place: none of the manifests has one without a node."
        )
    notes = (*cluster_notes(arriving.state), *pod_notes(arriving.pods, arriving.state))
    return msgspec.structs.replace(arriving, notes=(*arriving.notes, *notes))


def _check_nodes(state: ClusterState) -> None:
    if not state.nodes:
        raise click.UsageError(
            "The given state of the cluster has neither nodes nor ResourceSlices: give one by --snapshot, such as "
            "drawbridge snapshot -o FILE writes."
        )


def _check_flags(
    inputs: Inputs | None, pods_file: str | None, demand: float | None, draw_seed: int | None
) -> None:
    if pods_file is None and inputs is None:
        raise click.UsageError("Missing option '--pods', or '-f' with manifests of pods.")
    if pods_file is not None and inputs is not None:
        raise click.UsageError("--pods and -f are mutually exclusive.")
    if demand is not None and pods_file != FROM_SNAPSHOT:
        raise click.UsageError(f"--demand needs --pods {FROM_SNAPSHOT}.")
    if draw_seed is not None and pods_file != FROM_SNAPSHOT:
        raise click.UsageError(f"--draw-seed needs --pods {FROM_SNAPSHOT}.")
    if pods_file == "-" and "-" in click.get_current_context().params["snapshots"]:
        raise click.UsageError("- is standard input, which can be read only once.")


def _manifest_pods(inputs: Inputs) -> ArrivingPods:
    """Return the pods of manifests, translated; their findings go to standard error."""
    request = build_request(inputs)
    pods, others = pods_within_quotas(request)
    for entry in (*request.findings, *quota_findings(others)):
        if entry.finding.severity is not Severity.INFO:
            print_line(entry.line())
    return manifest_pods(pods, request.state)


def _read_pods(name: str) -> tuple[ReplayPod, ...]:
    """Return the pods of a file; end with its faults, each on a line, if it has any.

    Raises:
        click.UsageError: It has no pods.
    """
    read = read_pods(_read_text(name))
    _end_with_faults(name, [entry for entry in read if isinstance(entry, CsvFault)])
    if not read:
        raise click.UsageError(f"{_place(name)} has a header and no pods.")
    return tuple(entry for entry in read if isinstance(entry, ReplayPod))


def _end_with_faults(name: str, faults: Sequence[CsvFault]) -> None:
    """End the program with the faults of a file, each on a line, if there are any."""
    for fault in faults[:MAX_FAULTS]:
        print_line(f"{_place(name)}: {fault}")
    if len(faults) >= MAX_FAULTS:
        print_line(f"{_place(name)}: there may be more faults; the first {MAX_FAULTS} are named")
    if faults:
        sys.exit(2)


def _read_text(name: str) -> str:
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    text = decompress(content, _place(name))
    if text is not content:
        if len(text) > MAX_BYTES:  # Of a gzip file no more is decompressed.
            print_line(f"{_place(name)}: larger than {MAX_BYTES >> 20} MiB")
            sys.exit(2)
        content = text
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        print_line(f"{_place(name)}: line {line}: not UTF-8")
        sys.exit(2)


def _place(name: str) -> str:
    return "standard input" if name == "-" else name
