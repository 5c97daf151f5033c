"""docs/concepts/gateway.md, "WebSockets": `/v1/stream` passes as a WebSocket, placed once for all requests on it."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from gateway.tests.asking import post
from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.sockets import ASK, CHAT, engine, open_sockets, refused
from gateway.tests.uploads import MIB
from llmendpoint_gateway.core.request.paths import API_PATHS
from llmendpoint_gateway.serve.envoy.drain import QUIET_SECONDS, run_drain
from tests.web_socket import Caller, Closed

IDLE = 2


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """Its time for a WebSocket on which nothing comes is two seconds instead of ten minutes."""
    with running_gateway(SOCKET_IDLE_TIMEOUT=f"{IDLE}s") as running:
        yield running


@pytest.fixture(scope="module")
def chat(gateway: Gateway) -> str:
    return gateway.endpoint(engine(gateway), name="chat")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/stream?model=team/chat", {}),
        ("/v1/stream?a=b&model=team%2Fchat", {}),
        ("/team/chat/v1/stream", {}),
        ("/v1/stream", {"x_llmendpoint_model": "team/chat"}),
        ("/v1/stream?model=team/chat", {"x_llmendpoint_model": "nobody"}),
        ("/v1/stream?model=team/chat", {"content_encoding": "gzip"}),
    ],
)
def test_a_socket_is_opened_for_the_endpoint_that_its_url_or_header_names(
    gateway: Gateway, chat: str, path: str, headers: dict[str, str]
) -> None:
    with Caller(gateway, path, **headers) as caller:
        for stream in (True, False):
            caller.ask(CHAT, ASK | {"stream": stream})
            frames, status = caller.answer()
            assert status == 200
            assert frames[0]["object"] == ("chat.completion.chunk" if stream else "chat.completion")
        caller.ask(CHAT, ASK | {"model": "other"})
        [refusal], status = caller.answer()
        assert (status, refusal["error"]["code"]) == (404, "model_not_found")


def test_frames_reach_no_route_of_the_engine_that_the_gateway_refuses(gateway: Gateway) -> None:
    """The gateway does not look into frames. An engine's own rerank and its routes without /v1 are those of the API."""
    backend = engine(gateway)
    name = gateway.endpoint(backend)
    paths = httpx.get(f"http://{backend.address}/openapi.json").json()["paths"]
    callers = {*API_PATHS, *(path.removeprefix("/v1") for path in API_PATHS), "/v2/rerank"}
    others = sorted({path for path, methods in paths.items() if "post" in methods} - callers)
    assert "/v1/load_lora_adapter" in others
    with Caller(gateway, f"/team/{name}/v1/stream") as caller:
        for path in others:
            caller.ask(path, {})
            assert caller.answer()[1] == 404, path


@pytest.mark.parametrize(
    ("path", "headers", "answer"),
    [
        ("/v1/stream?model=nobody", {}, (404, "model_not_found")),
        (f"/v1/stream?model={'x' * 1900}", {}, (404, "model_not_found")),
        (f"/v1/stream?model={'x' * 2100}", {}, (414, "uri_too_long")),
        ("/team/nobody/v1/stream", {}, (404, "model_not_found")),
        ("/v1/stream", {"x_llmendpoint_model": "x" * 5000}, (404, "model_not_found")),
        ("/v1/stream", {}, (400, "invalid_request")),
        ("/v1/stream?model=", {}, (400, "invalid_request")),
        ("/v1/models", {}, (403, "upgrade_refused")),
        (f"/team/chat{CHAT}", {}, (403, "upgrade_refused")),
        ("/team/chat/v1/stream/x", {}, (403, "upgrade_refused")),
    ],
)
def test_a_handshake_without_an_endpoint_is_refused_before_the_upgrade(
    gateway: Gateway, chat: str, path: str, headers: dict[str, str], answer: tuple[int, str]
) -> None:
    assert refused(gateway, path, **headers) == answer


