"""docs/contribute/contracts.md: a gateway publishes whole views, reports what it follows, and is unready only while it is behind."""

import asyncio
from dataclasses import replace

import pytest

from gateway.tests.one_endpoint import (
    ADDRESSES,
    BROKEN,
    CHAT,
    PRINT,
    REPLICAS,
    UNREACHABLE,
    Holding,
    parts_of,
    request_of,
    turn,
)
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.outcome.attempt import Ended
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.replica_breaker import FIRST_SECONDS
from llmendpoint_gateway.core.request.refusals import Rejected
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.placement.control import TOLD_SECONDS
from llmendpoint_gateway.serve.state import describe


async def test_trap_4_half_a_list_is_never_published() -> None:
    control = parts_of(Ads()).control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    await turn()
    assert control.generation == 0
    decision = control.placement.place("chat", 0)
    assert isinstance(decision, Rejected)
    assert decision.code == "gateway_starting"
    control.relisted(Kind.SLICE, {})
    await turn()
    assert control.generation == 1


async def test_all_changes_of_one_turn_are_one_generation() -> None:
    control = parts_of(Ads()).control
    control.relisted(Kind.ENDPOINT, {})
    control.relisted(Kind.SLICE, {})
    for n in range(100):
        control.applied(Kind.SLICE, f"a/{n}", Slice(f"a/{n}", "r1", REPLICAS.replicas))
    await turn()
    assert control.generation == 1
    control.applied(Kind.SLICE, "a/0", Slice("a/0", "r1", REPLICAS.replicas))
    await turn()
    assert control.generation == 1  # nothing that Envoy holds has changed


async def test_a_change_that_could_not_be_taken_is_taken_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ads = Holding()
    control = parts_of(ads).control
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    with monkeypatch.context() as patch:
        patch.setattr(ads, "publish", lambda _: 1 / 0)
        control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await turn()
    control.applied(Kind.ENDPOINT, "a/other", replace(CHAT, name="other"))
    await turn()
    assert isinstance(control.placement.place("chat", 0), Picked)
    assert ads.published.keys() >= {"a/chat/r1", "a/other/r1"}


async def test_a_replica_that_refused_a_connection_is_skipped_for_a_moment() -> None:
    now = [0.0]
    parts = parts_of(Holding(), lambda: now[0])
    control = parts.control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()

    def first_picks() -> set[str]:
        decisions = [control.placement.place("chat", now[0]) for _ in range(4)]
        assert all(isinstance(decision, Picked) for decision in decisions)
        return {decision.addresses[0] for decision in decisions if isinstance(decision, Picked)}

    assert first_picks() == set(ADDRESSES)
    parts.outcomes.settle(UNREACHABLE)
    assert first_picks() == {ADDRESSES[1]}
    now[0] += FIRST_SECONDS
    assert first_picks() == set(ADDRESSES)


async def test_a_replica_that_was_not_ready_meanwhile_starts_anew() -> None:
    parts = parts_of(Holding())
    control = parts.control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    parts.outcomes.settle(UNREACHABLE)
    assert [r["breaker"] for r in describe(control, Holding())["endpoints"]["a/chat"]["replicas"]] == [
        "open",
        "closed",
    ]
    control.applied(Kind.SLICE, "a/s", Slice("a/chat", "r1", REPLICAS.replicas[1:]))
    await turn()
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert [r["breaker"] for r in describe(control, Holding())["endpoints"]["a/chat"]["replicas"]] == [
        "closed",
        "closed",
    ]


async def test_a_gateway_is_behind_until_it_follows_what_it_was_told_of_and_a_restored_backup_ends_that() -> (
    None
):
    def at(epoch: int) -> Endpoint:
        return replace(CHAT, traffic=Assignment(epoch, (("r1", 100),)))

    control = parts_of(Holding()).control
    control.relisted(Kind.ENDPOINT, {"a/chat": at(3)})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    control.tell({"a/chat": 3})
    assert control.behind == []
    control.tell({"a/chat": 4, "a/new": 1})
    assert control.behind == ["a/chat", "a/new"]
    control.applied(Kind.ENDPOINT, "a/chat", at(4))
    control.applied(Kind.ENDPOINT, "a/new", replace(CHAT, name="new"))
    await turn()
    assert control.behind == ["a/new"]
    control.deleted(Kind.ENDPOINT, "a/new")
    await turn()
    assert control.behind == []
    control.tell({"a/chat": 9})
    control.applied(Kind.ENDPOINT, "a/chat", at(2))
    await turn()
    assert control.behind == []
    assert describe(control, Holding())["endpoints"]["a/chat"]["epoch"] == 2


