"""docs/concepts/gateway.md, "Where the prefix lies": through Envoy, what begins alike goes to one replica, and the figures say so."""

import asyncio
from typing import Any

import httpx
import pytest

from gateway.tests.asking import CHAT
from gateway.tests.harness import Gateway

BEGINNING = "You answer in one sentence, and never guess. " * 40


async def engines(
    gateway: Gateway, name: str, bodies: list[dict[str, Any]], path: str = CHAT, **headers: str
) -> list[str]:
    """Which engine answers each of these, one after another."""
    found = []
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for body in bodies:
            answer = await client.post(path, json={"model": f"team/{name}", **body}, headers=headers)
            assert answer.status_code == 200, answer.text
            found.append(answer.headers["x-engine"])
    return found


def chat(tenant: str, question: str) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": f"You work for {tenant}. {BEGINNING}"},
        {"role": "user", "content": question},
    ]
    return {"messages": messages}


@pytest.mark.parametrize("options", [(), ("seqs=8",)], ids=["engines without a load", "with one"])
async def test_each_tenants_prompts_go_to_one_replica_and_all_replicas_get_some(
    gateway: Gateway, options: tuple[str, ...]
) -> None:
    name = gateway.endpoint(*(gateway.backend(engine, *options) for engine in ("one", "two", "three")))
    before = gateway.metric('prefix_requests_total{found="here"}')
    homes = set()
    for tenant in range(12):
        answered = await engines(gateway, name, [chat(f"tenant {tenant}", f"question {n}") for n in range(4)])
        assert len(set(answered)) == 1
        homes.update(answered)
    assert homes == {"one", "two", "three"}
    assert gateway.metric('prefix_requests_total{found="here"}') - before == 12 * 3
    assert 0 < gateway.metric("prefix_matched_bytes_total") < gateway.metric("prefix_prompt_bytes_total")
    links = gateway.state()["prefixes"]
    assert 12 * 4 < links["links"] <= links["most"]


async def test_short_prompts_of_a_session_stay_at_its_replica_whether_header_or_body_names_it(
    gateway: Gateway,
) -> None:
    name = gateway.endpoint(*(gateway.backend(engine) for engine in ("one", "two")))
    short = {"messages": [{"role": "user", "content": "hi"}]}
    for header in ("x-session-id", "x-llmendpoint-session"):
        for session in ("a", "b", "c"):
            assert len(set(await engines(gateway, name, [short] * 3, **{header: session}))) == 1
    assert len(set(await engines(gateway, name, [{**short, "user": "ada"}] * 3))) == 1
    assert len(set(await engines(gateway, name, [short] * 4))) == 2


async def test_a_replica_that_was_not_ready_for_a_while_is_no_longer_preferred(gateway: Gateway) -> None:
    one, two = gateway.backend("one"), gateway.backend("two")
    name = gateway.endpoint(one, two)
    home = (await engines(gateway, name, [chat("a", "1"), chat("a", "2")]))[-1]
    backend, other = (one, two) if home == "one" else (two, one)
    await asyncio.to_thread(gateway.replica, name, "r1", backend, ready=False)
    await asyncio.to_thread(gateway.routed, name, "r1", other)
    assert await engines(gateway, name, [chat("a", "3")]) == [other.name]
    await asyncio.to_thread(gateway.replica, name, "r1", backend)
    await asyncio.to_thread(gateway.routed, name, "r1", one, two)
    assert await engines(gateway, name, [chat("a", f"{n}") for n in range(4, 8)]) == [other.name] * 4


async def test_embeddings_take_turns_however_alike_they_are(gateway: Gateway) -> None:
    name = gateway.endpoint(*(gateway.backend(engine) for engine in ("one", "two")))
    answered = await engines(gateway, name, [{"input": BEGINNING}] * 6, "/v1/embeddings")
    assert sorted(answered) == ["one"] * 3 + ["two"] * 3
