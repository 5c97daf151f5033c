"""docs/concepts/identity.md: API keys through a real Envoy: who gets in, what each caller may use, and what of it engines and logs see."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from gateway.tests.asking import CHAT, until
from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.http2_client import Http2Client
from gateway.tests.keys import bearer, digest, key_text, llm_key, put_key
from gateway.tests.sockets import ASK, engine, refused
from llmendpoint_gateway.core.identity.credentials import proof_of
from tests.web_socket import Caller

SECONDS = 2
"""Within which a revoked key is refused."""
UNAUTHENTICATED, FORBIDDEN = (401, "invalid_api_key"), (403, "permission_denied")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """team/chat and team/gold; other/chat, which is older, and other/shared, which team may use."""
    with running_gateway(authentication="required") as running:
        running.endpoint(
            running.backend("own"), name="chat", adapters=[{"name": "sql", "source": "hf://a/b"}]
        )
        running.endpoint(running.backend("gold"), name="gold", labels={"tier": "gold"})
        running.endpoint(
            running.backend("theirs"), name="theirs", namespace="other", names=("chat", "theirs"), created="2025-01-01T00:00:00Z"
        )  # fmt: skip
        running.endpoint(
            running.backend("shared"), name="shared", namespace="other", access={"namespaces": ["team"]}
        )
        yield running


@pytest.fixture(scope="module")
def key(gateway: Gateway) -> str:
    return valid(gateway, put_key(gateway.api, "all", grants=[{}, {"namespace": "other"}]))


def valid(gateway: Gateway, text: str) -> str:
    """Wait until the picker knows the key."""
    wait_for(lambda: listed(gateway, text).status_code == 200, "the key is known")
    return text


def listed(gateway: Gateway, text: str) -> httpx.Response:
    return httpx.get(f"{gateway.url}/v1/models", headers=bearer(text))


def ask(gateway: Gateway, model: str, headers: Any, path: str = CHAT, **more: Any) -> httpx.Response:
    return httpx.post(gateway.url + path, json={"model": model, **more}, headers=headers, timeout=30)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def answered_by(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    name: str = answer.headers["x-engine"]
    return name


def test_the_sdks_headers_let_a_caller_in(gateway: Gateway, key: str) -> None:
    for headers in (bearer(key), {"x-api-key": key}, {"authorization": "Bearer unused", "x-api-key": key}):
        assert answered_by(ask(gateway, "team/chat", headers)) == "own"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-none"},
        {"authorization": "Basic YTpi"},
        bearer(key_text()),
        bearer(key_text()[:-1]),
        bearer("llm_" + "x" * 10_000),
        {"x-api-key": "llm_"},
        {"x-api-key": "llm_\N{LATIN SMALL LETTER E WITH ACUTE}".encode()},
    ],
)
def test_whoever_has_no_key_is_told_so_and_not_why(gateway: Gateway, key: str, headers: Any) -> None:
    answers = [
        ask(gateway, "team/chat", headers),
        ask(gateway, "team/nobody", headers),
        ask(gateway, "x", headers, "/nothing/here"),
        httpx.get(f"{gateway.url}/v1/models", headers=headers),
    ]
    assert {refusal(answer) for answer in answers} == {UNAUTHENTICATED}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert refused(gateway, "/v1/stream?model=team/chat") == UNAUTHENTICATED


def test_two_keys_in_one_request_are_none(gateway: Gateway, key: str) -> None:
    for name in ("authorization", "x-api-key"):
        value = f"Bearer {key}" if name == "authorization" else key
        answer = ask(gateway, "team/chat", [(name, value), (name, value)])
        assert refusal(answer) == UNAUTHENTICATED


def test_headers_of_100_kb_are_too_large(gateway: Gateway) -> None:
    assert ask(gateway, "team/chat", bearer("llm_" + "x" * 100_000)).status_code == 431


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_bare_name_leads_to_no_other_tenant(gateway: Gateway, key: str, size: int) -> None:
    """Theirs is older. A large body goes through both listeners."""
    for model, engine_ in (
        ("chat", "own"),
        ("team/chat", "own"),
        ("shared", "shared"),
        ("other/shared", "shared"),
    ):
        assert answered_by(ask(gateway, model, bearer(key), pad="x" * size)) == engine_
    for model in ("theirs", "other/theirs", "nobody", "no/body", "theirs:x"):
        answer = ask(gateway, model, bearer(key), pad="x" * size)
        assert refusal(answer) == FORBIDDEN
        assert answer.content == ask(gateway, "x", bearer(key)).content


def test_a_path_that_names_an_endpoint_is_judged_as_a_name(gateway: Gateway, key: str) -> None:
    assert answered_by(ask(gateway, "x", bearer(key), f"/team/chat{CHAT}")) == "own"
    for path in (f"/other/theirs{CHAT}", f"/no/body{CHAT}"):
        assert refusal(ask(gateway, "x", bearer(key), path)) == FORBIDDEN


def test_an_adapter_needs_the_right_to_its_endpoint(gateway: Gateway, key: str) -> None:
    """No replica has it here, which only who may use it is told."""
    assert refusal(ask(gateway, "chat:sql", bearer(key))) == (503, "adapter_not_loaded")
    assert refusal(ask(gateway, "chat:nothing", bearer(key))) == (404, "model_not_found")
    without = valid(gateway, put_key(gateway.api, "gold", grants=[{"matchLabels": {"tier": "gold"}}]))
    assert refusal(ask(gateway, "chat:sql", bearer(without))) == FORBIDDEN
    assert answered_by(ask(gateway, "gold", bearer(without))) == "gold"


def test_models_are_those_that_the_caller_may_use(gateway: Gateway, key: str) -> None:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key)
    assert [model.id for model in client.models.list()] == [
        "chat", "chat:sql", "gold", "other/shared", "shared", "team/chat", "team/chat:sql", "team/gold",
    ]  # fmt: skip
    assert client.models.retrieve("chat").owned_by == "team/chat"
    assert client.models.retrieve("team/chat:sql").id == "team/chat:sql"
    for name in ("theirs", "nobody"):
        with pytest.raises(openai.PermissionDeniedError):
            client.models.retrieve(name)
    nothing = valid(gateway, put_key(gateway.api, "nothing", grants=[]))
    assert listed(gateway, nothing).json() == {"object": "list", "data": []}


def test_the_openai_sdk_names_each_refusal(gateway: Gateway, key: str) -> None:
    def create(text: str, model: str = "chat") -> Any:
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=text)
        return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])

    assert create(key).choices[0].message.content == "hello from own"
    with pytest.raises(openai.AuthenticationError):
        create("none")
    with pytest.raises(openai.PermissionDeniedError):
        create(key, "theirs")


def test_a_websocket_is_judged_by_its_handshake(gateway: Gateway, key: str) -> None:
    gateway.endpoint(engine(gateway), name="socket")
    with Caller(gateway, "/team/socket/v1/stream", **bearer(key)) as caller:
        caller.ask(CHAT, ASK)
        assert caller.answer()[1] == 200
    assert refused(gateway, "/v1/stream?model=theirs", **bearer(key)) == FORBIDDEN
    assert refused(gateway, "/other/theirs/v1/stream", **bearer(key)) == FORBIDDEN
    assert refused(gateway, "/v1/stream?model=nobody", x_api_key=key) == FORBIDDEN


async def test_over_http2_a_refused_request_ends_no_other_one(gateway: Gateway, key: str) -> None:
    async with Http2Client(gateway.port) as client:
        for size in (100, 100_000):
            for text, good in ((key, True), (key_text(), False), (key, True)):
                body = json.dumps({"model": "chat", "pad": "x" * size}).encode()
                headers = {"content-length": str(len(body)), **bearer(text)}
                exchange = client.open(CHAT, headers)
                await client.send(exchange, body)
                await asyncio.wait_for(exchange.ended.wait(), 30)
                assert exchange.ok is good
                assert good or json.loads(exchange.body)["error"]["code"] == "invalid_api_key"
        assert client.goaway is None


async def test_a_large_body_without_a_key_is_refused_before_it_is_sent(gateway: Gateway, key: str) -> None:
    async def answer(text: str, size: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {text}\r\n{size}\r\n\r\n"
        writer.write(head.encode())
        try:
            return await asyncio.wait_for(reader.read(12), 2)
        except TimeoutError:
            return b""
        finally:
            writer.close()

    for size in ("content-length: 20000000", "transfer-encoding: chunked"):
        assert await answer(key_text(), size) == b"HTTP/1.1 401"
        assert await answer(key, size) == b""  # its body is awaited


def test_engines_see_no_credentials_also_on_a_retry(gateway: Gateway, key: str) -> None:
    drains, good = gateway.backend("drains", "retriable-503"), gateway.backend("good")
    name = gateway.endpoint(drains, good)
    for size in (10, 50_000):
        for headers in (bearer(key), {"x-api-key": key, "api-key": key}):
            for _ in range(2):  # one of them begins with the replica that drains
                assert answered_by(ask(gateway, name, headers, pad="x" * size)) == "good"
    assert (
        refused(gateway, f"/team/{name}/v1/stream", **bearer(key))[0] == 200
    )  # the stub's, which is no handshake
    for backend in (drains, good):
        seen = httpx.get(f"http://{backend.address}/stub/seen").json()
        assert {"/v1/stream", CHAT} >= {request["path"] for request in seen} != set()
        assert key not in json.dumps(seen)
        assert not {"authorization", "x-api-key", "api-key"} & {
            h for request in seen for h in request["headers"]
        }


def test_a_revoked_or_disabled_key_is_refused_within_two_seconds(gateway: Gateway) -> None:
    for name in ("revoked", "disabled", "over"):
        text = valid(gateway, put_key(gateway.api, name))
        start = time.monotonic()
        if name == "revoked":
            gateway.api.delete("llmkeys", name)
        else:
            more = {"disabled": True} if name == "disabled" else {"expires": "2020-01-01T00:00:00Z"}
            gateway.api.put("llmkeys", llm_key(text, name, **more))
        wait_for(lambda text=text: listed(gateway, text).status_code == 401, f"{name} is refused", SECONDS)
        assert time.monotonic() - start < SECONDS
        assert refusal(ask(gateway, "chat", bearer(text))) == UNAUTHENTICATED


def test_a_key_that_changes_into_what_cannot_be_read_lets_nobody_in(gateway: Gateway) -> None:
    text = valid(gateway, put_key(gateway.api, "odd"))
    gateway.api.put("llmkeys", llm_key(text, "odd", priority="Highest"))
    wait_for(lambda: listed(gateway, text).status_code == 401, "it is refused", SECONDS)


def test_a_grant_that_is_taken_back_counts_at_once(gateway: Gateway) -> None:
    text = valid(gateway, put_key(gateway.api, "less"))
    assert answered_by(ask(gateway, "chat", bearer(text))) == "own"
    gateway.api.put("llmkeys", llm_key(text, "less", grants=[{"name": "gold"}]))
    wait_for(lambda: ask(gateway, "chat", bearer(text)).status_code == 403, "it is refused", SECONDS)


def test_access_that_is_taken_back_counts_at_once(gateway: Gateway, key: str) -> None:
    backend = gateway.backend("passing")
    name = gateway.endpoint(backend, name="passing", namespace="other", access={"namespaces": ["*"]})
    assert answered_by(ask(gateway, name, bearer(key))) == "passing"
    gateway.activate(name, "r1", namespace="other", access={"namespaces": ["somebody"]})
    wait_for(lambda: ask(gateway, name, bearer(key)).status_code == 403, "it is refused", SECONDS)


async def test_a_rotation_loses_no_request(gateway: Gateway) -> None:
    """Callers change from the old text to the new one while both are valid."""
    old, new = (key_text("rotatedrotated00") for _ in range(2))
    gateway.api.put("llmkeys", llm_key(old, "rotated"))
    await asyncio.to_thread(valid, gateway, old)
    use, stop, statuses = [old], asyncio.Event(), list[int]()

    async def caller() -> None:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            while not stop.is_set():
                answer = await client.post(CHAT, json={"model": "chat"}, headers=bearer(use[0]))
                statuses.append(answer.status_code)

    callers = [asyncio.create_task(caller()) for _ in range(8)]
    await until(lambda: len(statuses) > 50, "there is load")
    both = [{"sha256": digest(new)}, {"sha256": digest(old), "expires": "2100-01-01T00:00:00Z"}]
    gateway.api.put("llmkeys", llm_key(new, "rotated", hashes=both))
    await asyncio.to_thread(valid, gateway, new)
    count = len(statuses)
    await until(lambda: len(statuses) > count + 50, "the old text is used on")
    use[0], count = new, len(statuses)
    await until(lambda: len(statuses) > count + 50, "the new text is used")
    gateway.api.put("llmkeys", llm_key(new, "rotated"))
    await until(lambda: listed(gateway, old).status_code == 401, "the old text is over")
    stop.set()
    await asyncio.gather(*callers)
    assert set(statuses) == {200}


def test_a_low_key_is_low_to_the_engine_whatever_it_asks_for(gateway: Gateway, key: str) -> None:
    backend = gateway.backend("priorities")
    name = gateway.endpoint(backend)
    low = valid(gateway, put_key(gateway.api, "low", priority="Low"))
    for text in (low, key):
        for asked in ({}, {"x-llmendpoint-priority": "high"}):
            ask(gateway, name, bearer(text) | asked)
    seen = httpx.get(f"http://{backend.address}/stub/seen").json()
    assert [request["headers"].get("x-llmendpoint-priority") for request in seen] == [
        "low",
        "low",
        None,
        None,
    ]


def test_the_log_names_the_llmkey_and_no_log_has_a_key(gateway: Gateway, key: str) -> None:
    over = valid(gateway, put_key(gateway.api, "late"))
    gateway.api.put("llmkeys", llm_key(over, "late", disabled=True))
    wait_for(lambda: listed(gateway, over).status_code == 401, "it is refused")
    asked = {"good": key, "bad": key_text(), "over": over}
    for id_, text in asked.items():
        for size in (10, 50_000):
            ask(gateway, "theirs", bearer(text) | {"x-request-id": f"{id_}-{size}"}, pad="x" * size)
    ask(gateway, "chat", bearer(key) | {"x-request-id": "good-done"})

    def lines() -> dict[str, set[Any]]:
        found: dict[str, set[Any]] = {}
        for line in gateway.log("envoy").splitlines():
            if line.startswith("{") and '"event":"request"' in line:
                entry = json.loads(line)
                found.setdefault(entry["id"], set()).add(entry["key"])
        return found

    wait_for(lambda: lines().keys() >= {"good-done", "over-50000", "bad-50000"}, "the lines are written")
    by_id = lines()
    assert by_id["good-10"] == by_id["good-50000"] == by_id["good-done"] == {"team/all"}
    assert by_id["over-10"] == by_id["over-50000"] == {"team/late"}
    assert by_id["bad-10"] == by_id["bad-50000"] == {None}
    logs = gateway.log("envoy") + gateway.log("picker")
    for text in asked.values():
        assert text not in logs
        assert text[21:] not in logs
        assert digest(text) not in logs
        assert proof_of(text.encode()).digest not in logs
    assert "Traceback" not in gateway.log("picker")


def test_refusals_are_counted_by_reason(gateway: Gateway, key: str) -> None:
    def counted(reason: str) -> float:
        return gateway.metric(f'key_refusals_total{{reason="{reason}"}}', 0)

    over = valid(gateway, put_key(gateway.api, "expired"))
    gateway.api.put("llmkeys", llm_key(over, "expired", expires="2020-01-01T00:00:00Z"))
    wait_for(lambda: listed(gateway, over).status_code == 401, "it is refused")
    before = {r: counted(r) for r in ("missing", "malformed", "unknown", "expired", "forbidden")}
    for headers in ({}, bearer("llm_x"), bearer(key_text()), bearer(over), bearer(key)):
        ask(gateway, "theirs", headers)
    assert {r: counted(r) - n for r, n in before.items()} == dict.fromkeys(before, 1)
    state = gateway.state()["authentication"]
    assert (state["mode"], state["synced"], state["problem"]) == ("required", True, None)
    assert gateway.metric("keys_synced") == 1
    assert gateway.metric("keys") == state["keys"]