async def test_what_a_gateway_was_told_before_the_watch_broke_is_forgotten_after_a_minute() -> None:
    now = [0.0]
    control = parts_of(Holding(), lambda: now[0]).control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    control.tell({"a/chat": 9})  # of one of the same name, which was deleted since
    now[0] = TOLD_SECONDS + 1
    assert control.behind == []
    control.tell({"a/chat": 9})
    control.placement.reach.lost(Kind.SLICE, now[0])
    now[0] += 3600
    assert control.behind == ["a/chat"]  # it could not be told again


async def test_an_endpoint_that_was_deleted_before_it_was_told_of_is_forgotten_while_the_watch_stands() -> (
    None
):
    control = parts_of(Holding()).control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    for cut_off, behind in ((False, []), (True, ["a/gone"])):
        if cut_off:
            control.placement.reach.lost(Kind.ENDPOINT, -5.0)
        control.tell({"a/gone": 1})
        control.applied(Kind.SLICE, "a/s", REPLICAS)
        await turn()
        assert control.behind == behind


async def test_the_end_of_a_request_publishes_nothing_while_its_revision_is_held_anyway() -> None:
    ads = Holding()
    parts = parts_of(ads)
    control = parts.control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    view = control.placement.view
    picked = Picked("a/chat", "a/chat/r1", (ADDRESSES[0],))
    placed = control.placement.take(picked, request_of(), 0)
    parts.outcomes.settle(Ended(placed.tag.ticket))
    await turn()
    assert control.placement.view is view
    placed = control.placement.take(picked, request_of(), 0)
    control.deleted(Kind.ENDPOINT, "a/chat")
    control.deleted(Kind.SLICE, "a/s")
    await turn()
    before = control.generation
    assert ads.published == {"a/chat/r1": ()}  # held for the request in flight alone
    parts.outcomes.settle(Ended(placed.tag.ticket))
    await turn()
    assert control.generation == before + 1
    assert ads.published == {}


async def test_a_revision_that_crashes_while_its_rollout_judges_it_puts_no_blame_on_a_request() -> None:
    parts = parts_of(Holding())
    control = parts.control
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    for judged in (True, False):
        control.relisted(Kind.ENDPOINT, {"a/chat": replace(CHAT, judged=judged)})
        await turn()
        for address, again in zip(ADDRESSES, (False, True), strict=True):
            parts.outcomes.settle(replace(BROKEN, address=address, again=again))
        assert control.placement.poison.refused("a/chat", PRINT, 0) is not judged


async def test_a_breaker_that_a_rollout_finds_open_closes_as_the_rollout_judges_by_itself() -> None:
    parts = parts_of(Holding())
    control = parts.control
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    await turn()
    for _ in range(CHAT.circuit.min_requests):
        parts.outcomes.settle(replace(BROKEN, again=True, told=True, broken=False))
    parts.outcomes.tick()
    assert describe(control, Holding())["endpoints"]["a/chat"]["breaker"] == "open"
    control.applied(Kind.ENDPOINT, "a/chat", replace(CHAT, judged=True))
    await turn()
    parts.outcomes.tick()
    assert describe(control, Holding())["endpoints"]["a/chat"]["breaker"] == "closed"


async def test_a_change_that_was_left_off_in_the_middle_is_taken_whole_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control = parts_of(Holding()).control
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    with monkeypatch.context() as patch:
        patch.setattr(control.placement.departed, "note", lambda *_: 1 / 0)
        control.deleted(Kind.ENDPOINT, "a/chat")
        control.deleted(Kind.SLICE, "a/s")
        control.applied(Kind.SLICE, "a/t", replace(REPLICAS, replicas=REPLICAS.replicas[:1]))
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await turn()
    control.deleted(Kind.SLICE, "a/t")
    await turn()
    assert control.placement.loads.due(0, (), most=9) == []
    control.applied(Kind.ENDPOINT, "a/chat", CHAT)
    control.applied(Kind.SLICE, "a/s", REPLICAS)
    await turn()
    assert isinstance(control.placement.place("chat", 0), Picked)
    assert set(control.placement.loads.due(0, (), most=9)) == set(ADDRESSES)
