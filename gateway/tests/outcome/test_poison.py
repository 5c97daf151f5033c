"""docs/concepts/gateway.md: a request that was in flight at two replicas when they went away within five minutes is refused."""

import sys

from llmendpoint_gateway.core.outcome.poison import (
    MOST_CRASHES,
    MOST_OF_ONE,
    MOST_PRINTS,
    REMEMBERED_SECONDS,
    SAME_SECONDS,
    Poison,
)

E, OTHER, x = "team/chat", "team/other", 7
A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def test_a_request_whose_retry_crashed_too_is_refused_for_five_minutes() -> None:
    poison = Poison()
    assert not poison.crashed(E, x, A, 0.0, again=False)
    assert poison.suspected(E, x)
    assert not poison.refused(E, x, 0.1)
    assert poison.crashed(E, x, B, 0.2, again=True)
    assert poison.refused(E, x, 3.0)
    assert poison.refused(E, x, REMEMBERED_SECONDS - 1)
    assert not poison.refused(E, x, REMEMBERED_SECONDS)  # the first is forgotten: it may try again
    assert poison.suspected(E, x)
    assert not poison.refused(E, x, REMEMBERED_SECONDS + 1)
    assert not poison.suspected(E, x)


def test_one_that_comes_back_and_crashes_its_replica_again_is_refused() -> None:
    poison = Poison()
    poison.crashed(E, x, A, 0.0, again=False)
    assert poison.crashed(E, x, A, SAME_SECONDS + 1, again=False)
    assert poison.refused(E, x, SAME_SECONDS + 1)


def test_copies_of_one_request_that_were_in_flight_together_are_one_crash_wherever_they_were() -> None:
    poison = Poison()
    for address in (A, A, B, A, B):
        assert not poison.crashed(E, x, address, 0.0, again=False)
    assert not poison.crashed(E, x, A, 0.1, again=True)  # a retry at a replica that was down already
    assert not poison.refused(E, x, 0.1)
    assert poison.crashed(E, x, C, 0.2, again=True)


def test_crashes_that_are_five_minutes_apart_have_nothing_to_do_with_each_other() -> None:
    poison = Poison()
    poison.crashed(E, x, A, 0.0, again=False)
    assert not poison.crashed(E, x, B, REMEMBERED_SECONDS, again=True)
    assert not poison.refused(E, x, REMEMBERED_SECONDS)


def test_an_answer_clears_who_was_only_near() -> None:
    poison = Poison()
    poison.crashed(E, x, A, 0.0, again=False)
    poison.answered(E, x)
    poison.crashed(E, x, B, 3.0, again=False)
    assert not poison.refused(E, x, 3.0)


def test_what_crashes_one_endpoint_is_no_suspect_at_another() -> None:
    """Somebody may send another's health check to an endpoint of its own, which it makes crash."""
    poison = Poison()
    poison.crashed(E, x, A, 0.0, again=False)
    assert poison.crashed(E, x, B, 0.2, again=True)
    assert poison.refused(E, x, 1.0)
    assert not poison.refused(OTHER, x, 1.0)
    assert not poison.suspected(OTHER, x)


def test_an_endpoint_with_too_many_suspects_forgets_its_own_oldest_and_no_others() -> None:
    poison = Poison()
    poison.crashed(OTHER, x, A, 0.0, again=False)
    for number in range(2 * MOST_OF_ONE):
        poison.crashed(E, number, A, 0.0, again=False)
    assert len(poison) == MOST_OF_ONE + 1
    assert not poison.suspected(E, 0)
    assert poison.suspected(E, 2 * MOST_OF_ONE - 1)
    assert poison.suspected(OTHER, x)


def test_with_too_many_suspects_in_all_the_endpoint_with_the_most_forgets_its_oldest() -> None:
    poison = Poison()
    poison.crashed(OTHER, x, A, 0.0, again=False)
    for endpoint in range(2 * MOST_PRINTS // MOST_OF_ONE):
        for number in range(MOST_OF_ONE):
            poison.crashed(f"team/{endpoint}", number, A, 0.0, again=False)
    assert len(poison) == MOST_PRINTS
    assert poison.suspected(OTHER, x)


def test_a_request_that_crashes_again_and_again_takes_no_more_room() -> None:
    poison = Poison()
    for number in range(1000):
        poison.crashed(E, x, f"10.0.0.{number}:8000", number * 0.1, again=True)
    assert len(poison) == 1
    assert len(poison._suspects[E][x]) <= MOST_CRASHES


def test_two_replicas_that_crash_under_hundreds_of_requests_leave_all_of_them_suspects() -> None:
    poison = Poison()
    for number in range(512):
        poison.crashed(E, number, A, 0.0, again=False)
    for number in range(512, 1024):
        poison.crashed(E, number, B, 3.0, again=False)
    assert poison.crashed(E, 0, C, 6.0, again=False)
    assert poison.refused(E, 0, 6.0)


def bytes_of(found: object) -> int:
    """With all that it holds; what is held twice counts twice."""
    inner: list[object] = []
    if isinstance(found, dict):
        inner = [*found, *found.values()]
    elif isinstance(found, list | tuple):
        inner = [*found]
    return sys.getsizeof(found) + sum(map(bytes_of, inner))


def test_all_suspects_with_all_their_crashes_take_some_megabytes() -> None:
    poison = Poison()
    for endpoint in range(2 * MOST_PRINTS // MOST_OF_ONE):
        for number in range(MOST_OF_ONE):
            for crash in range(MOST_CRASHES):
                address = f"[2001:db8:ffff:ffff:ffff:ffff:ffff:{crash:04x}]:65535"
                poison.crashed(f"team/{endpoint}", (1 << 63) + number, address, crash * 9.0, again=False)
    assert len(poison) == MOST_PRINTS
    # Of each crash a tuple, a float and an address; the list, the print and its place.
    of_one = MOST_CRASHES * (56 + 24 + 100) + 500
    assert bytes_of(poison._suspects) < MOST_PRINTS * of_one < 8 << 20


def test_suspects_of_an_endpoint_that_is_gone_are_forgotten() -> None:
    poison = Poison()
    poison.crashed(E, x, A, 0.0, again=False)
    poison.forget(E)
    assert len(poison) == 0
    assert not poison.suspected(E, x)
