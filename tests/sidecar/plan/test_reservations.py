"""Reservations arrive twice, late and out of order; the ones in force are the same."""

import itertools

from sidecar.model.protocol import HelloRequest, Request, Reservation
from sidecar.model.reservations import Reservations, accept, finish, greet


def reservation(number: int, pod: str = "", node: str = "node-1") -> Reservation:
    return Reservation(number=number, pod_uid=pod or f"pod-{number}", node=node)


def request(*numbers: int, unreserved: tuple[int, ...] = ()) -> Request:
    return Request(reservations=tuple(map(reservation, numbers)), unreserved=unreserved)


def after(*requests: Request) -> Reservations:
    known = Reservations(scheduler="scheduler")
    for request_ in requests:
        known, _ = accept(known, request_)
    return known


def in_force(known: Reservations) -> set[int]:
    return {reservation_.number for reservation_ in known.by_pod.values()}


def test_a_reservation_counts_once_however_often_it_arrives() -> None:
    known, difference = accept(after(request(1)), request(1, 2))

    assert [reservation_.number for reservation_ in difference.begun] == [2]
    assert known.acknowledged == 2


def test_a_late_request_does_not_bring_back_what_was_given_up() -> None:
    known = after(request(1, 2), request(2, unreserved=(2,)), request(1, 2))

    assert in_force(known) == {1}


def test_a_reservation_that_was_given_up_before_it_arrived_never_counts() -> None:
    known = after(request(1, unreserved=(1,)), request(1))

    assert in_force(known) == set()
    assert known.acknowledged == 1


def test_a_pod_that_is_reserved_again_gives_up_the_reservation_before() -> None:
    known = after(request(1))
    again = Request(reservations=(reservation(2, "pod-1", "node-2"),))

    known, difference = accept(known, again)

    assert [reservation_.number for reservation_ in difference.ended] == [1]
    assert in_force(known) == {2}


def test_any_order_of_arrival_ends_alike() -> None:
    """Each request carries the changes that were not acknowledged when it was sent, as the plugin does."""
    sent = (
        request(1),
        request(1, 2),
        request(1, 2, 3, unreserved=(2,)),
        request(3, unreserved=(1,)),
    )
    # The last two were sent after all that came before was answered or is repeated in them.
    for order in itertools.permutations(sent):
        assert in_force(after(*order, *sent[2:])) == {3}, order


def test_a_new_scheduler_replaces_the_reservations_of_the_one_before() -> None:
    known = after(request(1, 2))
    hello = HelloRequest(
        scheduler="next", reservations=(reservation(1, "pod-2"), reservation(4, "pod-4"))
    )

    known, difference = greet(known, hello)

    assert in_force(known) == {1, 4}
    assert [reservation_.pod_uid for reservation_ in difference.ended] == ["pod-1"]
    assert [reservation_.pod_uid for reservation_ in difference.begun] == ["pod-4"]
    assert known.acknowledged == 4


def test_a_heartbeat_drops_nothing() -> None:
    known = after(request(1, 2))

    assert greet(known, HelloRequest(scheduler="scheduler"))[0] is known


def test_a_pod_that_is_bound_needs_no_reservation_any_more() -> None:
    known = finish(after(request(1, 2)), "pod-1")

    assert in_force(known) == {2}
    assert in_force(accept(known, request(1, 2))[0]) == {2}
    assert finish(known, "pod-1") is known
