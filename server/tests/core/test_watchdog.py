"""docs/contribute/contracts.md: an engine is stuck after `--step-timeout` without a word, or without a step for its requests.

Times are seconds, the limit is 10.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core.watchdog import Watchdog

LIMIT = 10.0


def ready() -> Watchdog:
    watchdog = Watchdog(LIMIT)
    watchdog.start(0)
    return watchdog


def test_an_engine_that_loads_for_an_hour_is_not_stuck() -> None:
    watchdog = Watchdog(LIMIT)
    watchdog.hear(1)
    assert watchdog.stuck(3600) is None


def test_silence_is_stuck_at_the_limit_with_or_without_requests() -> None:
    for requests in (0, 3):
        watchdog = ready()
        watchdog.count(1, requests, 0)
        assert watchdog.stuck(9.9) is None
        assert "said nothing for more than 10 s" in str(watchdog.stuck(10))


def test_an_engine_that_beats_without_a_step_is_stuck_while_requests_are_with_it() -> None:
    watchdog = ready()
    for now in range(1, 20):
        watchdog.hear(now)
        watchdog.count(7, 2, now)
        assert (watchdog.stuck(now) is None) == (now < 11), now  # the first count, at 1 s, brought the work
    assert "no step" in str(watchdog.stuck(19))


def test_an_idle_engine_that_beats_is_never_stuck() -> None:
    watchdog = ready()
    for now in range(1, 100):
        watchdog.hear(now)
        watchdog.count(7, 0, now)
        assert watchdog.stuck(now) is None


def test_time_without_work_does_not_count_against_the_next_request() -> None:
    watchdog = ready()
    for now, requests in ((1, 0), (50, 0), (51, 1)):
        watchdog.hear(now)
        watchdog.count(7, requests, now)
    assert watchdog.stuck(60) is None


def test_a_stuck_engine_that_steps_again_is_well() -> None:
    watchdog = ready()
    watchdog.count(1, 1, 1)
    assert watchdog.stuck(30) is not None
    watchdog.hear(31)
    watchdog.count(2, 1, 31)
    assert watchdog.stuck(31) is None


@given(st.lists(st.floats(0.01, 9.9), max_size=50))
def test_a_long_prefill_whose_every_step_is_shorter_than_the_limit_is_never_stuck(steps: list[float]) -> None:
    watchdog, now = ready(), 0.0
    for number, seconds in enumerate(steps):
        assert watchdog.stuck(now + seconds * 0.99) is None
        now += seconds
        watchdog.hear(now)
        watchdog.count(number, 1, now)
        assert watchdog.stuck(now) is None
