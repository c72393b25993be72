"""The kinds of other projects that lose more than a pod when one is evicted. Pure.

Sources: docs.ray.io, "Node Fault Tolerance" and "GCS fault tolerance in KubeRay": the tasks, actors and objects of a lost
node are lost, and without an external Redis the cluster ends with its head. kubeflow/trainer 1.9: a pod of a training
that is gone fails the collective operations of the others. kubernetes-sigs/lws: a LeaderWorkerSet creates a group again
when one of its pods is (`RecreateGroupOnPodRestart`, the default), and it is made to serve. Volcano: a Job's policies may
start all of its pods anew. The pods of a JobSet and of a TrainJob are those of Jobs. jupyterhub/kubespawner 7.0: the server
of a user is a pod without a controller, which runs until its user, or the hub, stops it. jupyterhub/zero-to-jupyterhub-k8s
4.3, templates/hub/deployment.yaml and templates/_helpers.tpl: the labels of the hub.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.cluster.owners import OwnerKey, owner_key

_LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
"""The label of pods of a LeaderWorkerSet, whose controller is a StatefulSet."""
_LEADER_WORKER_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
"""The label of such pods with the number of their leader: a LeaderWorkerSet creates only the group of a lost pod again."""
_OTHERS: Final = "its {} may start its other pods anew, too, and their work with them"
_RAY_CLUSTERS: Final = ("ray.io", "RayCluster")
_RAY_JOBS: Final = ("ray.io", "RayJob")
CREATED_KINDS: Final = tuple(f"{kind}.{group}" for group, kind in (_RAY_CLUSTERS, _RAY_JOBS))
"""The kinds, as of a snapshot, with objects that decide on the course of the pods of a group, or whose controllers do."""
_HUB_USER: Final = "hub.jupyter.org/username"
"""The annotation of a server with the user of JupyterHub that it was made for."""
_HUB_COMPONENTS: Final = ("component", "app.kubernetes.io/component")
_HUB_SERVER: Final = "singleuser-server"
"""The value of one of these labels of such a server."""
_HUB: Final = "hub"
"""The value of one of these labels of the hub itself."""
_HUB_KINDS: Final = frozenset({"Deployment", "StatefulSet"})
_HUB_NAMES: Final = ("app", "app.kubernetes.io/name")
_JUPYTERHUB: Final = "jupyterhub"
"""The value of one of these labels of a hub of Zero to JupyterHub's chart, and part of its image."""
_RAY: Final = "its tasks, actors and objects are lost, and with the head those of the whole RayCluster, unless Redis has its state"


class Ending(StrEnum):
    """The course of a drain with a pod of a group."""

    WAITS = "waits"
    """The group ends by itself."""
    ASKS = "asks"
    """It does not, and it has work that its controller does not create again."""
    EVICTED = "evicted"
    """It serves, and its controller creates its pods again."""


class Group(NamedTuple):
    """The common loss of the pods of a kind.

    Attributes:
        loss: The text about it, with a place for the kind among the kinds.
        workload: It, as `Kind/namespace/name`; empty among the kinds.
    """

    ending: Ending
    loss: str
    workload: str = ""


_LEADER_WORKER_SETS: Final = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
_GROUPS: Final[Mapping[tuple[str, str], Group]] = {
    ("batch.volcano.sh", "Job"): Group(Ending.WAITS, _OTHERS),
    ("jobset.x-k8s.io", "JobSet"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "JAXJob"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "MPIJob"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "PaddleJob"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "PyTorchJob"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "TFJob"): Group(Ending.WAITS, _OTHERS),
    ("kubeflow.org", "XGBoostJob"): Group(Ending.WAITS, _OTHERS),
    _LEADER_WORKER_SETS: Group(Ending.EVICTED, _OTHERS),
    _RAY_CLUSTERS: Group(Ending.ASKS, _RAY),
    ("trainer.kubeflow.org", "TrainJob"): Group(Ending.WAITS, _OTHERS),
}
"""API group and kind of the controller of pods."""
_RAY_CREATORS: Final = {"RayJob": Ending.WAITS, "RayService": Ending.EVICTED}


