"""The owner of the keys of a pod with several vocabularies."""

from typing import NamedTuple

import msgspec
import pytest

from testing.builders import (
    container,
    finding_codes,
    finding_texts,
    gpus,
    koordinator_annotations,
    koordinator_container,
    legacy_view,
    pod,
    pod_view,
    translation_outcome,
)
from testing.documents import Document
from translation.reading import arbiter
from translation.reading.legacy_pod import legacy_pod

NICS = ("rdma", "sriov")
MIXED = {"mellanox.com/rdma": 1, "rdma/hca": 1}
HAMI, KOORDINATOR, NVIDIA = "hami", "koordinator", "nvidia"
JOINT, PARTITION = (
    name
    for short_name in ("joint", "partition")
    for name in koordinator_annotations(**{short_name: ""})
)


class Case(NamedTuple):
    name: str
    containers: tuple[Document, ...]
    want: tuple[str, ...]
    annotation: str | None = None
    default_gpu_owner: str = NVIDIA


CASES = (
    Case("no key, no owner", (container(),), ()),
    Case("bare gpu is the device plugin's", (gpus(1),), (NVIDIA,)),
    Case("unless the operator says that HAMi has it", (gpus(1),), (HAMI,), None, HAMI),
    Case("or Koordinator", (gpus(1),), (KOORDINATOR,), None, KOORDINATOR),
    Case("beside gpumem not even then", (gpus(1, mem=1),), (HAMI,), None, KOORDINATOR),
    Case("beside gpumem it is HAMi's", (gpus(1, mem=1),), (HAMI,)),
    Case("gpumem-percentage is HAMi's", (gpus(pct=1),), (HAMI,)),
    Case("gpucores are HAMi's", (gpus(cores=1),), (HAMI,)),
    Case("priority is HAMi's", (gpus(priority=1),), (HAMI,)),
    Case("a HAMi annotation makes bare gpu HAMi's", (gpus(1),), (HAMI,), "nvidia.com/use-gputype"),
    Case(
        "one HAMi container makes the whole pod HAMi's", (gpus(1, name="a"), gpus(mem=1)), (HAMI,)
    ),
    Case("shares are Koordinator's", (koordinator_container(gpu=50),), (KOORDINATOR,)),
    Case(
        "a NIC beside bare gpu leaves it to the device plugin",
        (koordinator_container(nvidia=1, rdma=1),),
        (NVIDIA, KOORDINATOR),
    ),
    Case(
        "joint allocation makes it Koordinator's",
        (koordinator_container(nvidia=1, rdma=1),),
        (KOORDINATOR,),
        JOINT,
    ),
    Case(
        "in the whole pod, but for MIG devices",
        (gpus(1, mig_1g_5gb=1, name="a"), koordinator_container(rdma=1)),
        (KOORDINATOR, NVIDIA),
        JOINT,
    ),
    Case("joint allocation of nothing does not", (gpus(1),), (NVIDIA,), JOINT),
    Case("a partition does", (gpus(1),), (KOORDINATOR,), PARTITION),
    Case(
        "HAMi's shares beside Koordinator's NICs",
        (gpus(mem=1, name="a"), koordinator_container(rdma=1)),
        (HAMI, KOORDINATOR),
    ),
    Case("replicas are the device plugin's", (gpus(shared=1),), (NVIDIA,)),
    Case("mig- stays the device plugin's", (gpus(1, mem=1, mig_1g_5gb=1),), (HAMI, NVIDIA)),
    Case(
        "an annotation of HAMi moves no MIG device",
        (gpus(mig_1g_5gb=1),),
        (NVIDIA,),
        "nvidia.com/vgpu-mode",
    ),
    Case("NICs come last", (container("a", {**MIXED, "nvidia.com/gpu": 1}),), (NVIDIA, *NICS)),
    Case("and alone", (container("a", MIXED),), NICS),
    Case("nor does the operator", (gpus(mig_1g_5gb=1),), (NVIDIA,), None, HAMI),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_owners(case: Case) -> None:
    pod = msgspec.structs.replace(
        legacy_view(*case.containers), annotations={case.annotation: ""} if case.annotation else {}
    )

    got = arbiter.owners(pod, default_gpu_owner=case.default_gpu_owner)

    assert case.want == got


def test_each_key_has_one_owner() -> None:
    both = [arbiter.VOCABULARIES[name] for name in (HAMI, NVIDIA)]

    got = arbiter.divide_keys(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "cpu"], both)

    assert {HAMI: {"nvidia.com/gpu"}, NVIDIA: {"nvidia.com/mig-1g.5gb"}} == got


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/gpumem", True),
        ("nvidia.com/gpu.product", False),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", False),
        ("cpu", False),
        ("rdma/hca", True),
        ("mellanox.com/rdma", True),
    ],
)
def test_device_keys(key: str, want: bool) -> None:
    assert want is (key in arbiter.find_device_keys({key, "memory"}))


