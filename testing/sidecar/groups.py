"""Groups of pods as the scheduler asks about them."""

from collections.abc import Sequence
from typing import Any

from allocator.nodes.pod_requests import pod_request
from kube.api.core import Pod
from sidecar.model.protocol import GroupReference, GroupRequest, PlacedMember, ResourceRequests
from testing.sidecar.snapshots import pod


def member(name: str, *claims: str, group: str = "ring", **spec: Any) -> Pod:
    """A pod of a group with these claims."""
    return pod(*claims, name=name, schedulingGroup={"podGroupName": group}, **spec)


def group_request(
    *pods: Pod,
    needs: int | None = None,
    name: str = "ring",
    placed: Sequence[str] = (),
    with_resources: bool = False,
    **fields: Any,
) -> GroupRequest:
    """The question about a group of these pods; by default it needs all of them.

    Args:
        pods: Those without a node.
        placed: The nodes of others.
    """
    priority = (pods[0].spec.priority or 0) if pods else 0
    return GroupRequest(
        group=GroupReference(
            uid=f"group-{name}",
            namespace="default",
            name=name,
            min_count=len(pods) + len(placed) if needs is None else needs,
            priority=priority,
        ),
        pods=pods,
        placed=tuple(
            PlacedMember(pod_uid=f"placed-{number}", node=node)
            for number, node in enumerate(placed)
        ),
        requests={pod_.metadata.uid: requests_of(pod_) for pod_ in pods} if with_resources else {},
        **fields,
    )


def requests_of(pod_: Pod) -> ResourceRequests:
    """The requests of a pod, as the plugin says them."""
    amounts = pod_request(pod_).amounts
    return ResourceRequests(cpu_milli=amounts.cpu_milli, memory=amounts.memory)
