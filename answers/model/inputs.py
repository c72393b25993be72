"""The objects of a command, and the state of a cluster, as values. Pure."""

import msgspec
from msgspec.structs import replace

from allocator.model.feature_gates import Features
from answers.model.findings import DEFAULT_NAMESPACE, ObjectFinding, namespace_of
from answers.model.objects import InputObject, as_stored
from answers.model.pod_owners import FailedCreation
from clusterstate.settings import ValidationSettings
from kube.manifests.source import SourceObject
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
)


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a command decides on.

    Attributes:
        manifests: The objects of `-f`, in order.
        unreadable: A message for each file that could not be read, where the others count.
        state: The objects of the cluster; empty when nothing is known of it.
        knows_cluster: The flags name a cluster, even if it is empty.
        snapshot: The inputs of a translation, from manifests and cluster.
        namespace: The namespace for objects that name none.
        faults: Wrong values in the state of the cluster.
        notes: Kinds that could not be read, for standard error.
        unread: The kinds that could not be read, as in `ClusterObjects`.
        features: Feature gates of the cluster: those of the call, else of its settings; the snapshot is that of a
            cluster with them.
        validation: The settings of the validation in the cluster.
        kubernetes: Version of the cluster's API server; empty where it is not known.
        shipped_drivers: The drivers with a profile in the package.
    """

    manifests: tuple[SourceObject, ...]
    unreadable: tuple[str, ...] = ()
    shipped_drivers: frozenset[str] = frozenset()
    state: tuple[InputObject, ...] = ()
    knows_cluster: bool = False
    snapshot: TranslationSnapshot
    options: TranslationOptions
    namespace: str = DEFAULT_NAMESPACE
    faults: tuple[ObjectFinding, ...] = ()
    notes: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    features: Features = Features()
    validation: ValidationSettings = ValidationSettings()
    kubernetes: str = ""


class ClusterObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster, for commands that depend on nothing else.

    Attributes:
        objects: The cluster's objects, with those of `-f` in place of their namesakes.
        is_live: They were read from a cluster, not from files.
        namespace: The namespace for objects that name none.
        notes: The notes for standard error, as in `Inputs`.
        unread: Resources that the user may not list, such as `pods`.
        failed_creations: Pods of the namespace that could not be created lately; of a live cluster,
            where a command needs them.
    """

    objects: tuple[InputObject, ...]
    is_live: bool = False
    namespace: str = DEFAULT_NAMESPACE
    notes: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    failed_creations: tuple[FailedCreation, ...] = ()

    def under(self, features: Features) -> "ClusterObjects":
        """Return the objects as an API server with these gates stores them."""
        return replace(self, objects=as_stored(self.objects, features))


def about_namespace(inputs: Inputs, namespace: str) -> Inputs:
    """Return inputs of a call about another namespace; their objects stay in theirs."""
    manifests = (_in_namespace(source, inputs.namespace) for source in inputs.manifests)
    return replace(inputs, manifests=tuple(manifests), namespace=namespace)


def _in_namespace(source: SourceObject, default: str) -> SourceObject:
    """Return an object that names its namespace, unless its kind has none."""
    namespace, metadata = namespace_of(source, default), source.document.get("metadata")
    if source.namespace == namespace or not isinstance(metadata, dict):
        return source
    return replace(
        source, document={**source.document, "metadata": {**metadata, "namespace": namespace}}
    )
