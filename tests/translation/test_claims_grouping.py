"""The number and names of a pod's claims, and the requests of each container."""

import re
from typing import NamedTuple

import msgspec
import pytest

from kube.api.meta import convert
from kube.api.resource import ResourceClaimTemplate
from testing.builders import (
    EXAMPLE,
    admit,
    container,
    devices_of,
    finding_codes,
    gpus,
    pod,
    translation_of,
    translation_outcome,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.compiling.claims import Claim, pod_claim_label, template_digest

ON_EXAMPLE = TranslationOptions(profiles={"hami": EXAMPLE, "nvidia": "gpu.nvidia.com"})


class Case(NamedTuple):
    name: str
    pod: Document
    want: list[tuple[str, list[str]]]
    """Label of each claim, and `container/request` of each use."""
    options: TranslationOptions = TranslationOptions()


def uses(claim: Claim) -> tuple[str, list[str]]:
    return claim.label, [f"{use.container}/{use.request}" for use in claim.uses]


CASES = (
    Case(
        "NVIDIA's driver: one claim, a request per container",
        pod(gpus(1, name="a"), gpus(2, name="b")),
        [("gpu", ["a/gpu-0", "b/gpu-1"])],
    ),
    Case(
        "NVIDIA's driver: MIG devices and GPUs in one claim",
        pod(gpus(mig_1g_5gb=1, name="a"), gpus(1, name="b")),
        [("mig", ["a/mig", "b/gpu"])],
    ),
    Case(
        "HAMi's driver: one claim per container, since it applies limits per claim",
        pod(gpus(1, mem=10, name="a"), gpus(1, mem=10, name="b")),
        [("gpu-a", ["a/gpu"]), ("gpu-b", ["b/gpu"])],
    ),
    Case(
        "HAMi's keys on another driver: as that driver has it",
        pod(gpus(1, mem=10, name="a"), gpus(1, mem=10, name="b")),
        [("gpu", ["a/gpu-0", "b/gpu-1"])],
        ON_EXAMPLE,
    ),
    Case(
        "HAMi's keys and a MIG device: a claim of each driver",
        pod(gpus(1, mem=10, mig_1g_5gb=1)),
        [("gpu-main", ["main/gpu"]), ("mig", ["main/mig"])],
    ),
    Case(
        "a container without devices uses nothing",
        pod(container("proxy"), gpus(1)),
        [("gpu", ["main/gpu"])],
    ),
    Case(
        "an init container uses the devices of an app container",
        pod(gpus(1), init=(gpus(1, name="check"),)),
        [("gpu", ["check/gpu", "main/gpu"])],
    ),
    Case(
        "on HAMi's driver, too",
        pod(gpus(1, mem=10), init=(gpus(1, mem=5, name="check"),)),
        [("gpu-main", ["check/gpu", "main/gpu"])],
    ),
    Case(
        "a sidecar has devices of its own",
        pod(gpus(1), init=(gpus(1, name="side", fields={"restartPolicy": "Always"}),)),
        [("gpu", ["side/gpu-0", "main/gpu-1"])],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_uses(case: Case) -> None:
    assert case.want == [
        uses(claim) for claim in translation_of(case.pod, None, case.options).claims
    ]


def templates(document: Document) -> list[str]:
    return [claim.template for claim in translation_of(document).claims]


def test_a_template_is_named_by_its_content() -> None:
    (name,) = templates(pod(gpus(1, mem=10)))

    assert re.fullmatch(r"hami-gpu-1-[0-9a-f]{16}", name)


SAME = (
    ("of another container", pod(gpus(1, mem=10, name="other"))),
    ("beside another container", pod(container("proxy"), gpus(1, mem=10))),
    ("of another pod", pod(gpus(1, mem=10)) | {"metadata": {"generateName": "train-"}}),
    ("written in another way", pod(gpus("1.0", mem="0.01k"))),
)


@pytest.mark.parametrize(("name", "document"), SAME, ids=[name for name, _ in SAME])
def test_the_same_share_is_the_same_template(name: str, document: Document) -> None:
    assert templates(pod(gpus(1, mem=10))) == templates(document)


def test_another_share_is_another_template() -> None:
    assert len({*templates(pod(gpus(1, mem=10))), *templates(pod(gpus(1, mem=11)))}) == 2


LABELS = {
    "train": "gpu-train",
    "x" * 59: "gpu-" + "x" * 59,
    "x" * 60: "gpu-" + "x" * 50 + "-" + "16daa1e7",
    "x" * 49 + "-" + "y" * 13: "gpu-" + "x" * 49 + "-",
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_dns_labels(name: str) -> None:
    label = pod_claim_label("gpu", name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", label)
    assert label.startswith(LABELS[name][:54].rstrip("-"))


def test_two_long_names_with_one_beginning_have_two_labels() -> None:
    first, second = "x" * 62 + "a", "x" * 62 + "b"

    assert pod_claim_label("gpu", first) != pod_claim_label("gpu", second)


class Limit(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]


LIMITS = (
    Limit("32 devices in one claim", pod(gpus(16, name="a"), gpus(16, name="b")), ()),
    Limit(
        "more shares than a claim holds",
        pod(gpus(33, mem=1)),
        ("error tooManyDevices",),
    ),
    Limit(
        "more devices than all claims hold",
        pod(gpus(64 * 32 + 1)),
        ("error tooManyDevices",),
    ),
    Limit(
        "devices that an init container shares count once",
        pod(gpus(20), init=(gpus(20, name="i"),)),
        (),
    ),
    Limit(
        "those that it keeps count",
        pod(gpus(20), init=(gpus(21, name="i"),)),
        ("warning heldForPodLifetime",),
    ),
    Limit(
        "claims per container have room each",
        pod(gpus(32, mem=1, name="a"), gpus(32, mem=1, name="b")),
        (),
    ),
    Limit(
        "33 requests of no device do not exist",
        pod(*(gpus(0, name=f"c{n}") for n in range(33))),
        (),
    ),
    Limit(
        "33 requests of one device",
        pod(*(gpus(1, name=f"c{n}") for n in range(33))),
        (),
    ),
)


class Divided(NamedTuple):
    name: str
    pod: Document
    want: tuple[tuple[int, ...], ...]


DIVIDED = (
    Divided("33 whole devices", pod(gpus(33)), ((32,), (1,))),
    Divided("128 whole devices", pod(gpus(128)), ((32,),) * 4),
    Divided(
        "what fits in a claim stays together",
        pod(gpus(16, name="a"), gpus(17, name="b")),
        ((16,), (17,)),
    ),
    Divided(
        "the rest of a large request and a small one",
        pod(gpus(40, name="a"), gpus(2, name="b")),
        ((32,), (8, 2)),
    ),
    Divided(
        "33 requests",
        pod(*(gpus(1, name=f"c{n}") for n in range(33))),
        ((1,) * 32, (1,)),
    ),
)


@pytest.mark.parametrize("case", DIVIDED, ids=lambda case: case.name)
def test_what_one_claim_cannot_hold_is_divided(case: Divided) -> None:
    after, answer = admit(case.pod)

    requested = [devices_of(claim)["requests"] for claim in answer.claims]
    counts = tuple(tuple(request["exactly"]["count"] for request in claim) for claim in requested)
    assert case.want == counts
    names = [entry["name"] for entry in after["spec"]["resourceClaims"]]
    assert len(set(names)) == len(case.want)
    uses = [
        (use["name"], use["request"])
        for container in after["spec"]["containers"]
        for use in container["resources"]["claims"]
    ]
    assert len(set(uses)) == sum(map(len, case.want))
    assert (after, True) == (admit(after)[0], answer.allowed)


def test_why_devices_are_not_divided_is_reported() -> None:
    (finding,) = translation_outcome(pod(gpus(33, mem=1))).findings

    assert "no constraint spans claims" in finding.message


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case.name)
def test_limits(case: Limit) -> None:
    assert case.want == tuple(finding_codes(translation_outcome(case.pod).findings))


FROM_THE_SERVER: tuple[tuple[str, Document], ...] = (
    ("as we wrote it", {}),
    ("with the metadata that the API server writes", {"metadata": {}}),
    ("with an old API server's metadata", {"metadata": {"creationTimestamp": None}}),
)


@pytest.mark.parametrize(("name", "extra"), FROM_THE_SERVER, ids=[n for n, _ in FROM_THE_SERVER])
def test_template_digest_knows_our_template_again(name: str, extra: Document) -> None:
    (claim,) = translation_of(pod(gpus(1, mem=10))).claims
    sent = msgspec.json.decode(msgspec.json.encode(claim.spec))

    back = convert(
        {"metadata": {"name": claim.template}, "spec": sent | extra}, ResourceClaimTemplate
    )

    assert claim.digest == template_digest(back)


def test_template_digest_sees_labels_that_claims_would_get() -> None:
    (claim,) = translation_of(pod(gpus(1, mem=10))).claims

    back = convert(
        {"spec": {**claim.spec, "metadata": {"labels": {"a": "b"}}}}, ResourceClaimTemplate
    )

    assert claim.digest != template_digest(back)


def test_specs_share_nothing_with_the_profile() -> None:
    mps = pod(
        gpus(1, mem=5, name="a"),
        gpus(1, mem=6, name="b"),
        annotations={"nvidia.com/vgpu-mode": "mps"},
    )

    (claim,) = translation_of(mps).claims

    configs = devices_of(claim)["config"]
    limits = [c["opaque"]["parameters"]["sharing"]["mpsConfig"] for c in configs]
    assert [{"defaultPinnedDeviceMemoryLimit": f"{n}Mi"} for n in (5, 6)] == limits
