"""The law of a fix that names an amount: written as a person reads it, the pod is admitted."""

import copy
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findings.field_path import Key
from findings.finding import Code, Finding
from testing.builders import container, pod, translation_outcome
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import Refused
from translation.reading.arbiter import VOCABULARIES

pytestmark = pytest.mark.property

_BY_PATTERN: Final[Mapping[str, tuple[str, ...]]] = {
    "ascend": tuple(f"huawei.com/Ascend910B3{suffix}" for suffix in ("", "-memory", "-core")),
    "nvidia": ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb.shared"),
}
"""Keys that a vocabulary reads by a pattern."""

ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "kai": ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"),
    "tensorfusion": (
        *("tensor-fusion.ai/vram-request", "tensor-fusion.ai/vram-limit"),
        *("tensor-fusion.ai/tflops-request", "tensor-fusion.ai/tflops-limit"),
        *("tensor-fusion.ai/compute-percent-request", "tensor-fusion.ai/gpu-count"),
    ),
}
"""Annotations with amounts."""

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    name: (*sorted(vocabulary.keys), *_BY_PATTERN.get(name, ()), *ANNOTATIONS.get(name, ()))
    for name, vocabulary in VOCABULARIES.items()
    if name != "multus"
}
"""The places of amounts of each vocabulary; those of networks have none."""

_ANNOTATIONS: Final = frozenset(key for keys in ANNOTATIONS.values() for key in keys)

AMOUNTS: Final = (
    *("1", "2", "3", "7", "50", "99", "100", "150", "199", "200", "250", "300", "301", "500"),
    *("4000", "100000", "-1", "8Gi"),
)
IN_WORDS: Final = ("0.5", "1.5", "8GB", "8Gi", "624 TFLOPS", "50%")
"""Further amounts of annotations, which are texts."""

_OPTIONS: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})
_MAX_FIXES: Final = 6
_AMOUNT: Final = r"([0-9]+(?:\.[0-9]+)?[A-Za-z]*)"
_NAMED: Final = re.compile(rf"([a-z][a-z0-9.-]*/[A-Za-z0-9.-]+): {_AMOUNT}")
_BARE: Final = re.compile(rf"(?:write|request)(?: at most)? {_AMOUNT}")


def readings(finding: Finding) -> Iterator[Mapping[str, str]]:
    """Yield the amounts by key that each alternative of a fix names.

    The amount of a key that another one takes the place of is empty.
    """
    if finding.code is Code.TOO_MANY_DEVICES:
        return  # A number of the pod, to which several keys may add up.
    for alternative in re.split(r",? or ", finding.fix):
        named_amounts = dict(_NAMED.findall(alternative))
        amount = _BARE.search(alternative)
        last = finding.path.steps[-1] if finding.path.steps else None
        if named_amounts and "in its place" in alternative and isinstance(last, Key):
            yield {last.name: "", **named_amounts}
        elif named_amounts:
            yield named_amounts
        elif amount and isinstance(last, Key):
            yield {last.name: amount[1]}


def requesting(amounts: Mapping[str, str]) -> Document:
    """Return a pod with amounts in limits, and in annotations under their names."""
    limits = {key: amount for key, amount in amounts.items() if key not in _ANNOTATIONS}
    texts = {key: amount for key, amount in amounts.items() if key in _ANNOTATIONS}
    labels = {"tensor-fusion.ai/enabled": "true"} if texts else None
    document: Any = pod(container("main", limits), annotations=texts, labels=labels)
    if not texts.keys().isdisjoint(ANNOTATIONS["kai"]):
        document["spec"]["schedulerName"] = "kai-scheduler"
    return document  # type: ignore[no-any-return]


def with_amounts(document: Document, amounts: Mapping[str, str]) -> Document:
    changed: Any = copy.deepcopy(document)
    for key, amount in amounts.items():
        if key in _ANNOTATIONS:
            changed["metadata"]["annotations"][key] = amount
            continue
        resources = changed["spec"]["containers"][0]["resources"]
        if not amount:
            resources["limits"].pop(key, None)
            resources["requests"].pop(key, None)
            continue
        resources["limits"][key] = resources["requests"][key] = amount
    return changed  # type: ignore[no-any-return]


def errors(document: Document) -> list[Finding]:
    outcome = translation_outcome(document, options=_OPTIONS)
    if not isinstance(outcome, Refused):
        return []
    return [finding for finding in outcome.findings if finding.is_error]


def is_admitted_in_the_end(document: Document) -> bool:
    """Return True if the fixes admit the pod, or leave an error without an amount in its fix."""
    for _ in range(_MAX_FIXES):
        fixes = [next(readings(finding), None) for finding in errors(document)]
        if not fixes or fixes[0] is None:
            return True
        document = with_amounts(document, fixes[0])
    return False


@st.composite
def amounts_of(draw: st.DrawFn, keys: tuple[str, ...]) -> dict[str, str]:
    chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    return {
        key: draw(st.sampled_from((*AMOUNTS, *IN_WORDS) if key in _ANNOTATIONS else AMOUNTS))
        for key in chosen
    }


def check_fixes(amounts: Mapping[str, str]) -> None:
    document = requesting(amounts)
    for finding in errors(document):
        for amounts_read in readings(finding):
            after = errors(with_amounts(document, amounts_read))
            assert (finding.code, finding.path) not in {
                (other.code, other.path) for other in after
            }, f"{finding.fix} does not mend {finding.message}"
    assert is_admitted_in_the_end(document)


@pytest.mark.parametrize("vocabulary", KEYS)
@given(st.data())
def test_an_amount_that_a_fix_names_is_admitted(vocabulary: str, data: st.DataObject) -> None:
    check_fixes(data.draw(amounts_of(KEYS[vocabulary])))


@pytest.mark.parametrize("vocabulary", KEYS)
@given(st.data())
def test_drawbridge_fix_writes_an_amount_that_leaves_no_choice(
    vocabulary: str, data: st.DataObject
) -> None:
    for finding in errors(requesting(data.draw(amounts_of(KEYS[vocabulary])))):
        alternatives = list(readings(finding))
        if len(alternatives) == 1 and not re.search(r",? or ", finding.fix):
            assert finding.corrections or finding.rewrites, finding.advice


@pytest.mark.parametrize("other", ["gpu-memory-ratio", "gpu-memory", "gpu.shared"])
def test_fixes_of_pairs_of_koordinator(other: str) -> None:
    ratio = {"koordinator.sh/gpu-memory-ratio": "50"} if other == "gpu.shared" else {}
    for cores, amount in product(AMOUNTS, AMOUNTS):
        amounts = {"koordinator.sh/gpu-core": cores, f"koordinator.sh/{other}": amount}

        check_fixes(amounts | ratio)
