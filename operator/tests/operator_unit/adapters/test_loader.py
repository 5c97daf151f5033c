"""docs/concepts/adapters.md: running pods load and unload, each by itself, and none is asked more than it can bear."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from llmendpoint_operator.api import LLMEndpointSpec, LLMRuntimeSpec
from llmendpoint_operator.core.adapters import moves
from llmendpoint_operator.core.adapters.moves import PodAdapters
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Snapshot
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.errors import Unanswered
from llmendpoint_operator.metrics import Metrics
from llmendpoint_operator.observe.adapters import loader as loading
from llmendpoint_operator.observe.adapters.loader import OF_A_NAMESPACE, AdapterLoader, parse_held
from llmendpoint_operator.observe.wire import Wire
from tests.integration.fake_wire import Servers
from tests.ports import free_port

from ..adapters_stage import LEGAL, LOADS, SQL
from ..evidence_stage import KEY, ready_pod, until
from ..fake_cluster import make_spec


@dataclass
class Engine:
    """Loads adapters, in vLLM's wire format. `broken`: names that it refuses. `slow`: it answers no load."""

    held: dict[str, str] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    slow: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    loading: int = 0

    async def serve(self, servers: Servers, port: int) -> str:
        app = web.Application()
        app.add_routes([
            web.get("/v1/models", self._models), web.post("/v1/load_lora_adapter", self._load),
            web.post("/v1/unload_lora_adapter", self._unload),
        ])  # fmt: skip
        return await servers.add(app, port)

    async def _models(self, _: web.Request) -> web.Response:
        adapters = [{"id": name, "root": root, "parent": "chat"} for name, root in self.held.items()]
        return web.json_response({"data": [{"id": "chat", "root": "chat", "parent": None}, *adapters]})

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body["lora_name"]
        self.asked.append(("load", name))
        self.loading += 1
        try:
            while self.slow:  # noqa: ASYNC110  # a test sets it
                await asyncio.sleep(0.01)
        finally:
            self.loading -= 1
        if name in self.broken:
            return web.json_response({"error": {"message": "it is broken"}}, status=self.broken[name])
        self.held[name] = body["lora_path"]
        return web.Response(text="Success")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.asked.append(("unload", name))
        return web.Response(status=200 if self.held.pop(name, None) else 404)


@dataclass
class World:
    """An endpoint's pods and who loads their adapters."""

    servers: Servers
    port: int
    loader: AdapterLoader
    woken: list[Any]
    pods: list[dict[str, Any]] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)
    recorded: LLMEndpointSpec = field(default_factory=lambda: make_spec(adapters=[SQL]))
    runtime: LLMRuntimeSpec = LOADS

    async def add(self, **fields: Any) -> Engine:
        engine = Engine(**fields)
        self.engines.append(engine)
        self.pods.append(ready_pod(f"p{len(self.pods)}", await engine.serve(self.servers, self.port)))
        return engine

    def want(self, *adapters: dict[str, str]) -> None:
        """A reconcile with this spec."""
        spec = make_spec(adapters=list(adapters))
        runtime = self.runtime.model_copy(
            update={"ports": self.runtime.ports.model_copy(update={"http": self.port})}
        )
        endpoint = Endpoint(*KEY, "uid", 1, "1", deleting=False, spec=spec)
        revision = Revision("r1", 1, 3, self.recorded, runtime)
        self.loader.update(
            Snapshot(endpoint, runtime, revisions={"r1": revision}, pods={"r1": tuple(self.pods)})
        )

    def of(self, pod: str) -> PodAdapters:
        return self.loader.of(KEY).get(pod, PodAdapters())


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """In which everything that is tried again is tried again soon."""
    monkeypatch.setattr(loading, "RETRY_S", 0.05)
    monkeypatch.setattr(moves, "FIRST_PAUSE_S", 0.05)
    woken: list[Any] = []
    async with Wire(Metrics()) as wire, Servers() as servers, contextlib.AsyncExitStack() as stack:
        loader = AdapterLoader(wire, woken.append)
        stack.callback(loader.stop)
        yield World(servers, free_port(), loader, woken)


