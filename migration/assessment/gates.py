"""The effect of feature gates on claims and classes: shares of devices, resource names. Pure.

The cluster is not asked for its gates, so that a snapshot answers as the cluster does.

Source: k8s.io/kubernetes v1.37.1, pkg/registry/resource: the strategies drop fields of a gate that is off.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from answers.model.kubernetes_version import OLDEST_KUBERNETES, parse_version
from clusterstate.published_gates import CONSUMABLE_CAPACITY
from kube.manifests.source import SourceObject
from migration.assessment.blockers import Blocker
from migration.assessment.outcomes import AssessedWorkload
from migration.upgrade.kubernetes import default_gate, describe_defect, shows_gate
from migration.upgrade.model import UpgradeCode
from translation.cluster.shares import requests_share

EXTENDED_RESOURCE: Final = "DRAExtendedResource"
_FIX: Final = (
    "use a newer version of Kubernetes; until then turn off the gate, and request whole devices"
)


def has_gate(
    gate: str, objects: Iterable[SourceObject], version: str, gates: Mapping[str, bool] = {}
) -> bool:
    """Return True if a feature gate is on in a cluster.

    The settings decide. A field of the gate in an object shows that it is on, as the API server would
    have dropped it. Without either it is as its version has it by default. A cluster without
    ResourceClaims has to be upgraded first, and is evaluated as afterwards.

    Args:
        gate: `CONSUMABLE_CAPACITY`, for shares of devices, or `EXTENDED_RESOURCE`, for classes that
            map resource names.
        objects: The cluster's objects.
        version: The API server's version; empty if it is not known.
        gates: The gates in the settings.
    """
    if gate in gates:
        return gates[gate]
    parsed_version = parse_version(version)
    return (
        parsed_version is None
        or parsed_version < OLDEST_KUBERNETES
        or bool(default_gate(gate, parsed_version))
        or any(shows_gate(gate, source) for source in objects)
    )


def check_shares(workloads: Iterable[AssessedWorkload], version: str) -> Iterator[Blocker]:
    """Yield a blocker if the scheduler of a version mistakes the shares that workloads get.

    Args:
        workloads: The workloads, with shares only if the gate is on.
        version: The API server's version; empty if it is not known.
    """
    defect = describe_defect(CONSUMABLE_CAPACITY, parse_version(version))
    names = [
        workload.key.reference
        for workload in workloads
        if workload.result is not None
        and any(any(requests_share(claim)) for claim in workload.result.claims)
    ]
    if defect and names:
        yield Blocker(
            code=UpgradeCode.GATE_DEFECTIVE.value,
            message=defect,
            fix=_FIX,
            objects=tuple(names),
        )
