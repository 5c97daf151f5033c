"""docs/concepts/identity.md: LLMKeys are read in pieces, between which requests are decided, however large the LLMKeys of one tenant are."""

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from gateway.tests.api_stub import ApiStub
from gateway.tests.asking import until
from gateway.tests.keys import key_text, llm_key, put_key
from llmendpoint_gateway.access import Access
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.watch.key_watch import AT_ONCE, PAGE, PAGE_BYTES, KeyWatch

GRANT = {"matchLabels": {f"{n}{'x' * 300}": "y" * 60 for n in range(16)}}


@pytest.fixture
def api() -> Iterator[ApiStub]:
    stub = ApiStub()
    yield stub
    stub.down()


class Counting(KeyWatch):
    """`limits`: of the pages that were asked for."""

    limits: list[int]

    async def _get(
        self, query: list[tuple[str, str]], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        self.limits.append(int(dict(query)["limit"]))
        return await super()._get(query, timeout)


async def read(api: ApiStub) -> tuple[KnownKeys, list[int], int]:
    """The keys, the pages, and how often others had their turn."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    keys, access = KnownKeys(), Access(f"http://127.0.0.1:{api.port}", None, lambda: None)
    async with aiohttp.ClientSession() as session:
        watch = Counting(keys, session, access, None, lambda: 0.0)
        watch.limits = []
        task = asyncio.create_task(others())
        await watch._list()
        task.cancel()
    return keys, watch.limits, turns


async def test_after_a_large_page_the_next_ones_are_small_and_after_a_small_one_large_again(
    api: ApiStub,
) -> None:
    for n in range(PAGE + 20):
        put_key(api, f"a{n:03}", grants=[GRANT] * 5)  # 30 kB
    for n in range(3 * PAGE):
        put_key(api, f"b{n:03}")
    keys, limits, _ = await read(api)
    assert len(keys.table) == 4 * PAGE + 20
    assert limits[0] == limits[-1] == PAGE
    assert limits[1] * 30_000 <= 1.2 * PAGE_BYTES


async def test_others_have_their_turn_within_a_page(api: ApiStub) -> None:
    for n in range(PAGE):
        put_key(api, f"a{n:03}")
    keys, limits, turns = await read(api)
    assert (len(keys.table), limits) == (PAGE, [PAGE])
    assert turns > PAGE // AT_ONCE


async def test_a_key_that_is_gone_after_an_outage_lets_nobody_in(api: ApiStub) -> None:
    text = put_key(api, "gone")
    keys, access = KnownKeys(), Access(f"http://127.0.0.1:{api.port}", None, lambda: None)
    async with aiohttp.ClientSession() as session:
        watch = KeyWatch(keys, session, access, None, lambda: 0.0)
        await watch._list()
        assert keys.table.names == ["team/gone"]
        api.objects["llmkeys"].clear()
        api.objects["llmkeys"]["team/odd"] = llm_key(text, "odd", priority="Highest")
        await watch._list()
    assert keys.table.names == []


async def test_an_object_that_is_too_large_for_an_event_ends_no_picker(api: ApiStub) -> None:
    """etcd takes 1.5 MiB unless its owner allows more."""
    keys, access = KnownKeys(), Access(f"http://127.0.0.1:{api.port}", None, lambda: None)
    async with aiohttp.ClientSession(read_bufsize=1 << 14) as session:
        task = asyncio.create_task(KeyWatch(keys, session, access, None, lambda: 0.0).run())
        await until(lambda: bool(api.watchers), "it watches")
        large = llm_key(key_text(), "large")
        large["metadata"]["annotations"] = {"x": "y" * 500_000}
        await asyncio.to_thread(api.put, "llmkeys", large)
        await asyncio.to_thread(put_key, api, "next")
        await until(
            lambda: sorted(keys.table.names) == ["team/large", "team/next"] or task.done(), "both are known"
        )
        assert not task.done()
        task.cancel()
