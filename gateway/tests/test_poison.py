"""Which requests are not placed any more."""

from llmendpoint_gateway.core.poison import MOST_PRINTS, REMEMBERED_SECONDS, SAME_SECONDS, Poison

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


def test_a_request_that_was_there_at_two_crashes_is_refused_for_five_minutes() -> None:
    poison = Poison()
    assert not poison.crashed("x", A, 0.0)
    assert poison.suspected("x")
    assert not poison.refused("x", 1.0)
    assert poison.crashed("x", B, 2.0)
    assert poison.refused("x", 3.0)
    assert poison.refused("x", REMEMBERED_SECONDS - 1)
    assert not poison.refused("x", REMEMBERED_SECONDS)  # the first is forgotten: it may try again
    assert poison.suspected("x")
    assert not poison.refused("x", REMEMBERED_SECONDS + 2)
    assert not poison.suspected("x")


def test_copies_of_one_request_at_one_crash_are_one_and_a_crash_of_the_same_replica_later_another() -> None:
    poison = Poison()
    for _ in range(5):
        poison.crashed("x", A, 0.0)
    assert not poison.refused("x", 0.0)
    poison.crashed("x", A, SAME_SECONDS + 0.1)
    assert poison.refused("x", 2.0)


def test_crashes_that_are_five_minutes_apart_have_nothing_to_do_with_each_other() -> None:
    poison = Poison()
    poison.crashed("x", A, 0.0)
    poison.crashed("x", B, REMEMBERED_SECONDS)
    assert not poison.refused("x", REMEMBERED_SECONDS)


def test_an_answer_clears_who_was_only_near() -> None:
    poison = Poison()
    poison.crashed("x", A, 0.0)
    poison.answered("x")
    poison.crashed("x", B, 2.0)
    assert not poison.refused("x", 2.0)


def test_the_longest_known_suspects_are_forgotten_when_there_are_too_many() -> None:
    poison = Poison()
    for number in range(MOST_PRINTS + 10):
        poison.crashed(str(number), A, 0.0)
    assert len(poison) == MOST_PRINTS
    assert not poison.suspected("0")
    assert poison.suspected(str(MOST_PRINTS))
