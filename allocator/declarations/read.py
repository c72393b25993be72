"""The group that a pod declares, in any scheduler's words."""

from typing import Final

from allocator.declarations import coscheduling, kai, koordinator, kubernetes, volcano
from allocator.declarations.model import Reading
from kube.api.core import Pod

GANG_READERS: Final = (
    koordinator.read_group,
    volcano.read_group,
    coscheduling.read_group,
    kai.read_group,
)
"""The readers of other schedulers' words."""
READERS: Final = (kubernetes.read_group, *GANG_READERS)
"""All readers; Kubernetes' own field is what counts if a pod uses several."""


def read_declaration(pod: Pod) -> Reading:
    """Return the group of a pod, the first that a reader finds, or its fault."""
    return next((reading for read in READERS if (reading := read(pod)) is not None), None)


def read_gang(pod: Pod) -> Reading:
    """Return the group of a pod in other schedulers' words, or its fault; as `read_declaration` does."""
    return next((reading for read in GANG_READERS if (reading := read(pod)) is not None), None)
