"""Laws of any recording with quotas, from any moment on, and after a migration at any moment."""

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from allocator.replay.agreement import RECORDED
from allocator.replay.workload import Order
from answers.manifests.replay_quotas import GivenQuotas, ReplayQuotas
from answers.recording.course import RecordedCluster, read_course
from answers.recording.later import begin_at
from answers.recording.lines import decode_entries, encode_entry
from cli.verbs.replay.answer import Job, build_question, compare_recorded, run_job
from kube.api.core import ResourceQuota
from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert
from migration.replay.move import AmbiguousMove, move
from process.profiles.profile_files import load_profiles
from testing.recordings import (
    DOCUMENTS,
    course_of,
    device_quota,
    hami_node,
    legacy,
    plugin_node,
    pod,
    resource_quota,
    steps,
)
from translation.cluster.snapshot import DEFAULT_PROFILES, Mode, TranslationOptions

pytestmark = pytest.mark.property

Step = tuple[dict[str, Any], bool, float]
LEGACY: Final = (
    plugin_node("node-a"),
    plugin_node("node-b", 4),
    hami_node("node-b"),
    {**plugin_node("node-a"), "status": {}},
    legacy("whole", gpu=1),
    legacy("whole", on="node-a", gpu=1),
    legacy("many", gpu=9),
    legacy("share", gpu=1, gpumem=3000),
    legacy("share", on="node-b", gpu=1, gpumem=3000),
    legacy("part", {"mig-1g.5gb": 1}, on="node-b"),
    legacy("wrong", gpu="1500m"),
)
legacy_steps: Final = st.lists(
    st.tuples(
        st.sampled_from(LEGACY + tuple(DOCUMENTS[:28])),
        st.booleans() | st.just(True),
        st.sampled_from((0.0, 0.5, 30.0)),
    ),
    max_size=14,
)
moments: Final = st.sampled_from((0.0, 0.5, 15.0, 30.0, 31.0, 90.0, 1000.0))
PROFILES: Final = load_profiles(None)


def recorded_of(taken: Sequence[Step], first: int) -> RecordedCluster:
    lines = [encode_entry(entry) for entry in course_of(taken, first)]
    return read_course(decode_entries(lines, "day.json"), "day.json")


@given(taken=steps, first=st.integers(0, 14), second=moments)
def test_a_later_beginning_ends_as_the_whole_does(
    taken: Sequence[Step], first: int, second: float
) -> None:
    recorded = recorded_of(taken, first)
    later = begin_at(recorded, second)

    def outcome(cluster: RecordedCluster) -> Any:
        question = build_question(
            cluster.course.arriving,
            Order.ARRIVAL,
            cluster.state,
            Features(),
            course=cluster.course,
        )
        agreement = compare_recorded(question)
        assert agreement is not None
        assert agreement.outcome.name == RECORDED
        return agreement.outcome

    whole, rest = outcome(recorded), outcome(later)
    # Which capacity comes first depends on the pods.
    assert sorted(map(repr, whole.capacities)) == sorted(map(repr, rest.capacities))
    assert whole.devices == rest.devices
    assert rest.pods.placed + rest.pods.failed == len(later.course.arriving)
    assert rest.pods.failed <= whole.pods.failed


@given(
    taken=legacy_steps,
    first=st.integers(0, 14),
    second=moments,
    driver=st.sampled_from(("gpu.nvidia.com", "hami-core-gpu.project-hami.io")),
)
def test_after_a_migration_each_pod_is_placed_or_has_failed(
    taken: Sequence[Step], first: int, second: float, driver: str
) -> None:
    recorded = recorded_of(taken, first)
    options = TranslationOptions(
        mode=Mode.OPT_OUT, profiles={**DEFAULT_PROFILES, "nvidia": driver, "hami": driver}
    )
    try:
        moved = move(recorded, second, PROFILES, options)
    except AmbiguousMove:
        return
    course = moved.moved.course
    question = build_question(
        course.arriving,
        Order.ARRIVAL,
        moved.moved.state,
        Features(),
        course=course,
        happened=moved.happened,
    )
    result = run_job(Job(strategy="FragmentationAware", seed=0), question)
    agreement = compare_recorded(question)

    assert result.pods.placed + result.pods.failed == len(course.arriving)
    assert agreement is not None
    pods = agreement.outcome.pods
    assert pods.placed + pods.failed == len(course.arriving)
    assert len(course.pods) == len(moved.happened.course.pods)


QUOTAS: Final = (
    device_quota({"devices": {}, "max": 1}),
    device_quota({"claims": {}, "max": 2}, name="claims"),
    device_quota({"capacity": "memory", "max": "10Gi"}, name="memory"),
)
RESOURCE_QUOTAS: Final = (
    resource_quota({"pods": 2}),
    resource_quota({"requests.cpu": "1", "count/resourceclaims.resource.k8s.io": 1}),
    resource_quota({"pods": 1}, scopes=["BestEffort"]),
)


def given_quotas(numbers: Sequence[int]) -> GivenQuotas:
    chosen = [(*QUOTAS, *RESOURCE_QUOTAS)[number] for number in numbers]
    devices = [document for document in chosen if document["kind"] == "DeviceQuota"]
    resources = [document for document in chosen if document["kind"] == "ResourceQuota"]
    return GivenQuotas(
        device_quotas=tuple(convert(document, DeviceQuota) for document in devices),
        resource_quotas=tuple(convert(document, ResourceQuota) for document in resources),
    )


@given(
    taken=steps,
    first=st.integers(0, 14),
    numbers=st.lists(st.integers(0, 5), unique=True),
    strategy=st.sampled_from(("stock", "CompactFirst")),
)
def test_with_quotas_each_pod_is_placed_or_has_failed(
    taken: Sequence[Step], first: int, numbers: Sequence[int], strategy: str
) -> None:
    recorded = recorded_of(taken, first)
    course = recorded.course
    pods = course.arriving_without_quotas
    question = build_question(
        pods,
        Order.ARRIVAL,
        recorded.state,
        Features(),
        course=course,
        quotas=given_quotas(numbers),
    )
    result = run_job(Job(strategy=strategy, seed=0), question)

    assert result.pods.placed + result.pods.failed == len(pods)
    held = sum(row.pods - row.placed for row in result.held_back or ())
    by_quota = sum(result.failed_by.get(name, 0) for name in ("deviceQuota", "resourceQuota"))
    assert by_quota <= held


@given(seed=st.integers(0, 1000), numbers=st.lists(st.integers(0, 5), unique=True))
def test_what_comes_and_goes_leaves_the_use_as_it_was(seed: int, numbers: Sequence[int]) -> None:
    chance = random.Random(seed)
    recorded = recorded_of([(pod("before", on="node-a"), True, 0.0)], 1)
    quotas = ReplayQuotas(given_quotas(numbers), recorded.state)
    others = [(pod(f"pod-{number}"), True, 1.0) for number in range(5)]
    pods = [entry.replay for entry in recorded_of(others, 0).course.pods]
    before = [quotas.obstacle(entry.pod, entry.claims) for entry in pods]

    for entry in pods:
        quotas.charge(entry.pod, entry.claims)
        if chance.random() < 0.3:  # Charged again, as one of a group is.
            quotas.charge(entry.pod, entry.claims)
    chance.shuffle(pods)
    for entry in pods:
        quotas.release(entry.pod)

    after = [quotas.obstacle(entry.pod, entry.claims) for entry in pods]
    assert sorted(map(str, after)) == sorted(map(str, before))
