"""docs/concepts/gateway.md: where all replicas are busy, requests wait in the gateway, fairly, and no longer than the spec says."""

import asyncio
import signal
import time
import uuid
from collections import Counter
from typing import Any

import httpx
import openai
import pytest

from gateway.tests.bounds import wait_for
from gateway.tests.demand_lines import stream
from gateway.tests.harness import Gateway, running_gateway
from llmendpoint_gateway.core.endpoint.loads import FIRST_LIMIT, SHORTEST_SECONDS

CHAT = "/v1/chat/completions"


def queue(**settings: Any) -> dict[str, Any]:
    return {"traffic": {"queue": {"waitingPerReplica": 0, **settings}}}


async def until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


def known_load(gateway: Gateway, name: str, *pods: str, running: int | None = None) -> None:
    with stream(gateway) as lines:
        for pod in pods:

            def told(endpoint: dict[str, Any], pod: str = pod) -> bool:
                load = endpoint["replicas"][pod]["load"]
                return load is not None and running in (None, load["running"])

            lines.until(name, told, f"{pod}'s load is known")


class Clients:
    """Requests that are under way at once, and their answers in order of arrival."""

    def __init__(self, gateway: Gateway, model: str) -> None:
        self.gateway, self.model = gateway, model
        self.answers: list[tuple[str, httpx.Response]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Clients":
        self.clients: dict[str, httpx.AsyncClient] = {}
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        for client in self.clients.values():
            await client.aclose()

    def client(self, address: str) -> httpx.AsyncClient:
        """Of a caller at this address of the machine's loopback."""
        if address not in self.clients:
            limits = httpx.Limits(max_connections=None)
            transport = httpx.AsyncHTTPTransport(local_address=address, limits=limits)
            self.clients[address] = httpx.AsyncClient(
                base_url=self.gateway.url, timeout=60, transport=transport
            )
        return self.clients[address]

    def send(
        self, count: int, delay: float, name: str = "", address: str = "127.0.0.1", **headers: str
    ) -> None:
        headers = {"x-delay": str(delay), **headers}
        self.tasks += [asyncio.create_task(self._one(name, address, headers)) for _ in range(count)]

    async def _one(self, name: str, address: str, headers: dict[str, str]) -> None:
        if headers.get("authorization") == "random":
            headers = {**headers, "authorization": f"Bearer {uuid.uuid4()}"}
        body = {"model": f"team/{self.model}"}
        response = await self.client(address).post(CHAT, json=body, headers=headers)
        self.answers.append((name, response))

    async def all(self) -> Counter[int]:
        await asyncio.gather(*self.tasks)
        return Counter(response.status_code for _, response in self.answers)

    async def waiting(self, count: int) -> None:
        await until(lambda: self.gateway.known(self.model)["waiting"] == count, f"{count} wait")


async def test_a_replica_gets_no_more_than_it_can_compute_and_the_rest_is_served_as_it_ends(
    gateway: Gateway,
) -> None:
    backend = gateway.backend("a", "seqs=2")
    name = gateway.endpoint(backend, **queue())
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(6, delay=1)
        await clients.waiting(4)
        await until(lambda: backend.stats()["running"] == 2, "both have reached it")
        assert await clients.all() == {200: 6}
    assert gateway.known(name)["waiting"] == 0


async def test_who_waits_goes_to_another_replica_as_soon_as_there_is_one(gateway: Gateway) -> None:
    slow, late = gateway.backend("slow", "seqs=1"), gateway.backend("late", "seqs=8")
    name = gateway.endpoint(slow, **queue())
    known_load(gateway, name, f"slow-{slow.port}")
    async with Clients(gateway, name) as clients:
        clients.send(1, delay=30)
        await until(lambda: slow.stats()["running"] == 1, "the first is served")
        clients.send(4, delay=0)
        await clients.waiting(4)
        gateway.replica(name, "r1", late)
        await until(lambda: len(clients.answers) == 4, "the others are answered")
        assert {response.headers["x-engine"] for _, response in clients.answers} == {"late"}


async def test_an_engine_that_tells_no_load_gets_every_request_at_once(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend, **queue())
    async with Clients(gateway, name) as clients:
        clients.send(20, delay=1)
        await until(lambda: backend.stats()["running"] == 20, "all are there")
        assert await clients.all() == {200: 20}


@pytest.mark.parametrize("known", [True, False], ids=["it had told its load", "it had not yet"])
async def test_what_waits_does_not_fall_upon_a_replica_that_stands_still(
    gateway: Gateway, known: bool
) -> None:
    backend = gateway.backend("a", f"seqs={FIRST_LIMIT}")
    if not known:
        backend.process.send_signal(signal.SIGSTOP)
    name = gateway.endpoint(backend, **queue(timeoutSeconds=60))
    if known:
        known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(FIRST_LIMIT + 4, delay=60)
        await clients.waiting(4)
        if known:
            known_load(gateway, name, f"a-{backend.port}", running=FIRST_LIMIT)
            backend.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SHORTEST_SECONDS + 1.5)  # a reading takes a second to fail
        assert gateway.known(name)["waiting"] == 4
        backend.process.send_signal(signal.SIGCONT)
        await asyncio.to_thread(backend.finish, FIRST_LIMIT)
        await asyncio.to_thread(backend.finish, 4)
        assert await clients.all() == {200: FIRST_LIMIT + 4}


