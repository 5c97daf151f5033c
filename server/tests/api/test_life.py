"""docs/contribute/contracts.md: `/ready`, `/health` and 429 tell a server's state; a fault of its own fails one request alone.

The engine is a fake at the wire.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from server.tests.api.over_http import events_of
from server.tests.api.served import ASK, URL, load, wait_running
from server.tests.server_process import ServerProcess


def test_a_server_that_loads_is_alive_but_not_ready_and_says_so() -> None:
    with ServerProcess(fake={"stay_loading": True}) as server:
        server.wait_for(
            "the engine's word", lambda: "reading weights" in httpx.get(server.url + "/ready").text
        )
        ready = httpx.get(server.url + "/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "loading")
        assert server.status("/health") == 200
        refused = httpx.post(server.url + URL, json=ASK)
        assert refused.status_code == 503
        assert refused.headers["x-llmendpoint-retriable"] == "1"
        assert int(refused.headers["retry-after"]) >= 1
        assert load(server)["max_num_seqs"] == 0
        server.terminate()
        assert server.wait_exit() == 0


def test_a_probe_that_waits_is_answered_when_the_engine_is_ready_and_not_before() -> None:
    with ServerProcess(fake={"load_time": 1}) as server:
        url = server.url
        answer = httpx.get(url + "/ready?wait=10", timeout=30)
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_a_probe_waits_no_longer_than_it_says_and_says_it_in_seconds() -> None:
    with ServerProcess(fake={"stay_loading": True}) as server:
        assert httpx.get(server.url + "/ready?wait=0.2", timeout=30).status_code == 503
        for wait in ("-1", "11", "soon", "nan"):
            answer = httpx.get(server.url + f"/ready?wait={wait}")
            assert (answer.status_code, "seconds" in answer.text) == (400, True)


def test_a_full_queue_is_a_429_with_retry_after_and_the_rest_is_served() -> None:
    with ServerProcess("--max-queued-requests", "1", fake={"max_running": 1, "delay": 0.01}) as server:
        server.wait_ready()
        with ThreadPoolExecutor(2) as pool:
            runs = pool.submit(httpx.post, server.url + URL, json=ASK | {"max_tokens": 500}, timeout=60)
            wait_running(server, 1)
            waits = pool.submit(httpx.post, server.url + URL, json=ASK | {"max_tokens": 2}, timeout=60)
            server.wait_for("one waiting", lambda: load(server)["waiting"] == 1, 20)
            refused = httpx.post(server.url + URL, json=ASK)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "3"
            assert "x-llmendpoint-retriable" not in refused.headers
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert [runs.result().status_code, waits.result().status_code] == [200, 200]
        assert httpx.post(server.url + URL, json=ASK | {"max_tokens": 2}).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_frees_the_engine(stream: bool) -> None:
    with ServerProcess(fake={"delay": 0.01}) as server:
        server.wait_ready()
        started = threading.Event()

        def leave_early() -> None:
            with httpx.stream(
                "POST", server.url + URL, json=ASK | {"stream": stream}, timeout=httpx.Timeout(10, read=0.5)
            ) as answer:
                for _ in answer.iter_lines():
                    started.set()
                    return

        if stream:
            leave_early()
            assert started.is_set()
        else:
            with pytest.raises(httpx.ReadTimeout):
                leave_early()
        wait_running(server, 0)
        assert load(server)["waiting"] == 0
        line = server.wait_for(
            "the log line", lambda: [line for line in server.log() if line.get("finish") == "abort"]
        )[0]
        assert line["output_tokens"] < 1000


SLOW_TOKENIZER = """
import time
from llmendpoint_server.api.tokenizer import ModelTokenizer
encode = ModelTokenizer.encode
def slowly(self, text, **options):
    time.sleep(0.5)
    return encode(self, text, **options)
ModelTokenizer.encode = slowly
"""


def test_the_time_to_the_first_token_has_tokenizing_in_it() -> None:
    with ServerProcess(fake={}, before=SLOW_TOKENIZER) as server:
        server.wait_ready()
        assert httpx.post(server.url + URL, json=ASK | {"max_tokens": 2}).status_code == 200
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        for name in ("vllm:time_to_first_token_seconds_sum", "vllm:e2e_request_latency_seconds_sum"):
            assert float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1]) >= 0.5


FAULTS = """
from llmendpoint_server.api import detokenize, preprocess, shapes
from llmendpoint_server.api.tokenizer import ModelTokenizer
def failing(function, mark):
    def call(*given, **named):
        result = function(*given, **named)
        if mark in repr((given, result)):
            raise RuntimeError(repr(given))
        return result
    return call
preprocess.parse_body = failing(preprocess.parse_body, "fail-parsing")
ModelTokenizer.encode = failing(ModelTokenizer.encode, "fail-encoding")
push = detokenize.TextStream.push
def failing_push(self, tokens):
    text, taken = push(self, tokens)
    self.seen = getattr(self, "seen", "") + text
    if "fail-decoding" in self.seen:
        raise RuntimeError(self.seen)
    return text, taken