async def test_a_running_pod_loads_what_the_spec_names_and_lets_the_rest_go(world: World) -> None:
    engine = await world.add(held={"by-hand": "x"})
    world.want(SQL, LEGAL)
    await until(lambda: engine.held == {"sql": "hf://acme/sql", "legal": "s3://acme/legal"})
    assert engine.asked[0] == ("unload", "by-hand")
    assert world.woken
    world.want({**SQL, "source": "hf://acme/sql@v2"})
    await until(lambda: engine.held == {"sql": "hf://acme/sql@v2"})
    world.want()
    await until(lambda: engine.held == {})
    asked = len(engine.asked)
    world.want()
    await asyncio.sleep(0.3)
    assert len(engine.asked) == asked, "a pod at rest is left alone"


async def test_a_broken_adapter_is_told_tried_again_later_and_holds_up_no_other(world: World) -> None:
    engine = await world.add(broken={"sql": 400})
    world.want(SQL, LEGAL)
    await until(lambda: "legal" in engine.held and "sql" in world.of("p0").failures)
    failure = world.of("p0").failures["sql"]
    assert (failure.message, failure.refused) == ("HTTP 400: it is broken", True)
    engine.broken.clear()
    await until(lambda: "sql" in engine.held)
    assert not world.of("p0").failures


async def test_a_refusal_that_passes_is_not_final(world: World) -> None:
    engine = await world.add(broken={"sql": 409})
    world.want(SQL)
    await until(lambda: "sql" in world.of("p0").failures)
    assert not world.of("p0").failures["sql"].refused
    engine.broken.clear()
    await until(lambda: "sql" in engine.held)


async def test_an_engine_that_began_anew_loads_again_and_one_that_is_not_ready_is_left_alone(
    world: World,
) -> None:
    engine = await world.add()
    world.want(SQL)
    await until(lambda: "sql" in engine.held)
    engine.held.clear()
    world.pods[0]["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 1}]
    world.pods[0]["status"]["conditions"][0]["status"] = "False"
    world.want(SQL)
    await asyncio.sleep(0.2)
    assert world.loader.of(KEY) == {}
    assert engine.held == {}
    world.pods[0]["status"]["conditions"][0]["status"] = "True"
    world.want(SQL)
    await until(lambda: "sql" in engine.held)


async def test_a_pod_that_hangs_delays_no_other(world: World) -> None:
    slow, quick = await world.add(slow=True), await world.add()
    world.want(SQL)
    await until(lambda: slow.loading == 1 and "sql" in quick.held)
    slow.slow = False
    await until(lambda: "sql" in slow.held)


async def test_no_more_pods_of_a_namespace_load_at_once_than_it_has_slots(world: World) -> None:
    for _ in range(2 * OF_A_NAMESPACE):
        await world.add(slow=True)
    world.want(SQL)
    await until(lambda: sum(e.loading for e in world.engines) == OF_A_NAMESPACE)
    await asyncio.sleep(0.3)
    assert sum(e.loading for e in world.engines) == OF_A_NAMESPACE
    for engine in world.engines:
        engine.slow = False
    await until(lambda: all("sql" in e.held for e in world.engines))


async def test_pods_that_were_not_made_for_adapters_are_not_asked(world: World) -> None:
    engine = await world.add()
    world.recorded = make_spec()
    world.want(SQL)
    world.recorded, world.runtime = (
        make_spec(adapters=[SQL]),
        LOADS.model_copy(update={"loads_adapters": False}),
    )
    world.want(SQL)
    await asyncio.sleep(0.2)
    assert engine.asked == []
    assert world.loader.of(KEY) == {}


async def test_an_adapter_on_a_claim_that_a_pod_has_not_mounted_is_left_to_the_next_revision(
    world: World,
) -> None:
    engine = await world.add()
    world.want(SQL, {"name": "new", "source": "pvc://elsewhere/new"})
    await until(lambda: "sql" in engine.held)
    await asyncio.sleep(0.2)
    assert engine.asked == [("load", "sql")]


@pytest.mark.parametrize("page", [None, 7, [], {"data": 7}, {"data": [7]}, {"data": [{"parent": "x"}]}])
def test_a_list_of_models_that_is_none_is_no_answer(page: Any) -> None:
    with pytest.raises(Unanswered):
        parse_held(page)


def test_of_a_list_without_end_no_more_is_read_than_a_pod_can_have() -> None:
    page = {"data": [{"id": f"{n}" * 2000, "root": "r" * 5000, "parent": "chat"} for n in range(10, 1000)]}
    found = parse_held(page)
    assert len(found) <= loading.MOST_LISTED
    assert max(map(len, (*found, *found.values()))) <= loading.LONGEST_TEXT
