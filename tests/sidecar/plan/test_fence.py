"""The fence as the sidecar reads it: all of its parts, and each driver."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admission.fence import OPEN_PATCH, fence_documents
from kube.api.ownership import FencePolicy, project_fence_policy
from sidecar.ownership.fence import Binding, FenceState, Parameter, Part, fence_of
from sidecar.state.projections import project_fence_binding

GPU = "gpu.nvidia.com"
NIC = "dra.net"


def parts(*drivers: str) -> dict[Part, FencePolicy | Binding | None]:
    """Return the parts of a fence as they are kept from the objects that `drawbridge bridge own` writes."""
    return {
        Part(f"{document['kind']}/{document['metadata']['name']}"): kept(document)
        for document in fence_documents(drivers)
    }


def kept(document: Mapping[str, Any]) -> FencePolicy | Binding:
    project = (
        project_fence_binding if document["kind"].endswith("Binding") else project_fence_policy
    )
    return project(msgspec.json.encode(document))


def changed_binding(part: Part, **fields: Any) -> Binding:
    binding = parts(GPU)[part]
    assert isinstance(binding, Binding)
    return replace(binding, spec=replace(binding.spec, **fields))


def excluding(part: Part, field: str, value: object = (1,)) -> FencePolicy:
    policy = parts(GPU)[part]
    assert isinstance(policy, FencePolicy)
    constraints = {**(policy.spec.match_constraints or {}), field: value}
    return replace(policy, spec=replace(policy.spec, match_constraints=constraints))


def test_all_parts_are_what_the_command_writes() -> None:
    assert set(parts(GPU)) == set(Part)


def test_the_fence_stands_for_the_drivers_in_its_text() -> None:
    fence = fence_of(parts(GPU))

    assert fence.state is FenceState.CLOSED
    assert fence.keeps_others_from(GPU)
    # Neither another name, nor the beginning of one.
    assert not any(map(fence.keeps_others_from, (NIC, GPU[:-1], "")))
    assert not fence_of(parts()).keeps_others_from(GPU)


def test_a_list_of_drivers_as_an_earlier_version_wrote_it_keeps_others_out() -> None:
    """So that an upgrade stops no allocation until `drawbridge bridge own` has brought it up to date."""
    policy = json.dumps(fence_documents([GPU])[0])
    assert ".lowerAscii()" in policy
    earlier_policy = kept(json.loads(policy.replace(".lowerAscii()", "")))

    assert fence_of({**parts(GPU), Part.POLICY: earlier_policy}).keeps_others_from(GPU)


@pytest.mark.parametrize("part", Part)
def test_a_part_that_does_not_exist_opens_the_fence(part: Part) -> None:
    fence = fence_of({**parts(GPU), part: None})

    assert not fence.keeps_others_from(GPU)
    if part is Part.POLICY:
        assert fence.state is FenceState.MISSING
    else:
        assert (fence.state, fence.idle_parts) == (FenceState.INCOMPLETE, (part,))


@pytest.mark.parametrize(
    ("name", "part", "found"),
    [
        ("only warns", Part.BINDING, changed_binding(Part.BINDING, validation_actions=("Warn",))),
        ("has no actions", Part.BINDING, changed_binding(Part.BINDING, validation_actions=None)),
        ("of another policy", Part.BINDING, changed_binding(Part.BINDING, policy_name="other")),
        ("for some claims", Part.BINDING,
         changed_binding(Part.BINDING, match_resources={"namespaceSelector": {"matchLabels": {"a": "b"}}})),
        ("of another Lease", Part.HOLDER_BINDING,
         changed_binding(Part.HOLDER_BINDING, param_ref=Parameter(name="other"))),
        ("without a Lease", Part.HOLDER_BINDING,
         changed_binding(Part.HOLDER_BINDING, param_ref=None)),
        ("without validations", Part.HOLDER_POLICY, FencePolicy()),
        ("not about one namespace", Part.POLICY, excluding(Part.POLICY, "namespaceSelector")),
        ("not about some claims", Part.HOLDER_POLICY, excluding(Part.HOLDER_POLICY, "objectSelector")),
        ("not about other versions", Part.POLICY, excluding(Part.POLICY, "matchPolicy", "Exact")),
        ("not about a resource", Part.POLICY, excluding(Part.POLICY, "excludeResourceRules")),
    ],
)  # fmt: skip
def test_a_part_that_denies_nothing_opens_the_fence(
    name: str, part: Part, found: FencePolicy | Binding
) -> None:
    fence = fence_of({**parts(GPU), part: found})

    assert (fence.state, fence.idle_parts) == (FenceState.INCOMPLETE, (part,)), name


def test_a_rescue_opens_it() -> None:
    fence, *_ = fence_documents([GPU])
    opened = {**fence, "spec": {**fence["spec"], **OPEN_PATCH["spec"]}}

    assert fence_of({**parts(GPU), Part.POLICY: kept(opened)}).state is FenceState.OPEN


def test_a_part_that_was_not_read_counts_as_it_should_be() -> None:
    assert fence_of({}).state is FenceState.UNKNOWN
    assert fence_of({}).keeps_others_from(GPU)
    read = {Part.POLICY: parts(GPU)[Part.POLICY]}
    assert fence_of(read).state is FenceState.CLOSED
