"""Which requests are not placed any more."""

from llmendpoint_gateway.core.poison import MOST_PRINTS, REMEMBERED_SECONDS, SAME_SECONDS, Poison

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def test_a_request_whose_retry_crashed_too_is_refused_for_five_minutes() -> None:
    poison = Poison()
    assert not poison.crashed("x", A, 0.0, again=False)
    assert poison.suspected("x")
    assert not poison.refused("x", 0.1)
    assert poison.crashed("x", B, 0.2, again=True)
    assert poison.refused("x", 3.0)
    assert poison.refused("x", REMEMBERED_SECONDS - 1)
    assert not poison.refused("x", REMEMBERED_SECONDS)  # the first is forgotten: it may try again
    assert poison.suspected("x")
    assert not poison.refused("x", REMEMBERED_SECONDS + 1)
    assert not poison.suspected("x")


def test_one_that_comes_back_and_crashes_its_replica_again_is_refused() -> None:
    poison = Poison()
    poison.crashed("x", A, 0.0, again=False)
    assert poison.crashed("x", A, SAME_SECONDS + 1, again=False)
    assert poison.refused("x", SAME_SECONDS + 1)


def test_copies_of_one_request_that_were_in_flight_together_are_one_crash_wherever_they_were() -> None:
    poison = Poison()
    for address in (A, A, B, A, B):
        assert not poison.crashed("x", address, 0.0, again=False)
    assert not poison.crashed("x", A, 0.1, again=True)  # a retry at a replica that was down already
    assert not poison.refused("x", 0.1)
    assert poison.crashed("x", C, 0.2, again=True)


def test_crashes_that_are_five_minutes_apart_have_nothing_to_do_with_each_other() -> None:
    poison = Poison()
    poison.crashed("x", A, 0.0, again=False)
    assert not poison.crashed("x", B, REMEMBERED_SECONDS, again=True)
    assert not poison.refused("x", REMEMBERED_SECONDS)


def test_an_answer_clears_who_was_only_near() -> None:
    poison = Poison()
    poison.crashed("x", A, 0.0, again=False)
    poison.answered("x")
    poison.crashed("x", B, 3.0, again=False)
    assert not poison.refused("x", 3.0)


def test_the_longest_known_suspects_are_forgotten_when_there_are_too_many() -> None:
    poison = Poison()
    for number in range(MOST_PRINTS + 10):
        poison.crashed(str(number), A, 0.0, again=False)
    assert len(poison) == MOST_PRINTS
    assert not poison.suspected("0")
    assert poison.suspected(str(MOST_PRINTS))
