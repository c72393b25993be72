"""A replay of any recording ends: each pod is placed or has failed, and each binding is counted once."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from allocator.replay.workload import Order
from answers.recording.course import read_course
from answers.recording.lines import decode_entries, encode_entry
from cli.verbs.replay.answer import Job, build_question, compare_recorded, run_job
from testing.documents import Document
from testing.recordings import (
    course_of,
    steps,
)

pytestmark = pytest.mark.property


@given(
    taken=steps,
    first=st.integers(0, 14),
    strategy=st.sampled_from(("stock", "FragmentationAware", "BestFit")),
)
def test_each_pod_is_placed_or_has_failed(
    taken: Sequence[tuple[Document, bool, float]], first: int, strategy: str
) -> None:
    lines = [encode_entry(entry) for entry in course_of(taken, first)]

    recorded = read_course(decode_entries(lines, "day.json"), "day.json")
    question = build_question(
        recorded.course.arriving, Order.ARRIVAL, recorded.state, Features(), course=recorded.course
    )
    result = run_job(Job(strategy=strategy, seed=0), question)
    agreement = compare_recorded(question)

    assert result.pods.placed + result.pods.failed == len(recorded.course.arriving)
    assert agreement is not None
    outcome = agreement.outcome.pods
    assert outcome.placed + outcome.failed == len(recorded.course.arriving)
    compared = agreement.best + sum(agreement.otherwise.values())
    assert compared == agreement.bindings
    assert compared + agreement.other_schedulers == outcome.placed
