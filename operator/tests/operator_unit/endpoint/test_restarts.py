"""docs/operate/troubleshooting.md: an engine that was ready and ends three times, within ten minutes each, is a `RestartStorm`.

It is noon; an engine ran from `began` to `ended`, minutes before. Statuses are as the kubelet writes them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.causes import find_cause
from llmendpoint_operator.core.endpoint.restarts import calm_after, find_storm

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(minutes: float) -> str:
    return (NOON - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    restarts: int = 3, began: float = 4, ended: float = 1, ready: bool = True, code: int = 1
) -> dict[str, Any]:
    last = {"exitCode": code, "message": '{"event": "CUDA error: unspecified launch failure"}',
            "startedAt": ago(began), "finishedAt": ago(ended)}  # fmt: skip
    status = {
        "name": "engine", "restartCount": restarts, "state": {"running": {"startedAt": ago(ended)}},
        "lastState": {"terminated": last},
    }  # fmt: skip
    conditions = [
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": ago(ended)},
        {"type": "Initialized", "status": "True", "lastTransitionTime": ago(60)},
    ]
    found = {"phase": "Running", "conditions": conditions, "containerStatuses": [status]}
    return {"metadata": {"name": "chat-abc-1"}, "spec": {"containers": [{"name": "engine"}]}, "status": found}


@pytest.mark.parametrize("ready", [True, False])
def test_an_engine_that_restarts_again_and_again_is_named_with_its_last_line_ready_or_not(
    ready: bool,
) -> None:
    storm = find_storm([pod(ready=ready)], NOON)
    assert storm is not None
    assert (storm.reason, storm.permanent) == ("RestartStorm", False)
    assert "chat-abc-1" in storm.message
    assert "CUDA error: unspecified launch failure" in storm.message


def test_the_message_stays_as_it_is_while_the_engine_goes_on_restarting() -> None:
    again = pod(restarts=9, began=2, ended=0.5, ready=False)
    assert find_storm([pod()], NOON) == find_storm([again], NOON)


@pytest.mark.parametrize(
    "calm",
    [
        pod(restarts=2),
        pod(ended=11),
        pod(began=60, ended=1),
        pod(code=3),
        {**pod(), "metadata": {"name": "x", "deletionTimestamp": ago(1)}},
    ],
    ids=["twice only", "long ago", "after an hour of work", "a cause that is permanent", "on its way out"],
)
def test_what_is_no_storm(calm: dict[str, Any]) -> None:
    assert find_storm([calm], NOON) is None


def test_a_pod_that_never_was_ready_has_its_own_cause_and_is_no_storm() -> None:
    never = pod(ready=False)
    never["status"]["conditions"][0]["lastTransitionTime"] = ago(61)
    assert find_storm([never], NOON) is None
    cause = find_cause(None, [never])
    assert cause is not None
    assert cause.reason == "EngineCrashed"


def test_a_storm_is_over_ten_minutes_after_the_last_end() -> None:
    assert calm_after([pod(ended=1), pod(ended=4, began=6)], NOON) == 6 * 60
    assert calm_after([pod(ended=11)], NOON) is None
