"""The evidence rim against real HTTP servers on loopback: gateways and engines as a test plays them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from llmendpoint_operator.api import LLMEndpointSpec, LLMRuntimeSpec
from llmendpoint_operator.core.evidence import GatewayView, Outcome, Verification
from llmendpoint_operator.core.histograms import quantile
from llmendpoint_operator.core.revision import Revision
from llmendpoint_operator.core.snapshot import Endpoint, Snapshot
from llmendpoint_operator.errors import Unanswered
from llmendpoint_operator.evidence import Collector, Gateways, Wire, collector, gateways, prompts
from llmendpoint_operator.evidence.collector import PROMPTS_AT_ONCE
from llmendpoint_operator.evidence.figures import parse_latencies
from llmendpoint_operator.evidence.wanted import find_wanted
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.store import Informer
from llmendpoint_operator.metrics import Metrics
from tests.integration.fake_wire import FakeEngine, FakeGateway, Servers, free_port

KEY = ("team-a", "chat")
RELATIVE = {"ttft": {"maxRatio": 1.5}}
PROMPT = {"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}


@dataclass
class World:
    """A collector, the servers that it asks, and the endpoint that it is asked about."""

    serving: Servers
    wire: Wire
    cache: Informer
    gateways: Gateways
    collector: Collector
    gateway_port: int
    engine_port: int
    woken: list[tuple[str, str]]
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    gateway_pods: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def add_gateway(self, **fields: Any) -> FakeGateway:
        gateway = FakeGateway(**fields)
        address = await gateway.serve(self.serving, self.gateway_port)
        self.gateway_pods.append(ready_pod(f"gateway-{len(self.gateway_pods)}", address))
        self.list_gateways()
        return gateway

    def list_gateways(self) -> None:
        self.cache.store.replace(self.gateway_pods, "1")
        self.cache.synced.set()
        self.gateways.pods_changed()

    def unready(self, name: str, ending: bool) -> None:
        """A gateway fails its readiness probe, or is being deleted."""
        [pod] = [pod for pod in self.gateway_pods if pod["metadata"]["name"] == name]
        pod["metadata"]["resourceVersion"] = "2"
        if ending:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        self.list_gateways()

    async def add_engine(self, revision: str, **fields: Any) -> FakeEngine:
        engine = FakeEngine(**fields)
        pods = self.pods.setdefault(revision, [])
        pods.append(ready_pod(f"{revision}-{len(pods)}", await engine.serve(self.serving, self.engine_port)))
        return engine

    def snapshot(
        self, state: str, *, epoch: int = 1, gateway_url: str | None = None, **rollout: Any
    ) -> Snapshot:
        """The endpoint in a state of its rollout, from blue to green."""
        fields = {"rollout": {key: rollout.pop(key, {}) for key in ("verification", "observe")}}
        spec = LLMEndpointSpec.model_validate({"model": {"source": "embedded://demo"}, **fields})
        status = {
            "traffic": {"epoch": epoch},
            "activeRevision": "blue",
            "rollout": {"state": state, "blue": "blue", "green": "green", "stateSince": "t", **rollout},
        }
        endpoint = Endpoint(*KEY, "uid", 1, "1", deleting=False, spec=spec, status=status)
        runtime = LLMRuntimeSpec.model_validate({"image": "e:1", "ports": {"http": self.engine_port}})
        revisions = {hash_: Revision(hash_, 1, 1, spec, runtime) for hash_ in ("blue", "green")}
        pods = {revision: tuple(found) for revision, found in self.pods.items()}
        return Snapshot(endpoint, runtime, revisions=revisions, pods=pods, gateway_url=gateway_url)

    async def verified(self, **fields: Any) -> Verification:
        """The outcome of the verification once there is one."""
        snapshot = self.snapshot("Verifying", verification=fields)
        found: list[Verification] = []

        def done() -> bool:
            verification = self.collector.look(snapshot).verification
            if verification is not None and verification.outcome is not Outcome.RUNNING:
                found.append(verification)
            return bool(found)

        await until(done)
        return found[0]


def ready_pod(name: str, address: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    metadata = {"name": name, "namespace": "llm", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"podIP": address, "conditions": conditions}}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # the conditions are on what other tasks fill
            await asyncio.sleep(0.01)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for module, name, seconds in (
        (prompts, "RETRY_S", 0.01), (prompts, "JUDGE_RETRY_S", 0.01), (collector, "SAMPLE_S", 0.03),
        (gateways, "POLL_S", 0.01), (gateways, "SLOW_POLL_S", 0.05),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)
    woken: list[tuple[str, str]] = []
    port = free_port()
    async with Wire(Metrics()) as wire, Servers() as serving:
        cache = Informer(cast(KubeApi, None), resources.PODS, lambda _: None)
        found = Gateways(wire, cache, port, woken.append)
        collecting = Collector(wire, found, woken.append)
        running = asyncio.create_task(collecting.run())
        world = World(serving, wire, cache, found, collecting, port, free_port(), woken, tasks=[running])
        yield world
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)


async def test_an_assignment_is_acknowledged_when_every_gateway_follows_it(world: World) -> None:
    one, other = await world.add_gateway(epochs={"team-a/chat": 1}), await world.add_gateway()
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.collector.look(snapshot).gateways_known)
    views = world.collector.look(snapshot).gateways
    assert views == (GatewayView("gateway-0", 1), GatewayView("gateway-1", None))
    world.woken.clear()
    other.epochs["team-a/chat"] = 1
    await until(lambda: [view.epoch for view in world.collector.look(snapshot).gateways] == [1, 1])
    assert set(world.woken) == {KEY}
    asked = one.states + other.states
    await asyncio.sleep(0.1)
    assert one.states + other.states <= asked + 2, "nobody waits any more"


async def test_a_gateway_that_hangs_delays_nobody(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    stuck = await world.add_gateway(hanging=True)
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.collector.look(snapshot).gateways == (GatewayView("gateway-0", 1), GatewayView("gateway-1", None)))  # fmt: skip
    await until(lambda: world.collector.look(snapshot).gateways_known)
    stuck.hanging = False
    stuck.epochs["team-a/chat"] = 1
    await until(lambda: all(v.epoch == 1 for v in world.collector.look(snapshot).gateways))


async def test_a_gateway_that_is_behind_is_told_what_others_follow(world: World) -> None:
    ahead = await world.add_gateway(epochs={"team-a/chat": 7})
    behind = await world.add_gateway(epochs={"team-a/chat": 6})
    snapshot = world.snapshot("Switching", epoch=7)
    world.collector.look(snapshot)
    await until(lambda: behind.told[:1] == [{"team-a/chat": 7}])
    assert ahead.told == []


async def test_without_a_gateway_an_assignment_is_known_at_once_to_have_nobody_to_wait_for(
    world: World,
) -> None:
    snapshot = world.snapshot("Switching")
    assert not world.collector.look(snapshot).gateways_known, "the pods were not listed yet"
    world.list_gateways()
    evidence = world.collector.look(snapshot)
    assert evidence.gateways == ()
    assert evidence.gateways_known


@pytest.mark.parametrize("ending", [False, True])
async def test_gateways_of_which_none_is_ready_are_not_the_same_as_no_gateway(
    world: World, ending: bool
) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.collector.look(snapshot).gateways_known)
    world.unready("gateway-0", ending)
    evidence = world.collector.look(snapshot)
    assert (evidence.gateways, evidence.gateways_known) == ((), False)


async def test_gateways_are_lost_when_none_was_ready_for_long_and_the_endpoint_is_woken_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmendpoint_operator.evidence.gateways.LOST_S", 0.3)
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Switching", epoch=2)
    await until(lambda: world.collector.look(snapshot).gateways_known)
    assert not world.collector.look(snapshot).gateways_lost
    world.unready("gateway-0", False)
    assert not world.collector.look(snapshot).gateways_lost
    await until(lambda: world.collector.look(snapshot).gateways_lost)
    world.woken.clear()
    await world.add_gateway(epochs={"team-a/chat": 1})
    assert not world.collector.look(snapshot).gateways_lost
    await until(lambda: world.collector.look(snapshot).gateways_known)
    monkeypatch.setattr("llmendpoint_operator.evidence.gateways.LOST_S", 2.0)  # a busy machine has its time
    world.woken.clear()
    world.unready("gateway-1", False)
    await until(
        lambda: world.woken.count(("team-a", "chat")) >= 2
    )  # that nobody is known, and that they are lost


async def test_a_gateway_pod_that_has_ended_for_good_is_no_gateway(world: World) -> None:
    world.gateway_pods.append(ready_pod("evicted", "127.0.0.1"))
    world.gateway_pods[0]["status"] |= {"phase": "Failed", "reason": "Evicted"}
    world.list_gateways()
    evidence = world.collector.look(world.snapshot("Switching"))
    assert (evidence.gateways, evidence.gateways_known) == ((), True)


async def test_a_gateway_that_never_tells_of_revisions_gives_no_figures(world: World) -> None:
    gateway, green = await world.add_gateway(silent=True), await world.add_engine("green")
    snapshot = world.snapshot("Observing")
    world.collector.look(snapshot)
    await until(lambda: green.scrapes > 1)
    green.observe(0.07, 40)
    seen = green.scrapes
    await until(lambda: green.scrapes > seen + 2)
    assert world.collector.look(snapshot).figures == {}
    gateway.silent = False
    await until(lambda: world.collector.look(snapshot).figures != {})
    gateway.count("team-a/chat", "green", 30, 3)
    await until(lambda: world.collector.look(snapshot).figures["green"].errors == 3)


async def test_without_any_gateway_first_tokens_are_counted(world: World) -> None:
    world.list_gateways()
    green = await world.add_engine("green")
    snapshot = world.snapshot("Observing")
    await until(lambda: "green" in world.collector.look(snapshot).figures)
    green.observe(0.07, 40)
    await until(lambda: world.collector.look(snapshot).figures["green"].requests == 40)


async def test_a_gateway_that_comes_up_later_is_asked_too(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Observing", epoch=1)
    await until(lambda: world.collector.look(snapshot).gateways_known)
    await world.add_gateway(epochs={"team-a/chat": 1})
    assert not world.collector.look(snapshot).gateways_known
    await until(lambda: world.collector.look(snapshot).gateways_known)
    assert len(world.collector.look(snapshot).gateways) == 2


@pytest.mark.parametrize(
    "page", ["no json", "[]", '{"endpoints": 3}', '{"endpoints": {"team-a/chat": null}}', '{"endpoints": {"team-a/chat": {"epoch": "x"}}}'],
)  # fmt: skip
async def test_a_state_that_makes_no_sense_is_no_acknowledgement(world: World, page: str) -> None:
    await world.add_gateway(page=page)
    snapshot = world.snapshot("Switching")
    await until(lambda: world.collector.look(snapshot).gateways_known)
    assert world.collector.look(snapshot).gateways == (GatewayView("gateway-0", None),)


async def test_replicas_that_have_to_go_make_the_gateways_tell_what_is_in_flight(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1}, in_flight={"blue-0": 3})
    for _ in range(2):
        await world.add_engine("blue")
    snapshot = world.snapshot("Idle", epoch=1)
    await until(lambda: world.collector.look(snapshot).gateways_known)
    assert world.collector.look(snapshot).gateways[0].in_flight == {"blue-0": 3}
    world.pods["blue"].pop()
    assert world.collector.look(world.snapshot("Idle", epoch=1)).gateways == ()
    assert len(world.collector) == 0


async def test_a_revision_that_answers_as_expected_is_verified(world: World) -> None:
    green = await world.add_engine("green")
    found = await world.verified(prompts=[PROMPT])
    assert found == Verification("green", Outcome.PASSED)
    assert world.woken.count(KEY) == 2, "begun, and passed"
    [asked] = green.asked
    assert asked["model"] == "team-a/chat"
    assert (asked["temperature"], asked["max_tokens"]) == (0, 64)


async def test_without_prompts_the_warm_up_was_the_verification(world: World) -> None:
    assert (await world.verified()).outcome is Outcome.PASSED


async def test_a_wrong_answer_fails_the_verification_and_is_quoted(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (200, "Lyon, of course"))
    found = await world.verified(prompts=[PROMPT])
    assert found.outcome is Outcome.FAILED
    assert found.message == "prompt capital: expected to contain 'Paris', got 'Lyon, of course'"


async def test_a_failed_verification_is_not_tried_again(world: World) -> None:
    green = await world.add_engine("green", answer=lambda _: (200, "Lyon"))
    await world.verified(prompts=[PROMPT])
    await asyncio.sleep(0.1)
    await world.verified(prompts=[PROMPT])
    assert len(green.asked) == 1


async def test_a_prompt_that_the_engine_refuses_fails_with_what_it_said(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (400, "the prompt is too long"))
    found = await world.verified(prompts=[PROMPT])
    assert found.message == "prompt capital: HTTP 400: the prompt is too long"


async def test_chance_errors_and_busy_engines_are_asked_again(world: World) -> None:
    replies = iter([(500, "x"), (503, "draining"), (429, "full"), (503, "x"), (500, "x"), (200, "Paris")])
    await world.add_engine("green", answer=lambda _: next(replies))
    assert (await world.verified(prompts=[PROMPT])).outcome is Outcome.PASSED


async def test_an_engine_that_always_fails_does_not_pass(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (500, "CUDA error"))
    found = await world.verified(prompts=[PROMPT])
    assert found.message == "prompt capital: HTTP 500: CUDA error"


async def test_an_engine_that_never_answers_fails_after_its_time(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    found = await world.verified(prompts=[PROMPT], timeoutSeconds=1)
    assert found.outcome is Outcome.FAILED
    assert found.message.startswith("prompt capital: no answer within 1 s")


async def test_time_in_the_queue_behind_others_is_not_the_engines(world: World) -> None:
    replies = iter([(503, "loading")])
    await world.add_engine("green", answer=lambda _: next(replies, (200, "Paris")))
    await hold(world.collector, seconds=1.2)
    assert (await world.verified(prompts=[PROMPT], timeoutSeconds=1)).outcome is Outcome.PASSED


async def test_pods_that_are_not_ready_keep_nobody_in_the_queue(world: World) -> None:
    waiting = world.snapshot("Verifying", verification={"prompts": [PROMPT]})
    for _ in range(PROMPTS_AT_ONCE):
        job = find_wanted(waiting)
        assert job is not None
        assert job.verification is not None
        verifier = prompts.Verifier(world.wire, job.verification, lambda _: (), lambda _: None, world.collector._prompts)  # fmt: skip
        world.tasks.append(asyncio.create_task(verifier.run()))
    await world.add_engine("green")
    assert (await world.verified(prompts=[PROMPT])).outcome is Outcome.PASSED


async def hold(collecting: Collector, seconds: float) -> None:
    """Other endpoints' prompts take every place of the queue for so long."""
    limit = collecting._prompts
    for _ in range(PROMPTS_AT_ONCE):
        await limit.acquire()
        asyncio.get_running_loop().call_later(seconds, limit.release)