async def test_a_revision_that_is_full_gives_its_share_to_one_that_has_room(gateway: Gateway) -> None:
    old, new = gateway.backend("old", "seqs=1"), gateway.backend("new", "seqs=8")
    name = gateway.endpoint(old, **queue())
    gateway.replica(name, "r2", new)
    gateway.traffic(name, 1, r1=90, r2=10)
    gateway.follows(name, 1)
    known_load(gateway, name, f"old-{old.port}", f"new-{new.port}")
    async with Clients(gateway, name) as clients:
        clients.send(5, delay=1)
        assert await clients.all() == {200: 5}
        assert Counter(r.headers["x-engine"] for _, r in clients.answers) == {"old": 1, "new": 4}


async def test_callers_take_turns_however_many_requests_each_has(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue(timeoutSeconds=60))
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(1, delay=60)
        await until(lambda: backend.stats()["running"] == 1, "the replica is busy")
        clients.send(30, delay=0.01, name="greedy", address="127.0.0.2")
        await clients.waiting(30)
        clients.send(10, delay=0.01, name="small", address="127.0.0.3")
        await clients.waiting(40)
        await asyncio.to_thread(backend.finish, 1)
        assert await clients.all() == {200: 41}
        first = Counter(name for name, _ in clients.answers[1:21])
        assert abs(first["greedy"] - first["small"]) <= 2


async def test_a_caller_that_forges_tokens_keeps_no_other_out(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue(maxRequests=50, timeoutSeconds=60))
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(1, delay=60)
        await until(lambda: backend.stats()["running"] == 1, "the replica is busy")
        clients.send(150, delay=0, name="forger", address="127.0.0.2", authorization="random")
        await clients.waiting(50)
        clients.send(5, delay=0, name="honest", address="127.0.0.3")
        await until(lambda: len(clients.answers) == 105, "as many are refused as find no room")
        await asyncio.to_thread(backend.finish, 1)
        await clients.all()
        honest = [response.status_code for sent, response in clients.answers if sent == "honest"]
        assert honest == [200] * 5
        assert Counter(r.status_code for sent, r in clients.answers if sent == "forger")[429] >= 5


async def test_a_higher_priority_is_served_first(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue())
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(1, delay=1)
        await until(lambda: backend.stats()["running"] == 1, "the replica is busy")
        for number, priority in enumerate(("low", "normal", "high"), 1):
            clients.send(1, delay=0.05, name=priority, **{"x-llmendpoint-priority": priority})
            await clients.waiting(number)
        await clients.all()
        assert [sent for sent, _ in clients.answers] == ["", "high", "normal", "low"]