def read_creators(
    objects: Collection[SourceObject], namespace: str
) -> Mapping[tuple[str, str], str]:
    """Return namespace and name of each RayCluster to the kind that it ends or is created again with; empty for neither.

    A RayJob leaves its RayCluster behind, by default.

    Source: ray-project/kuberay 1.5, RayJobSpec.shutdownAfterJobFinishes.
    """
    owners, leaving = dict[tuple[str, str], _Owner](), set[tuple[str, str]]()
    for source in objects:
        place = source.namespace or namespace, source.name
        kind = source.api_version.partition("/")[0], source.kind
        if kind == _RAY_CLUSTERS:
            owners[place] = _controller(source.document)
        elif kind == _RAY_JOBS:
            spec = mapping_at(source.document, "spec")
            if spec.get("shutdownAfterJobFinishes") is not True:
                leaving.add(place)
    return {
        (own, name): ""
        if (owner.group, owner.kind) == _RAY_JOBS and (own, owner.name) in leaving
        else owner.kind
        for (own, name), owner in owners.items()
    }


def group_of(
    pod: Mapping[str, Any],
    namespace: str,
    creators: Mapping[tuple[str, str], str],
    by_key: Mapping[OwnerKey, SourceObject],
    job: Mapping[str, Any] = {},
) -> Group | None:
    """Return the loss of a pod's group by its eviction; None if it has no such group.

    Args:
        pod: The pod.
        namespace: Its namespace.
        creators: The kinds that RayClusters end with, or are created again with, as `read_creators` gives them.
        by_key: The workloads of the cluster, as `owners_by_key` gives them.
        job: Its Job, which may be one of several of a JobSet, say; empty without one.
    """
    labels = text_map(pod, "metadata", "labels")
    owner, of_job = _controller(pod), _controller(job)
    if name := labels.get(_LEADER_WORKER_SET):
        # Its own controller is a StatefulSet.
        number = labels.get(_LEADER_WORKER_GROUP)
        owner = _Owner(*_LEADER_WORKER_SETS, f"{name} (group {number})" if number else name)
    elif (of_job.group, of_job.kind) in _GROUPS:
        owner = of_job
    key = (owner.group, owner.kind)
    group = _GROUPS.get(key)
    if group is None:
        return None
    ending = group.ending
    if key == _RAY_CLUSTERS:
        ending = _RAY_CREATORS.get(creators.get((namespace, owner.name), ""), ending)
    own_key = OwnerKey(kind=owner.kind, namespace=namespace, name=owner.name)
    workload = owner_key(owner.api_version, own_key, by_key).reference
    return Group(ending, group.loss.format(owner.kind), workload)


def is_hub_server(pod: Mapping[str, Any]) -> bool:
    """Return True if a pod is the server of a user of JupyterHub."""
    labels = text_map(pod, "metadata", "labels")
    is_named = _HUB_SERVER in map(labels.get, _HUB_COMPONENTS)
    is_of_user = _HUB_USER in text_map(pod, "metadata", "annotations")
    return (is_named or is_of_user) and _controller(pod) == _Owner()


def is_hub(source: SourceObject) -> bool:
    """Return True if a Deployment or StatefulSet is the hub of a JupyterHub."""
    if source.api_version != "apps/v1" or source.kind not in _HUB_KINDS:
        return False
    labels = text_map(source.document, "metadata", "labels")
    containers = list_at(source.document, "spec", "template", "spec", "containers")
    return _HUB in map(labels.get, _HUB_COMPONENTS) and (
        _JUPYTERHUB in map(labels.get, _HUB_NAMES)
        or any(_JUPYTERHUB in text_map(container).get("image", "") for container in containers)
    )


class _Owner(NamedTuple):
    """The controller of an object, with its API group and version; all empty without one."""

    group: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = ""


def _controller(document: Mapping[str, Any]) -> _Owner:
    for entry in list_at(document, "metadata", "ownerReferences"):
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            version = str(entry.get("apiVersion") or "")
            kind, name = str(entry.get("kind") or ""), str(entry.get("name") or "")
            return _Owner(version.partition("/")[0], kind, name, version)
    return _Owner()