async def test_a_revision_without_ready_pods_is_waited_for(world: World) -> None:
    snapshot = world.snapshot("Verifying", verification={"prompts": [PROMPT], "timeoutSeconds": 1})
    world.collector.look(snapshot)
    await asyncio.sleep(0.1)
    assert world.collector.look(snapshot).verification == Verification("green", Outcome.RUNNING)
    await world.add_engine("green")
    found = await world.verified(prompts=[PROMPT], timeoutSeconds=1)
    assert found.outcome is Outcome.PASSED


def comparing(**compare: Any) -> dict[str, Any]:
    return {"name": "capital", "prompt": "Capital of France?", "compare": compare}


@pytest.mark.parametrize(
    ("compare", "old", "new", "passed"),
    [
        ({"mode": "Exact"}, "Paris", "Paris", True),
        ({"mode": "Exact"}, "Paris", "Paris!", False),
        ({"mode": "Similarity"}, "It is Paris", "Paris it is", True),
        ({"mode": "Similarity", "minSimilarity": 0.9}, "It is Paris", "It is Lyon", False),
    ],
)
async def test_answers_are_compared_with_the_old_revisions(
    world: World, compare: dict[str, Any], old: str, new: str, passed: bool
) -> None:
    await world.add_engine("blue", answer=lambda _: (200, old))
    await world.add_engine("green", answer=lambda _: (200, new))
    found = await world.verified(prompts=[comparing(**compare)])
    assert (found.outcome is Outcome.PASSED) == passed, found


