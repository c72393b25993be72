"""Pods that nothing creates again: a person deletes them before a drain or after an opt-in, and creates them again. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from findings.text import count_text, join_names
from migration.cluster.evidence import Evidence
from migration.plan.model.plan import PlannedWork, Wave
from migration.plan.search.device_map import WaveDetails
from migration.plan.search.wave_pods import pod_place
from migration.plan.stage.stage import PodKey


def with_by_hand(
    waves: Sequence[Wave],
    details: Sequence[WaveDetails],
    evidence: Evidence,
    bare_pods: Mapping[str, PlannedWork],
    keys: Mapping[tuple[str, str], PodKey],
) -> Iterator[Wave]:
    """Yield the waves with the pods that a person deletes with each, and with notes on them.

    Those on its nodes stop their drain. Others have device keys until they are created again in a namespace that is opted in,
    and run on switched nodes then, where no later drain meets them. A hub creates the servers of its users: notes on work
    name those on the wave's nodes.

    Args:
        waves: The waves with their workloads and their work, in order.
        details: The details of each of them.
        evidence: All pods of the cluster.
        bare_pods: The pods with a node and without a controller, as `Pod/namespace/name`, with the losses of their deletion.
        keys: Namespace and name of each pod with devices to its number in its workload.
    """
    gone: set[str] = set()
    drained: set[str] = set()
    places: Mapping[PodKey, str] = {}
    for wave, entry in zip(waves, details, strict=True):
        servers = {work.pod for work in wave.work if work.hub_server}
        stopping = _stopping_pods(wave, evidence, gone | servers)
        opted_in = [
            _at_begin(bare_pods[workload.object], drained, places, keys)
            for workload in wave.workloads
            if workload.is_created_by_hand and workload.object in bare_pods
        ]
        stopped = [bare_pods[pod] for pods in stopping.values() for pod in pods]
        left_out = servers.union(work.pod for work in stopped)
        elsewhere = [work for work in opted_in if work.pod not in left_out]
        yield msgspec.structs.replace(
            wave,
            deleted_by_hand=(*stopped, *elsewhere),
            notes=(*_stopping_notes(stopping), *wave.notes, *_opt_in_notes(elsewhere)),
        )
        gone |= {work.pod for work in opted_in}
        drained |= {node.name for node in wave.nodes}
        places = entry.places


def _stopping_pods(
    wave: Wave, evidence: Evidence, left_out: Collection[str]
) -> dict[str, list[str]]:
    """Return the nodes of a wave with pods that `kubectl drain` stops at, to these pods, as `Pod/namespace/name`."""
    stopping: dict[str, list[str]] = {}
    for node in wave.nodes:
        pods = [f"Pod/{pod.namespace}/{pod.name}" for pod in evidence.bare_pods(node.name)]
        if own := [pod for pod in pods if pod not in left_out]:
            stopping[node.name] = own
    return stopping


def _at_begin(
    work: PlannedWork,
    drained: Collection[str],
    places: Mapping[PodKey, str],
    keys: Mapping[tuple[str, str], PodKey],
) -> PlannedWork:
    """Return a pod as it is when a wave begins: one that stopped an earlier drain was created again elsewhere.

    Args:
        work: The pod as it is today.
        drained: The nodes of earlier waves.
        places: The pods with devices to their nodes when the wave begins.
        keys: Namespace and name of each pod with devices to its number in its workload.
    """
    if work.node not in drained:
        return work
    _, namespace, name = work.pod.split("/", 2)
    key = keys.get((namespace, name))
    node = work.node if key is None else places.get(key, work.node)
    return msgspec.structs.replace(work, node=node, since="", moved=True)


def _stopping_notes(stopping: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a note on the pods of each node that `kubectl drain` stops at."""
    for node, pods in stopping.items():
        names = join_names([pod.partition("/")[2] for pod in pods])
        yield (
            f"node {node}: nothing creates {names} again, and kubectl drain stops at such "
            "pods: delete them first, and apply their manifests after the wave; before its rollback.sh delete them again"
        )


def _opt_in_notes(works: Sequence[PlannedWork]) -> Iterator[str]:
    """Yield notes on the pods of other nodes that get claims with a wave once a person creates them again."""
    if pods := [pod_place(work) for work in works if not work.hub_server]:
        yield (
            f"nothing creates {join_names(pods)} again: such pods keep their device keys until a person deletes them, which "
            "switch.sh says at its end, and applies their manifests again; README.md has what is lost with them: tell their "
            "users first"
        )
    if servers := [pod_place(work) for work in works if work.hub_server]:
        verb = "gets" if len(servers) == 1 else "get"
        yield (
            f"{count_text(len(servers), 'server')} of users of JupyterHub {verb} claims when started again: "
            f"{join_names(servers)}; switch.sh says at its end to have these users stop and start them in the hub: tell them "
            "first, since what a server has in memory, as a kernel, ends with it"
        )