async def test_a_full_queue_is_429_with_retry_after_in_openais_shape(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue(maxRequests=2))
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(5, delay=1)
        assert await clients.all() == {200: 3, 429: 2}
        (refused, _) = (r for _, r in clients.answers if r.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
    assert name in error["message"]


async def test_who_waited_as_long_as_the_spec_says_gets_503_with_retry_after(gateway: Gateway) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue(timeoutSeconds=1))
    known_load(gateway, name, f"a-{backend.port}")
    async with Clients(gateway, name) as clients:
        clients.send(1, delay=3)
        await until(lambda: backend.stats()["running"] == 1, "the replica is busy")
        begun = time.monotonic()
        clients.send(1, delay=0)
        await until(lambda: clients.answers, "the second is answered")
        assert time.monotonic() - begun >= 0.9
        refused = clients.answers[0][1]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_timeout")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("settings", [{"maxRequests": 1}, {"timeoutSeconds": 1}], ids=["full", "expired"])
async def test_an_sdks_default_retries_finish_what_found_the_queue_full_or_waited_in_vain(
    gateway: Gateway, settings: dict[str, int]
) -> None:
    backend = gateway.backend("a", "seqs=1")
    name = gateway.endpoint(backend, **queue(**settings))
    known_load(gateway, name, f"a-{backend.port}")
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none")

    async def ask() -> str:
        message = {"role": "user", "content": "hi"}
        headers = {"x-delay": "0.8"}
        answer = await client.chat.completions.create(
            model=f"team/{name}",
            messages=[message],  # type: ignore[list-item]
            extra_headers=headers,
        )
        return str(answer.choices[0].message.content)

    before = gateway.metric(f'decisions_total{{outcome="{_outcome(settings)}"}}', 0)
    assert await asyncio.gather(*(ask() for _ in range(3))) == ["hello from a"] * 3
    assert gateway.metric(f'decisions_total{{outcome="{_outcome(settings)}"}}') > before


def _outcome(settings: dict[str, int]) -> str:
    return "queue_full" if "maxRequests" in settings else "queue_timeout"


async def raw_post(port: int, model: str) -> int:
    """The status; without a client library, of which 3,000 calls would be most of a test's time."""
    body = f'{{"model": "{model}"}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
    writer.write(f"{head}\r\n\r\n{body}".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def test_3000_requests_at_once_wait_across_50_endpoints_within_bounds_and_all_are_answered(
    gateway: Gateway,
) -> None:
    names = [f"many{number}" for number in range(50)]
    for name in names:
        gateway.activate(name, "r1", replicas=1, **queue(timeoutSeconds=120))
    await asyncio.to_thread(gateway.settled)
    before = gateway.resident_bytes()
    asked = [f"team/{name}" for _ in range(60) for name in names]
    requests = [asyncio.create_task(raw_post(gateway.port, model)) for model in asked]
    await until(lambda: gateway.metric("waiting_requests") == len(requests), "all of them wait")
    grown = gateway.resident_bytes() - before
    print(f"{grown / (1 << 20):.1f} MiB of the picker's memory for 3,000 waiting requests")
    assert grown < 64 << 20
    backend = gateway.backend("all", "seqs=4096")
    for name in names:
        gateway.replica(name, "r1", backend)
    assert Counter(await asyncio.gather(*requests)) == {200: 3000}
    assert gateway.metric("waiting_requests") == 0


async def test_a_killed_gateway_leaves_nobody_waiting_for_ever() -> None:
    with running_gateway() as gateway:
        backend = gateway.backend("a", "seqs=1")
        name = gateway.endpoint(backend, **queue())
        known_load(gateway, name, f"a-{backend.port}")
        async with Clients(gateway, name) as clients:
            clients.send(11, delay=60)
            await clients.waiting(10)
            gateway.kill_picker()
            await until(lambda: len(clients.answers) == 10, "all that waited are answered")
            assert {r.status_code for _, r in clients.answers} == {503}
            assert all(int(r.headers["retry-after"]) >= 1 for _, r in clients.answers)
            gateway.start_picker()
            await asyncio.to_thread(gateway.ready)
            known_load(gateway, name, f"a-{backend.port}")
            clients.send(5, delay=60)
            await clients.waiting(4)
            gateway.picker.kill()
            gateway.envoy.kill()
            done, pending = await asyncio.wait(clients.tasks, timeout=10)
            assert not pending
            # With nobody there an answer or a broken connection: both are what an SDK tries again.
            errors = [e for task in done if (e := task.exception()) is not None]
            assert all(isinstance(e, httpx.TransportError) for e in errors)
