"""docs/concepts/gateway.md: only the operator's token may tell a gateway of epochs, also while the API server is away."""

import asyncio

import httpx
import pytest

from gateway.tests.api_stub import OPERATOR
from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway
from gateway.tests.one_endpoint import parts_of
from llmendpoint_gateway.core.identity.verdicts import FRESH_SECONDS, MOST, MOST_SECONDS, Verdicts
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.identity.token_reviews import MOST_REVIEWS, Callers
from llmendpoint_gateway.serve.placement.control import MOST_AHEAD, MOST_TOLD


def tell(gateway: Gateway, epochs: dict[str, int], token: str | None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(f"http://127.0.0.1:{gateway.http_port}/epoch", json=epochs, headers=headers, timeout=30)


def behind(gateway: Gateway) -> list[str]:
    """By the operator's own question, which tells nothing new."""
    found: list[str] = tell(gateway, {}, gateway.api.token(OPERATOR)).json()["behind"]
    return found


def ready(gateway: Gateway) -> int:
    return httpx.get(f"http://127.0.0.1:{gateway.http_port}/readyz", timeout=30).status_code


@pytest.fixture
def chat(gateway: Gateway) -> str:
    name = gateway.endpoint(gateway.backend("a"))
    gateway.traffic(name, 1, r1=100)
    gateway.follows(name, 1)
    return f"team/{name}"


def test_nobody_but_the_operator_tells_a_gateway_of_epochs(gateway: Gateway, chat: str) -> None:
    """Any pod could: an epoch of a billion made all gateways unready at the next blip of the API server."""
    other = gateway.api.token("system:serviceaccount:team:default")
    refused = [tell(gateway, {chat: 2}, token) for token in (None, "", "made-up", other)]
    assert [answer.status_code for answer in refused] == [401, 401, 403, 403]
    assert "llmendpoint-gateway" in refused[0].json()["error"]
    assert OPERATOR in refused[3].json()["error"]
    assert behind(gateway) == []
    assert tell(gateway, {chat: 2}, gateway.api.token(OPERATOR)).json() == {"behind": [chat]}
    gateway.traffic(chat.partition("/")[2], 2, r1=100)
    wait_for(lambda: behind(gateway) == [], "it follows")


def test_a_token_is_reviewed_once_and_goes_on_being_good_while_the_api_server_is_away(
    gateway: Gateway, chat: str
) -> None:
    """A gateway that is cut off is just the one that has to be told."""
    token, new = gateway.api.token(OPERATOR), gateway.api.token(OPERATOR)
    before = gateway.api.reviews
    for _ in range(5):
        assert tell(gateway, {}, token).status_code == 200
    assert gateway.api.reviews == before + 1
    gateway.api.down()
    try:
        wait_for(lambda: gateway.metric("watch_staleness_seconds") > 0, "cut off")
        unknown = tell(gateway, {chat: 2}, new)
        assert unknown.status_code == 503
        assert "API server" in unknown.json()["error"]
        assert ready(gateway) == 200
        assert tell(gateway, {chat: 2}, token).status_code == 200
        assert ready(gateway) == 503
    finally:
        gateway.traffic(chat.partition("/")[2], 2, r1=100)
        gateway.api.up()
    wait_for(lambda: ready(gateway) == 200, "it has caught up")


def test_a_token_that_comes_with_a_question_is_known_when_the_api_server_is_gone(
    gateway: Gateway, chat: str
) -> None:
    """The operator shows it with each question, though anybody may ask."""
    token, before = gateway.api.token(OPERATOR), gateway.api.answered
    url = f"http://127.0.0.1:{gateway.http_port}/state"
    assert httpx.get(url, timeout=30).status_code == 200
    assert httpx.get(url, headers={"Authorization": "Bearer nonsense"}, timeout=30).status_code == 200
    wait_for(lambda: gateway.api.answered == before + 1, "the nonsense is reviewed")
    wait_for(
        lambda: (
            httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30).status_code == 200
            and gateway.api.answered > before + 1
        ),
        "the token is reviewed",
    )
    gateway.api.down()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") > 0, "cut off")
    assert tell(gateway, {}, token).status_code == 200
    gateway.api.up()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") == 0, "the watch is fresh again")


async def test_the_operator_is_known_while_unknown_tokens_take_all_reviews(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, answered, asked = [0.0], asyncio.Event(), []
    callers = Callers(None, None, OPERATOR, lambda: now[0])  # type: ignore[arg-type]

    async def ask(token: str) -> dict[str, object]:
        asked.append(token)
        await answered.wait()
        raise TimeoutError

    monkeypatch.setattr(callers, "_ask", ask)
    callers._verdicts.keep("good", True, 0.0, expires_in=600)
    now[0] = FRESH_SECONDS
    flood = [asyncio.create_task(callers.refusal(f"Bearer bad{n}")) for n in range(2 * MOST_REVIEWS)]
    good = [asyncio.create_task(callers.refusal("Bearer good")) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asked == [*(f"bad{n}" for n in range(MOST_REVIEWS)), "good"]
    answered.set()
    assert await asyncio.gather(*good) == [None, None]
    assert {refusal.status for refusal in await asyncio.gather(*flood) if refusal} == {503}


def test_verdicts_are_few_and_a_flood_of_bad_tokens_drives_out_no_good_one() -> None:
    verdicts = Verdicts()
    verdicts.keep("good", True, now=0, expires_in=600)
    for n in range(10 * MOST):
        verdicts.keep(f"bad{n}", False, now=1, expires_in=0)
    assert len(verdicts) == MOST
    assert verdicts.of("good", now=1) is True
    assert verdicts.of(f"bad{10 * MOST - 1}", now=1) is False


def test_a_verdict_is_asked_for_anew_and_ends_with_the_token() -> None:
    verdicts = Verdicts()
    verdicts.keep("good", True, now=0, expires_in=600)
    verdicts.keep("long", True, now=0, expires_in=10**9)
    verdicts.keep("short", True, now=0, expires_in=5)
    verdicts.keep("bad", False, now=0, expires_in=600)
    assert verdicts.of("good", FRESH_SECONDS) is None
    assert verdicts.of("good", 599, asked_in_vain=True) is True
    assert verdicts.of("good", 600, asked_in_vain=True) is None
    assert verdicts.of("long", MOST_SECONDS, asked_in_vain=True) is None
    assert verdicts.of("short", 5) is None
    assert verdicts.of("bad", FRESH_SECONDS, asked_in_vain=True) is None
    assert verdicts.of("never seen", 0) is None


async def test_what_a_gateway_is_told_is_bounded_and_plausible() -> None:
    control = parts_of(Ads()).control
    control.tell({"a/far": 10**9, "a/negative": -1, "a/next": MOST_AHEAD})
    assert control.behind == ["a/next"]
    for start in range(0, 2 * MOST_TOLD, 1000):
        control.tell({f"a/{n}": 1 for n in range(start, start + 1000)})
    assert len(control.behind) == MOST_TOLD
    control.tell({"a/next": 7})
    await asyncio.sleep(0)
    assert "a/next" in control.behind
