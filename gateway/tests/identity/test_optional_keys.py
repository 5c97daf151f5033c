"""docs/concepts/identity.md: `--authentication optional`, and a gateway that may not read LLMKeys."""

from collections.abc import Iterator

import httpx
import pytest

from gateway.tests.asking import CHAT
from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.keys import bearer, key_text, llm_key, put_key
from gateway.tests.sockets import refused
from llmendpoint_gateway.watch.key_watch import PAGE


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """team/open, which does not set spec.access, and team/closed, which does and is older."""
    with running_gateway(authentication="optional") as running:
        running.endpoint(running.backend("open"), name="open", names=("open", "chat"))
        running.endpoint(
            running.backend("closed"), name="closed", names=("closed", "chat"), created="2025-01-01T00:00:00Z", access={"namespaces": []}
        )  # fmt: skip
        yield running


def ask(gateway: Gateway, model: str, headers: dict[str, str] | None = None) -> str:
    """The engine that answered, or the code of the error."""
    answer = httpx.post(gateway.url + CHAT, json={"model": model}, headers=headers, timeout=30)
    return str(answer.headers["x-engine"] if answer.status_code == 200 else answer.json()["error"]["code"])


def models(gateway: Gateway, headers: dict[str, str] | None = None) -> list[str]:
    return [model["id"] for model in httpx.get(f"{gateway.url}/v1/models", headers=headers).json()["data"]]


def test_who_sends_no_key_uses_what_sets_no_access(gateway: Gateway) -> None:
    for headers in ({}, {"authorization": "Bearer unused"}):
        assert ask(gateway, "chat", headers) == "open"
        assert models(gateway, headers) == ["chat", "open", "team/open"]
        for model in ("closed", "team/closed", "nobody"):
            assert ask(gateway, model, headers) == "permission_denied"
    assert refused(gateway, "/v1/stream?model=closed") == (403, "permission_denied")


def test_who_sends_a_key_is_judged_by_it(gateway: Gateway) -> None:
    text = put_key(gateway.api, "closed", grants=[{"name": "closed"}])
    wait_for(lambda: ask(gateway, "closed", bearer(text)) == "closed", "the key is known")
    assert ask(gateway, "chat", bearer(text)) == "closed"
    assert ask(gateway, "open", bearer(text)) == "permission_denied"
    assert models(gateway, bearer(text)) == ["chat", "closed", "team/closed"]
    for wrong in (key_text(), text[:-1], text + "x", "llm_"):
        assert ask(gateway, "open", bearer(wrong)) == "invalid_api_key"
        assert ask(gateway, "open", {"x-api-key": wrong}) == "invalid_api_key"


def test_keys_come_in_pages_and_a_missed_delete_ends_with_the_next_list(gateway: Gateway) -> None:
    texts = [key_text() for _ in range(2 * PAGE + 7)]
    with gateway.api.lock:
        for n, text in enumerate(texts):
            body = llm_key(text, f"many{n}")
            body["metadata"]["resourceVersion"] = str(gateway.api.version)
            gateway.api.objects["llmkeys"][f"many{n}"] = body
    gateway.api.expire()
    wait_for(lambda: ask(gateway, "open", bearer(texts[-1])) == "open", "the last one of the list is known")
    assert ask(gateway, "open", bearer(texts[0])) == "open"
    gateway.api.delete("llmkeys", "many0", silently=True)
    gateway.api.expire()
    wait_for(lambda: ask(gateway, "open", bearer(texts[0])) == "invalid_api_key", "its delete is noticed")


def test_without_the_api_server_the_keys_that_are_known_count_on(gateway: Gateway) -> None:
    text = put_key(gateway.api, "known")
    wait_for(lambda: ask(gateway, "open", bearer(text)) == "open", "the key is known")
    gateway.api.refused["llmkeys"] = 403
    gateway.api.end_watches()
    wait_for(
        lambda: gateway.metric("keys_staleness_seconds") > 0, "the metric tells that they cannot be read"
    )
    assert "403" in gateway.state()["authentication"]["problem"]
    wait_for(
        lambda: gateway.metric("watch_staleness_seconds") == 0, "which the endpoints are not concerned by"
    )
    assert ask(gateway, "open", bearer(text)) == "open"
    assert ask(gateway, "open", bearer(key_text())) == "invalid_api_key"
    gateway.api.refused.clear()
    wait_for(lambda: gateway.metric("keys_staleness_seconds") == 0, "they are read again")


@pytest.mark.parametrize("status", [403, 404])
def test_a_gateway_that_never_read_the_keys_lets_nobody_in_by_one_and_is_not_ready(
    gateway: Gateway, status: int
) -> None:
    """404: the CRD is missing. The picker starts anew, as after an upgrade of the chart without it."""
    text = put_key(gateway.api, f"early{status}")
    wait_for(lambda: ask(gateway, "open", bearer(text)) == "open", "the key is known")
    gateway.api.refused["llmkeys"] = status
    gateway.kill_picker()
    gateway.start_picker()
    wait_for(lambda: ask(gateway, "open") == "open", "the endpoints are known again")
    assert ask(gateway, "open", bearer(text)) == "keys_unread"
    assert ask(gateway, "open", bearer("llm_x")) == "invalid_api_key"
    assert gateway.metric("keys_synced") == 0
    state = gateway.state()["authentication"]
    assert (state["synced"], state["keys"]) == (False, 0)
    assert str(status) in state["problem"]
    ready = httpx.get(f"http://127.0.0.1:{gateway.http_port}/readyz")
    assert (ready.status_code, ready.json()["keys"]) == (503, False)
    assert "no key lets anybody in" in gateway.log("picker")
    gateway.api.refused.clear()
    wait_for(lambda: ask(gateway, "open", bearer(text)) == "open", "the keys were read")
    gateway.ready()
