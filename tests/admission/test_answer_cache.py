"""A cached answer is the one that would be computed now, for the snapshot of now."""

from typing import Any

import pytest

from admission.answer_cache import (
    IGNORED_METADATA,
    MAX_KEY_BYTES,
    AnswerCache,
    without_identity,
)
from admission.pods import Decision, admit_created
from admission.signing import UnsignedAnswer, unsigned_answer
from kube.jsonpatch import apply
from testing.builders import (
    HAMI,
    driver_slice,
    gpus,
    hami_gpu,
    pod,
    pod_view,
    translation_snapshot,
    with_changes,
)
from testing.documents import Document
from translation.cluster.snapshot import TemplateSummary, TranslationOptions, TranslationSnapshot

OPTIONS = TranslationOptions()
SNAPSHOT = translation_snapshot(driver_slice(HAMI, hami_gpu("40Gi")))


class Answers:
    """A cache, and the number of its computations."""

    def __init__(self, capacity: int = 512) -> None:
        self.cache = AnswerCache(capacity)
        self.computed = 0

    def find(
        self,
        document: Document,
        *,
        namespace: str = "a",
        snapshot: TranslationSnapshot = SNAPSHOT,
        options: TranslationOptions = OPTIONS,
    ) -> UnsignedAnswer:
        replica = without_identity(document)

        def compute(snapshot: TranslationSnapshot) -> UnsignedAnswer:
            self.computed += 1
            return compute_answer(replica, namespace, snapshot, options)

        return self.cache.find_or_compute(
            replica, namespace=namespace, snapshot=snapshot, options=options, compute=compute
        )


def compute_answer(
    document: Document,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions = OPTIONS,
) -> UnsignedAnswer:
    answer = admit_created(
        document, pod_view(document), namespace=namespace, snapshot=snapshot, options=options
    )
    object_ = apply(with_changes(document), answer.operations)
    return unsigned_answer(answer, object_, namespace)


def with_metadata(document: Document, **metadata: Any) -> Document:
    return {**document, "metadata": document["metadata"] | metadata}


def test_replicas_share_an_answer_which_fits_each_of_them() -> None:
    answers = Answers()
    first = with_metadata(pod(gpus(1)), name="train-x2x9z", managedFields=[{"time": "1"}])
    second = with_metadata(pod(gpus(1)), name="train-abcde", managedFields=[{"time": "2"}])

    assert answers.find(first) is answers.find(second)
    assert answers.computed == 1
    for replica in (first, second):
        assert compute_answer(replica, "a", SNAPSHOT) == answers.find(replica)


def test_what_is_removed_is_not_missing_in_the_pod_itself() -> None:
    document = with_metadata(pod(gpus(1)), name="train", managedFields=[])

    assert IGNORED_METADATA.isdisjoint(without_identity(document)["metadata"])
    assert document["metadata"].keys() >= IGNORED_METADATA


@pytest.mark.parametrize("metadata", [None, "a text", ["a list"]])
def test_metadata_of_another_type_stays(metadata: object) -> None:
    assert without_identity({"metadata": metadata}) == {"metadata": metadata}


@pytest.mark.parametrize(
    "changes",
    [{"labels": {"a": "b"}}, {"annotations": {"nvidia.com/use-gputype": "A100"}}],
    ids=["labels", "annotations"],
)
def test_another_field_of_the_metadata_has_an_answer_of_its_own(changes: Document) -> None:
    answers = Answers()

    answers.find(pod(gpus(1)))
    answers.find(with_metadata(pod(gpus(1)), **changes))

    assert answers.computed == 2


def test_another_namespace_has_an_answer_of_its_own() -> None:
    answers = Answers()

    answers.find(pod(gpus(1)), namespace="a")
    answers.find(pod(gpus(1)), namespace="b")

    assert answers.computed == 2


def test_another_snapshot_clears_the_cache() -> None:
    answers = Answers()
    larger = translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi")))
    half = pod(gpus(1, pct=50))

    before, after = answers.find(half), answers.find(half, snapshot=larger)

    assert before != after
    assert compute_answer(half, "a", larger) == after


def test_other_options_clear_the_cache() -> None:
    answers = Answers()
    foreign = pod(gpus(1), schedulerName="volcano")
    adopting = TranslationOptions(adopt_schedulers={"volcano": "default-scheduler"})

    decisions = [
        answers.find(foreign, options=options).answer.decision for options in (OPTIONS, adopting)
    ]

    assert decisions == [Decision.UNTOUCHED, Decision.TRANSLATED]


def test_a_template_that_appears_is_seen_though_the_snapshot_stays() -> None:
    templates: dict[tuple[str, str], TemplateSummary] = {}
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu("40Gi")), templates=templates)
    answers, legacy = Answers(), pod(gpus(1))
    (claim,) = answers.find(legacy, snapshot=snapshot).answer.claims

    templates["other", "template"] = TemplateSummary(digest="x")
    answers.find(legacy, snapshot=snapshot)
    assert answers.computed == 1, "a template that no answer was computed from"

    templates["a", claim.template] = TemplateSummary(digest="something else")
    assert answers.find(legacy, snapshot=snapshot).answer.decision is Decision.REFUSED

    templates["a", claim.template] = TemplateSummary(digest=claim.digest)
    assert answers.find(legacy, snapshot=snapshot).answer.decision is Decision.TRANSLATED


def test_the_least_recently_used_answer_is_evicted() -> None:
    answers = Answers(capacity=2)
    one_gpu, two, three = (pod(gpus(count)) for count in (1, 2, 3))

    for document in (one_gpu, two, one_gpu, three, one_gpu):
        answers.find(document)
    assert answers.computed == 3

    answers.find(two)
    assert answers.computed == 4


def test_a_huge_pod_is_not_cached() -> None:
    answers = Answers()
    huge = pod(gpus(1), annotations={"note": "x" * MAX_KEY_BYTES})

    answers.find(huge)
    answers.find(huge)

    assert answers.computed == 2


def test_a_number_beyond_every_field_is_answered_and_not_cached() -> None:
    answers = Answers()
    strange = pod(gpus(1)) | {"status": {"number": 2**64}}

    assert answers.find(strange).answer.decision is Decision.TRANSLATED
    answers.find(strange)
    assert answers.computed == 2