detokenize.TextStream.push = failing_push
shapes.Shape.whole = failing(shapes.Shape.whole, "fail-writing")
"""


@pytest.mark.parametrize("in_thread", [False, True])
def test_what_nobody_expected_fails_one_request_alone_and_leaves_nothing(in_thread: bool) -> None:
    with ServerProcess("--max-model-len", "65536", fake={}, before=FAULTS) as server:
        server.wait_ready()
        for mark in ("fail-parsing", "fail-encoding", "fail-decoding", "fail-writing"):
            prompt = f"secret {mark} " + " " * (20_000 if in_thread else 1)
            body = {"model": "demo", "prompt": prompt, "max_tokens": 20}
            failed = httpx.post(server.url + URL, json=body, headers={"x-request-id": mark}, timeout=30)
            error = failed.json()["error"]
            shape = (failed.status_code, error["type"], error["code"])
            assert shape == (500, "server_error", "internal_error"), mark
            assert mark in error["message"]  # its request id, and nothing of the prompt
            assert "secret" not in failed.text
        with pytest.raises(httpx.RemoteProtocolError):  # a stream does not end as if it were whole
            httpx.post(server.url + URL, json=ASK | {"prompt": "secret fail-decoding", "stream": True})
        assert httpx.post(server.url + URL, json=ASK | {"max_tokens": 2}).status_code == 200
        wait_running(server, 0)
        server.terminate()
        assert server.wait_exit() == 0  # nothing is left that a drain would wait for
        assert "a request failed unexpectedly" in "".join(server.lines)
        assert "RuntimeError" in "".join(server.lines)
        assert "secret" not in "".join(server.lines)


def test_the_api_process_never_loads_torch_or_transformers(fake_server: ServerProcess) -> None:
    mapped = Path(f"/proc/{fake_server.process.pid}/maps").read_text()
    assert "tokenizers" in mapped  # so that the next line can fail
    assert "torch" not in mapped


@pytest.mark.parametrize("after", [0, 3])
def test_a_request_that_the_engine_lost_may_be_sent_again(after: int) -> None:
    with ServerProcess(fake={"lose_after": after, "delay": 0.2}).wait_ready() as server:
        whole = httpx.post(server.url + URL, json=ASK, timeout=30)
        assert whole.status_code == 503
        assert (whole.headers["x-llmendpoint-retriable"], whole.headers["retry-after"]) == ("1", "1")
        assert "lost this request" in whole.json()["error"]["message"]
        streamed = httpx.post(server.url + URL, json=ASK | {"stream": True}, timeout=30)
        if after:
            assert "data: [DONE]" not in streamed.text
            assert '"code":"unavailable"' in streamed.text
        else:
            assert streamed.headers["x-llmendpoint-retriable"] == "1"
        assert load(server)["running"] == 0
        assert server.status("/health") == 200


def test_tokens_that_wait_for_their_turn_are_sent_before_the_failure_of_their_request() -> None:
    """So many streams that tokens wait up to 20 ms, while a step takes 2 ms."""
    ask = {"model": "demo", "prompt": "So many words for each of the callers.", "max_tokens": 30}
    with ServerProcess(fake={"lose_after": 30, "delay": 0.002, "max_running": 64}).wait_ready() as server:
        whole = httpx.post(server.url + URL, json=ask, timeout=30).json()["choices"][0]["text"]

        def streamed(_: int) -> str | None:
            """None: on a busy machine all of it came before the answer began, which is a 503 then."""
            body = ask | {"max_tokens": 1000, "stream": True}
            answer = httpx.post(server.url + URL, json=body, timeout=60)
            if answer.status_code == 503:
                return None
            *pieces, last = events_of(answer)
            assert last["error"]["code"] == "unavailable"
            return "".join(event["choices"][0]["text"] for event in pieces)

        with ThreadPoolExecutor(40) as pool:
            assert set(pool.map(streamed, range(40))) - {None} == {whole}


def test_many_streams_at_once_get_each_its_own_whole_text() -> None:
    """More than MANY_STREAMS, so that tokens wait for a turn. Every second one has a stop string."""
    with ServerProcess(fake={"delay": 0.002, "max_running": 64}).wait_ready() as server:

        def ask(number: int) -> tuple[str, str]:
            prompt = f"{number} is the number of this caller, whose text is nobody else's 👋."
            body = {"model": "demo", "prompt": prompt, "max_tokens": 80, "stop": ["'s"] if number % 2 else []}
            streamed = events_of(httpx.post(server.url + URL, json=body | {"stream": True}, timeout=60))
            assert streamed[-1] == "[DONE]"
            text = "".join(event["choices"][0]["text"] for event in streamed[:-1])
            return text, prompt.partition("'s")[0] if number % 2 else prompt

        with ThreadPoolExecutor(40) as pool:
            for streamed, begin in pool.map(ask, range(40)):
                assert streamed.startswith(begin)
                assert (streamed == begin) == ("👋" not in begin)
        wait_running(server, 0)
