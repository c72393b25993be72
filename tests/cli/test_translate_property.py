"""Laws of translate on damaged manifests: never a traceback, and a second time changes nothing."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.manifests.translate import documents, translate_objects
from answers.model.translation_snapshot import build_snapshot
from kube.manifests.reader import read_objects
from kube.manifests.source import SourceObject
from testing.builders import profiles
from testing.command import CLUSTER, EXAMPLES
from translation.cluster.snapshot import TranslationOptions

LEGACY = [
    read_document.document
    for path in sorted(EXAMPLES.glob("**/*.yaml"))
    for read_document in read_objects(path.read_bytes(), path.name)
]
STATE = read_objects(CLUSTER.read_bytes(), "cluster.yaml")

_WORDS = st.sampled_from(
    [
        *("", "0", "1", "-1", "500m", "8Gi", "101", "1e3", "abc", "true", "mig", "mps", "A100,"),
        *("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/mig-1g.5gb"),
        *("kube-scheduler", "kai-scheduler", '"', "\\", "\x1b[2J", "default"),
    ]
)
_LEAVES = st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats(0, 9) | _WORDS
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORDS, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """An example with some of its values replaced by others, or its keys by device keys."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(LEGACY)))
    for _ in range(draw(st.integers(1, 3))):
        parent = draw(st.sampled_from(_parents(document)))
        if isinstance(parent, list):
            parent[draw(st.integers(0, len(parent) - 1))] = draw(_VALUES)
        else:
            key = draw(st.sampled_from(sorted(parent)) | _WORDS)
            if parent is not document or key not in {"apiVersion", "kind"}:
                parent[key] = draw(_VALUES)
    return document


def _parents(value: Any) -> list[Any]:
    """Every mapping, and every list that is not empty."""
    children = value.values() if isinstance(value, dict) else value
    below = [
        parent
        for child in children
        if isinstance(child, dict | list) and child
        for parent in _parents(child)
    ]
    return [value, *below]


@pytest.mark.property
@given(st.lists(damaged(), min_size=1, max_size=3), st.booleans())
def test_translate_never_raises_and_is_idempotent(
    given_: list[dict[str, Any]], alone: bool
) -> None:
    objects = [_source(document) for document in given_]
    state = None if alone else STATE
    cluster_snapshot, _ = build_snapshot(profiles(), objects, state)

    once = _translated(objects, cluster_snapshot)

    again = [_source(document) for document in once]
    assert once == _translated(again, build_snapshot(profiles(), again, state)[0])


def _source(document: dict[str, Any]) -> SourceObject:
    return SourceObject(document=document, source="test", line=1)


def _translated(objects: list[SourceObject], cluster_snapshot: Any) -> list[Any]:
    results = translate_objects(
        objects, snapshot=cluster_snapshot, options=TranslationOptions(), namespace="default"
    )
    return list(documents(results))
