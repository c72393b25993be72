"""The question of a replay: its cluster, its pods, and added nodes. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from findings.text import count_text, join_names, printable

_NAMED: Final = 3
_LIVE: Final = "the cluster of the kubeconfig"


class AddedNodesLike(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that were added.

    Attributes:
        count: Their number.
        like: The name of the node that they are like.
    """

    count: int
    like: str


class ReplayInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The input of a replay, as the flags named it.

    Attributes:
        snapshots: The files with the cluster; empty for the cluster of the kubeconfig.
        files: The files of manifests; empty without.
        pods: The file of the pods, or `from-snapshot` or `recorded`; empty with manifests.
        arriving: Number of pods.
        order: The order in which they arrive.
        seeds: Number of seeds.
        demand: The share of all devices that drawn pods request, in percent; None without.
        added_nodes: Nodes that were added.
        quotas: The files with quotas; empty without.
    """

    snapshots: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    pods: str = ""
    arriving: int
    order: str
    seeds: int = 1
    demand: float | None = None
    added_nodes: tuple[AddedNodesLike, ...] = ()
    quotas: tuple[str, ...] = ()


def describe_input(replay_input: ReplayInput) -> str:
    """Return the question in words, for a line above its answer.

    >>> nodes = (AddedNodesLike(count=10, like="node-a"),)
    >>> print(describe_input(ReplayInput(snapshots=("c.json",), pods="p.csv", arriving=8, order="file", added_nodes=nodes)))
    The pods of p.csv on the cluster of c.json, with 10 more nodes like node-a
    """
    return printable(
        f"{_pods(replay_input)}{_cluster(replay_input)}{''.join(_changes(replay_input))}"
    )


def _pods(replay_input: ReplayInput) -> str:
    if replay_input.pods == "recorded":
        return "The pods of the recording "
    if replay_input.pods == "from-snapshot":
        return f"Pods like those that run, drawn for {replay_input.demand or 0:g} % of the devices, on "
    return f"The pods of {_names(replay_input.files or (replay_input.pods,))} on "


def _cluster(replay_input: ReplayInput) -> str:
    if replay_input.pods == "recorded":
        return _names(replay_input.snapshots)
    return f"the cluster of {_names(replay_input.snapshots)}" if replay_input.snapshots else _LIVE


def _changes(replay_input: ReplayInput) -> Iterator[str]:
    for added in replay_input.added_nodes:
        yield f", with {count_text(added.count, 'more node')} like {added.like}"
    if replay_input.quotas:
        yield f", with the quotas of {_names(replay_input.quotas)}"


def _names(names: Sequence[str]) -> str:
    return join_names(["standard input" if name == "-" else name for name in names], _NAMED)
