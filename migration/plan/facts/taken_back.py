"""Systems that take back changes of workloads by kubectl: repositories, and autoscalers. Pure.

Source: kubernetes/kubernetes, pkg/controller/podautoscaler/horizontal.go: a HorizontalPodAutoscaler sets the number of
replicas again, within its bounds, every 15 seconds. It leaves a workload with none alone.
"""

from collections.abc import Iterable, Mapping

import msgspec

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.pod_autoscalers import Autoscaler, find_autoscalers
from migration.cluster.workloads import Workload
from migration.plan.facts.environment import REVERTING, manager_of, taken_back_text


class TakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """The systems that take back changes of workloads.

    Attributes:
        managers: Workload or autoscaler, as `Kind/namespace/name`, to the system that compares it with a repository.
        autoscalers: Workload to its HorizontalPodAutoscaler.
    """

    managers: Mapping[str, str] = {}
    autoscalers: Mapping[str, Autoscaler] = {}

    def text(self, references: Iterable[str], change: str) -> str:
        """Return a sentence on each system that takes back a change of some objects, after advice for it; empty without any.

        Args:
            references: The objects, as `Kind/namespace/name`.
            change: The changed part of them.
        """
        names: dict[str, list[str]] = {}
        for reference in references:
            if manager := self.managers.get(reference):
                names.setdefault(manager, []).append(reference)
        return "".join(taken_back_text(manager, own, change) for manager, own in names.items())

    def replicas_text(self, workloads: Iterable[str]) -> str:
        """Return the sentences on the systems that take back fewer replicas of some workloads; empty without any."""
        references = sorted(workloads)
        scaling = [self.autoscalers[name] for name in references if name in self.autoscalers]
        names_by_place: dict[str, list[str]] = {}
        for autoscaler in scaling:
            place = autoscaler.place or " there"
            names_by_place.setdefault(place, []).append(autoscaler.reference)
        text = "".join(
            f"; {join_names(names)} {'sets' if len(names) == 1 else 'set'} replicas again: lower maxReplicas{place}, and "
            "minReplicas if it is more"
            for place, names in names_by_place.items()
        )
        return text + self.text((*references, *(it.reference for it in scaling)), "replicas")


def read_taken_back(
    objects: Iterable[SourceObject], groups: Mapping[str, Workload], namespace: str
) -> TakenBack:
    """Return the systems that take back changes of workloads.

    Args:
        objects: The cluster's objects.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        namespace: The namespace for objects that name none.
    """
    objects = tuple(objects)
    autoscalers = find_autoscalers(objects, groups.keys(), namespace)
    scaling = {autoscaler.reference for autoscaler in autoscalers.values()}
    documents = {
        reference: owner.document
        for reference, group in groups.items()
        if (owner := group.owner or group.custom) is not None
    }
    documents |= {
        reference: source.document
        for source in objects
        if (reference := f"{source.kind}/{source.namespace or namespace}/{source.name}") in scaling
    }
    managers = {reference: manager_of(document) for reference, document in documents.items()}
    return TakenBack(
        managers={name: manager for name, manager in managers.items() if manager in REVERTING},
        autoscalers=autoscalers,
    )
