"""The laws of `drawbridge fix`: twice is once, it changes the named fields, and no error comes of it."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from answers.manifests.check import check_objects
from answers.model.inputs import Inputs
from answers.model.translation_snapshot import build_snapshot
from cli.verbs.fix.edited_files import edit_files
from findings.checked_object import CheckedObject
from findings.fixes import FixedObject, fix_objects
from kube.manifests.dump import dump_yaml
from kube.manifests.edited_file import EditedFile
from kube.manifests.reader import read_objects
from kube.manifests.source import SourceObject
from testing.builders import profiles
from testing.command import CLUSTER
from testing.generators import legacy_pods
from translation.cluster.snapshot import TranslationOptions

pytestmark = pytest.mark.property

STATE = tuple(read_objects(CLUSTER.read_bytes(), "cluster.yaml"))
_SHARES = st.fixed_dictionaries(
    {"nvidia.com/gpu": st.integers(1, 20)},
    optional={
        "nvidia.com/gpumem": st.sampled_from(
            (3000, 200_000, "200000", "8Gi", "300Gi", "1500Mi", 10**12)
        ),
        "nvidia.com/gpucores": st.sampled_from((10, 150, "30")),
        "nvidia.com/gpumem-percentage": st.sampled_from((50, 150)),
    },
) | st.fixed_dictionaries(
    {"volcano.sh/vgpu-number": st.integers(1, 12)},
    optional={"volcano.sh/vgpu-memory": st.sampled_from((3000, 10**6, "8Gi", "200Gi"))},
)


@st.composite
def wrong_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Pods with amounts that often are wrong, in limits, in requests, or in both."""
    document = draw(legacy_pods())
    spec = document["spec"]
    spec.pop("resourceClaims", None)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        amounts = draw(_SHARES)
        places = draw(st.sampled_from((("limits",), ("requests",), ("limits", "requests"))))
        container["resources"] = {place: dict(amounts) for place in places}
    return document


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Manifests as YAML with comments, or as JSON in some layout."""
    documents = draw(st.lists(wrong_pods() | legacy_pods(hostile=True), min_size=1, max_size=2))
    layout = draw(st.sampled_from(("yaml", "braces", "json")))
    if layout == "yaml":
        lines = dump_yaml(documents).splitlines()
        return "".join(
            f"{line}\n" if '"' in line or "|" in line else f"{line}  # {number}\n"
            for number, line in enumerate(lines)
        ).encode()
    # Of the escapes of JSON, YAML does not have those of pairs.
    assume("\\u" not in json.dumps(documents))
    if layout == "braces":
        return "---\n".join(f"{json.dumps(document)}\n" for document in documents).encode()
    items = {"apiVersion": "v1", "kind": "List", "items": documents}
    return json.dumps(items, indent=draw(st.sampled_from((None, 1, 4)))).encode()


def _check(inputs: Inputs, manifests: Sequence[SourceObject]) -> Sequence[CheckedObject]:
    changed = Inputs(
        manifests=tuple(manifests),
        state=inputs.state,
        knows_cluster=True,
        snapshot=inputs.snapshot,
        options=inputs.options,
    )
    return check_objects(changed, Features())


def fixed(text: bytes) -> tuple[tuple[FixedObject, ...], bytes]:
    """The objects of a text, and the text, fixed."""
    manifests = tuple(read_objects(text, "pods.yaml"))
    snapshot, _ = build_snapshot(profiles(), manifests, STATE)
    inputs = Inputs(
        manifests=manifests, state=STATE, snapshot=snapshot, options=TranslationOptions()
    )
    objects = fix_objects(manifests, partial(_check, inputs))
    (file,) = edit_files(objects, lambda _: text)
    assert isinstance(file, EditedFile), file.reason
    return objects, file.after


def _errors(findings: Sequence[Any]) -> set[tuple[str, str]]:
    return {(finding.code.value, str(finding.path)) for finding in findings if finding.is_error}


@settings(max_examples=60)
@given(texts())
def test_laws_of_fixes(text: bytes) -> None:
    objects, after = fixed(text)
    fixes = [fix for fixed_object in objects for fix in fixed_object.fixes]

    again, twice = fixed(after)

    assert twice == after, "fixed twice is not fixed once"
    assert not any(fixed_object.fixes for fixed_object in again)
    if not fixes:
        assert after == text, "nothing was fixed, and the text is another"
    snapshot, _ = build_snapshot(profiles(), [entry.before for entry in objects], STATE)
    inputs = Inputs(manifests=(), state=STATE, snapshot=snapshot, options=TranslationOptions())
    before = _check(inputs, [entry.before for entry in objects])
    for fixed_object, checked in zip(objects, before, strict=True):
        new = _errors(fixed_object.checked.findings) - _errors(checked.findings)
        assert not new, "a fix brought an error"
        left = {(finding.code, finding.path) for finding in fixed_object.checked.findings}
        assert not {(fix.code, fix.path) for fix in fixed_object.fixes} & left
    kept = [line for line in text.splitlines() if line in after.splitlines()]
    if b"\n" in text.strip():
        assert len(text.splitlines()) - len(kept) <= 2 * len(fixes), "another line has changed"