def test_part_of_leaves_other_limits_out() -> None:
    part = arbiter.restrict_keys(legacy_view(gpus(1, mem=2)), frozenset({"nvidia.com/gpu"}))

    assert [key for container_ in part.containers for key in container_.limits] == [
        "nvidia.com/gpu"
    ]


SPEAKING = arbiter.extended_vocabularies(
    [
        ("rdma", ("rdma/ib",)),
        ("rdma", ("acme.example/hca",)),
        ("sriov", ("acme.example/*",)),
        ("hami", ("a.example/b",)),
    ]
)


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("acme.example/hca", ["rdma", "sriov"]),
        ("acme.example/vf", ["sriov"]),
        ("rdma/ib", ["rdma"]),
        ("a.example/b", []),
    ],
)
def test_profiles_give_names_to_vocabularies_that_take_them(key: str, want: list[str]) -> None:
    assert want == [name for name, vocabulary in SPEAKING.items() if vocabulary.handles(key)]


def test_a_vocabulary_that_gets_no_further_name_is_itself() -> None:
    assert arbiter.extended_vocabularies([("rdma", ("rdma/*",))]) == arbiter.VOCABULARIES


class Conflict(NamedTuple):
    name: str
    containers: tuple[Document, ...]
    annotations: dict[str, str]
    want: tuple[str, ...]


AT_MEM = ("error ambiguousOwner spec.containers[0].resources.limits[nvidia.com/gpumem]",)
JOINTLY = koordinator_annotations(joint={})

CONFLICTS = (
    Conflict("shares of both", (gpus(mem=1), koordinator_container("b", gpu=50)), {}, AT_MEM),
    Conflict(
        "GPUs allocated jointly",
        (gpus(1, mem=1), koordinator_container("b", rdma=1)),
        JOINTLY,
        AT_MEM,
    ),
    Conflict("a NIC is no GPU", (gpus(1, mem=1), koordinator_container("b", rdma=1)), {}, ()),
    Conflict("nothing of HAMi", (gpus(1), koordinator_container("b", gpu=50)), {}, ()),
)


@pytest.mark.parametrize("case", CONFLICTS, ids=lambda case: case.name)
def test_conflicts(case: Conflict) -> None:
    asking = legacy_pod(pod_view(pod(*case.containers, annotations=case.annotations)))

    assert case.want == tuple(finding_texts(arbiter.check_conflicts(asking)))


def test_a_key_of_a_tenant_is_shown_as_one_line_of_text() -> None:
    amounts = {"nvidia.com/mig-\0": 1, "vke.volcengine.com/mgpu-memory": 1}
    asking = legacy_pod(pod_view(pod(container(amounts=amounts))))

    details = [finding.detail for finding in arbiter.check_conflicts(asking)]

    assert len(details) == 1
    assert all(detail.isprintable() for detail in details), details


def test_other_vendors_keys_beside_koordinators_are_refused() -> None:
    outcome = translation_outcome(pod(koordinator_container(gpu=50, npu_core=1)))

    assert "error cannotExpress" in finding_codes(outcome.findings)


def test_a_key_that_is_renamed_is_koordinators() -> None:
    annotations = koordinator_annotations(replace="nvidia.com/gpu:koordinator.sh/gpu")
    asking = legacy_pod(pod_view(pod(gpus(50), annotations=annotations)))

    assert (KOORDINATOR,) == arbiter.owners(asking)


OTHERS: tuple[tuple[str, Document, set[str]], ...] = (
    (
        "beside Koordinator's keys",
        koordinator_container(gpu=50, amd=1),
        {"koordinator.sh/gpu", "amd.com/gpu"},
    ),
    ("beside the device plugin's", koordinator_container(nvidia=1, dcu=1), {"nvidia.com/gpu"}),
    ("alone", koordinator_container(dcu=1), set()),
)


def _id(value: object) -> str:
    return str(sorted(value) if isinstance(value, set) else value)[:40]


@pytest.mark.parametrize(("_name", "asking", "want"), OTHERS, ids=_id)
def test_where_other_vendors_keys_are_read(_name: str, asking: Document, want: set[str]) -> None:
    (seen_of_it,) = legacy_view(asking).containers

    assert want == set(seen_of_it.limits)
