"""docs/contribute/contracts.md: every Ready gateway reports in `/state` which epoch it follows, and one that hangs delays nobody.

The gateways are real HTTP servers on loopback.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from llmendpoint_operator.core.rollout.evidence import GatewayView
from llmendpoint_operator.observe import gateways

from ..evidence_stage import KEY, World, ready_pod, staged, until


async def test_an_assignment_is_acknowledged_when_every_gateway_follows_it(world: World) -> None:
    one, other = await world.add_gateway(epochs={"team-a/chat": 1}), await world.add_gateway()
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.look(snapshot).gateways_known)
    views = world.look(snapshot).gateways
    assert views == (GatewayView("gateway-0", 1), GatewayView("gateway-1", None))
    world.woken.clear()
    other.epochs["team-a/chat"] = 1
    await until(lambda: [view.epoch for view in world.look(snapshot).gateways] == [1, 1])
    assert set(world.woken) == {KEY}
    asked = one.states + other.states
    await asyncio.sleep(0.1)
    assert one.states + other.states <= asked + 2, "nobody waits any more"


async def test_a_gateway_that_hangs_delays_nobody(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    stuck = await world.add_gateway(hanging=True)
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.look(snapshot).gateways == (GatewayView("gateway-0", 1), GatewayView("gateway-1", None)))  # fmt: skip
    await until(lambda: world.look(snapshot).gateways_known)
    stuck.hanging = False
    stuck.epochs["team-a/chat"] = 1
    await until(lambda: all(v.epoch == 1 for v in world.look(snapshot).gateways))


async def test_a_gateway_that_is_behind_is_told_what_others_follow(world: World) -> None:
    ahead = await world.add_gateway(epochs={"team-a/chat": 7})
    behind = await world.add_gateway(epochs={"team-a/chat": 6})
    snapshot = world.snapshot("Switching", epoch=7)
    world.look(snapshot)
    await until(lambda: behind.told[:1] == [{"team-a/chat": 7}])
    assert ahead.told == []


async def test_without_a_gateway_an_assignment_is_known_at_once_to_have_nobody_to_wait_for(
    world: World,
) -> None:
    snapshot = world.snapshot("Switching")
    assert not world.look(snapshot).gateways_known, "the pods were not listed yet"
    world.list_gateways()
    evidence = world.look(snapshot)
    assert evidence.gateways == ()
    assert evidence.gateways_known


@pytest.mark.parametrize("ending", [False, True])
async def test_gateways_of_which_none_is_ready_are_not_the_same_as_no_gateway(
    world: World, ending: bool
) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Switching", epoch=1)
    await until(lambda: world.look(snapshot).gateways_known)
    world.unready("gateway-0", ending)
    evidence = world.look(snapshot)
    assert (evidence.gateways, evidence.gateways_known) == ((), False)


async def test_gateways_are_lost_when_none_was_ready_for_long_and_the_endpoint_is_woken_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.gateways.LOST_S", 0.3)
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Switching", epoch=2)
    await until(lambda: world.look(snapshot).gateways_known)
    assert not world.look(snapshot).gateways_lost
    world.unready("gateway-0", False)
    assert not world.look(snapshot).gateways_lost
    await until(lambda: world.look(snapshot).gateways_lost)
    world.woken.clear()
    await world.add_gateway(epochs={"team-a/chat": 1})
    assert not world.look(snapshot).gateways_lost
    await until(lambda: world.look(snapshot).gateways_known)
    monkeypatch.setattr("llmendpoint_operator.observe.gateways.LOST_S", 2.0)  # a busy machine has its time
    world.woken.clear()
    world.unready("gateway-1", False)
    await until(
        lambda: world.woken.count(("team-a", "chat")) >= 2
    )  # that nobody is known, and that they are lost


async def test_a_gateway_pod_that_has_ended_for_good_is_no_gateway(world: World) -> None:
    world.gateway_pods.append(ready_pod("evicted", "127.0.0.1"))
    world.gateway_pods[0]["status"] |= {"phase": "Failed", "reason": "Evicted"}
    world.list_gateways()
    evidence = world.look(world.snapshot("Switching"))
    assert (evidence.gateways, evidence.gateways_known) == ((), True)


async def test_a_gateway_that_comes_up_later_is_asked_too(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1})
    snapshot = world.snapshot("Observing", epoch=1)
    await until(lambda: world.look(snapshot).gateways_known)
    await world.add_gateway(epochs={"team-a/chat": 1})
    assert not world.look(snapshot).gateways_known
    await until(lambda: world.look(snapshot).gateways_known)
    assert len(world.look(snapshot).gateways) == 2


@pytest.mark.parametrize(
    "page", ["no json", "[]", '{"endpoints": 3}', '{"endpoints": {"team-a/chat": null}}', '{"endpoints": {"team-a/chat": {"epoch": "x"}}}'],
)  # fmt: skip
async def test_a_state_that_makes_no_sense_is_no_acknowledgement(world: World, page: str) -> None:
    await world.add_gateway(page=page)
    snapshot = world.snapshot("Switching")
    await until(lambda: world.look(snapshot).gateways_known)
    assert world.look(snapshot).gateways == (GatewayView("gateway-0", None),)


async def test_replicas_that_have_to_go_make_the_gateways_tell_what_is_in_flight(world: World) -> None:
    await world.add_gateway(epochs={"team-a/chat": 1}, in_flight={"blue-0": 3})
    for _ in range(2):
        await world.add_engine("blue")
    snapshot = world.snapshot("Idle", epoch=1)
    await until(lambda: world.look(snapshot).gateways_known)
    assert world.look(snapshot).gateways[0].in_flight == {"blue-0": 3}
    world.pods["blue"].pop()
    assert world.look(world.snapshot("Idle", epoch=1)).gateways == ()
    assert len(world.collector) == 0


async def test_gateways_know_the_operator_by_its_token_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    async with staged(monkeypatch, token) as world:
        await world.add_gateway(epochs={"team-a/chat": 7})
        behind = await world.add_gateway(epochs={"team-a/chat": 6})
        token.write_text("one\n")
        world.look(world.snapshot("Switching", epoch=7))
        await until(lambda: len(behind.told) > 0 and set(behind.tokens) == {"Bearer one"})
        token.write_text("two\n")
        await until(lambda: behind.tokens[-1] == "Bearer two")
        token.unlink()
        await until(lambda: behind.tokens[-1] is None)


async def test_a_gateway_is_met_now_and_then_though_nothing_is_awaited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that it knows the token before it is cut off from the API server."""
    token = tmp_path / "token"
    token.write_text("one")
    monkeypatch.setattr(gateways, "MEET_S", 0.05)
    async with staged(monkeypatch, token) as world:
        gateway = await world.add_gateway()
        await until(lambda: gateway.tokens[:2] == ["Bearer one"] * 2)


@pytest.mark.parametrize("epoch", [-1, 2**53, 2**63])
async def test_an_epoch_that_no_operator_gave_is_none(world: World, epoch: int) -> None:
    await world.add_gateway(epochs={"team-a/chat": epoch})
    snapshot = world.snapshot("Switching", epoch=7)
    await until(lambda: world.look(snapshot).gateways_known)
    assert [view.epoch for view in world.look(snapshot).gateways] == [None]


async def test_a_gateway_that_refuses_to_be_told_is_asked_on(world: World) -> None:
    """An operator without a token beside a gateway that wants one: what the gateways follow is known all the same."""
    await world.add_gateway(epochs={"team-a/chat": 7})
    refuses = await world.add_gateway(epochs={"team-a/chat": 6}, distrustful=True)
    world.look(world.snapshot("Switching", epoch=7))
    await until(lambda: len(refuses.tokens) > 2)
    assert refuses.told == []
    refuses.epochs["team-a/chat"] = 7
    await until(lambda: [view.epoch for view in world.gateways.views(KEY)[0]] == [7, 7])
