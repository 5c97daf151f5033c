"""docs/concepts/architecture.md: a change wakes its endpoint; many at once do not hold up what follows from them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmendpoint_operator import reconcile
from llmendpoint_operator.core.endpoint.snapshot import Observed
from llmendpoint_operator.gather import Platform
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.client import Json
from llmendpoint_operator.kube.resources import Resource
from llmendpoint_operator.metrics import Metrics

KEY = ("team-a", "chat")


class Stage:
    """One endpoint, an API server that takes every write, and a clock. Nobody observes, and no Event is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._versions = itertools.count(1)
        self._pods = itertools.count()
        self.caches = Caches(cast(Any, self), lambda key: None, None)
        context = reconcile.Context(
            cast(Any, self), self.caches, cast(Any, self), Metrics(), cast(Any, self), Platform()
        )
        self._reconciler = reconcile.Reconciler(context)
        monkeypatch.setattr(reconcile, "time", SimpleNamespace(monotonic=lambda: self.now))
        spec = {"image": "engine:1", "args": [{"value": "--model=$(model.path)"}]}
        self.tell(resources.RUNTIMES, {"metadata": {"name": "llm", "uid": "r"}, "spec": spec})
        wanted = {"model": {"source": "embedded://demo"}, "runtime": {"name": "llm"}, "replicas": 50}
        metadata = {"namespace": KEY[0], "name": KEY[1], "uid": "e", "generation": 1}
        self.tell(resources.ENDPOINTS, {"metadata": metadata, "spec": wanted})

    @property
    def status(self) -> Json:
        endpoint = self.caches.get(resources.ENDPOINTS, *KEY)
        assert endpoint is not None
        return cast(Json, endpoint["status"])

    def tell(self, resource: Resource, item: Json) -> None:
        """The watch brings it."""
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        self.caches.informers[resource].store.event("MODIFIED", self._stored({**kind, **item}))

    def a_pod_comes(self) -> None:
        name = f"chat-{self.status['targetRevision']}"
        deployment = self.caches.get(resources.DEPLOYMENTS, KEY[0], name)
        assert deployment is not None
        metadata = {
            **deployment["spec"]["template"]["metadata"],
            "namespace": KEY[0],
            "name": f"{name}-{next(self._pods)}",
        }
        self.tell(resources.PODS, {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}})

    async def look(self) -> float | None:
        """One pass; when the next one is due."""
        return await self._reconciler.reconcile(KEY)

    async def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        return self._stored(body)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Json, part: str) -> Json:
        return self._stored({**(self.caches.get(resource, namespace, name) or {}), part: body[part]})

    def check_lease(self) -> None:
        """It is held."""

    def write(self, *_: object) -> None:
        """No Events are kept."""

    def update(self, *_: object) -> None:
        """Nothing is found out."""

    def read(self, *_: object) -> Observed:
        return Observed()

    def _stored(self, item: Mapping[str, Any]) -> Json:
        found = copy.deepcopy(dict(item))
        version = str(next(self._versions))
        found["metadata"] = {"uid": version, **found["metadata"], "resourceVersion": version}
        return found


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(monkeypatch)
    while await stage.look() == 0.0:
        pass
    return stage


async def test_many_pods_that_come_one_after_the_other_do_not_hold_up_the_next_look(stage: Stage) -> None:
    pauses = []
    for _ in range(40):
        stage.a_pod_comes()
        pauses.append(await stage.look())
        stage.now += 0.01
    assert [revision["replicas"] for revision in stage.status["revisions"]] == [40]
    assert max(pause or 0.0 for pause in pauses) <= reconcile.FIRST_PAUSE_S


async def test_who_makes_the_operator_write_after_each_pause_makes_it_pause_longer(stage: Stage) -> None:
    pauses = []
    for _ in range(10):
        stage.a_pod_comes()
        pause = await stage.look()
        assert pause is not None
        stage.now += pause
        pauses.append(pause)
    assert pauses == [0.0] * reconcile.FREE_PASSES + [2.0, 4.0, 8.0, 16.0, 32.0]
