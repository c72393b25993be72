"""Preflight checks of the cluster: quotas, classes, templates, node labels."""

from typing import Final, NamedTuple

import pytest

from quotas.resource_quotas.scopes import Quota, Scope
from testing.builders import (
    HAMI,
    NAMESPACE,
    container,
    finding_texts,
    gpus,
    koordinator_container,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import QuotaPolicy, TranslationOptions, TranslationSnapshot

GPU = "spec.containers[0].resources.limits[nvidia.com/gpu]"
MEM = "spec.containers[0].resources.limits[nvidia.com/gpumem]"
WARN = TranslationOptions(quota=QuotaPolicy.WARN)

WITH_NIC: Document = {
    "name": "c",
    "image": "a",
    "resources": {"limits": {"nvidia.com/gpu": "1", "rdma/hca_shared_devices_a": "1"}},
}

NIC_WARNINGS = tuple(
    f"warning {code} spec.containers[0].resources.limits[rdma/hca_shared_devices_a]"
    for code in ("notPublishedByDriver", "oneOfPool")
)


class Case(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...] = ()
    snapshot: TranslationSnapshot = translation_snapshot()
    options: TranslationOptions = TranslationOptions()


def quotas(
    *hard: str, namespace: str = NAMESPACE, scopes: tuple[Scope, ...] = (), **others: Quota
) -> TranslationSnapshot:
    counted = Quota(names=frozenset(hard), scopes=scopes)
    return translation_snapshot(quotas={namespace: {"gpus": counted, **others}})


def counting(*hard: str) -> Quota:
    return Quota(names=frozenset(hard))


WHOLE_QUOTA = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARE_QUOTA = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"

QUOTAS = (
    Case("a quota on another key", pod(gpus(1)), (), quotas("requests.cpu", "pods")),
    Case(
        "a quota on the key",
        pod(gpus(1)),
        (f"error quotaNotCounted {GPU}",),
        quotas("requests.nvidia.com/gpu"),
    ),
    Case(
        "a warning, if the operator wants",
        pod(gpus(1)),
        (f"warning quotaNotCounted {GPU}",),
        quotas("requests.nvidia.com/gpu"),
        WARN,
    ),
    Case(
        "a quota on a key that the class of the claim maps, which counts claims",
        pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"}),
        (),
        translation_snapshot(
            quotas={NAMESPACE: {"q": counting("requests.nvidia.com/gpu")}},
            extended_resources={"nvidia.com/gpu": HAMI},
        ),
    ),
    Case(
        "a quota with a scope on a key that the class of the claim maps",
        pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"}),
        (f"error quotaNotCounted {GPU}",),
        translation_snapshot(
            quotas={
                NAMESPACE: {
                    "q": Quota(
                        names=frozenset({"requests.nvidia.com/gpu"}),
                        scopes=(Scope(name="NotTerminating"),),
                    )
                }
            },
            extended_resources={"nvidia.com/gpu": HAMI},
        ),
    ),
    Case(
        "a quota of another namespace",
        pod(gpus(1)),
        (),
        quotas("requests.nvidia.com/gpu", namespace="team-b"),
    ),
    Case(
        "the replacement is there", pod(gpus(1)), (), quotas("requests.nvidia.com/gpu", WHOLE_QUOTA)
    ),
    Case(
        "the replacement is there for whole GPUs, beside MIG devices that no quota counted",
        pod(gpus(1, mig_1g_5gb=1)),
        (),
        quotas("requests.nvidia.com/gpu", WHOLE_QUOTA),
    ),
    Case(
        "the replacement is there for MIG devices beside whole GPUs",
        pod(gpus(1, mig_1g_5gb=1)),
        (f"error quotaNotCounted {GPU}",),
        quotas("requests.nvidia.com/gpu", "mig.nvidia.com.deviceclass.resource.k8s.io/devices"),
    ),
    Case(
        "the replacement is there for the devices of the key, beside NICs that no quota counts",
        pod(WITH_NIC),
        NIC_WARNINGS,
        quotas("requests.nvidia.com/gpu", WHOLE_QUOTA),
    ),
    Case(
        "the replacement is there for the NICs beside the devices of the key",
        pod(WITH_NIC),
        (*NIC_WARNINGS, f"error quotaNotCounted {GPU}"),
        quotas("requests.nvidia.com/gpu", "dranet.deviceclass.resource.k8s.io/devices"),
    ),
    Case(
        "a quota on HAMi's memory",
        pod(gpus(1, mem=10)),
        (f"error quotaNotCounted {MEM}",),
        quotas("requests.nvidia.com/gpumem"),
    ),
    Case(
        "a quota that HAMi's scheduler counts",
        pod(gpus(1, mem=10)),
        (f"error quotaNotCounted {GPU}", f"error quotaNotCounted {MEM}"),
        quotas("limits.nvidia.com/gpu", "limits.nvidia.com/gpumem", "limits.cpu"),
    ),
    Case(
        "it with the replacement of its devices",
        pod(gpus(1, mem=10)),
        (f"error quotaNotCounted {MEM}",),
        quotas("limits.nvidia.com/gpu", "limits.nvidia.com/gpumem", SHARE_QUOTA),
    ),
    Case(
        "every key and quota is told",
        pod(gpus(1, mem=10)),
        (
            f"error quotaNotCounted {GPU}",
            f"error quotaNotCounted {GPU}",
            f"error quotaNotCounted {MEM}",
        ),
        quotas(
            "requests.nvidia.com/gpu",
            "requests.nvidia.com/gpumem",
            more=counting("requests.nvidia.com/gpu"),
        ),
    ),
    Case(
        "the count that HAMi would have added is counted, too",
        pod(gpus(mem=10)),
        (f"error quotaNotCounted {MEM}",),
        quotas("requests.nvidia.com/gpu"),
    ),
    Case(
        "a quota on another key of the same driver, in another vocabulary",
        pod(koordinator_container(core=50, memory="8Gi")),
        ("error quotaNotCounted spec.containers[0].resources.limits[koordinator.sh/gpu-core]",),
        quotas("requests.nvidia.com/gpu"),
    ),
    Case(
        "a quota on whole GPUs, which never counted MIG devices",
        pod(gpus(0), gpus(mig_1g_5gb=1, name="b")),
        (),
        quotas("requests.nvidia.com/gpu"),
    ),
    Case(
        "a quota on MIG devices, which never counted whole GPUs",
        pod(gpus(1)),
        (),
        quotas("requests.nvidia.com/mig-1g.5gb"),
    ),
    Case(
        "a quota on MIG devices of another profile, of which a claim of the class may be one",
        pod(gpus(mig_1g_5gb=1)),
        ("error quotaNotCounted spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]",),
        quotas("requests.nvidia.com/mig-3g.20gb"),
    ),
    Case(
        "a quota on MIG devices",
        pod(gpus(mig_1g_5gb=1)),
        ("error quotaNotCounted spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]",),
        quotas("requests.nvidia.com/mig-1g.5gb"),
    ),
    Case(
        "a quota on a key of another driver",
        pod(gpus(1)),
        (),
        quotas("requests.rdma/hca_shared_devices_a"),
    ),
    Case(
        "a quota whose scope the pod is in",
        pod(gpus(1), activeDeadlineSeconds=60),
        (f"error quotaNotCounted {GPU}",),
        quotas("requests.nvidia.com/gpu", scopes=(Scope(name="Terminating"),)),
    ),
    Case(
        "a quota whose scope the pod is not in",
        pod(gpus(1)),
        (),
        quotas("requests.nvidia.com/gpu", scopes=(Scope(name="Terminating"),)),
    ),
    Case(
        "a quota of a scope counts no claims, so it replaces none",
        pod(gpus(1)),
        (f"error quotaNotCounted {GPU}",),
        quotas("requests.nvidia.com/gpu", WHOLE_QUOTA, scopes=(Scope(name="NotTerminating"),)),
    ),
    Case(
        "what passes through is counted natively",
        pod(gpus(1)),
        ("info passedThrough " + GPU,),
        translation_snapshot(
            quotas={NAMESPACE: {"q": counting("requests.nvidia.com/gpu")}},
            extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"},
        ),
    ),
)

CLASSES = (
    Case("no cluster is known", pod(gpus(1))),
    Case(
        "the class is there",
        pod(gpus(1)),
        (),
        translation_snapshot(classes=frozenset({"gpu.nvidia.com"})),
    ),
    Case(
        "the class is missing",
        pod(gpus(1)),
        ("warning deviceClassMissing spec.resourceClaims",),
        translation_snapshot(classes=frozenset()),
    ),
    Case(
        "the class is there, and its driver has published no devices",
        pod(gpus(1)),
        ("warning noDevices " + GPU,),
        translation_snapshot(
            classes=frozenset({"gpu.nvidia.com"}), publishes=frozenset({"gpu.example.com"})
        ),
    ),
    Case(
        "the class is there, and its driver has published devices",
        pod(gpus(1)),
        (),
        translation_snapshot(
            classes=frozenset({"gpu.nvidia.com"}), publishes=frozenset({"gpu.nvidia.com"})
        ),
    ),
    Case(
        "neither the class nor devices, which is one finding",
        pod(gpus(1)),
        ("warning deviceClassMissing spec.resourceClaims",),
        translation_snapshot(classes=frozenset(), publishes=frozenset()),
    ),
)


def labelled(**labels: str) -> Document:
    return pod(
        gpus(1),
        nodeSelector={f"nvidia.com/{key.replace('_', '.')}": text for key, text in labels.items()},
    )


def required(*terms: tuple[str, str, list[str]]) -> Document:
    entries = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
        for key, operator, values in terms
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": entries}
        }
    }
    return pod(gpus(1), affinity=affinity)


