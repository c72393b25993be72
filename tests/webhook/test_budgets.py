"""The budgets of a user and a namespace for the event loop."""

from typing import Final

import pytest

from kube.api.admission import AdmissionRequest
from kube.api.meta import convert
from webhook.budgets import MAX_KEYS, ReviewBudgets

OPERATOR: Final = "system:serviceaccount:kubeflow:training-operator"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def review(user: str = "mallory", namespace: str = "team-a") -> AdmissionRequest:
    return convert(
        {"uid": "1", "namespace": namespace, "userInfo": {"username": user}}, AdmissionRequest
    )


def budgets(clock: Clock) -> ReviewBudgets:
    """Return budgets of a webhook that has been busy with others."""
    review_budgets = ReviewBudgets(0.25, 2.0, clock=clock)
    review_budgets.charge(review("others", "others"), 100.0)
    return review_budgets


def test_who_has_used_it_up_waits_and_others_do_not() -> None:
    clock = Clock()
    of_all = budgets(clock)
    of_all.charge(review(namespace="a"), 2.5)

    assert not of_all.allows(review(namespace="b"))
    assert not of_all.allows(review("alice", "a"))
    assert of_all.allows(review("alice", "b"))


def test_where_there_is_time_for_everybody_nobody_waits() -> None:
    """Strangers may write any namespace into a review, and so use up the time of others."""
    of_all = ReviewBudgets(0.25, 2.0, clock=Clock())
    of_all.charge(review(), 1.9)

    assert of_all.allows(review())
    of_all.charge(review(), 0.2)
    assert not of_all.allows(review())
    assert of_all.allows(review("alice", "b"))


def test_it_refills_with_time_and_a_debt_is_bounded() -> None:
    clock = Clock()
    of_all = budgets(clock)
    of_all.charge(review(), 1000.0)
    allowed = []
    for clock.now_s in (3.9, 8.1):
        of_all.charge(review("others", "others"), 100.0)
        allowed.append(of_all.allows(review()))

    assert allowed == [False, True]


def test_it_never_holds_more_than_a_burst() -> None:
    clock = Clock()
    of_all = budgets(clock)
    of_all.charge(review(), 0.1)
    clock.now_s = 1e6
    of_all.charge(review("others", "others"), 100.0)
    of_all.charge(review(), 2.1)

    assert not of_all.allows(review())


def test_a_controller_that_creates_pods_for_everybody_is_counted_by_namespace() -> None:
    of_all = budgets(Clock())
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    of_all.charge(review(controller, "a"), 3.0)

    assert not of_all.allows(review(controller, "a"))
    assert of_all.allows(review(controller, "b"))


@pytest.mark.parametrize(
    ("user", "charged", "namespace", "is_allowed"),
    [
        pytest.param(OPERATOR, "team-a", "team-b", True, id="a job of another tenant"),
        pytest.param(OPERATOR, "team-a", "team-a", False, id="another job of the tenant"),
        pytest.param(OPERATOR, "team-a", "kubeflow", True, id="a job of its own namespace"),
        pytest.param(OPERATOR, "kubeflow", "team-a", True, id="its own namespace is used up"),
        pytest.param(OPERATOR, "kubeflow", "", False, id="slices count for their author"),
        pytest.param(OPERATOR, "", "", False, id="slices, again"),
        pytest.param("alice", "team-a", "team-b", False, id="a person counts everywhere"),
        pytest.param(
            "system:serviceaccount:team:a", "team-a", "team-b", True, id="names that begin alike"
        ),
    ],
)
def test_an_operator_in_the_namespace_of_others_is_counted_by_namespace(
    user: str, charged: str, namespace: str, is_allowed: bool
) -> None:
    of_all = budgets(Clock())
    of_all.charge(review(user, charged), 3.0)

    assert of_all.allows(review(user, namespace)) is is_allowed


@pytest.mark.parametrize("namespace", ["team-a", "team-b"])
def test_an_operator_uses_up_the_time_of_the_namespace(namespace: str) -> None:
    of_all = budgets(Clock())
    of_all.charge(review(OPERATOR, "team-a"), 3.0)

    assert of_all.allows(review("alice", namespace)) is (namespace != "team-a")


def test_strangers_cannot_fill_the_memory_with_names() -> None:
    of_all = budgets(Clock())
    for number in range(2 * MAX_KEYS):
        of_all.charge(review(str(number) * 1000, ""), 0.0)

    assert len(of_all) <= MAX_KEYS
