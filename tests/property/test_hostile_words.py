"""Foreign text in annotations says what HAMi would have read in it, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.api.meta import view as typed
from kube.api.resource import Device
from kube.cel.compile import compile_selector
from kube.cel.device import view
from kube.cel.library import Environment
from kube.errors import InvalidSelector
from tests.builders import (
    HAMI,
    admitted,
    device,
    devices_of,
    gpus,
    outcome_of,
    pod,
    with_request,
)
from tests.strategies import device_lists
from webhook.admission import Decision
from webhook.findings import shown
from webhook.translation import Translated

pytestmark = pytest.mark.property

MODEL, UUID = "NVIDIA A100-SXM4-40GB", "GPU-0"
CARD = view(
    HAMI,
    typed(device(attributes={"type": "hami-gpu", "uuid": UUID, "productName": MODEL}), Device),
)
BARE = view(HAMI, typed(device(attributes={"type": "hami-gpu"}), Device))


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
    outcome = outcome_of(pod(gpus(1, mem=1), annotations={f"nvidia.com/{key}": text}))
    if not isinstance(outcome, Translated):
        return
    (claim,) = outcome.claims
    asked = devices_of(claim)["requests"][0]["exactly"]
    texts = [one["cel"]["expression"] for one in asked.get("selectors", ())]
    selectors = [compile_selector(text, Environment.NEW) for text in texts]

    matches, excludes = LISTS[key]
    constrained = bool(items(text))
    assert constrained is bool(selectors)
    assert all(one.matches(CARD) for one in selectors) is (
        not constrained or matches(text) is not excludes
    )
    # A device that publishes neither is in nobody's list.
    assert all(one.matches(BARE) for one in selectors) is (not constrained or excludes)


@given(st.text(max_size=300) | st.binary(max_size=300).map(bytes.hex))
def test_any_text_as_request_annotation_is_an_answer(text: str) -> None:
    _, answer = admitted(with_request(pod(gpus(1)), text))

    assert answer.decision is Decision.REFUSED


@given(st.text(max_size=200))
def test_shown_text_is_one_printable_line(text: str) -> None:
    assert shown(text).isprintable()


def test_the_environment_is_the_strict_one() -> None:
    with pytest.raises(InvalidSelector):
        compile_selector("device.nothing", Environment.NEW)