async def test_without_an_old_revision_nothing_is_compared(world: World) -> None:
    await world.add_engine("green")
    assert (await world.verified(prompts=[comparing(mode="Exact")])).outcome is Outcome.PASSED


async def test_an_old_revision_that_is_broken_does_not_hold_up_the_one_that_mends_it(world: World) -> None:
    await world.add_engine("blue", answer=lambda _: (500, "broken"))
    await world.add_engine("green")
    found = await world.verified(prompts=[comparing(mode="Exact")])
    assert found.outcome is Outcome.PASSED
    assert "not compared" in found.message
    assert "HTTP 500: broken" in found.message


async def test_a_judge_decides_on_both_answers(world: World) -> None:
    await world.add_engine("blue", answer=lambda _: (200, "Paris"))
    await world.add_engine("green", answer=lambda _: (200, "Parigi"))
    judge = FakeEngine(answer=lambda _: (200, "FAIL: it is Italian"))
    url = f"http://{await judge.serve(world.serving, world.engine_port)}:{world.engine_port}/v1"
    found = await world.verified(prompts=[comparing(mode="Judge", endpoint=url)])
    assert found.outcome is Outcome.FAILED
    assert found.message == f"prompt capital: judge {url}: 'it is Italian', of the answer 'Parigi'"
    assert judge.asked[0]["model"] == "the-judge"


