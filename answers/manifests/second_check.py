"""The check of manifests that are fixed, translated or placed besides. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from answers.manifests.check import check_objects
from answers.model.cluster_state import is_pending
from answers.model.findings import describe_rejection
from answers.model.inputs import Inputs
from answers.model.kubernetes_version import Version, parse_version
from answers.model.objects import merge_objects
from answers.model.views import decode_view
from findings.checked_object import CheckedObject
from findings.finding import has_errors
from kube.api.core import Pod
from kube.api.workloads import pod_path
from kube.manifests.source import SourceObject

MOST_CHECKED: Final = 100
"""Objects that are checked beside a simulation; each takes some 3 ms, and placing it a third of that."""
_CLAIMS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


def check_again(
    inputs: Inputs,
    features: Features,
    policy_aware_schedulers: Collection[str],
    kubernetes: Version | None,
    manifests: Sequence[SourceObject],
) -> list[CheckedObject]:
    """Return the findings on some manifests of the inputs with other amounts, beside all others.

    The other arguments are those of `check_objects`.
    """
    state = tuple(merge_objects(inputs.state, inputs.manifests, inputs.namespace))
    changed = replace(inputs, manifests=tuple(manifests), state=state, knows_cluster=True)
    return check_objects(changed, features, policy_aware_schedulers, kubernetes=kubernetes)


def find_denials(
    inputs: Inputs,
    features: Features,
    policy_aware_schedulers: Collection[str],
    reported: Collection[str],
) -> Mapping[str, str]:
    """Return the reference of each object of the manifests that `check` denies, to the reason.

    These are pods, workloads, claims and templates, of which the first `MOST_CHECKED` are checked.

    Args:
        reported: References of those whose errors are told elsewhere.
    """
    created = [
        source
        for source in inputs.manifests
        if (source.kind in _CLAIMS or pod_path(source.api_version, source.kind) is not None)
        and is_new(source)
    ][:MOST_CHECKED]
    kubernetes = parse_version(inputs.kubernetes)
    checked = check_again(inputs, features, policy_aware_schedulers, kubernetes, created)
    return {
        entry.reference: describe_rejection(entry.findings)
        for entry in checked
        if has_errors(entry.findings) and entry.reference not in reported
    }


def is_new(source: SourceObject) -> bool:
    """Return False for a pod that is bound or has ended, or a claim with devices, as in a dump of a cluster."""
    if source.kind == "Pod":
        view = decode_view(source.document, Pod)
        return not isinstance(view, Pod) or is_pending(view)
    status = source.document.get("status") if source.kind == "ResourceClaim" else None
    return not (isinstance(status, Mapping) and status.get("allocation"))
