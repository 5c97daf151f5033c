"""docs/concepts/adapters.md: through Envoy an adapter is a model of its own for callers, and only those who have it get its requests."""

import asyncio

import httpx

from gateway.tests.asking import CHAT, until
from gateway.tests.engine_process import Simulator
from gateway.tests.harness import Gateway

SPEC = [{"name": "sql", "source": "hf://acme/sql"}, {"name": "legal", "source": "hf://acme/legal"}]


async def ask(gateway: Gateway, model: str, path: str = CHAT) -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        return await client.post(path, json={"model": model})


async def test_an_adapter_is_served_by_the_replicas_that_have_it(gateway: Gateway) -> None:
    one, two = gateway.backend("one", "seqs=8"), gateway.backend("two", "seqs=8")
    two.load("sql")
    name = gateway.endpoint(one, two, adapters=SPEC)
    for path, model in ((CHAT, f"team/{name}:sql"), (CHAT, f"{name}:sql"), (f"/team/{name}{CHAT}", "sql")):
        for _ in range(4):
            found = await ask(gateway, model, path)
            assert (found.status_code, found.headers["x-engine"]) == (200, "two"), found.text
    assert (await ask(gateway, f"{name}:other")).status_code == 404
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        listed = {item["id"] for item in (await client.get("/v1/models")).json()["data"]}
        assert {f"{name}:sql", f"team/{name}:legal"} < listed
        assert (await client.get(f"/v1/models/{name}:sql")).json()["parent"] == name
    assert (
        gateway.metric(f'adapter_requests_total{{adapter="sql",llmendpoint="{name}",namespace="team"}}') == 12
    )


async def test_a_request_waits_for_an_adapter_that_is_being_loaded_and_others_do_not(
    gateway: Gateway,
) -> None:
    one = gateway.backend("one", "seqs=8")
    name = gateway.endpoint(one, adapters=SPEC)
    waiting = asyncio.create_task(ask(gateway, f"{name}:legal"))
    await until(lambda: gateway.known(name)["waiting"] == 1, "it waits")
    assert (await ask(gateway, name)).status_code == 200
    one.load("legal")
    assert (await waiting).status_code == 200
    never = await ask(gateway, f"{name}:sql")
    assert (never.status_code, never.json()["error"]["code"]) == (503, "adapter_not_loaded")
    assert int(never.headers["retry-after"]) > 0


async def test_a_real_engine_answers_under_the_names_that_the_gateway_passes(gateway: Gateway) -> None:
    """Names reach the engine as callers write them. What it says in /load is what the gateway routes by."""
    engines = [
        Simulator("real", options=("--served-model-name=team/real", "--enable-lora")) for _ in range(2)
    ]
    gateway.backends += engines
    for engine in engines:
        engine.start()
    name = gateway.endpoint(*engines, name="real", adapters=SPEC)
    engines[0].load("sql")
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for path, model in (
            (CHAT, f"team/{name}:sql"),
            (CHAT, f"{name}:sql"),
            (f"/team/{name}{CHAT}", "sql"),
        ):
            answers = [await client.post(path, json=chat | {"model": model}) for _ in range(3)]
            assert [(a.status_code, a.json()["model"]) for a in answers] == [(200, "sql")] * 3
        plain = [(await client.post(CHAT, json=chat | {"model": name})).json()["model"] for _ in range(4)]
        assert set(plain) == {"real"}