async def test_a_judge_that_is_away_fails_nobody_and_is_asked_until_it_answers(world: World) -> None:
    await world.add_engine("blue")
    await world.add_engine("green")
    replies = iter([(503, "loading"), (200, "hm")])
    judge = FakeEngine(answer=lambda _: next(replies, (200, "PASS")))
    url = f"http://{await judge.serve(world.serving, world.engine_port)}:{world.engine_port}/v1"
    assert (await world.verified(prompts=[comparing(mode="Judge", endpoint=url)])).outcome is Outcome.PASSED
    assert len(judge.asked) == 3


async def test_an_endpoint_as_judge_is_asked_through_the_gateway(world: World) -> None:
    await world.add_engine("blue")
    await world.add_engine("green")
    judge = FakeEngine(answer=lambda _: (200, "PASS"))
    url = f"http://{await judge.serve(world.serving, world.engine_port)}:{world.engine_port}/v1"
    prompts = [comparing(mode="Judge", endpoint="team-b/judge")]
    snapshot = world.snapshot("Verifying", verification={"prompts": prompts}, gateway_url=url)
    world.collector.look(snapshot)
    await until(lambda: len(judge.asked) == 1)
    assert judge.asked[0]["model"] == "team-b/judge"


async def test_figures_of_the_window_come_from_gateways_and_engines(world: World) -> None:
    gateway, green = await world.add_gateway(epochs={"team-a/chat": 2}), await world.add_engine("green")
    gateway.count("team-a/chat", "green", 100, 100)
    green.observe(4.0, 100)
    before = world.snapshot("AwaitingPromotion", epoch=1, observe=RELATIVE)
    world.collector.look(before)
    await until(lambda: world.collector.look(before).figures != {})
    assert world.collector.look(before).window is None
    switched = world.snapshot("Switching", epoch=2)
    world.collector.look(switched)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: "green" in world.collector.look(switched).figures)
    green.observe(0.07, 40)
    await until(lambda: world.collector.look(switched).figures["green"].requests == 40)
    await until(lambda: world.collector.look(switched).figures["green"].ttft_p95 is not None)
    found = world.collector.look(world.snapshot("Observing", epoch=2))
    figures = found.figures["green"]
    assert found.window == ("green", None, None)
    assert (figures.requests, figures.errors) == (40, 4)
    assert figures.ttft_p95 == pytest.approx(0.0975)
    assert KEY in world.woken


