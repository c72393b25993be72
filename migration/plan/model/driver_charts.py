"""The charts of DRA drivers in a plan, as values: their values, nodes and releases. Pure."""

from collections.abc import Mapping

import msgspec


class DriverValues(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The values that the chart of a DRA driver needs for the nodes that may be switched.

    Attributes:
        tolerations: All tolerations of its pods; empty where those of the chart do.
        has_operator_driver: The GPU Operator deploys the GPU driver of its nodes, in a container.
        is_preinstalled: The GPU Operator has labelled all its nodes, and deploys the GPU driver of none.
        unlabelled_nodes: The nodes with none of the labels that the chart's node affinity requires.
        gke_roots: The directories with the GPU driver on nodes of GKE, sorted; empty elsewhere.
    """

    tolerations: tuple[Mapping[str, str], ...] = ()
    has_operator_driver: bool = False
    is_preinstalled: bool = False
    unlabelled_nodes: tuple[str, ...] = ()
    gke_roots: tuple[str, ...] = ()


class DriverNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a DRA driver has before the first wave.

    Attributes:
        labelled: The nodes with its label.
        publishing: The nodes with ResourceSlices of it.
        claims: The number of claims with its devices that pods have.
    """

    labelled: tuple[str, ...] = ()
    publishing: tuple[str, ...] = ()
    claims: int = 0


class DriverRelease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A release of NVIDIA's DRA driver that the cluster has already.

    Attributes:
        chart: The name of its chart, which other versions do not have.
        waits_for_label: Its DaemonSet runs on nodes with the label of the driver only.
        in_repository: A person changes its values in a repository, as for Argo CD, and no command of Helm does.
    """

    namespace: str
    name: str
    chart: str
    version: str
    waits_for_label: bool
    in_repository: bool = False
