"""Workloads of other projects: each of their pods by the pipeline of pods, with paths in the object.

Source: `translation.reading.custom_workloads`, the table of kinds.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import printable
from kube.api.core import Pod
from translation.model.intents import Vocabulary
from translation.reading.custom_workloads import EmbeddedPod
from translation.reading.legacy_pod import containers, device_keys
from translation.reading.workload_kinds import WorkloadKind

MAX_KEYS = 5
"""Keys that are named in one finding."""


def locate(finding: Finding, pod: EmbeddedPod) -> Finding:
    """Return a finding about a pod with its paths in the object that has the pod."""
    return finding.relocated(partial(_locate_path, pod))


def _locate_path(pod: EmbeddedPod, path: FieldPath) -> FieldPath:
    for prefix, place in pod.places:
        below = path.relative_to(FieldPath.of(*prefix))
        if below is not None:
            return FieldPath.of(*place).join(below)
    return path


def check_kind(
    kind: WorkloadKind, embedded: EmbeddedPod, pod: Pod, vocabularies: Mapping[str, Vocabulary]
) -> Iterable[Finding]:
    """Return the consequences of its kind for a pod with device keys; paths start at the object."""
    keys = {key for _, container in containers(pod) for key in device_keys(container, vocabularies)}
    if not keys:
        return ()
    path = FieldPath.of(*embedded.path)
    if not kind.has_claims:
        names = ", ".join(map(printable, sorted(keys)[:MAX_KEYS]))
        reason = kind.caution or f"{kind.kind} has no field for claims"
        message = f"{reason}, so it stays as it is ({names}); its pods are translated when they are created"
        return (info(Code.POD_TEMPLATE_NOT_READ, path, message),)
    if kind.caution:
        return (warning(Code.CONTROLLER_READS_KEYS, path, kind.caution),)
    return ()