async def test_before_the_switch_the_old_revision_is_measured_to_be_compared_with(world: World) -> None:
    gateway, blue = await world.add_gateway(), await world.add_engine("blue")
    snapshot = world.snapshot("AwaitingPromotion", observe=RELATIVE)
    await until(lambda: "blue" in world.collector.look(snapshot).figures)
    world.woken.clear()
    gateway.count("team-a/chat", "blue", 30, 1)
    blue.observe(0.07, 30)
    await until(lambda: world.collector.look(snapshot).figures["blue"].requests == 30)
    assert KEY in world.woken
    assert world.collector.look(world.snapshot("Provisioning", observe=RELATIVE)).figures["blue"].errors == 1


async def test_a_canarys_next_step_counts_anew(world: World) -> None:
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Observing", step=0)
    await until(lambda: "green" in world.collector.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: world.collector.look(snapshot).figures["green"].requests == 40)
    following = world.snapshot("Observing", step=1)
    world.collector.look(following)
    await until(lambda: "green" in world.collector.look(following).figures)
    assert world.collector.look(following).figures["green"].requests == 0


async def test_waves_of_an_exchange_in_place_are_one_window(world: World) -> None:
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Switching", step=1, mode="InPlace")
    await until(lambda: "green" in world.collector.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40)
    await until(lambda: world.collector.look(snapshot).figures["green"].requests == 40)
    following = world.snapshot("Switching", step=2, mode="InPlace")
    assert world.collector.look(following).figures["green"].requests == 40


