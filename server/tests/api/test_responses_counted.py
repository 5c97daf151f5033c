"""docs/api.md: a response is counted, traced and sent over a WebSocket as a chat is."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from server.tests.api.test_web_socket import Caller
from server.tests.server_process import ServerProcess
from tests.collector import Collector

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
BODIES: dict[str, Any] = {
    CHAT: {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8},
    RESPONSES: {"model": "chat", "input": "Hello", "max_output_tokens": 8},
}
COUNTED = re.compile(r"^(vllm:\w+(?:_total|_count)(?:\{.*\})?) (\S+)$", re.MULTILINE)


def counters(server: ServerProcess) -> dict[str, float]:
    return {name: float(value) for name, value in COUNTED.findall(httpx.get(server.url + "/metrics").text)}


def grown(server: ServerProcess, path: str, body: dict[str, Any]) -> dict[str, float]:
    before = counters(server)
    httpx.post(server.url + path, json=body, timeout=30)
    after = counters(server)
    return {
        name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)
    }


def test_a_response_counts_as_its_chat_does_and_so_does_a_refusal() -> None:
    with ServerProcess("--served-model-name", "chat", fake={}) as server:
        server.wait_ready()
        for change in ({}, {"temperature": 3}):
            chat, response = (grown(server, path, BODIES[path] | change) for path in (CHAT, RESPONSES))
            steps = re.compile("iteration|cache|spec_decode|inter_token")  # these depend on how tokens arrive
            assert {name: n for name, n in chat.items() if not steps.search(name)} == {
                name: n for name, n in response.items() if not steps.search(name)
            }
            assert chat or change


def test_a_response_has_the_span_of_a_chat() -> None:
    trace = "a" * 32
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    with Collector() as collector:
        flags = ("--served-model-name", "chat", "--otlp-traces-endpoint", collector.endpoint)
        with ServerProcess(*flags, fake={}) as server:
            server.wait_ready()
            answer = httpx.post(
                server.url + RESPONSES, json=BODIES[RESPONSES], headers=headers, timeout=30
            ).json()
            spans = {span.name: span for span in collector.wait(lambda span: span.trace == trace, 1)}
    said = spans["chat chat"].attributes
    assert said["gen_ai.response.id"] == answer["id"]
    assert said["gen_ai.usage.output_tokens"] == answer["usage"]["output_tokens"] == 8
    assert said["gen_ai.response.finish_reasons"] == ["length"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_comes_over_a_web_socket(fake_server: ServerProcess, stream: bool) -> None:
    with Caller(fake_server) as caller:
        caller.ask(RESPONSES, BODIES[RESPONSES] | {"stream": stream})
        frames, status = caller.answer()
    assert status == 200
    last = frames[-1]["response"] if stream else frames[-1]
    assert (last["object"], last["status"]) == ("response", "incomplete")
    if stream:
        assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
        said = "".join(frame["delta"] for frame in frames if frame["type"] == "response.output_text.delta")
        assert said == last["output"][0]["content"][0]["text"]


def test_a_caller_that_leaves_a_streamed_response_frees_the_engine(fake_server: ServerProcess) -> None:
    body = BODIES[RESPONSES] | {"stream": True, "max_output_tokens": 1500}
    with httpx.stream("POST", fake_server.url + RESPONSES, json=body, timeout=30) as answer:
        next(answer.iter_bytes())
    fake_server.wait_for(
        "nothing runs", lambda: httpx.get(fake_server.url + "/load").json()["running"] == 0, 20
    )


def test_a_replica_that_loads_says_so() -> None:
    with ServerProcess("--served-model-name", "chat", fake={"stay_loading": True}) as server:
        response = httpx.post(server.url + RESPONSES, json=BODIES[RESPONSES])
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert response.headers["x-llmendpoint-retriable"] == "1"
