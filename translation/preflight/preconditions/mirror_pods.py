"""Mirror pods are not translated: the kubelet runs the static pod regardless of its mirror."""

from findings.field_path import FieldPath
from findings.finding import Code, info
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading.legacy_pod import MIRROR_ANNOTATION


def stop_at_mirror_pods(inputs: PodInput) -> Stop | None:
    """Stop at the mirror of a static pod."""
    if MIRROR_ANNOTATION not in inputs.legacy.annotations:
        return None
    finding = info(
        Code.OPTED_OUT,
        FieldPath.of("metadata", "annotations"),
        "a mirror pod belongs to its kubelet",
    )
    return Stop((finding,))