async def test_everything_unreachable_gives_no_figures_and_ends_nothing(world: World) -> None:
    gateway, green = await world.add_gateway(hanging=True), await world.add_engine("green")
    world.pods["green"].append(ready_pod("green-gone", "127.0.0.1"))
    snapshot = world.snapshot("Observing")
    world.collector.look(snapshot)
    await asyncio.sleep(0.1)
    green.observe(0.07, 40)
    gateway.hanging = False
    gateway.count("team-a/chat", "green", 5)
    await until(lambda: "green" in world.collector.look(snapshot).figures)


async def test_an_endpoint_at_rest_and_a_deleted_one_leave_no_task_behind(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    before = asyncio.all_tasks()
    for end in (
        lambda: world.collector.look(world.snapshot("Idle")),
        lambda: world.collector.forget(KEY),
    ):
        world.collector.look(
            world.snapshot("Verifying", verification={"prompts": [PROMPT]}, observe=RELATIVE)
        )
        assert len(asyncio.all_tasks() - before) == 2, "a sampler and a verifier"
        end()
        await until(lambda: not asyncio.all_tasks() - before)
        assert len(world.collector) == 0


async def test_no_prompt_and_no_answer_is_logged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.add_engine("green", answer=lambda _: (200, "a secret answer"))
    await world.verified(prompts=[{**PROMPT, "prompt": "a secret question"}])
    said = capsys.readouterr()
    assert "verification prompt" in said.out + said.err
    assert "secret" not in said.out + said.err


PAGE = """\
# HELP vllm:time_to_first_token_seconds From arrival to the first token.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="m"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 0.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 2.0
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_bucket{le="0.1"} 4.0
vllm:time_per_output_token_seconds_bucket{le="+Inf"} 4.0
# TYPE another_metric gauge
another_metric{broken 5
"""


def test_histograms_are_summed_over_their_labels_and_older_names_are_known() -> None:
    found = parse_latencies(PAGE)
    assert (found.ttft.buckets[0.1], found.ttft.count) == (4, 5)
    assert found.itl.count == 4
    assert found.e2e.count == 0
    assert quantile(0.5, found.ttft) == pytest.approx(0.0625)


def test_a_broken_histogram_is_no_answer() -> None:
    with pytest.raises(Unanswered, match="/metrics cannot be parsed"):
        parse_latencies("vllm:time_to_first_token_seconds_bucket{le= 3\n")
