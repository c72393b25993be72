"""A pod's declaration that it belongs to a group, and the groups of a cluster, as values."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import quote_text
from kube.api.core import Pod

MAX_MINIMUM: Final = 2**31 - 1
"""The largest minimum: all of these APIs have an int32."""

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


class GroupSystem(StrEnum):
    """The API that declares a group; the value is its name for people."""

    KUBERNETES = "PodGroup"
    KOORDINATOR = "Koordinator gang"
    VOLCANO = "Volcano PodGroup"
    COSCHEDULING = "coscheduling PodGroup"
    KAI = "KAI PodGroup"


class GroupName(msgspec.Struct, frozen=True, order=True):
    """The identity of a group."""

    system: GroupSystem
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.system} {self.namespace}/{self.name}"


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's declaration that it belongs to a group.

    Attributes:
        group: The group.
        path: The field that names it.
        min_count: The minimum that the pod itself declares; None where only an object does.
    """

    group: GroupName
    path: FieldPath
    min_count: int | None = None


Reading = Declaration | Finding | None
"""A declaration, what is wrong with it, or None for a pod that belongs to no group in these words."""


class DeclaredGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are scheduled together.

    Attributes:
        min_count: The number of pods that are needed; 0 for a group with a fault.
        waiting: The pods without a node, in order.
        placed: The nodes of its other pods.
        held_back: The number of further pods that a quota keeps from being tried.
        domain: A label of nodes of which they should have one value; empty for none.
        needs_one_domain: All of their nodes need one value of it.
        fault: The reason why it cannot be scheduled; None without one.
    """

    name: GroupName
    min_count: int
    waiting: tuple[Pod, ...]
    placed: tuple[str, ...] = ()
    held_back: int = 0
    domain: str = ""
    needs_one_domain: bool = False
    fault: Finding | None = None


def declare(
    pod: Pod, system: GroupSystem, name: str, path: FieldPath, min_count: int | None = None
) -> Reading:
    """Return the declaration of a group, or a finding about its name.

    Args:
        name: The name as the pod has it.
        path: The field with the name.
        min_count: The same number as in `Declaration`.
    """
    if not _NAME.fullmatch(name):
        return error(
            Code.INVALID_GROUP,
            path,
            f"{quote_text(name)} is not the name of a group",
            "write the name of a PodGroup: lowercase letters, digits, - and .",
        )
    group = GroupName(system, pod.metadata.namespace, name)
    return Declaration(group=group, path=path, min_count=min_count)


def read_minimum(text: str, path: FieldPath) -> int | Finding:
    """Return the minimum in an annotation, or a finding about it.

    >>> read_minimum("4", FieldPath())
    4
    """
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if 1 <= number <= MAX_MINIMUM:
        return number
    return error(
        Code.INVALID_GROUP,
        path,
        f"{quote_text(text)} is not a number of pods",
        "write a whole number from 1 on",
    )
