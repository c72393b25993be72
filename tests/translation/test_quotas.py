"""The pods that a ResourceQuota counts.

Source of the rows: k8s.io/kubernetes pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc, and
pkg/apis/core/v1/helper/qos/qos.go.
"""

from typing import Any, NamedTuple

import pytest

from kube.api.core import ResourceQuota
from kube.api.meta import convert
from quotas.resource_quotas.scopes import quota_of, scopes_of
from testing.builders import container, pod, pod_view
from testing.documents import Document


def of_scopes(*names: str) -> Document:
    return {"scopes": list(names)}


def of_class(operator: str, *values: str) -> Document:
    requirement = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [requirement]}}


def asks(resources: Document | None = None, **spec: Any) -> Document:
    return pod(container(resources=resources or {}), **spec)


def near(side: str, field: str, term: Document) -> Document:
    return asks(affinity={side: {f"{field}DuringSchedulingIgnoredDuringExecution": [term]}})


IN_ALL = {"namespaceSelector": {}, "topologyKey": "zone"}
CPU = {"requests": {"cpu": "1"}}
ENDS, URGENT = asks(activeDeadlineSeconds=0), asks(priorityClassName="urgent")


class Case(NamedTuple):
    name: str
    quota: Document
    pod: Document
    want: bool


CASES = (
    Case("no scope", {}, asks(), True),
    Case("a pod that ends", of_scopes("Terminating"), ENDS, True),
    Case("a pod that does not", of_scopes("Terminating"), asks(), False),
    Case("the reverse of one that ends", of_scopes("NotTerminating"), ENDS, False),
    Case("the reverse of one that does not", of_scopes("NotTerminating"), asks(), True),
    Case("no amounts", of_scopes("BestEffort"), asks(), True),
    Case("only a GPU", of_scopes("BestEffort"), asks({"limits": {"a.example/gpu": "1"}}), True),
    Case("cpu", of_scopes("BestEffort"), asks(CPU), False),
    Case("no cpu", of_scopes("BestEffort"), asks({"requests": {"cpu": "0"}}), True),
    Case("a limit of memory", of_scopes("NotBestEffort"), asks({"limits": {"memory": "1"}}), True),
    Case(
        "cpu of an init container",
        of_scopes("NotBestEffort"),
        pod(init=[container(resources=CPU)]),
        True,
    ),
    Case("cpu of the pod", of_scopes("NotBestEffort"), pod(container(), resources=CPU), True),
    Case("any class", of_class("Exists"), URGENT, True),
    Case("no class", of_class("Exists"), asks(), False),
    Case("a class as a bare scope", of_scopes("PriorityClass"), URGENT, True),
    Case("without class", of_class("DoesNotExist"), asks(), True),
    Case("not without class", of_class("DoesNotExist"), URGENT, False),
    Case("a listed class", of_class("In", "idle", "urgent"), URGENT, True),
    Case("a class that is not listed", of_class("In", "idle"), URGENT, False),
    Case("none of the listed", of_class("NotIn", "idle"), URGENT, True),
    Case("no class is none of the listed", of_class("NotIn", "idle"), asks(), True),
    Case("one of the listed", of_class("NotIn", "urgent"), URGENT, False),
    Case("an operator that does not exist", of_class("Is", "urgent"), URGENT, False),
    Case("both of two scopes", of_scopes("Terminating", "BestEffort"), ENDS, True),
    Case("one of two scopes", of_scopes("Terminating", "NotBestEffort"), ENDS, False),
    Case(
        "near pods of any namespace",
        of_scopes("CrossNamespacePodAffinity"),
        near("podAffinity", "required", IN_ALL),
        True,
    ),
    Case(
        "rather far from pods of another",
        of_scopes("CrossNamespacePodAffinity"),
        near("podAntiAffinity", "preferred", {"podAffinityTerm": {"namespaces": ["b"]}}),
        True,
    ),
    Case(
        "near pods of its own",
        of_scopes("CrossNamespacePodAffinity"),
        near("podAffinity", "required", {"topologyKey": "zone"}),
        False,
    ),
    Case(
        "terms that are none",
        of_scopes("CrossNamespacePodAffinity"),
        asks(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 1}}),
        False,
    ),
    Case("a scope of volumes", of_scopes("VolumeAttributesClass"), asks(), False),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_counts(case: Case) -> None:
    quota = quota_of(convert({"spec": case.quota}, ResourceQuota))

    assert case.want == quota.counts(scopes_of(pod_view(case.pod)))
