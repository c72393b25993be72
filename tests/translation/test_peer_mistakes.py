"""Mistakes of the nearest peer, HAMi-DRA, and our answers: 25 mistakes found in its source.

A row stands where the core can show it. Rows that are about an operation or about another project's
driver are shown by what makes them impossible here, and the comment says which.
"""

import re
from collections.abc import Callable
from typing import Final

import pytest

from quotas.resource_quotas.scopes import Quota
from testing.builders import (
    HAMI,
    NAMESPACE,
    admit,
    admit_update,
    container,
    devices_of,
    driver_slice,
    finding_codes,
    gpus,
    hami_gpu,
    limits,
    pod,
    profiles,
    sidecar,
    translation_of,
    translation_outcome,
    translation_snapshot,
    with_changes,
)
from testing.documents import Document
from translation.pipeline.translate import Translated, Untouched
from translation.profiles.profile import Granularity

MISTAKES: Final[dict[int, tuple[str, Callable[[], None]]]] = {}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def mistake(number: int, title: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Enter a check under its row number."""

    def entered(check: Callable[[], None]) -> Callable[[], None]:
        assert number not in MISTAKES
        MISTAKES[number] = (title, check)
        return check

    return entered


def capacities(document: Document) -> dict[str, str]:
    (claim,) = translation_of(document).claims
    amounts: dict[str, str] = devices_of(claim)["requests"][0]["exactly"]["capacity"]["requests"]
    return amounts


def selectors(**annotations: str) -> list[str]:
    named = {f"nvidia.com/{name.replace('_', '-')}": text for name, text in annotations.items()}
    (claim,) = translation_of(pod(gpus(1, mem=1), annotations=named)).claims
    request = devices_of(claim)["requests"][0]["exactly"]
    return [selector["cel"]["expression"] for selector in request.get("selectors", [])]


@mistake(1, "dry-run makes real claims")
def row_1() -> None:
    # An answer holds what it says and nothing that could be run; admission gets no client.
    _, answer = admit(pod(gpus(1)))
    assert all(not callable(getattr(answer, field)) for field in answer.__struct_fields__)


@mistake(2, "replicas of one generated name fight for one claim")
def row_2() -> None:
    nameless = with_changes(pod(gpus(mem=1)), metadata={"generateName": "train-"})
    after, _ = admit(nameless)
    assert "resourceClaimTemplateName" in after["spec"]["resourceClaims"][0]


@mistake(3, "names beyond 63 characters")
def row_3() -> None:
    (claim,) = translation_of(pod(gpus(mem=1, name="x" * 63))).claims
    assert LABEL.fullmatch(claim.label)
    assert LABEL.fullmatch(claim.template)


@mistake(4, "two pods' names join to one")
def row_4() -> None:
    # Neither pod nor container is part of a template's name; a claim's is made by Kubernetes.
    first = with_changes(pod(gpus(mem=1, name="z")), metadata__name="x-y")
    second = with_changes(pod(gpus(mem=1, name="y-z")), metadata__name="x")
    assert [c.template for c in translation_of(first).claims] == [
        c.template for c in translation_of(second).claims
    ]


@mistake(5, "claims leak")
def row_5() -> None:
    # Claims are made from templates by kube-controller-manager, which deletes them with the pod.
    after, _ = admit(pod(gpus(mem=1), gpus(mem=2, name="b")))
    assert not any("resourceClaimName" in entry for entry in after["spec"]["resourceClaims"])


@mistake(6, "a claim is deleted while its containers still run")
def row_6() -> None:
    # We delete no claims, and the update that marks a pod for deletion changes nothing.
    live, _ = admit(pod(gpus(1)))
    after, answer = admit_update(with_changes(live, metadata__deletionTimestamp="now"), live)
    assert ((), live["spec"]) == (answer.operations, after["spec"])


@mistake(7, "claims that the container had are lost")
def row_7() -> None:
    own = [{"name": "nic", "request": "vf"}]
    after, _ = admit(
        pod(
            container(resources={"limits": limits(1), "claims": own}),
            resourceClaims=[{"name": "nic", "resourceClaimName": "n"}],
        )
    )
    assert [*own, {"name": "gpu", "request": "gpu"}] == after["spec"]["containers"][0]["resources"][
        "claims"
    ]


@mistake(8, "init containers and sidecars are ignored")
def row_8() -> None:
    after, _ = admit(pod(container(), init=(gpus(mem=1, name="i"), sidecar(mem=1))))
    assert [
        "claims" in init_container["resources"] and "limits" not in init_container["resources"]
        for init_container in after["spec"]["initContainers"]
    ] == [True, True]


@mistake(9, "keys in requests alone are ignored")
def row_9() -> None:
    got = translation_outcome(pod(container(resources={"requests": limits(1)})))
    assert finding_codes(got.findings) == ["error limitRequired"]


@mistake(10, "memory or cores without a count are ignored")
def row_10() -> None:
    assert capacities(pod(gpus(mem=3000))) == {"cores": "0", "memory": "3000Mi"}
    assert capacities(pod(gpus(cores=30))) == {"cores": "30"}


@mistake(11, "gpumem-percentage and priority stay in the pod")
def row_11() -> None:
    after, _ = admit(
        pod(gpus(1, pct=50, priority=1)), translation_snapshot(driver_slice(HAMI, hami_gpu()))
    )
    (main,) = after["spec"]["containers"]
    assert list(main["resources"]) == ["claims"]
    assert main["env"] == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]


@mistake(12, "silence about cores takes them all, and exclusive is not known")
def row_12() -> None:
    assert capacities(pod(gpus(1, mem=3000)))["cores"] == "0"
    assert capacities(pod(gpus(1, pct=100))) == {"cores": "100"}


@mistake(13, "two shares may be of one card")
def row_13() -> None:
    (claim,) = translation_of(pod(gpus(2, mem=1))).claims
    assert [{"requests": ["gpu"], "distinctAttribute": f"{HAMI}/uuid"}] == devices_of(claim)[
        "constraints"
    ]


@mistake(14, "cores above 100 never fit")
def row_14() -> None:
    assert capacities(pod(gpus(1, mem=1, cores=150)))["cores"] == "100"


@mistake(15, "annotations are pasted into CEL")
def row_15() -> None:
    (hostile,) = selectors(use_gpuuuid='" || true || "')
    assert hostile.endswith(' in ["\\" || true || \\""]')
    (listed,) = selectors(use_gpuuuid="a, b")
    assert listed.endswith('["a", "b"]')


@mistake(16, "models must be equal")
def row_16() -> None:
    (model,) = selectors(use_gputype="A100")
    assert model.endswith('.lowerAscii().contains("a100")')


@mistake(17, "other annotations and the opt-out are ignored")
def row_17() -> None:
    assert selectors(nouse_gputype="T4")[0].startswith("!(")
    assert selectors(nouse_gpuuuid="GPU-1")[0].startswith("!(")
    (mig,) = translation_of(pod(gpus(mem=1), annotations={"nvidia.com/vgpu-mode": "mig"})).claims
    assert list(mig.class_names()) == ["mig.nvidia.com"]
    mutex = pod(gpus(1, mem=1), annotations={"hami.io/gpu-scheduler-policy": "mutex"})
    assert capacities(mutex) == {"cores": "100"}
    numa = pod(gpus(2, mem=1), annotations={"nvidia.com/numa-bind": "true"})
    assert "warning notPublishedByDriver" in finding_codes(translation_outcome(numa).findings)
    ignored = translation_outcome(pod(gpus(mem=1), labels={"hami.io/webhook": "ignore"}))
    assert isinstance(ignored, Untouched)


@mistake(18, "zero and fractional counts are passed on")
def row_18() -> None:
    assert isinstance(translation_outcome(pod(gpus(0))), Untouched)
    assert finding_codes(translation_outcome(pod(gpus("500m", mem=1))).findings) == [
        "error notAnInteger"
    ]


@mistake(19, "a fault in a later container leaves claims of earlier ones")
def row_19() -> None:
    after, answer = admit(pod(gpus(mem=1), gpus(mem="8Gi", name="b")))
    assert (answer.claims, answer.operations) == ((), ())
    assert "resourceClaims" not in after["spec"]


@mistake(20, "an outage blocks every pod")
def row_20() -> None:
    # The conditions of our configuration, generated and tested with it, call us for these only.
    assert translation_outcome(pod(container())) == Untouched()


@mistake(21, "HAMi's rules for privileged containers, nodeName and quotas are not kept")
def row_21() -> None:
    privileged = gpus(mem=1, fields={"securityContext": {"privileged": True}})
    assert finding_codes(translation_outcome(pod(privileged)).findings) == ["error privilegedShare"]
    assert finding_codes(translation_outcome(pod(gpus(mem=1), nodeName="n")).findings) == [
        "warning nodeNameSet"
    ]
    counted = translation_snapshot(
        quotas={NAMESPACE: {"q": Quota(names=frozenset({"requests.nvidia.com/gpumem"}))}}
    )
    assert finding_codes(translation_outcome(pod(gpus(mem=1)), counted).findings) == [
        "error quotaNotCounted"
    ]


@mistake(22, "a name that a DeviceClass maps is stripped")
def row_22() -> None:
    mapped = translation_snapshot(extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"})
    before = pod(gpus(1))
    after, answer = admit(before, mapped)
    assert (before, ["info passedThrough"]) == (after, finding_codes(answer.findings))


@mistake(23, "claims per container cannot hold what must be aligned")
def row_23() -> None:
    (claim,) = translation_of(pod(gpus(1, mig_1g_5gb=1), gpus(1, name="b"))).claims
    assert [request["name"] for request in devices_of(claim)["requests"]] == [
        "gpu-0",
        "mig",
        "gpu-1",
    ]


@mistake(24, "the driver applies limits per claim, to every container")
def row_24() -> None:
    assert profiles()[HAMI].claims is Granularity.CONTAINER
    claims = translation_of(pod(gpus(mem=1, name="a"), gpus(mem=2, name="b"))).claims
    assert [[use.container for use in claim.uses] for claim in claims] == [["a"], ["b"]]
    assert [len(devices_of(claim)["requests"]) for claim in claims] == [1, 1]


@mistake(25, "HAMi's class takes the name nvidia.com/gpu")
def row_25() -> None:
    # Whoever owns the name by then, companions and annotations need more than a class can say.
    competing = translation_snapshot(extended_resources={"nvidia.com/gpu": HAMI})
    assert isinstance(translation_outcome(pod(gpus(1, mem=1)), competing), Translated)
    annotated = pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"})
    assert isinstance(translation_outcome(annotated, competing), Translated)


@pytest.mark.parametrize(
    ("title", "check"),
    MISTAKES.values(),
    ids=[f"{number}: {title}" for number, (title, _) in MISTAKES.items()],
)
def test_mistake(title: str, check: Callable[[], None]) -> None:
    check()


def test_every_row_is_accounted_for() -> None:
    assert list(range(1, 26)) == list(MISTAKES)
