"""The kinds of objects that decide about devices, and changes of them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from allocator.pods.claims import Name


class Kind(StrEnum):
    """A kind, by its resource."""

    NODE = "nodes"
    CLAIM = "resourceclaims"
    TEMPLATE = "resourceclaimtemplates"
    SLICE = "resourceslices"
    CLASS = "deviceclasses"
    TAINT_RULE = "devicetaintrules"
    POLICY = "devicecompatibilitypolicies"
    OWNERSHIP = "allocatorownerships"
    QUOTA = "devicequotas"


Changes = Mapping[Kind, Mapping[Name, Any]]
"""Kind to namespace and name to the new value, None for what was deleted."""
