"""The init containers that reuse the devices of another container, and the findings about that."""

from typing import NamedTuple

import pytest

from findings.finding import Code
from kube.api.resource import ResourceSlice
from testing.builders import (
    HAMI,
    amount,
    container,
    derived_claims,
    device,
    devices_of,
    driver_slice,
    finding_codes,
    gpus,
    hami_gpu,
    pod,
    sidecar,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices
from translation.pipeline.translate import Refused

SEPARATE = TranslationOptions(choices=Choices())
LARGEST = TranslationOptions()
HAMI_GPU = driver_slice(HAMI, hami_gpu())
OWN_GPU = driver_slice(
    "gpu.drawbridge.internal",
    device(
        shared=True,
        attributes={"type": "gpu", "uuid": "GPU-0", "productName": "NVIDIA A100-SXM4-80GB"},
        capacity={
            "memory": amount("80Gi", "80Gi", min="1Mi", step="1Mi"),
            "cores": amount("100", "100", min="0", max="100", step="1"),
        },
    ),
)


HCU = driver_slice(
    "dra.hygon.com",
    device(
        shared=True,
        attributes={"type": "hcu", "uuid": "0"},
        capacity={"memory": amount("64Gi"), "cores": amount("120")},
    ),
)
CHIP = "huawei.com/Ascend910B3"


def hosted(
    document: Document, options: TranslationOptions, *slices: ResourceSlice
) -> dict[str, str]:
    """Init container to the container with the request that it uses."""
    hosts: dict[str, str] = {}
    for claim in translation_of(document, translation_snapshot(*slices), options).claims:
        users: dict[str, list[str]] = {}
        for use in claim.uses:
            users.setdefault(use.request, []).append(use.container)
        for guests in users.values():
            hosts |= dict.fromkeys(guests[:-1], guests[-1])
    return hosts


class Case(NamedTuple):
    name: str
    pod: Document
    want: dict[str, str]
    codes: tuple[str, ...] = ()


SEES_MORE = ("warning initSharesDevice",)
HELD = ("warning heldForPodLifetime",)


def after(*init: Document) -> Document:
    """A pod with an app container that asks for two whole GPUs."""
    return pod(gpus(2), init=init)


def share_after(*init: Document) -> Document:
    """A pod with an app container that asks for half of the cores and 10 MiB."""
    return pod(gpus(1, mem=10, cores=50), init=init)


CASES = (
    Case("as much", after(gpus(2, name="i")), {"i": "main"}),
    Case("less", after(gpus(1, name="i")), {"i": "main"}, SEES_MORE),
    Case("more keeps its own", after(gpus(3, name="i")), {}, HELD),
    Case(
        "one after the other",
        after(gpus(2, name="i"), gpus(2, name="j")),
        {"i": "main", "j": "main"},
    ),
    Case("another kind keeps its own", after(gpus(mig_1g_5gb=1, name="i")), {}, HELD),
    Case(
        "of two that are too large the smaller uses the larger",
        after(gpus(3, name="i"), gpus(4, name="j")),
        {"i": "j"},
        ("warning heldForPodLifetime", "warning initSharesDevice"),
    ),
    Case("a sidecar does not share", after(sidecar(2)), {}),
    Case("nor is it shared with", pod(init=(gpus(1, name="i"), sidecar(1))), {}, HELD),
    Case(
        "two MIG devices of one profile",
        pod(gpus(mig_1g_5gb=2), init=(gpus(mig_1g_5gb=2, name="i"),)),
        {"i": "main"},
    ),
    Case(
        "a smaller share", share_after(gpus(1, mem=5, cores=10, name="i")), {"i": "main"}, SEES_MORE
    ),
    Case("a share with more memory", share_after(gpus(1, mem=11, cores=10, name="i")), {}, HELD),
    Case("a share with more cores", share_after(gpus(1, mem=5, cores=60, name="i")), {}, HELD),
    Case("all memory is more than some", share_after(gpus(1, cores=10, name="i")), {}, HELD),
    Case(
        "some is less than all",
        pod(gpus(1, cores=50), init=(gpus(1, mem=5, cores=10, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "a share of what is exclusive",
        pod(gpus(1, cores=100), init=(gpus(1, mem=5, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "an app container with a restart policy is no sidecar",
        pod(gpus(1, fields={"restartPolicy": "Always"}), init=(gpus(1, name="i"),)),
        {"i": "main"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_init_container_reuses_the_request_of_a_container(case: Case) -> None:
    assert case.want == hosted(case.pod, SEPARATE)
    assert case.codes == tuple(finding_codes(translation_of(case.pod, None, SEPARATE).findings))


def npus(count: int, *, name: str = "main", **amounts: int) -> Document:
    """Return a container with NPUs; a share has the cores of its template."""
    return container(name, {CHIP: count, **{f"{CHIP}-{key}": amounts[key] for key in amounts}})


def dcus(count: int, *, name: str = "main", **amounts: int) -> Document:
    """Return a container with DCUs: without memory or cores all of them."""
    keys = {f"hygon.com/dcu{key}": amounts[key] for key in amounts}
    return container(name, {"hygon.com/dcunum": count, **keys})


OTHER_KINDS = (
    Case(
        "a share of an NPU is less than a whole one",
        pod(npus(1), init=(npus(1, memory=16384, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "a whole NPU is more than a share",
        pod(npus(1, memory=16384), init=(npus(1, name="i"),)),
        {},
        HELD,
    ),
    Case(
        "of two init containers the smaller uses the whole NPU of the other",
        pod(container(), init=(npus(1, memory=16384, name="i"), npus(1, name="j"))),
        {"i": "j"},
        (*HELD, *SEES_MORE),
    ),
    Case(
        "all cores of a DCU are more than some",
        pod(dcus(1, mem=16000, cores=50), init=(dcus(1, mem=8000, name="i"),)),
        {},
        HELD,
    ),
    Case(
        "some cores of a DCU are less than all",
        pod(dcus(1, mem=16000), init=(dcus(1, mem=8000, cores=50, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "an amount of memory of a DCU is less than all",
        pod(dcus(1, cores=50), init=(dcus(1, mem=8000, cores=50, name="i"),)),
        {"i": "main"},
        SEES_MORE,
    ),
    Case(
        "100 percent of a DCU and no key are the same",
        pod(dcus(1, mem=8000), init=(dcus(1, mem=8000, cores=100, name="i"),)),
        {"i": "main"},
    ),
)


@pytest.mark.parametrize("options", [SEPARATE, LARGEST], ids=["separate", "largest"])
@pytest.mark.parametrize("case", OTHER_KINDS, ids=lambda case: case.name)
def test_without_an_amount_an_npu_or_dcu_is_requested_as_a_whole(
    case: Case, options: TranslationOptions
) -> None:
    findings = translation_of(case.pod, translation_snapshot(HCU), options).findings

    assert case.want == hosted(case.pod, options, HCU)
    assert case.codes == tuple(
        code for code in finding_codes(findings) if code in (*HELD, *SEES_MORE)
    )


class Merged(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]
    """Count and amounts of each request, with its users."""
    codes: tuple[str, ...] = ()


RAISED = ("warning initRaisesLimit",)

MERGED = (
    Merged("as much", after(gpus(2, name="i")), ("2 for i, main",)),
    Merged("less", after(gpus(1, name="i")), ("2 for i, main",), SEES_MORE),
    Merged(
        "more whole GPUs: those beyond are the init container's",
        after(gpus(3, name="i")),
        ("1 for i", "2 for i, main"),
        HELD,
    ),
    Merged(
        "one after the other needs the larger of both",
        after(gpus(3, name="i"), gpus(4, name="j")),
        ("2 for i, j", "2 for i, j, main"),
        (*SEES_MORE, *HELD),
    ),
    Merged(
        "more memory",
        share_after(gpus(1, mem=11, cores=10, name="i")),
        ("1 memory 11Mi cores 50 for i, main",),
        (*RAISED, *SEES_MORE),
    ),
    Merged(
        "more cores",
        share_after(gpus(1, mem=5, cores=60, name="i")),
        ("1 memory 10Mi cores 60 for i, main",),
        (*RAISED, *SEES_MORE),
    ),
    Merged(
        "all memory",
        share_after(gpus(1, cores=10, name="i")),
        ("1 cores 50 for i, main",),
        (*RAISED, *SEES_MORE),
    ),
    Merged(
        "a whole GPU before a share",
        share_after(gpus(1, cores=100, name="i")),
        ("1 cores 100 for i, main",),
        RAISED,
    ),
    Merged(
        "shares of more GPUs: those beyond are the init container's",
        share_after(gpus(2, mem=10, cores=50, name="i")),
        ("1 memory 10Mi cores 50 for i", "1 memory 10Mi cores 50 for i, main"),
        HELD,
    ),
    Merged(
        "larger shares of more GPUs raise those of the app container",
        pod(gpus(2, mem=5, cores=0), init=(gpus(3, mem=20, cores=0, name="i"),)),
        ("1 memory 20Mi cores 0 for i", "2 memory 20Mi cores 0 for i, main"),
        (*RAISED, *HELD),
    ),
    Merged(
        "smaller shares of more GPUs keep their own, since limits are those of a claim",
        pod(gpus(1, mem=20, cores=0), init=(gpus(2, mem=5, cores=0, name="i"),)),
        ("2 memory 5Mi cores 0 for i", "1 memory 20Mi cores 0 for main"),
        HELD,
    ),
    Merged(
        "all memory of more GPUs",
        pod(gpus(1, mem=20, cores=0), init=(gpus(2, cores=0, name="i"),)),
        ("1 cores 0 for i", "1 cores 0 for i, main"),
        (*RAISED, *HELD),
    ),
    Merged(
        "whole GPUs before fewer shares",
        pod(gpus(1, mem=20, cores=0), init=(gpus(2, cores=100, name="i"),)),
        ("1 cores 100 for i", "1 cores 100 for i, main"),
        (*RAISED, *HELD),
    ),
    Merged(
        "of two init containers on more GPUs one has those beyond, and the other raises some",
        pod(
            gpus(1, mem=5, cores=0),
            init=(gpus(2, mem=20, cores=0, name="i"), gpus(3, mem=10, cores=0, name="j")),
        ),
        (
            "1 memory 10Mi cores 0 for j",
            "1 memory 20Mi cores 0 for i, j",
            "1 memory 20Mi cores 0 for i, j, main",
        ),
        (*RAISED, *RAISED, *RAISED, *SEES_MORE, *HELD),
    ),
    Merged(
        "shares of two app containers are of one each",
        pod(
            gpus(1, mem=10, cores=0, name="a"),
            gpus(1, mem=10, cores=0, name="b"),
            init=(gpus(2, mem=10, cores=0, name="i"),),
        ),
        (
            "1 memory 10Mi cores 0 for i",
            "1 memory 10Mi cores 0 for i, a",
            "1 memory 10Mi cores 0 for b",
        ),
        HELD,
    ),
    Merged(
        "more memory of fewer GPUs raises as many",
        pod(gpus(2, mem=5, cores=0), init=(gpus(1, mem=20, cores=0, name="i"),)),
        ("1 memory 20Mi cores 0 for i, main", "1 memory 5Mi cores 0 for main"),
        RAISED,
    ),
    Merged(
        "a whole GPU before shares of three",
        pod(gpus(3, mem=5, cores=10), init=(gpus(1, cores=100, name="i"),)),
        ("1 cores 100 for i, main", "2 memory 5Mi cores 10 for main"),
        RAISED,
    ),
    Merged(
        "a smaller init container for all of them uses both parts",
        pod(
            gpus(2, mem=5, cores=0),
            init=(gpus(1, mem=20, cores=0, name="i"), gpus(2, mem=3, cores=0, name="j")),
        ),
        ("1 memory 20Mi cores 0 for i, j, main", "1 memory 5Mi cores 0 for j, main"),
        (*RAISED, *SEES_MORE),
    ),
    Merged(
        "two init containers of growing counts",
        pod(
            gpus(3, mem=5, cores=0),
            init=(gpus(1, mem=20, cores=0, name="i"), gpus(2, mem=10, cores=0, name="j")),
        ),
        (
            "1 memory 20Mi cores 0 for i, j, main",
            "1 memory 10Mi cores 0 for j, main",
            "1 memory 5Mi cores 0 for main",
        ),
        (*RAISED, *RAISED, *SEES_MORE),
    ),
    Merged(
        "of two app containers the larger one is raised",
        pod(
            gpus(1, mem=10, cores=0, name="a"),
            gpus(1, mem=20, cores=0, name="b"),
            init=(gpus(1, mem=30, cores=0, name="i"),),
        ),
        ("1 memory 10Mi cores 0 for a", "1 memory 30Mi cores 0 for i, b"),
        RAISED,
    ),
    Merged(
        "another kind keeps its own",
        after(gpus(mig_1g_5gb=1, name="i")),
        ("1 for i", "2 for main"),
        HELD,
    ),
)


def reserved(document: Document, *slices: ResourceSlice) -> tuple[str, ...]:
    lines = []
    for claim in translation_of(document, translation_snapshot(*slices), LARGEST).claims:
        for request in devices_of(claim)["requests"]:
            users = ", ".join(use.container for use in claim.uses if use.request == request["name"])
            amounts = request["exactly"].get("capacity", {}).get("requests", {})
            parts = [f"{name} {amounts[name]}" for name in ("memory", "cores") if name in amounts]
            lines.append(" ".join([str(request["exactly"]["count"]), *parts, "for", users]))
    return tuple(lines)


@pytest.mark.parametrize("case", MERGED, ids=lambda case: case.name)
def test_the_pod_reserves_the_larger_of_both(case: Merged) -> None:
    got = translation_of(case.pod, None, LARGEST)

    assert sorted(case.want) == sorted(reserved(case.pod))
    assert sorted(case.codes) == sorted(finding_codes(got.findings))
    assert got.claims == derived_claims(case.pod, got.annotation, translation_snapshot())


def test_parts_of_one_container_are_on_distinct_devices() -> None:
    document = pod(gpus(2, mem=5, cores=0), init=(gpus(1, mem=20, cores=0, name="i"),))

    assert [["gpu-0", "gpu-1"]] == distinct_requests(document, HAMI_GPU)


def test_further_devices_of_an_init_container_are_distinct_from_the_others() -> None:
    document = share_after(gpus(2, mem=10, cores=50, name="i"))

    assert [["gpu-0", "gpu-1"]] == distinct_requests(document, HAMI_GPU)


def test_smaller_shares_of_more_gpus_reuse_those_of_a_driver_with_limits_per_container() -> None:
    document = pod(gpus(1, mem=20, cores=0), init=(gpus(2, mem=5, cores=0, name="i"),))

    assert ("1 memory 5Mi cores 0 for i", "1 memory 20Mi cores 0 for i, main") == reserved(
        document, OWN_GPU
    )
    assert [["gpu-0", "gpu-1"]] == distinct_requests(document, OWN_GPU)


def test_a_further_device_names_the_container_that_requests_fewer() -> None:
    findings = translation_of(share_after(gpus(2, mem=10, cores=50, name="i")), None, LARGEST)

    (held,) = findings.findings
    assert "requests more devices than container main" in held.message
    assert held.fix == "request as many in container main, or fewer in this one"


def distinct_requests(document: Document, device_slice: ResourceSlice) -> list[list[str]]:
    """Return the requests of each constraint on the devices of the only claim to be distinct."""
    (claim,) = translation_of(document, translation_snapshot(device_slice), LARGEST).claims
    return [
        constraint["requests"]
        for constraint in devices_of(claim)["constraints"]
        if "distinctAttribute" in constraint
    ]


def test_more_devices_than_a_claim_has_are_raised_together() -> None:
    document = pod(gpus(33, mem=5, cores=0), init=(gpus(1, mem=20, cores=0, name="i"),))

    outcome = translation_outcome(document, None, LARGEST)

    assert isinstance(outcome, Refused)
    assert "error tooManyDevices" in finding_codes(outcome.findings)


def test_one_container_never_uses_one_device_twice() -> None:
    both = pod(
        gpus(mig_1g_5gb=1, mig_2g_10gb=1), init=(gpus(mig_1g_5gb=1, mig_2g_10gb=1, name="i"),)
    )

    (claim,) = translation_of(both).claims

    used = [use.request for use in claim.uses if use.container == "i"]
    assert used == ["mig-0", "mig-1"]


def test_memory_as_amount_and_as_percentage_is_told_to_be_written_alike() -> None:
    percent = container("i", {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 30})
    document = pod(gpus(1, mem=5, cores=0), init=(percent,))

    findings = translation_outcome(document, translation_snapshot(HAMI_GPU), LARGEST).findings

    (held,) = [entry for entry in findings if entry.code is Code.HELD_FOR_POD_LIFETIME]
    assert "container main" in held.message
    assert held.fix == "request the memory of both as amounts, or of both as percentages"
