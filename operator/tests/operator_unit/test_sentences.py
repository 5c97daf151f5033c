"""docs/operate/troubleshooting.md: a message that is longer than the status takes is cut, and holds nothing up."""

from __future__ import annotations

import pytest

from llmendpoint_operator.core.endpoint.conditions import Condition
from llmendpoint_operator.core.endpoint.snapshot import Refusal
from llmendpoint_operator.core.rollout.records import Progress, Rejected, parse_progress
from llmendpoint_operator.core.sentences import SENTENCE_LIMIT, latency_text

from .fake_cluster import FakeCluster
from .rollout_stage import Rollout

LONG = "a policy says no, " * 300


def test_a_long_refusal_is_shown_as_far_as_the_status_takes_it() -> None:
    cluster = FakeCluster(refusal=Refusal("Deployment chat", LONG))
    cluster.settle()
    for kind in ("Ready", "Degraded", "Stalled"):
        message = cluster.condition(kind)["message"]
        assert len(message) == SENTENCE_LIMIT
        assert message.startswith("the API server refuses Deployment chat: a policy says no")
        assert message.endswith("…")


def test_a_short_sentence_stays_as_it_is() -> None:
    assert Condition("Ready", "True", "Serving", "all is well").as_json(1, "t")["message"] == "all is well"


def test_progress_and_a_rejection_are_cut_too() -> None:
    it = Rollout()
    it.edit()
    state = parse_progress(it.cluster.status, it.blue).state
    assert len(Progress(state, it.blue, "g", message=LONG).as_json()["message"]) == SENTENCE_LIMIT
    assert len(Rejected("g", "VerificationFailed", LONG, "t").as_json()["message"]) == SENTENCE_LIMIT
    assert "message" not in Progress(state, it.blue, "g").as_json()


def test_a_hundred_late_gateways_do_not_stop_the_switch_from_being_written() -> None:
    it = Rollout()
    green = it.edit()
    it.cluster.make_ready(green)
    it.cluster.gateways = dict.fromkeys((f"llmendpoint-gateway-{i:04}" for i in range(200)), None)
    it.work()
    assert it.work(11) == "Observing"
    assert len(it.cluster.status["rollout"]["message"]) <= SENTENCE_LIMIT


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.0312, "31 ms"), (0.45, "450 ms"), (0.9994, "999 ms"), (0.9996, "1 s"), (1.2, "1.2 s"),
        (1.25, "1.25 s"), (12.345, "12.3 s"), (99.96, "100 s"), (600.0, "600 s"), (3600.0, "3600 s"),
    ],
)  # fmt: skip
def test_a_latency_is_in_milliseconds_below_a_second_and_in_seconds_from_there(
    seconds: float, text: str
) -> None:
    assert latency_text(seconds) == text
