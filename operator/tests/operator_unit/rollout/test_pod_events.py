"""docs/concepts/rollouts.md: what an autoscaler says of a pod that waits is asked for few pods and in turns of namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Snapshot
from llmendpoint_operator.core.rollout.prospects import Prospect, Told
from llmendpoint_operator.errors import ApiError
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.observe.rollout import prospects as pod_events
from llmendpoint_operator.observe.rollout.prospects import PodEvents

from ..evidence_stage import until
from ..fake_cluster import make_spec
from ..room_stage import FULL


class FakeApi:
    """Knows what is said of each pod; an exception is raised."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.asked: list[str] = []

    async def events_of_pod(self, namespace: str, pod: str) -> tuple[Any, ...]:
        self.asked.append(f"{namespace}/{pod}")
        found = self.said.get(pod, ())
        if isinstance(found, Exception):
            raise found
        return tuple(found)


@pytest.fixture
async def asking(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeApi, PodEvents, list[Any]]]:
    monkeypatch.setattr(pod_events, "PAUSE_S", 0.0)
    monkeypatch.setattr(pod_events, "AGAIN_S", 0.2)
    api, woken = FakeApi(), cast(list[Any], [])
    events = PodEvents(cast(KubeApi, api), woken.append)
    task = asyncio.create_task(events.run())
    yield api, events, woken
    task.cancel()


def snapshot(namespace: str, name: str, *pods: str, ready: bool = False) -> Snapshot:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}, *([] if ready else [FULL])]
    made = tuple(
        {"metadata": {"name": pod}, "spec": {}, "status": {"conditions": conditions}} for pod in pods
    )
    endpoint = Endpoint(namespace, name, f"{namespace}-{name}", 1, "1", False, make_spec())
    return Snapshot(endpoint, None, pods={"green": made})


def look(events: PodEvents, seen: Snapshot) -> Mapping[str, Told]:
    """As a reconcile does: what is known now, with the rest being asked."""
    events.update(seen)
    return events.of((seen.endpoint.namespace, seen.endpoint.name))


Asking = tuple[FakeApi, PodEvents, list[Any]]


async def test_what_an_autoscaler_says_wakes_the_endpoint(asking: Asking) -> None:
    api, events, woken = asking
    waits = snapshot("team-a", "chat", "p-1")
    assert look(events, waits) == {}
    await until(lambda: woken == [("team-a", "chat")])
    assert look(events, waits) == {"p-1": Told()}
    api.said["p-1"] = [{"reason": "NotTriggerScaleUp", "lastTimestamp": "2026-01-01T00:00:00Z"}]
    await until(lambda: len(woken) == 2)
    assert look(events, waits)["p-1"].prospect is Prospect.NONE


async def test_nobody_is_asked_about_pods_that_do_not_wait(asking: Asking) -> None:
    api, events, _ = asking
    assert look(events, snapshot("team-a", "chat", "p-1", ready=True)) == {}
    await asyncio.sleep(0.05)
    assert api.asked == []


async def test_of_many_pods_of_an_endpoint_two_are_asked_about(asking: Asking) -> None:
    api, events, woken = asking
    look(events, snapshot("team-a", "chat", *(f"p-{number}" for number in range(50))))
    await until(lambda: bool(woken))
    assert set(api.asked) == {"team-a/p-0", "team-a/p-1"}


async def test_what_cannot_be_asked_or_understood_counts_as_silence(asking: Asking) -> None:
    api, events, _ = asking
    api.said = {"p-1": ApiError(403, "forbidden", "GET events"), "p-2": [7]}
    waits = snapshot("team-a", "chat", "p-1", "p-2")
    await until(lambda: look(events, waits) == {"p-1": Told(), "p-2": Told()})


async def test_a_namespace_full_of_waiting_pods_takes_one_turn_of_two(asking: Asking) -> None:
    api, events, _ = asking
    for number in range(200):
        look(events, snapshot("attacker", f"e-{number}", f"a-{number}"))
    for number in range(3):
        look(events, snapshot("team-a", f"e-{number}", f"p-{number}"))
    await until(lambda: len([asked for asked in api.asked if asked.startswith("team-a/")]) == 3)
    assert sum(asked.startswith("team-a/") for asked in api.asked[:6]) == 3


async def test_who_is_forgotten_is_asked_about_no_more(asking: Asking) -> None:
    _, events, woken = asking
    look(events, snapshot("team-a", "chat", "p-1"))
    await until(lambda: bool(woken))
    events.forget(("team-a", "chat"))
    assert (events._waiting, events._turns) == ({}, {})
