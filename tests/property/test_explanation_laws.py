"""Laws of explanations and of the nearest miss, on the oracle's scenarios and on a crowded cluster.

Every "no" has words; they are bounded, in one line, and never name what is not the reader's. A
nearest miss is a promise: applied, it fits. Asking changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocator.cluster.cluster import Cluster
from allocator.explain.closest_fit import closest_fit_now, find_closest_fit
from allocator.explain.node import divide_classes, explain_node
from allocator.explain.summary import MAX_SUMMARY, summarize
from allocator.model import pools, slice_index, usage
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed, DoesNotFit, Reason, RejectionReason, Shortage
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims, resolve_requests
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.core import Node
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from testing.allocation.builders import DRIVER
from testing.long_runs import every_second
from testing.oracle.ours import Objects, objects
from testing.oracle.scenarios import seeded_document

pytestmark = pytest.mark.property

SCENARIOS: Final = 240
BLOCKS: Final = 8
"""Scenarios are checked in so many tests, so that a failure does not hide all others."""
BUDGET: Final = Budget(steps=20_000)
FOREIGN: Final = "secret-team"


class Attempt(NamedTuple):
    """A scenario that can be asked."""

    objects: Objects
    pending: PendingClaims
    nodes: Sequence[NodeDevices]
    in_use: Usage
    rules: AllocatorOptions

    def ask(self, claims: Sequence[ResourceClaim]) -> PendingClaims:
        return resolve_requests(claims, self.objects.classes, self.objects.features)


def attempts(block: int, count: int = SCENARIOS) -> Iterator[Attempt]:
    """Scenarios of a block with claims that can be validated; all consumers of devices are strangers."""
    for seed in range(block, count, BLOCKS):
        objects_ = objects(seeded_document(seed))
        held_claims = tuple(map(_foreign, objects_.allocated_claims))
        index = slice_index.build_index(objects_.slices, objects_.features)
        try:
            yield Attempt(
                objects=objects_,
                pending=resolve_requests(objects_.claims, objects_.classes, objects_.features),
                nodes=[pools.node_devices(index, node) for node in objects_.nodes],
                in_use=usage.gather_usage(held_claims, objects_.features),
                rules=AllocatorOptions(
                    features=objects_.features, uniform_config_drivers=frozenset({DRIVER})
                ),
            )
        except AttemptFailed:
            continue


def _foreign(claim: ResourceClaim) -> ResourceClaim:
    """The claim under a name and in a namespace that must not be told."""
    name = f"{FOREIGN}-{claim.metadata.name}"
    metadata = msgspec.structs.replace(claim.metadata, namespace=FOREIGN, name=name)
    return msgspec.structs.replace(claim, metadata=metadata)


def unfit(attempt: Attempt) -> Iterator[NodeDevices]:
    """The nodes that provably do not fit the claims."""
    for node in attempt.nodes:
        try:
            outcome = allocate(node, attempt.pending, attempt.in_use, attempt.rules, budget=BUDGET)
        except AttemptFailed:
            continue
        if isinstance(outcome, DoesNotFit):
            yield node


@pytest.mark.parametrize("block", every_second(range(BLOCKS)))
def test_every_rejection_has_a_detail(block: int) -> None:
    number = 0
    for attempt in attempts(block):
        for node in unfit(attempt):
            explanation = explain_node(node, attempt.pending, attempt.in_use, attempt.rules)

            text = summarize(explanation, len(node.devices))
            assert explanation
            assert text
            assert len(text.encode()) <= MAX_SUMMARY
            assert text.isprintable()
            assert FOREIGN not in repr(explanation)
            assert all(0 <= shortage.devices <= len(node.devices) for shortage in explanation)
            number += 1
    assert number > SCENARIOS // BLOCKS // 2


@pytest.mark.parametrize("block", every_second(range(BLOCKS)))
def test_devices_are_counted_once_per_request(block: int) -> None:
    for attempt in attempts(block):
        for node in unfit(attempt):
            counts: dict[tuple[str, str], int] = {}
            for shortage in explain_node(node, attempt.pending, attempt.in_use, attempt.rules):
                key = shortage.claim, shortage.request
                counts[key] = counts.get(key, 0) + shortage.devices
            assert all(count <= len(node.devices) for count in counts.values())


@pytest.mark.parametrize("block", range(0, BLOCKS, 2))
def test_asking_why_changes_nothing(block: int) -> None:
    for attempt in attempts(block):
        before = encode([*attempt.objects.claims, *attempt.objects.slices]), repr(attempt.in_use)
        for node in unfit(attempt):
            first = explain_node(node, attempt.pending, attempt.in_use, attempt.rules)
            again = explain_node(node, attempt.pending, attempt.in_use, attempt.rules)
            outcome = allocate(node, attempt.pending, attempt.in_use, attempt.rules, budget=BUDGET)
            assert first == again
            assert isinstance(outcome, DoesNotFit)
        after = encode([*attempt.objects.claims, *attempt.objects.slices]), repr(attempt.in_use)
        assert before == after


@pytest.mark.parametrize("is_emptied", [False, True], ids=["now", "emptied"])
@pytest.mark.parametrize("block", every_second(range(BLOCKS)))
def test_applying_a_nearest_miss_fits(block: int, *, is_emptied: bool) -> None:
    missed = 0
    for attempt in attempts(block):
        held_usage = Usage() if is_emptied else attempt.in_use
        if len(list(unfit(attempt))) < len(attempt.nodes):
            continue
        before = encode(attempt.objects.claims)
        closest_fit = find_closest_fit(
            attempt.nodes,
            attempt.objects.claims,
            attempt.ask,
            held_usage,
            attempt.rules,
            searches=200,
        )
        assert encode(attempt.objects.claims) == before
        if closest_fit is None:
            continue
        missed += 1
        pending = attempt.ask(closest_fit.claims)
        outcomes = {
            node.node: allocate(node, pending, held_usage, attempt.rules) for node in attempt.nodes
        }
        assert isinstance(outcomes[closest_fit.node], Plan)
        assert FOREIGN not in closest_fit.fix
        assert closest_fit.fix.isprintable()
        assert len(closest_fit.fix.encode()) <= 2 * MAX_SUMMARY
    assert missed > 0


@pytest.mark.parametrize("block", range(0, BLOCKS, 4))
def test_without_a_change_it_fits_already_and_else_it_does_not(block: int) -> None:
    for attempt in attempts(block):
        nodes = list(unfit(attempt))
        if nodes:
            closest_fit = find_closest_fit(
                nodes,
                attempt.objects.claims,
                attempt.ask,
                attempt.in_use,
                attempt.rules,
                searches=200,
            )
            assert closest_fit is None or closest_fit.changes


def cluster_of(attempt: Attempt) -> Cluster:
    """The whole scenario, with as many nodes of each kind again."""
    given_objects = attempt.objects
    return Cluster(
        slices=given_objects.slices,
        nodes=[*given_objects.nodes, *map(_twin, given_objects.nodes)],
        claims=map(_foreign, given_objects.allocated_claims),
        classes=given_objects.classes,
        options=attempt.rules,
    )


def _twin(node: Node) -> Node:
    """A node of another name that sees the devices for all nodes, or for its labels."""
    metadata = msgspec.structs.replace(node.metadata, name=f"{node.metadata.name}-twin")
    return msgspec.structs.replace(node, metadata=metadata)


@pytest.mark.parametrize("block", range(0, BLOCKS, 2))
def test_nodes_that_are_explained_together_have_the_same_explanation_alone(block: int) -> None:
    for attempt in attempts(block):
        cluster = cluster_of(attempt)
        try:
            verdicts = cluster.verdicts(attempt.pending)
        except AttemptFailed:
            continue
        for divide_class_ in divide_classes(verdicts, attempt.pending):
            if isinstance(divide_class_.outcome, DoesNotFit):
                told_values = [
                    _gist(
                        explain_node(
                            cluster.node_devices(name),
                            attempt.pending,
                            cluster.usage,
                            cluster.options,
                        )
                    )
                    for name in divide_class_.nodes
                ]
                assert all(first_values == told_values[0] for first_values in told_values)


def _gist(shortages: Sequence[Shortage]) -> list[tuple[str, str, str, int]]:
    """Shortages but for details, since these may hold values that differ from node to node."""
    return [
        (shortage.claim, shortage.request, shortage.rejection.reason, shortage.devices)
        for shortage in shortages
    ]


@pytest.mark.parametrize("block", range(0, BLOCKS, 2))
def test_applying_what_is_nearest_in_a_cluster_fits(block: int) -> None:
    answered = 0
    for attempt in attempts(block):
        cluster = cluster_of(attempt)
        closest_fit = closest_fit_now(cluster, attempt.objects.claims, searches=100)
        if closest_fit is not None:
            answered += 1
            pending = cluster.resolve(closest_fit.claims)
            assert isinstance(cluster.verdict(pending, closest_fit.node), Plan)
            assert cluster.verdicts(pending).plan(closest_fit.node) is not None
    # Who never answers would promise nothing wrong either.
    assert answered > 10


@example("\x1f", 0, 20)
@example("a\nb", 1, 200)
@given(st.text(max_size=400), st.integers(0, 9), st.integers(20, 200))
def test_summaries_of_any_text_are_one_bounded_line(text: str, devices: int, most: int) -> None:
    line = summarize([_shortage(text, devices)] * 3, 9, most=most)

    assert len(line.encode("utf-8", "strict")) <= most
    assert not line or line.isprintable()


def _shortage(text: str, devices: int) -> Shortage:
    refusal = RejectionReason(reason=Reason.SELECTOR, subject=text)
    return Shortage(claim=text, request=text, rejection=refusal, devices=devices)
