"""Nodes that take a pod, and those that do not: one table for each node and for all of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from testing.documents import Document

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


EXISTS = {"operator": "Exists"}


ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}


def affine(*terms: Document, when: str = "required") -> Document:
    ends = "DuringSchedulingIgnoredDuringExecution"
    if when == "preferred":
        terms_: Any = [{"weight": 1, "preference": term} for term in terms]
    else:
        terms_ = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {f"{when}{ends}": terms_}}}


class Case(NamedTuple):
    name: str
    want: str | None
    pod: Mapping[str, Any] = MappingProxyType({})
    node: Mapping[str, Any] = MappingProxyType({})
    labels: Mapping[str, str] = MappingProxyType({})


CASES = (
    Case("a node takes a pod that wants nothing", None),
    Case("the node that the pod names", None, {"nodeName": "node-1"}),
    Case("not another one", "pod requires node node-2", {"nodeName": "node-2"}),
    Case("a label as wanted", None, {"nodeSelector": {"zone": "a"}}, {}, {"zone": "a"}),
    Case(
        "every label that is wrong is told",
        "nodeSelector requires arch=arm64, zone=a",
        {"nodeSelector": {"arch": "arm64", "os": "linux", "zone": "a"}},
        {},
        {"os": "linux", "zone": "b"},
    ),
    Case(
        "one term that matches is enough",
        None,
        affine({"matchExpressions": [{**ZONE_A, "values": ["b"]}]}, {"matchExpressions": [ZONE_A]}),
        {},
        {"zone": "a"},
    ),
    Case(
        "without one the node is out",
        "required node affinity needs zone In [a]",
        affine({"matchExpressions": [ZONE_A]}),
    ),
    Case(
        "a field is the node's name",
        None,
        affine({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}),
    ),
    Case("a preference keeps nobody away", None, affine({"matchExpressions": [ZONE_A]}, when="preferred")),
    Case(
        "an affinity that makes no sense selects nothing",
        "node affinity is invalid: nodeSelectorTerms[0].matchExpressions: [0]: 'Near' is not an operator",
        affine({"matchExpressions": [{"key": "zone", "operator": "Near"}]}),
    ),
    Case(
        "a taint without a toleration",
        "untolerated taint gpu=yes:NoSchedule",
        {},
        {"taints": [TAINT]},
    ),
    Case(
        "NoExecute keeps away, too",
        "untolerated taint gpu:NoExecute",
        {"tolerations": [{**EXISTS, "effect": "NoSchedule"}]},
        {"taints": [{"key": "gpu", "effect": "NoExecute"}]},
    ),
    Case("PreferNoSchedule does not", None, {}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}),
    Case("Equal compares values", None, {"tolerations": [TAINT]}, {"taints": [TAINT]}),
    Case(
        "and another value is another taint",
        "untolerated taint gpu=yes:NoSchedule",
        {"tolerations": [{**TAINT, "value": "no"}]},
        {"taints": [TAINT]},
    ),
    Case("Exists takes any value", None, {"tolerations": [{**EXISTS, "key": "gpu"}]}, {"taints": [TAINT]}),
    Case("without a key it takes every taint", None, {"tolerations": [EXISTS]}, {"taints": [TAINT]}),
    Case("a cordoned node", "node is unschedulable", {}, {"unschedulable": True}),
    Case(
        "unless the pod tolerates that",
        None,
        {"tolerations": [{**EXISTS, "key": "node.kubernetes.io/unschedulable"}]},
        {"unschedulable": True},
    ),
)  # fmt: skip
