"""docs/guides/rehearsal.md: the simulator has the server's API, drain and exit codes, and behaves as its flags say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from server.tests.server_process import ServerProcess

URL = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "Hello there"}]}
LOCK = Path(__file__).parents[3] / "requirements/simulator.txt"


def simulator(*flags: str) -> ServerProcess:
    return ServerProcess("--load-time", "0", *flags, model="any", module="llmendpoint_server.simulator")


def ask(server: ServerProcess, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
    return httpx.post(server.url + URL, json=ASK | changes, headers=headers, timeout=30)


def metric(server: ServerProcess, name: str) -> float:
    page = httpx.get(server.url + "/metrics").text
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", page, re.M)
    assert values, f"{name} is not on the page"
    return sum(map(float, values))


REFUSING = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"not in the image: {name}", name=name)
sys.meta_path.insert(0, Absent())
import llmendpoint_server.simulator.__main__
"""


def test_it_starts_with_the_packages_of_its_image_alone() -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK.read_text(), re.M)) | {"llmendpoint-server"}
    absent = {
        module
        for module, owners in packages_distributions().items()
        if not {re.sub(r"[._]+", "-", owner).lower() for owner in owners} & locked
    }
    assert "torch" in absent
    assert "starlette" not in absent
    subprocess.run([sys.executable, "-c", f"ABSENT = {absent!r}{REFUSING}"], check=True)


def test_the_sdk_gets_an_echo_whole_and_streamed_with_usage() -> None:
    with simulator("--ttft", "0.01", "--itl", "0.001").wait_ready() as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as sdk:
            whole = sdk.chat.completions.create(**ASK)
            assert whole.choices[0].message.content == "You said: Hello there"
            assert whole.choices[0].finish_reason == "stop"
            assert whole.usage is not None
            chunks = list(
                sdk.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == "You said: Hello there"
            assert len(chunks) > 3
            assert chunks[-1].usage == whole.usage
            cut = sdk.chat.completions.create(**ASK, max_tokens=2)
            assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("You said", "length")
            long = sdk.completions.create(
                model="any", prompt="x", max_tokens=50, extra_body={"ignore_eos": True}
            )
            assert long.usage is not None
            assert long.usage.completion_tokens == 50
        requests = metric(server, "vllm:time_to_first_token_seconds_count")
        assert requests == metric(server, "vllm:request_success_total") == 4
        assert metric(server, "vllm:inter_token_latency_seconds_count") > 50
        assert metric(server, "vllm:generation_tokens_total") > 50
        assert "instance" in httpx.get(server.url + "/load").json()


def test_an_override_answers_a_golden_prompt_wrongly() -> None:
    with simulator("--answer", "Hello=>Goodbye").wait_ready() as server:
        assert ask(server).json()["choices"][0]["message"]["content"] == "Goodbye"


def test_a_full_engine_queues_then_refuses_with_429() -> None:
    flags = ("--max-num-seqs", "1", "--max-queued-requests", "2", "--ttft", "0.5")
    with simulator(*flags).wait_ready() as server, ThreadPoolExecutor(5) as pool:
        codes = sorted(answer.status_code for answer in pool.map(lambda _: ask(server), range(5)))
        assert codes == [200, 200, 200, 429, 429]
        assert metric(server, "vllm:num_requests_waiting") == 0


def test_a_deadline_that_cannot_be_met_is_refused_at_once_and_the_flag_is_its_default() -> None:
    with simulator("--ttft", "1", "--default-deadline-ms", "900").wait_ready() as server:
        refused = ask(server)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["type"]) == (
            429,
            "deadline_exceeded",
            "rate_limit_error",
        )
        assert int(refused.headers["retry-after"]) >= 1
        assert "x-llmendpoint-retriable" not in refused.headers, "another replica is no faster"
        assert metric(server, "llmendpoint:requests_not_admitted_total") == 1
        assert "expected in 1000 ms" in error["message"]
        assert ask(server, headers={"x-llmendpoint-deadline-ms": "30000"}).status_code == 200


def test_a_share_of_errors_is_500s_and_the_rest_is_served() -> None:
    with simulator("--error-rate", "0.5", "--ttft", "0", "--itl", "0").wait_ready() as server:
        codes = [ask(server).status_code for _ in range(40)]
        assert set(codes) == {200, 500}
        assert metric(server, "llmendpoint:requests_refused_total") == codes.count(500)


def test_it_crashes_after_so_many_requests_with_the_cause_last() -> None:
    with simulator("--crash-after", "2").wait_ready() as server:
        assert [ask(server).status_code for _ in range(2)] == [200, 200]
        assert ask(server).status_code == 500
        assert server.wait_exit() == 1
        assert "--crash-after" in json.loads(server.lines[-1])["event"]


@pytest.mark.parametrize("code", [3, 4])
def test_a_load_error_leaves_with_its_code(code: int) -> None:
    with simulator("--load-error", str(code)) as server:
        assert server.wait_exit() == code
        assert "--load-error" in json.loads(server.lines[-1])["event"]


def test_an_engine_that_is_never_ready_stays_alive() -> None:
    with simulator("--never-ready") as server:
        server.wait_for("the word", lambda: "never-ready" in httpx.get(server.url + "/ready").text)
        assert server.status("/health") == 200
        assert ask(server).headers["x-llmendpoint-retriable"] == "1"


def test_a_frozen_engine_fails_its_liveness_and_a_hanging_request_does_not() -> None:
    with simulator("--hang-rate", "1").wait_ready() as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + URL, json=ASK, timeout=0.5)
        assert server.status("/health") == 200
    with simulator("--freeze-after", "0").wait_ready() as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + URL, json=ASK, timeout=0.5)
        assert server.status("/health") == 503


def test_sigterm_lets_streams_end() -> None:
    with simulator("--itl", "0.02").wait_ready() as server, ThreadPoolExecutor(1) as pool:
        url, body = server.url + URL, ASK | {"max_tokens": 40, "ignore_eos": True, "stream": True}
        streamed = pool.submit(httpx.post, url, json=body, timeout=30)
        server.wait_for("it to run", lambda: httpx.get(server.url + "/load").json()["running"] == 1)
        server.terminate()
        assert streamed.result().text.rstrip().endswith("[DONE]")
        assert server.wait_exit() == 0


def test_a_foreign_engine_says_nothing_of_readiness_and_is_healthy_before_it_can_answer() -> None:
    with ServerProcess(
        "--foreign", "--load-time", "1", model="any", module="llmendpoint_server.simulator"
    ) as server:
        assert server.status("/health") == 200
        refused = ask(server)
        assert refused.status_code == 503
        assert "x-llmendpoint-retriable" not in refused.headers
        assert (server.status("/ready"), server.status("/load")) == (404, 404)
        server.wait_for("an answer", lambda: ask(server).status_code == 200)
        assert httpx.get(server.url + "/v1/models").json()["data"][0]["id"] == "any"


def test_structured_output_is_a_400_that_names_the_simulator() -> None:
    with simulator() as server:
        server.wait_ready()
        refused = ask(server, response_format={"type": "json_object"})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "response_format"
        assert "simulator" in refused.json()["error"]["message"]