def test_a_page_of_another_site_gets_no_socket(gateway: Gateway, chat: str) -> None:
    path = f"/team/{chat}/v1/stream"
    assert refused(gateway, path, origin="https://elsewhere.example")[0] == 403
    with Caller(gateway, path, origin=gateway.url):
        pass


async def test_the_path_of_a_socket_takes_its_handshake_alone(gateway: Gateway, chat: str) -> None:
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        plain = await client.get("/v1/stream?model=team/chat")
        assert (plain.status_code, plain.json()["error"]["code"]) == (426, "upgrade_required")
        with_body = await client.request("GET", "/team/chat/v1/stream", content=b"x" * 100)
        assert with_body.status_code == 426
        posted = await client.post("/v1/stream", json=ASK)
        assert (posted.status_code, posted.headers["allow"]) == (405, "GET")


def test_no_credentials_reach_the_engine_and_a_socket_without_frames_waits_for_nothing(
    gateway: Gateway,
) -> None:
    stub = gateway.backend("stub")  # which answers a handshake as any request
    name = gateway.endpoint(stub)
    assert refused(gateway, f"/team/{name}/v1/stream", authorization="Bearer secret")[0] == 200
    seen = httpx.get(f"http://{stub.address}/stub/seen").json()
    assert [request["path"] for request in seen] == ["/v1/stream"]
    assert "authorization" not in seen[0]["headers"]


def test_a_socket_is_counted_while_it_is_open_and_takes_no_place_of_a_request(gateway: Gateway) -> None:
    """Ten idle connections held all ten places of a replica, so that requests waited for an engine that had nothing to do."""
    name = gateway.endpoint(
        engine(gateway, "--max-num-seqs", "1"), traffic={"queue": {"waitingPerReplica": 1}}
    )
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(Caller(gateway, f"/team/{name}/v1/stream"))
        assert open_sockets(gateway, name) == [10]
        assert gateway.in_flight(name) == {}
        asked = asyncio.run(post(gateway, name))
        assert asked.status_code == 400  # the engine's: it has no messages
        address = gateway.known(name)["replicas"][0]["address"]
        labels = f'address="{address}",llmendpoint="{name}",namespace="team",revision="r1"'
        assert gateway.metric(f"sockets{{{labels}}}") == 10
    wait_for(lambda: open_sockets(gateway, name) == [0], "none is counted")


@pytest.mark.parametrize("how", ["in good order", "at once", "by the engine"])
def test_a_socket_that_ends_is_one_request_and_no_failure(gateway: Gateway, how: str) -> None:
    """Engines close the connection after the closing frames, as RFC 6455 has it. Envoy reports that as a broken answer."""
    rules = {"errorRate": 0.1, "windowSeconds": 30, "minRequests": 2, "openSeconds": 30}
    name = gateway.endpoint(engine(gateway), circuitBreaker=rules)
    for _ in range(6):
        with Caller(gateway, f"/team/{name}/v1/stream") as caller:
            caller.ask(CHAT, ASK)
            assert caller.answer()[1] == 200
            if how == "in good order":
                caller.close()
            elif how == "by the engine":
                caller.send(b"bytes")
                with pytest.raises(Closed) as closed:
                    caller.frame()
                assert closed.value.code == 1003
                caller.close()
    wait_for(lambda: gateway.revisions(name)["r1"]["requests"] == 6, "all are counted")
    time.sleep(0.2)  # a report may come later
    assert gateway.revisions(name)["r1"]["errors"] == 0
    assert gateway.known(name)["breaker"] == "closed"
    assert open_sockets(gateway, name) == [0]


def test_sockets_are_spread_over_the_replicas(gateway: Gateway) -> None:
    name = gateway.endpoint(engine(gateway), engine(gateway))
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(Caller(gateway, f"/team/{name}/v1/stream"))
        assert open_sockets(gateway, name) == [3, 3]


