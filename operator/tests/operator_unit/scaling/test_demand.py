"""docs/concepts/autoscaling.md: gateways stream what waits and runs; silence is unknown, and a held request wakes the scaler at once.

The streams are played on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Snapshot
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.core.scaling.demand import Demand, Load
from llmendpoint_operator.core.scaling.outcome import Reason
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.store import Informer
from llmendpoint_operator.metrics import Metrics
from llmendpoint_operator.observe.gateways import Gateways
from llmendpoint_operator.observe.reports import parse_report
from llmendpoint_operator.observe.scaling import demand
from llmendpoint_operator.observe.scaling.demand import Demands
from llmendpoint_operator.observe.scaling.scaler import Scaler
from llmendpoint_operator.observe.wire import Wire
from tests.integration.fake_wire import FakeEngine, FakeGateway, Servers
from tests.ports import free_port

from ..evidence_stage import ready_pod, until
from ..fake_cluster import make_spec

KEY = ("team-a", "chat")
NAME = "team-a/chat"
LOAD = {"running": 2, "waiting": 1, "kv_usage": 0.5, "max_num_seqs": 8, "outstanding_tokens": 9, "age": 0.1}


@dataclass
class World:
    serving: Servers
    cache: Informer
    demands: Demands
    port: int
    heard: list[tuple[str, str]]
    pods: list[dict[str, Any]] = field(default_factory=list)

    async def add(self, **fields: Any) -> FakeGateway:
        gateway = FakeGateway(**fields)
        address = await gateway.serve(self.serving, self.port)
        self.pods.append(ready_pod(f"gw-{len(self.pods)}", address))
        self.listed()
        return gateway

    def listed(self) -> None:
        self.cache.store.replace(self.pods, "1")
        self.cache.synced.set()
        self.demands.pods_changed()

    async def known(self, expected: Callable[[Demand | None], bool]) -> Demand | None:
        await until(lambda: expected(self.demands.of(KEY)))
        return self.demands.of(KEY)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(demand, "LAST_RETRY_S", 0.1)
    monkeypatch.setattr(demand, "TICK_S", 0.02)
    heard: list[tuple[str, str]] = []
    async with Wire(Metrics()) as wire, Servers() as serving:
        port = free_port()
        cache = Informer(cast(KubeApi, None), resources.PODS, lambda _: None)
        demands = Demands(wire, Gateways(wire, cache, port, lambda _: None), heard.append)
        running = asyncio.create_task(demands.run())
        yield World(serving, cache, demands, port, heard)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_all_gateways_tell_is_one_demand(world: World) -> None:
    first, second = await world.add(), await world.add()
    first.tell(NAME, 3, p0={"in_flight": 2, "load": LOAD})
    second.tell(NAME, 1, p0={"in_flight": 1, "load": None})
    found = await world.known(lambda demand: demand is not None and demand.waiting == 4)
    assert found is not None
    assert (found.waiting, found.in_flight, found.silent) == (4, {"p0": 3}, ())
    assert replace(found.loads["p0"], read_at=0.0) == Load(2, 1, 0.5, 8)
    assert len(world.demands) == 2
    assert KEY in world.heard


async def test_a_change_is_heard_as_it_comes_and_an_endpoint_that_is_gone_is_unknown(world: World) -> None:
    gateway = await world.add()
    gateway.tell(NAME, 1)
    await world.known(lambda demand: demand == Demand(1))
    gateway.tell(NAME, 7)
    await world.known(lambda demand: demand == Demand(7))
    gateway.tell_of(NAME, cast(dict[str, Any], None))
    await world.known(lambda demand: demand is None)


async def test_a_gateway_whose_stream_ends_tells_nothing_until_it_is_back_with_everything(
    world: World,
) -> None:
    first, second = await world.add(), await world.add()
    first.tell(NAME, 3)
    second.tell(NAME, 1)
    await world.known(lambda demand: demand == Demand(4))
    first.hush()
    await world.known(lambda demand: demand == Demand(1, silent=("gw-0",)))
    second.hush()
    await world.known(lambda demand: demand is None)
    first.mute = False
    await world.known(lambda demand: demand == Demand(3, silent=("gw-1",)))


async def test_a_stream_that_is_silent_tells_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "SILENCE_S", 0.2)
    gateway = await world.add()
    gateway.tell(NAME, 3)
    await until(lambda: KEY in world.heard)
    await world.known(lambda demand: demand is None)  # its lines are half a second apart


async def test_a_gateway_that_is_no_more_is_not_waited_for(world: World) -> None:
    gateway = await world.add()
    gateway.tell(NAME, 3)
    (await world.add()).tell(NAME, 1)
    await world.known(lambda demand: demand == Demand(4))
    del world.pods[0]
    world.listed()
    assert world.demands.of(KEY) == Demand(1)


@pytest.mark.parametrize(
    "told",
    [
        {"waiting": "many"},
        {"waiting": None},
        {},
        [],
        {"waiting": float("inf")},
        {"waiting": 1, "replicas": 3},
    ],
)
async def test_lines_that_make_no_sense_end_the_stream_and_nothing_else(world: World, told: Any) -> None:
    broken, good = await world.add(), await world.add()
    good.tell(NAME, 2)
    broken.tell_of("team-a/other", told)
    await world.known(lambda demand: demand == Demand(2, silent=("gw-0",)))


async def test_what_goes_wrong_in_who_hears_of_it_does_not_silence_a_gateway(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("one endpoint cannot be decided on")

    monkeypatch.setattr(world.demands, "_heard", fail)
    gateway = await world.add()
    gateway.tell(NAME, 1)
    await world.known(lambda demand: demand == Demand(1))
    gateway.tell(NAME, 7)
    await world.known(lambda demand: demand == Demand(7))


def test_a_load_that_was_not_read_is_none_and_never_zeros() -> None:
    report = parse_report({"waiting": 0, "replicas": {"p0": {"in_flight": 1, "load": None}}}, 5.0)
    assert report.replicas["p0"].load is None


def test_a_load_is_as_old_as_it_was_when_its_line_was_sent() -> None:
    report = parse_report({"waiting": 0, "replicas": {"p0": {"in_flight": 1, "load": LOAD}}}, 5.0)
    assert report.replicas["p0"].load == Load(2, 1, 0.5, 8, read_at=4.9)


# --- without a gateway


def followed(engines: dict[str, str], port: int, **signals: Any) -> Snapshot:
    """An endpoint whose active revision has these replicas, by address."""
    named = {"signals": signals} if signals else {}
    spec = make_spec(autoscaling={"maxReplicas": 10, "pollingInterval": 1, **named})
    endpoint = Endpoint(*KEY, "uid", 1, "1", deleting=False, spec=spec, status={"activeRevision": "r1"})
    runtime = LLMRuntimeSpec.model_validate({"image": "e:1", "ports": {"http": port}})
    pods = tuple(ready_pod(name, address) for name, address in engines.items())
    return Snapshot(
        endpoint, runtime, revisions={"r1": Revision("r1", 1, 1, spec, runtime)}, pods={"r1": pods}
    )


async def test_where_there_is_no_gateway_the_engines_are_asked(world: World) -> None:
    world.listed()
    port, engines = free_port(), [FakeEngine(load=LOAD), FakeEngine(load={**LOAD, "running": 5})]
    addresses = {f"p{i}": await engine.serve(world.serving, port) for i, engine in enumerate(engines)}
    world.demands.follow(followed(addresses, port))
    found = await world.known(lambda demand: demand is not None)
    assert found is not None
    assert {pod: load.running for pod, load in found.loads.items()} == {"p0": 2, "p1": 5}
    assert (found.held, found.partial) == (False, False)
    engines[1].load = None
    await world.known(lambda demand: demand is not None and demand.silent == ("p1",))
    engines[0].load = None
    await world.known(lambda demand: demand is None)
    world.demands.follow(followed({}, port))
    await world.known(lambda demand: demand == Demand(held=False))
    await world.add()
    await world.known(lambda demand: demand is None)


# --- the time to the first token


async def test_first_tokens_are_measured_where_they_are_a_signal_and_anew_when_replicas_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.scaling.first_tokens.TICK_S", 0.05)
    port, engines = free_port(), [FakeEngine(load=LOAD), FakeEngine(load=LOAD)]
    addresses = {f"p{i}": await engine.serve(world.serving, port) for i, engine in enumerate(engines)}
    gateway = await world.add()
    gateway.tell(NAME, 0)
    world.demands.follow(followed(addresses, port))
    await world.known(lambda demand: demand is not None)
    signals = {"queueDepth": {"target": 4}, "ttft": {"target": 1}}
    engines[0].observe(0.01, 1000)  # what was before nobody looked
    world.demands.follow(followed(addresses, port, **signals))
    await until(lambda: all(engine.scrapes for engine in engines))
    engines[0].observe(0.01, 10)
    engines[1].observe(2.0, 10)
    found = await world.known(lambda demand: demand is not None and demand.first_tokens is not None)
    assert found is not None
    assert found.first_tokens is not None
    assert found.first_tokens.requests == 20
    assert found.first_tokens.p95 > 1
    world.demands.follow(followed({"p0": addresses["p0"]}, port, **signals))
    await world.known(lambda demand: demand is not None and demand.first_tokens is None)
    before = engines[0].scrapes
    await until(lambda: engines[0].scrapes >= before + 1)
    engines[0].observe(0.01, 5)
    await world.known(lambda d: d is not None and d.first_tokens is not None and d.first_tokens.requests == 5)
    world.demands.follow(followed(addresses, port))
    await world.known(lambda demand: demand is not None and demand.first_tokens is None)


# --- the scaler


@dataclass
class Scaled:
    """A scaler, and the endpoint that it is asked about."""

    demand: Demand | None = None
    woken: list[tuple[str, str]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=lambda: {"activeRevision": "r1"})
    autoscaling: dict[str, Any] | None = field(
        default_factory=lambda: {"minReplicas": 0, "maxReplicas": 10, "pollingInterval": 3600}
    )
    replicas: int = 1

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.scaler = Scaler(cast(Demands, self), self.woken.append, self.metrics)
        self.asked = 0

    def of(self, key: tuple[str, str]) -> Demand | None:
        self.asked += key == KEY
        return self.demand

    def follow(self, snapshot: Snapshot) -> None:
        pass

    def forget(self, key: tuple[str, str]) -> None:
        pass

    def look(self) -> int | None:
        fields = {"autoscaling": self.autoscaling} if self.autoscaling else {}
        spec = make_spec(replicas=self.replicas, **fields)
        endpoint = Endpoint(*KEY, "uid", 1, "1", deleting=False, spec=spec, status=self.status)
        self.scaler.update(Snapshot(endpoint, None))
        found = self.scaler.of(KEY)
        return found.replicas if found else None

    def at(self, count: int) -> Scaled:
        self.status["autoscaling"] = {"desiredReplicas": count, "specReplicas": self.replicas}
        return self


def test_a_request_held_at_zero_wakes_the_endpoint_at_once() -> None:
    scaled = Scaled().at(0)
    assert scaled.look() == 0
    scaled.demand = Demand(waiting=1)
    scaled.scaler.heard(KEY)
    assert scaled.woken == [KEY]
    assert scaled.look() == 1
    sample = {"direction": "up", "reason": str(Reason.ACTIVATED)}
    assert scaled.metrics.registry.get_sample_value("llmendpoint_operator_scalings_total", sample) == 1


def test_what_is_told_of_an_endpoint_that_is_awake_waits_for_the_poll() -> None:
    scaled = Scaled().at(1)
    scaled.look()
    scaled.demand = Demand(waiting=100)
    scaled.scaler.heard(KEY)
    assert (scaled.woken, scaled.look()) == ([], 1)


def test_kubectl_scale_sets_the_count_that_the_scaler_goes_on_from() -> None:
    scaled = Scaled().at(2)
    assert scaled.look() == 2
    scaled.replicas = 5
    assert scaled.look() == 5
    scaled.replicas = 50
    assert scaled.look() == 10


def test_a_leader_that_finds_another_spec_replicas_than_was_recorded_follows_it() -> None:
    scaled = Scaled().at(2)
    scaled.replicas = 4
    assert scaled.look() == 4


@pytest.mark.parametrize("autoscaling", [None, {"provider": "none", "maxReplicas": 3}])
def test_without_the_builtin_provider_the_scaler_has_no_say(autoscaling: dict[str, Any] | None) -> None:
    scaled = Scaled().at(2)
    scaled.look()
    scaled.autoscaling = autoscaling
    assert scaled.look() is None
    scaled.demand = Demand(waiting=1)
    scaled.scaler.heard(KEY)
    assert scaled.woken == []


async def test_a_poll_that_changes_nothing_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.scaling.scaler.TICK_S", 0.01)
    scaled = Scaled(demand=Demand(), autoscaling={"maxReplicas": 10, "pollingInterval": 1}).at(1)
    scaled.look()
    running = asyncio.create_task(scaled.scaler.run())
    await until(lambda: scaled.woken == [KEY])  # the first figures, for the conditions
    scaled.look()
    before = scaled.asked
    await until(lambda: scaled.asked >= before + 2)
    assert scaled.woken == [KEY]
    scaled.demand = Demand(waiting=8)
    await until(lambda: len(scaled.woken) == 2)
    assert scaled.look() == 2
    running.cancel()


async def test_a_decision_that_fails_ends_nobody_elses_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.scaling.scaler.TICK_S", 0.01)
    scaled = Scaled(autoscaling={"maxReplicas": 10, "pollingInterval": 1}).at(1)
    scaled.look()
    scaled.demand = cast(Demand, "nonsense")
    running = asyncio.create_task(scaled.scaler.run())
    await until(lambda: scaled.woken == [KEY])
    assert not running.done()
    scaled.demand = Demand(waiting=8)
    await until(lambda: scaled.look() == 2)
    running.cancel()
