"""Implicit names of DeviceClasses (KEP-5004) in pods, against the quotas of their namespace."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from admission.pods import Decision
from kube.names import TRANSLATE_LABEL
from quotas.resource_quotas.scopes import Quota, Scope
from testing.builders import (
    DRANET,
    HAMI,
    NAMESPACE,
    NVIDIA,
    admit,
    container,
    finding_texts,
    gpus,
    pod,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import Mode, QuotaPolicy, TranslationOptions, TranslationSnapshot

GPU = "requests.nvidia.com/gpu"
MIG = "mig.nvidia.com"
PREFIX = "deviceclass.resource.kubernetes.io/"
AT = f"spec.containers[0].resources.limits[{PREFIX}{HAMI}]"
REFUSED = f"error quotaNotCounted {AT}"
ALWAYS = (Scope(name="NotTerminating"),)


def implicit(device_class: str = HAMI, amount: int = 1, name: str = "main") -> Document:
    return container(name, resources={"limits": {f"{PREFIX}{device_class}": str(amount)}})


def of_class(name: str) -> str:
    return f"{name}.deviceclass.resource.k8s.io/devices"


def requested(name: str) -> str:
    return f"requests.{PREFIX}{name}"


def counting(*hard: str, scopes: tuple[Scope, ...] = ()) -> Quota:
    return Quota(names=frozenset(hard), scopes=scopes)


def cluster(*quotas: Quota, **fields: object) -> TranslationSnapshot:
    """Return a cluster with quotas in the namespace of the pod."""
    named = {f"quota-{number}": quota for number, quota in enumerate(quotas)}
    return translation_snapshot(**{"quotas": {NAMESPACE: named}, **fields})


def classes(**drivers: tuple[str, ...]) -> dict[str, Mapping[str, frozenset[str]]]:
    return {"class_drivers": {name: frozenset(named) for name, named in drivers.items()}}


class Case(NamedTuple):
    name: str
    pod: Document
    snapshot: TranslationSnapshot = cluster(counting(GPU))
    want: tuple[str, ...] = ()
    options: TranslationOptions = TranslationOptions()


CASES = (
    # Quotas.
    Case("no quota", pod(implicit()), cluster()),
    Case("a quota of another namespace", pod(implicit()),
         translation_snapshot(quotas={"b": {"q": counting(GPU)}})),
    Case("a quota on no devices", pod(implicit()), cluster(counting("pods", "requests.cpu"))),
    Case("a quota on a key of the driver", pod(implicit()), want=(REFUSED,)),
    Case("a quota on a key of another driver", pod(implicit()), cluster(counting("requests.rdma/hca_a"))),
    Case("each of two quotas", pod(implicit()),
         cluster(counting(GPU), counting("requests.koordinator.sh/gpu")), (REFUSED, REFUSED)),
    Case("one finding for all keys of a quota", pod(implicit()),
         cluster(counting(GPU, "requests.koordinator.sh/gpu")), (REFUSED,)),
    Case("the quota counts the name", pod(implicit()), cluster(counting(GPU, requested(HAMI)))),
    Case("a quota with a scope counts the name", pod(implicit()),
         cluster(counting(GPU, requested(HAMI), scopes=ALWAYS))),
    Case("only another quota, with a scope, counts the name", pod(implicit()),
         cluster(counting(GPU), counting(requested(HAMI), scopes=ALWAYS)), (REFUSED,)),
    Case("another quota counts the name", pod(implicit()),
         cluster(counting(GPU), counting(requested(HAMI)))),
    Case("another quota counts the class", pod(implicit()),
         cluster(counting(GPU), counting(of_class(HAMI)))),
    Case("a quota with a scope counts no claims, and so no class", pod(implicit()),
         cluster(counting(GPU, of_class(HAMI), scopes=ALWAYS)), (REFUSED,)),
    Case("a quota whose scope the pod is not in", pod(implicit()),
         cluster(counting(GPU, scopes=(Scope(name="Terminating"),)))),
    Case("the class maps the key, so that its claims count", pod(implicit()),
         cluster(counting(GPU), extended_resources={"nvidia.com/gpu": HAMI})),
    Case("but in a quota with a scope", pod(implicit()),
         cluster(counting(GPU, scopes=ALWAYS), extended_resources={"nvidia.com/gpu": HAMI}), (REFUSED,)),
    Case("a quota on the name of another class of the driver", pod(implicit(MIG)),
         cluster(counting(requested(NVIDIA))), (REFUSED.replace(HAMI, MIG),)),
    Case("a quota on the name of a class of another driver", pod(implicit()),
         cluster(counting(requested(NVIDIA)))),
    Case("a quota on a name that another class of the driver maps", pod(implicit("mine")),
         cluster(counting("requests.a.example/gpu"), extended_resources={"a.example/gpu": HAMI},
                 **classes(mine=(HAMI,))), (REFUSED.replace(HAMI, "mine"),)),
    # Classes.
    Case("a class of several drivers", pod(implicit("both")),
         cluster(counting(GPU), **classes(both=(DRANET, HAMI))), (REFUSED.replace(HAMI, "both"),)),
    Case("a class that may select any device", pod(implicit("any")),
         cluster(counting(GPU), **classes(any=())), (REFUSED.replace(HAMI, "any"),)),
    Case("a class of another driver", pod(implicit("nic")),
         cluster(counting(GPU), **classes(nic=(DRANET,)))),
    Case("a class that devices of the driver were published of", pod(implicit("odd")),
         cluster(counting(GPU), once_published={"odd": frozenset({HAMI})}), (REFUSED.replace(HAMI, "odd"),)),
    Case("a class that does not exist", pod(implicit("gone"))),
    Case("no class at all", pod(implicit(""))),
    # Pods.
    Case("no amount", pod(implicit(amount=0))),
    Case("the scheduler reads requests, and they are zero",
         pod(container(resources={"limits": {PREFIX + HAMI: "1"}, "requests": {PREFIX + HAMI: "0"}}))),
    Case("requests alone, which the API server allows",
         pod(container(resources={"requests": {PREFIX + HAMI: "1"}})),
         want=(REFUSED.replace("limits", "requests"),)),
    Case("an init container", pod(gpus(), init=(implicit(name="first"),)),
         want=(REFUSED.replace("containers", "initContainers"),)),
    Case("a sidecar", pod(gpus(), init=(implicit(name="first") | {"restartPolicy": "Always"},)),
         want=(REFUSED.replace("containers", "initContainers"),)),
    Case("the first of several containers", pod(gpus(), implicit(name="a"), implicit(name="b")),
         want=(REFUSED.replace("[0]", "[1]", 1),)),
    Case("a pod that opted out", pod(implicit(), labels={TRANSLATE_LABEL: "false"}), want=(REFUSED,)),
    Case("a pod that HAMi leaves alone", pod(implicit(), labels={"hami.io/webhook": "ignore"}),
         want=(REFUSED,)),
    Case("a pod of another scheduler", pod(implicit(), schedulerName="other"), want=(REFUSED,)),
    Case("a pod that names its node, so that nobody makes a claim", pod(implicit(), nodeName="a")),
    # Namespaces and settings.
    Case("a namespace that opted out", pod(implicit()),
         cluster(counting(GPU), namespaces={NAMESPACE: {TRANSLATE_LABEL: "false"}})),
    Case("a namespace that the settings exempt", pod(implicit()),
         options=TranslationOptions(exempt_namespaces=(NAMESPACE,))),
    Case("a namespace that did not opt in", pod(implicit()),
         options=TranslationOptions(mode=Mode.OPT_IN)),
    Case("a namespace that opted in", pod(implicit()),
         cluster(counting(GPU), namespaces={NAMESPACE: {TRANSLATE_LABEL: "true"}}), (REFUSED,),
         TranslationOptions(mode=Mode.OPT_IN)),
    # The API server sends every pod of a namespace that leaves it to its pods, since no condition sees its label.
    Case("a namespace that leaves it to its pods", pod(implicit()),
         cluster(counting(GPU), namespaces={NAMESPACE: {TRANSLATE_LABEL: "selected"}}), (REFUSED,),
         TranslationOptions(mode=Mode.OPT_IN)),
    Case("a warning, if the operator wants", pod(implicit()),
         want=(REFUSED.replace("error", "warning"),), options=TranslationOptions(quota=QuotaPolicy.WARN)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_implicit_name_evades_no_quota(case: Case) -> None:
    after, answer = admit(case.pod, case.snapshot, case.options)

    assert list(case.want) == finding_texts(answer.findings)
    is_refused = any(text.startswith("error") for text in case.want)
    assert (Decision.REFUSED if is_refused else Decision.UNTOUCHED) == answer.decision
    assert case.pod == after, "Kubernetes serves the name, so nothing is changed"


def test_the_finding_names_key_driver_class_and_fix() -> None:
    _, answer = admit(pod(implicit()), cluster(counting(GPU)))

    (finding,) = answer.findings
    assert finding.message == (
        f"ResourceQuota quota-0 counts {GPU}, which also stands for devices of {HAMI}, and does not "
        f"include this name of DeviceClass {HAMI}"
    )
    assert finding.fix == f"count {of_class(HAMI)} in a ResourceQuota of the namespace"


def test_beside_keys_that_are_translated_both_are_looked_at() -> None:
    document = pod(gpus(1), implicit(name="other"))
    counted = cluster(counting(GPU, of_class(NVIDIA)))

    _, answer = admit(document, counted)

    assert Decision.REFUSED is answer.decision
    assert finding_texts(answer.findings) == [REFUSED.replace("[0]", "[1]", 1)]


@pytest.mark.parametrize(
    ("name", "hard", "want"),
    [
        ("the name of its class, which counts its claims", (requested(NVIDIA),), Decision.TRANSLATED),
        ("the name beside its key", (GPU, requested(NVIDIA)), Decision.TRANSLATED),
        ("the name of another class of the driver", (requested(MIG),), Decision.REFUSED),
        ("the name of a class of another driver", (requested("nic"),), Decision.TRANSLATED),
    ],
)  # fmt: skip
def test_a_quota_on_an_implicit_name_concerns_pods_with_keys(
    name: str, hard: tuple[str, ...], want: Decision
) -> None:
    known = {f"{PREFIX}{device_class}": device_class for device_class in (NVIDIA, MIG, "nic")}
    snapshot = cluster(counting(*hard), extended_resources=known, **classes(nic=(DRANET,)))

    _, answer = admit(pod(gpus(1)), snapshot)

    assert want is answer.decision, name
