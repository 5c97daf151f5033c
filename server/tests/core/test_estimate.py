"""docs/contribute/contracts.md: the `Retry-After` of a 429 is how long it takes until a place is free."""

import pytest

from llmendpoint_server.core.estimate import MAX_RETRY_AFTER, MIN_RETRY_AFTER, Lives, place_wait, retry_after

ENDLESS = 10**9


def after(running: int, seconds_between_ends: int, ends: int, step: float = 1.0) -> Lives:
    """A batch that is always full, and in which one request ends every so many seconds."""
    lives = Lives()
    for _ in range(ends):
        for _ in range(int(seconds_between_ends / step)):
            lives.observe(running, step)
        lives.end()
    return lives


@pytest.mark.parametrize(("running", "between"), [(1, 8), (4, 8), (16, 3), (256, 2)])
def test_the_time_to_the_next_place_is_the_time_between_two_ends(running: int, between: int) -> None:
    lives = after(running, between, ends=100)
    assert lives.mean_life == pytest.approx(running * between)
    assert place_wait(lives.mean_life, running, ENDLESS, 1.0) == pytest.approx(between)


def test_what_was_seen_with_few_running_holds_for_a_full_batch() -> None:
    alone = after(1, 8, ends=20)  # lives of 8 s, one at a time
    assert place_wait(alone.mean_life, 4, ENDLESS, 1.0) == pytest.approx(2)


def test_before_anything_has_ended_it_is_as_long_again_as_the_running_ones_are_old() -> None:
    lives = Lives()
    assert place_wait(lives.mean_life, 4, ENDLESS, 0.0) == 0
    for _ in range(10):
        lives.observe(4, 1.0)
    assert place_wait(lives.mean_life, 4, ENDLESS, 1.0) == pytest.approx(10)


def test_answers_that_grow_longer_are_noticed_before_one_of_them_ends() -> None:
    lives = after(2, 2, ends=2)
    for _ in range(30):
        lives.observe(2, 1.0)
    assert place_wait(lives.mean_life, 2, ENDLESS, 1.0) == pytest.approx((2 * 2 + 30) / 2)


def test_old_lives_are_forgotten() -> None:
    lives = after(1, 40, ends=10)
    for _ in range(64):
        lives.observe(1, 1.0)
        lives.end()
    assert place_wait(lives.mean_life, 1, ENDLESS, 1.0) == pytest.approx(1)


def test_a_request_that_is_about_to_reach_its_limit_bounds_the_wait() -> None:
    lives = after(4, 16, ends=10, step=0.5)
    assert lives.step_seconds == pytest.approx(0.5)
    assert place_wait(lives.mean_life, 4, 6, lives.step_seconds) == pytest.approx(3)


def test_it_stays_within_its_bounds() -> None:
    assert retry_after(10.0**9) == MAX_RETRY_AFTER
    assert retry_after(0.001) == MIN_RETRY_AFTER


def test_a_request_with_others_before_it_waits_for_an_end_each() -> None:
    lives = after(4, 3, ends=100)
    assert place_wait(lives.mean_life, 4, ENDLESS, 1.0, places=5) == pytest.approx(15)
    assert place_wait(lives.mean_life, 4, 1, 1.0, places=5) == pytest.approx(13)


def test_there_is_no_wait_for_a_place_that_is_free() -> None:
    assert place_wait(10.0, 4, 10, 1.0, places=0) == 0
    assert place_wait(10.0, 0, 0, 1.0) == 0
