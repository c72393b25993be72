"""The PodGroup that stands for a gang of another scheduler.

Its name is all that the pods of the gang have in common with it: the webhook writes it into
`spec.schedulingGroup` of each, and the controllers create the PodGroup. It derives from what identifies the
gang to its own scheduler: the words that declare it, the namespace and the name. The owner of a pod is not
part of it, since one gang may have pods of several owners: the launcher of an MPIJob has its Job, and the
workers have the MPIJob.
"""

import hashlib
from typing import Final

from allocator.declarations.model import GroupName

_MAX_READABLE: Final = 200
"""Characters of the gang's name in that of the PodGroup, which has at most 253."""
_DIGITS: Final = 16
"""Hexadecimal digits that distinguish names which read alike."""


def adopted_name(gang: GroupName) -> str:
    """Return the name of the PodGroup of a gang.

    >>> from allocator.declarations.model import GroupSystem
    >>> adopted_name(GroupName(GroupSystem.KOORDINATOR, "team", "ring.v2"))
    'ring-v2-321c8d78721c9131'
    """
    # A gang may be called a..b, which is no name of an object.
    readable = gang.name.replace(".", "-")[:_MAX_READABLE]
    # No part has a NUL, so different parts are different texts.
    identity = f"{gang.system.name}\0{gang.namespace}\0{gang.name}"
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:_DIGITS]}"