PRODUCT: Final = "nvidia.com/gpu.product"
AFFINITY_VALUES: Final = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    ".matchExpressions[0].values"
)
GKE_PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
NODE_LABELS = (
    Case(
        "a label of GPU feature discovery",
        labelled(gpu_product="NVIDIA-A100"),
        ("info gpuDiscoveryNodeLabel spec.nodeSelector[nvidia.com/gpu.product]",),
    ),
    Case(
        "nodes whose plugin shares GPUs",
        labelled(gpu_product="A100-SHARED"),
        ("warning gpuSharingNodeLabel spec.nodeSelector[nvidia.com/gpu.product]",),
    ),
    Case("another label", pod(gpus(1), nodeSelector={"zone": "a-SHARED"})),
    Case(
        "nodes whose plugin calls MIG devices GPUs",
        labelled(gpu_product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
        ("warning gpuSharingNodeLabel spec.nodeSelector[nvidia.com/gpu.product]",),
    ),
    Case(
        "a product with MIG in its name",
        labelled(gpu_product="NVIDIA-MIG-READY"),
        ("info gpuDiscoveryNodeLabel spec.nodeSelector[nvidia.com/gpu.product]",),
    ),
    Case(
        "a partition of GKE beside its MIG devices",
        pod(
            container("main", {"nvidia.com/mig-1g.5gb": 1}), nodeSelector={GKE_PARTITION: "1g.5gb"}
        ),
    ),
    Case(
        "a node affinity to nodes whose plugin shares GPUs",
        required((PRODUCT, "In", ["A100-SHARED", "H100-SHARED"])),
        (f"warning gpuSharingNodeLabel {AFFINITY_VALUES}",),
    ),
    Case(
        "a node affinity to nodes with and without sharing",
        required((PRODUCT, "In", ["A100-SHARED", "A100"])),
        (f"info gpuDiscoveryNodeLabel {AFFINITY_VALUES}",),
    ),
    Case(
        "a node affinity with another term for nodes without sharing",
        required((PRODUCT, "In", ["A100-SHARED"]), ("zone", "In", ["a"])),
    ),
    Case(
        "a node affinity away from nodes whose plugin shares GPUs",
        required((PRODUCT, "NotIn", ["A100-SHARED"])),
        (f"info gpuDiscoveryNodeLabel {AFFINITY_VALUES}",),
    ),
    Case(
        "a partition of GKE",
        pod(gpus(1), nodeSelector={GKE_PARTITION: "1g.5gb"}),
        (f"warning gpuSharingNodeLabel spec.nodeSelector[{GKE_PARTITION}]",),
    ),
)


@pytest.mark.parametrize("case", QUOTAS + CLASSES + NODE_LABELS, ids=lambda case: case.name)
def test_findings(case: Case) -> None:
    assert case.want == tuple(
        finding_texts(translation_outcome(case.pod, case.snapshot, case.options).findings)
    )


def test_the_quota_to_use_instead_is_named() -> None:
    got = translation_outcome(pod(gpus(1, mem=10)), quotas("requests.nvidia.com/gpu"))

    assert [finding.fix for finding in got.findings] == [
        "count hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices in a ResourceQuota instead"
    ]


@pytest.mark.parametrize("key", ["nvidia.com/gpumem", "nvidia.com/gpucores"])
def test_a_number_of_devices_replaces_no_quota_on_memory_or_cores(key: str) -> None:
    """Three pods of 70,000 MiB each kept within a quota of 30,000 MiB that counted 10 devices."""
    snapshot = quotas(
        f"requests.{key}", "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
    )

    (finding,) = translation_outcome(pod(gpus(1, mem=70000, cores=10)), snapshot).findings

    assert finding_texts([finding]) == [
        f"error quotaNotCounted spec.containers[0].resources.limits[{key}]"
    ]
    assert "translation.quota: warn" in finding.fix
    assert "instead" not in finding.fix


@pytest.mark.parametrize(
    "snapshot",
    [
        translation_snapshot(classes=frozenset()),
        translation_snapshot(classes=frozenset({"gpu.nvidia.com"}), publishes=frozenset()),
    ],
    ids=["no class", "no devices"],
)
def test_another_driver_is_chosen_where_the_reader_is(snapshot: TranslationSnapshot) -> None:
    fixes = [
        translation_outcome(pod(gpus(1)), snapshot, options).findings[0].fix
        for options in (None, TranslationOptions(driver_option="--profile VOCABULARY=DRIVER"))
    ]

    assert fixes == [
        "install the driver, or choose another: Drawbridge's setting translation.profiles",
        "install the driver, or choose another: --profile VOCABULARY=DRIVER",
    ]
