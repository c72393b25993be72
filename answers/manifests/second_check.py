"""The check of manifests once their fixes are written. Pure."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from answers.manifests.check import check_objects
from answers.model.inputs import Inputs
from answers.model.kubernetes_version import Version
from answers.model.objects import merge_objects
from findings.checked_object import CheckedObject
from kube.manifests.source import SourceObject


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
