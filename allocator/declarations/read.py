"""The group that a pod declares, whichever scheduler's words it uses."""

from typing import Final

from allocator.declarations import coscheduling, kai, koordinator, kubernetes, volcano
from allocator.declarations.model import Reading
from kube.api.core import Pod

READERS: Final = (
    kubernetes.read_group,
    koordinator.read_group,
    volcano.read_group,
    coscheduling.read_group,
    kai.read_group,
)
"""The readers; Kubernetes' own field is what counts if a pod uses several."""


def read_declaration(pod: Pod) -> Reading:
    """Return the group of a pod, the first that a reader finds, or its fault."""
    return next((reading for read in READERS if (reading := read(pod)) is not None), None)
