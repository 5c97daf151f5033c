"""docs/guides/roll-out.md: while a revision is observed, `rollout status` says how far the verdict is, and never floods."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from llmendpoint_cli import rollout
from llmendpoint_cli.__main__ import app
from llmendpoint_cli.core.observed import ASCII, is_news, observation_lines, observation_of
from llmendpoint_cli.core.tree import view_endpoint

from .samples import Json, rolling, serving

ERRORS = "error rate 1.0% (3 of 312 requests); limit 2.0%"
SLOW = "time to first token p95 1.2 s; limit 2 s"


def observed(**more: Any) -> Json:
    return {
        "requests": 312,
        "errors": 3,
        "seconds": 31.5,
        "expectedRequests": 480,
        "expectedSeconds": 40,
        "limits": [
            {"field": "spec.rollout.observe.errorRate.max", "broken": 0.12, "kept": 0.8, "said": ERRORS},
            {"field": "spec.slo.ttftSeconds", "broken": 0.0, "kept": 0.95, "said": SLOW},
        ],
        "history": [{"seconds": 10 * n, "broken": 0.03 * n, "kept": 0.2 * n} for n in range(5)],
        **more,
    }


def observing(**more: Any) -> Json:
    found = rolling("Observing", weights=(75, 25))
    found["status"]["rollout"]["observation"] = observed(**more)
    return found


def test_requests_time_and_evidence_are_one_line_and_each_limit_another() -> None:
    assert observation_lines(observed()) == (
        "312 of about 480 requests, about 40 s left; evidence to roll back 12% ▁▁▁▁▁, to confirm 80% ▁▂▄▅▇",
        ERRORS,
        SLOW,
    )


def test_the_tree_of_status_says_how_far_the_verdict_is() -> None:
    view = view_endpoint(observing(), []).rollout
    assert view is not None
    assert view.observed == "312 of about 480 requests, about 40 s left"
    other = view_endpoint(rolling("Draining"), []).rollout
    assert other is not None
    assert other.observed == ""


def test_what_is_not_foreseen_is_not_said() -> None:
    unknown = observed(expectedRequests=None, expectedSeconds=None, history=[])
    assert observation_lines(unknown)[0] == "312 requests; evidence to roll back 12%, to confirm 80%"
    assert observation_lines({}) == ("0 requests",)


def test_a_course_is_short_and_ends_with_what_is_now() -> None:
    history = [{"seconds": n, "broken": 0, "kept": n / 31} for n in range(32)]
    kept = observation_lines(observed(history=history))[0].rpartition(" ")[2]
    assert len(kept) == 16
    assert kept[-1] == "█"


def test_a_terminal_without_blocks_gets_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert observation_lines(observed(), ASCII)[0].isascii()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert rollout._symbols() == ASCII


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"requests": 330, "seconds": 33.0}, False),
        ({"seconds": 41.6}, True),
        ({"seconds": 1.0}, True),
        ({"limits": [{"broken": 0.3, "kept": 0.8}]}, True),
        ({"limits": [{"broken": 0.12, "kept": 0.85}]}, False),
    ],
)
def test_a_reader_hears_of_a_tenth_of_the_evidence_or_of_ten_seconds(change: Json, news: bool) -> None:
    assert is_news(observed(**change), observed()) is news
    assert is_news(observed(), None)
    assert not is_news(None, None)


def test_an_operator_that_writes_no_observation_is_followed_as_before() -> None:
    assert observation_of(rolling("Observing")) is None
    done = observing()
    done["status"]["rollout"]["state"] = "Idle"
    assert observation_of(done) is None


def follow(monkeypatch: pytest.MonkeyPatch, states: list[Json], *options: str) -> list[str]:
    monkeypatch.setattr(rollout, "readings", lambda *_: iter(states))
    monkeypatch.setattr(rollout, "Session", lambda *_: SimpleNamespace(namespace="team-a"))
    result = CliRunner().invoke(app, ["rollout", "status", "chat", *options])
    assert result.exception is None, result.output
    return result.output.splitlines()


def test_following_prints_the_step_once_and_then_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    later = {"requests": 420, "seconds": 45.0, "expectedSeconds": 12}
    states = [observing(), observing(requests=320, seconds=33.0), observing(**later), serving()]
    lines = follow(monkeypatch, states)
    assert len(lines) == 8
    assert "Observing: revision" in lines[0]
    assert lines[1].strip().startswith("312 of about 480 requests, about 40 s left")
    assert [line.strip() for line in lines[2:4]] == [ERRORS, SLOW]
    assert "Observing: 420 of about 480 requests, about 12 s left" in lines[4]
    assert "done:" in lines[7]


def test_json_has_the_observation_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = (json.loads(line) for line in follow(monkeypatch, [observing(), serving()], "-o", "json"))
    assert first["observation"] == observed()
    assert "observation" not in last
