"""docs/concepts/rollouts.md: errors come from the gateways and latencies from the engines, of one window alone.

Gateways and engines are real HTTP servers on loopback.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from llmendpoint_operator.core.rollout.histograms import quantile
from llmendpoint_operator.errors import Unanswered
from llmendpoint_operator.observe.latencies import parse_latencies
from llmendpoint_operator.observe.rollout import evidence as collector

from ..evidence_stage import KEY, PROMPT, RELATIVE, World, ready_pod, until


async def test_a_gateway_that_never_tells_of_revisions_gives_no_figures(world: World) -> None:
    gateway, green = await world.add_gateway(silent=True), await world.add_engine("green")
    snapshot = world.snapshot("Observing")
    world.look(snapshot)
    await until(lambda: green.scrapes > 1)
    green.observe(0.07, 40)
    seen = green.scrapes
    await until(lambda: green.scrapes > seen + 2)
    assert world.look(snapshot).figures == {}
    gateway.silent = False
    await until(lambda: world.look(snapshot).figures != {})
    gateway.count("team-a/chat", "green", 30, 3)
    await until(lambda: world.look(snapshot).figures["green"].errors == 3)


async def test_the_replica_that_most_failures_are_of_is_known_from_the_gateways(world: World) -> None:
    one, other = await world.add_gateway(), await world.add_gateway()
    snapshot = world.snapshot("Observing")
    for gateway in (one, other):
        for pod in ("chat-a", "chat-b"):
            gateway.count("team-a/chat", "green", 5, 5, pod)
    await until(lambda: "green" in world.look(snapshot).figures)
    for gateway in (one, other):
        gateway.count("team-a/chat", "green", 20, 0, "chat-a")
        gateway.count("team-a/chat", "green", 20, 4, "chat-b")
    await until(lambda: world.look(snapshot).figures["green"].worst == ("chat-b", 8))
    assert world.look(snapshot).figures["green"].errors == 8


async def test_without_any_gateway_first_tokens_are_counted(world: World) -> None:
    world.list_gateways()
    green = await world.add_engine("green")
    snapshot = world.snapshot("Observing")
    await until(lambda: "green" in world.look(snapshot).figures)
    green.observe(0.07, 40)
    await until(lambda: world.look(snapshot).figures["green"].requests == 40)


async def test_figures_of_the_window_come_from_gateways_and_engines(world: World) -> None:
    gateway, green = await world.add_gateway(epochs={"team-a/chat": 2}), await world.add_engine("green")
    gateway.count("team-a/chat", "green", 100, 100)
    green.observe(4.0, 100)
    before = world.snapshot("AwaitingPromotion", epoch=1, observe=RELATIVE)
    world.look(before)
    await until(lambda: world.look(before).figures != {})
    assert world.look(before).window is None
    switched = world.snapshot("Switching", epoch=2)
    world.look(switched)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: "green" in world.look(switched).figures)
    green.observe(0.07, 40)
    await until(lambda: world.look(switched).figures["green"].requests == 40)
    await until(lambda: world.look(switched).figures["green"].ttft is not None)
    found = world.look(world.snapshot("Observing", epoch=2))
    figures = found.figures["green"]
    assert found.window == ("green", None, None)
    assert (figures.requests, figures.errors) == (40, 4)
    assert figures.ttft is not None
    assert figures.ttft.p95 == pytest.approx(0.0975)
    assert KEY in world.woken


async def test_before_the_switch_the_old_revision_is_measured_to_be_compared_with(world: World) -> None:
    gateway, blue = await world.add_gateway(), await world.add_engine("blue")
    snapshot = world.snapshot("AwaitingPromotion", observe=RELATIVE)
    await until(lambda: "blue" in world.look(snapshot).figures)
    world.woken.clear()
    gateway.count("team-a/chat", "blue", 30, 1)
    blue.observe(0.07, 30)
    await until(lambda: world.look(snapshot).figures["blue"].requests == 30)
    assert KEY in world.woken
    assert world.look(world.snapshot("Provisioning", observe=RELATIVE)).figures["blue"].errors == 1


async def test_a_canarys_next_step_counts_anew(world: World) -> None:
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Observing", step=0)
    await until(lambda: "green" in world.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: world.look(snapshot).figures["green"].requests == 40)
    following = world.snapshot("Observing", step=1)
    world.look(following)
    await until(lambda: "green" in world.look(following).figures)
    assert world.look(following).figures["green"].requests == 0


async def test_how_long_it_was_watched_begins_anew_with_a_step_and_with_the_operator(world: World) -> None:
    await world.add_gateway()
    for step in (0, 1):
        began, snapshot = time.monotonic(), world.snapshot("Observing", step=step)
        first = world.look(snapshot).watched
        assert first <= time.monotonic() - began, "nothing was read before, however old the state is"
        await until(lambda snapshot=snapshot, first=first: world.look(snapshot).watched > first + 0.1)


async def test_an_operator_that_begins_in_the_middle_goes_on_from_the_counts_in_the_status(
    world: World,
) -> None:
    gateway = await world.add_gateway()
    gateway.count("team-a/chat", "green", 500, 50)
    told = {"at": "2026-01-01T00:00:00Z", "requests": 100, "errors": 3, "seconds": 20.0}
    snapshot = world.snapshot("Observing", observation=told)
    assert world.look(snapshot).figures["green"].requests == 100, "as long as it has counted nothing itself"
    await until(lambda: (world.look(snapshot).figures["green"].seconds or 0) > 20)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: world.look(snapshot).figures["green"].requests == 140)
    assert world.look(snapshot).figures["green"].errors == 7, "what came before it began is in the status"
    following = world.snapshot("Observing", step=1, observation=told)
    world.look(following)
    await until(lambda: "green" in world.look(following).figures)
    assert world.look(following).figures["green"].requests == 0, "they belong to the step before"


async def test_counts_that_this_operator_wrote_itself_are_not_added_again(world: World) -> None:
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Observing")
    await until(lambda: "green" in world.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40, 4)
    await until(lambda: world.look(snapshot).figures["green"].requests == 40)
    written = {"at": "2026-01-01T00:00:00Z", "requests": 40, "errors": 4, "seconds": 2.0}
    assert world.look(world.snapshot("Observing", observation=written)).figures["green"].requests == 40


async def test_an_endpoint_that_gets_no_more_requests_is_not_woken_though_time_is_counted(
    world: World,
) -> None:
    """Its decision says itself when time alone may change it."""
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Observing")
    await until(lambda: "green" in world.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40)
    await until(lambda: world.look(snapshot).figures["green"].requests == 40)
    world.woken.clear()
    for _ in range(3):
        seen = world.look(snapshot).figures["green"].seconds
        await until(lambda seen=seen: world.look(snapshot).figures["green"].seconds > seen)
    assert KEY not in world.woken
    gateway.count("team-a/chat", "green", 1)
    await until(lambda: KEY in world.woken)


async def test_the_new_revisions_engines_are_read_as_soon_as_it_gets_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have counted before they are read for the first time counts for nothing."""
    await world.add_gateway()
    blue, green = await world.add_engine("blue"), await world.add_engine("green")
    world.look(world.snapshot("AwaitingPromotion"))
    monkeypatch.setattr(collector, "SAMPLE_S", 60)
    await until(lambda: blue.scrapes > 0)
    assert green.scrapes == 0
    world.look(world.snapshot("Switching", epoch=2))
    await until(lambda: green.scrapes > 0)


