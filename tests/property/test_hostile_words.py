"""Foreign text in annotations means the same as HAMi would have read in it, and nothing else."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.pods import Decision
from findings.finding import has_errors
from findings.text import quote_text
from kube.api.meta import convert as typed
from kube.api.resource import MAX_RESULTS, Device
from kube.cel.compile import compile_in_place
from kube.cel.device import device_view
from kube.cel.library import Environment
from kube.errors import InvalidSelector
from kube.quantity import Quantity
from testing.builders import (
    HAMI,
    admit,
    device,
    devices_of,
    gpus,
    pod,
    profiles,
    translation_outcome,
    with_record,
)
from testing.generators import device_lists, quantity_texts
from translation.pipeline.translate import Translated
from translation.record.derive import derive
from translation.record.record import RecordError, decode_record

pytestmark = pytest.mark.property

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

MODEL, UUID = "NVIDIA A100-SXM4-40GB", "GPU-0"
CARD = device_view(
    HAMI,
    typed(device(attributes={"type": "hami-gpu", "uuid": UUID, "productName": MODEL}), Device),
)
BARE = device_view(HAMI, typed(device(attributes={"type": "hami-gpu"}), Device))


def items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def named(text: str) -> bool:
    return UUID in items(text)


def like(text: str) -> bool:
    """HAMi's CheckType, with one leading NVIDIA- forgiven as older releases wrote it."""
    lowered = [item.lower() for item in items(text)]
    forgiven = [item.removeprefix("nvidia-") or item for item in lowered]
    return any(item in MODEL.lower() for item in forgiven)


LISTS = {
    "use-gpuuuid": (named, False),
    "nouse-gpuuuid": (named, True),
    "use-gputype": (like, False),
    "nouse-gputype": (like, True),
}


@pytest.mark.parametrize("key", LISTS)
@given(text=device_lists(hostile=True))
def test_a_list_matches_as_in_hami(key: str, text: str) -> None:
    outcome = translation_outcome(pod(gpus(1, mem=1), annotations={f"nvidia.com/{key}": text}))
    if not isinstance(outcome, Translated):
        return
    (claim,) = outcome.claims
    exactly = devices_of(claim)["requests"][0]["exactly"]
    texts = [selector["cel"]["expression"] for selector in exactly.get("selectors", ())]
    selectors = [compile_in_place(text, Environment.NEW) for text in texts]

    matches, excludes = LISTS[key]
    has_items = bool(items(text))
    assert has_items is bool(selectors)
    assert all(selector.matches(CARD) for selector in selectors) is (
        not has_items or matches(text) is not excludes
    )
    # A device that publishes neither is in nobody's list.
    assert all(selector.matches(BARE) for selector in selectors) is (not has_items or excludes)


@given(st.text(max_size=300) | st.binary(max_size=300).map(bytes.hex))
def test_any_text_as_request_annotation_is_an_answer(text: str) -> None:
    _, answer = admit(with_record(pod(gpus(1)), text))

    assert answer.decision is Decision.REFUSED


def amounts() -> st.SearchStrategy[str]:
    wild = st.sampled_from(("1e128", "-1e128", "1e30", "9" * 120, "-5Gi", "0", "1n"))
    return wild | quantity_texts() | st.sampled_from(("1", "2", "50", "3000"))


KEYS = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    "nvidia.com/mig-1g.5gb",
    "koordinator.sh/gpu",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
    "cpu",
    "",
)
ANNOTATIONS = ("nvidia.com/vgpu-mode", "nvidia.com/use-gputype", "hami.io/gpu-scheduler-policy")
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
SCOPES = (
    '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
    '{"deviceTypes":["rdma","gpu"]}',
)

memory = st.sampled_from(("80Gi", "1", "3k", "9223372036854775807")) | amounts()
sizes = st.fixed_dictionaries({"size": memory}, optional={"min": memory, "step": memory})
facts = st.fixed_dictionaries(
    {},
    optional={
        "sizes": st.lists(sizes, max_size=10),
        "shared": st.booleans(),
        "defaultIsPart": st.booleans(),
        "replicas": st.lists(st.integers(), max_size=3),
        "perRoot": st.lists(st.integers(0, 33), max_size=3),
    },
)
used = st.sampled_from([*profiles().values()]).flatmap(
    lambda profile: st.fixed_dictionaries(
        {
            "vocabulary": st.sampled_from(("hami", "nvidia", "koordinator", "rdma")),
            "name": st.just(profile.driver),
            "hash": st.just(profile.content_hash),
            "facts": st.dictionaries(st.sampled_from(("gpu", "mig", "nic")), facts),
        }
    )
)
wanting_search_strategy = st.fixed_dictionaries(
    {
        "name": st.text(max_size=70),
        "limits": st.dictionaries(st.sampled_from(KEYS), amounts(), max_size=4),
    },
    optional={"init": st.booleans(), "sidecar": st.booleans()},
)
requests = st.fixed_dictionaries(
    {
        "translationVersion": st.just(1),
        "profiles": st.lists(used, max_size=3),
        "containers": st.lists(wanting_search_strategy, max_size=4),
        "annotations": st.dictionaries(
            st.sampled_from(ANNOTATIONS), st.sampled_from(("mig", "mps", "mutex")) | st.text()
        )
        | st.fixed_dictionaries({JOINT: st.sampled_from(SCOPES)}),
    }
)


@given(requests)
def test_any_request_derives_claims_or_faults(request: dict[str, object]) -> None:
    try:
        record = decode_record(msgspec.json.encode(request).decode())
    except RecordError:
        return

    derivation = derive(record, profiles())

    if has_errors(derivation.findings):
        return
    for claim in derivation.claims:
        assert LABEL.fullmatch(claim.template)
        for device_request in devices_of(claim)["requests"]:
            for alternative in device_request.get("firstAvailable") or [device_request["exactly"]]:
                assert LABEL.fullmatch(alternative.get("name", "x"))
                assert 1 <= alternative["count"] <= MAX_RESULTS
                for amount in alternative.get("capacity", {}).get("requests", {}).values():
                    assert Quantity(0) <= Quantity(amount) < Quantity("8Ei")


@given(st.text(max_size=200))
def test_shown_text_is_one_printable_line(text: str) -> None:
    assert quote_text(text).isprintable()


def test_the_environment_is_the_strict_one() -> None:
    with pytest.raises(InvalidSelector):
        compile_in_place("device.nothing", Environment.NEW)
