"""Objects of files, or of a cluster, each typed and in its place.

What is read with `-f` replaces its namesake in the state of the cluster.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from cli.reading import Kinds, viewed
from cli.report import Reported, namespace_of, reference
from kube.api.meta import ApiStruct
from kube.files import SourceObject, ViewedObject
from webhook.findings import Finding

T = TypeVar("T", bound=ApiStruct)

FoundObject = SourceObject | ViewedObject


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A typed object and the namespace that it is in, empty for none."""

    namespace: str
    value: ApiStruct


def joined(
    snapshot: Iterable[FoundObject], given: Iterable[FoundObject], namespace: str
) -> list[FoundObject]:
    """Return the objects of both, the later of namesakes; those without a name are all kept.

    Args:
        namespace: Where objects go that do not say.
    """
    named: dict[tuple[str, ...], FoundObject] = {}
    for number, found in enumerate((*snapshot, *given)):
        # A version is a way to look at an object, so only the group counts.
        group = found.api_version.rpartition("/")[0]
        place = (group, found.kind, namespace_of(found, namespace), found.name)
        named[place if found.is_named else (str(number),)] = found
    return list(named.values())


def placed(
    objects: Iterable[FoundObject],
    kinds: Kinds,
    namespace: str,
    *,
    told: Sequence[FoundObject] = (),
) -> tuple[list[Placed], list[Reported]]:
    """Return the objects of these kinds, and what is wrong with those that cannot be viewed.

    Args:
        namespace: Where objects go that do not say.
        told: Objects whose faults are told elsewhere.
    """
    told_elsewhere = {id(found) for found in told}
    found_objects: list[Placed] = []
    faults: list[Reported] = []
    for found in objects:
        kind = kinds.get((found.api_version, found.kind))
        if kind is None:
            continue
        value = found.value if isinstance(found, ViewedObject) else viewed(found.document, kind)
        if not isinstance(value, Finding):
            found_objects.append(Placed(namespace=namespace_of(found, namespace), value=value))
        elif id(found) not in told_elsewhere:
            faults.append(Reported(object=reference(found, namespace), finding=value))
    return found_objects, faults


def of_kind(objects: Iterable[Placed], kind: type[T]) -> list[tuple[str, T]]:
    """Return the objects of one kind, each with its namespace, in order."""
    return [(each.namespace, each.value) for each in objects if isinstance(each.value, kind)]