async def test_waves_of_an_exchange_in_place_are_one_window(world: World) -> None:
    gateway = await world.add_gateway()
    snapshot = world.snapshot("Switching", step=1, mode="InPlace")
    await until(lambda: "green" in world.look(snapshot).figures)
    gateway.count("team-a/chat", "green", 40)
    await until(lambda: world.look(snapshot).figures["green"].requests == 40)
    following = world.snapshot("Switching", step=2, mode="InPlace")
    assert world.look(following).figures["green"].requests == 40


async def test_everything_unreachable_gives_no_figures_and_ends_nothing(world: World) -> None:
    gateway, green = await world.add_gateway(hanging=True), await world.add_engine("green")
    world.pods["green"].append(ready_pod("green-gone", "127.0.0.1"))
    snapshot = world.snapshot("Observing")
    world.look(snapshot)
    await asyncio.sleep(0.1)
    green.observe(0.07, 40)
    gateway.hanging = False
    gateway.count("team-a/chat", "green", 5)
    await until(lambda: "green" in world.look(snapshot).figures)


async def test_an_endpoint_at_rest_and_a_deleted_one_leave_no_task_behind(world: World) -> None:
    await world.add_engine("green", answer=lambda _: (0, ""))
    before = asyncio.all_tasks()
    for end in (
        lambda: world.look(world.snapshot("Idle")),
        lambda: world.collector.forget(KEY),
    ):
        world.look(world.snapshot("Verifying", verification={"prompts": [PROMPT]}, observe=RELATIVE))
        assert len(asyncio.all_tasks() - before) == 2, "a sampler and a verifier"
        end()
        await until(lambda: not asyncio.all_tasks() - before)
        assert len(world.collector) == 0


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
    assert found.ttft.counts == (4, 5)
    assert found.itl.count == 4
    assert found.e2e.count == 0
    assert quantile(0.5, found.ttft) == pytest.approx(0.0625)


def test_a_broken_histogram_is_no_answer() -> None:
    with pytest.raises(Unanswered, match="/metrics cannot be parsed"):
        parse_latencies("vllm:time_to_first_token_seconds_bucket{le= 3\n")