def test_a_socket_on_which_nothing_comes_is_closed_and_one_with_requests_is_not(
    gateway: Gateway, chat: str
) -> None:
    with Caller(gateway, f"/team/{chat}/v1/stream") as caller:
        for _ in range(3):
            time.sleep(0.6 * IDLE)
            caller.ask(CHAT, ASK)
            assert caller.answer()[1] == 200
        begun = time.monotonic()
        with pytest.raises(Closed):
            caller.frame()
        assert time.monotonic() - begun > 0.5 * IDLE


def test_a_large_frame_takes_no_memory_of_the_gateway_and_one_over_the_bound_ends_its_socket(
    gateway: Gateway, chat: str
) -> None:
    def allocated() -> int:
        return int(json.loads(gateway.admin("/memory"))["allocated"])

    with Caller(gateway, f"/team/{chat}/v1/stream") as caller:
        before = allocated()
        caller.ask("/v1/nothing", {"pad": "x" * (8 * MIB)})
        assert caller.answer()[1] == 404
        assert allocated() - before < 2 * MIB
        with suppress(ConnectionError):  # the engine does not read all of it
            caller.send("x" * (17 * MIB))
        with pytest.raises((Closed, ConnectionError)) as late:
            caller.frame()
        assert getattr(late.value, "code", 1009) in (1009, 1006)


def test_an_engine_that_crashes_ends_its_sockets_and_the_next_one_finds_another(gateway: Gateway) -> None:
    first, second = engine(gateway, "--itl", "0.1"), engine(gateway, "--itl", "0.1")
    name = gateway.endpoint(first, second)
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(gateway, f"/team/{name}/v1/stream")) for _ in range(2)]
        for caller in callers:
            caller.ask(CHAT, ASK | {"max_tokens": 30, "ignore_eos": True, "stream": True})
            caller.frame()
        first.kill()
        ends = []
        for caller in callers:
            try:
                ends.append(caller.answer()[1])
            except Closed as closed:
                ends.append(closed.code)
        assert sorted(ends) == [200, 1006]
    with Caller(gateway, f"/team/{name}/v1/stream") as caller:
        caller.ask(CHAT, ASK)
        assert caller.answer()[1] == 200


def test_a_revision_that_is_left_keeps_its_sockets_until_they_close(gateway: Gateway) -> None:
    old, new = engine(gateway), engine(gateway)
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    with Caller(gateway, f"/team/{name}/v1/stream") as caller:
        gateway.activate(name, "r2")
        gateway.routed(name, "r2", new)
        gateway.remove_replica(name, "r1", old)
        gateway.settled()
        assert f"team/{name}/r1" in gateway.clusters()
        caller.ask(CHAT, ASK)
        assert caller.answer()[1] == 200
    wait_for(lambda: f"team/{name}/r1" not in gateway.clusters(), "the old cluster is gone")


def test_a_picker_that_dies_cuts_no_socket_and_opens_none(gateway: Gateway, chat: str) -> None:
    path = f"/team/{chat}/v1/stream"
    with Caller(gateway, path) as caller:
        gateway.kill_picker()
        assert refused(gateway, path) == (503, "gateway_unavailable")
        caller.ask(CHAT, ASK)
        assert caller.answer()[1] == 200
        gateway.start_picker()
        gateway.ready()
    with Caller(gateway, path):
        pass


def test_a_gateway_that_drains_waits_for_open_sockets_up_to_its_limit(gateway: Gateway, chat: str) -> None:
    """The last of this gateway: a drain is not undone."""
    with Caller(gateway, f"/team/{chat}/v1/stream") as caller:
        begun = time.monotonic()
        run_drain(gateway.socket, 0.5 + QUIET_SECONDS, least=0.1)
        assert time.monotonic() - begun >= 0.5 + QUIET_SECONDS
        caller.ask(CHAT, ASK)
        assert caller.answer()[1] == 200
        caller.close()
    begun = time.monotonic()
    run_drain(gateway.socket, 30, least=0.1)
    assert time.monotonic() - begun < 10
