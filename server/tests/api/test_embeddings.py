"""docs/api.md: the whole server gives transformers' vectors in OpenAI's shape, and behaves under load as it does for text."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from server.tests.api.over_http import error_of
from server.tests.server_process import ServerProcess
from server.tests.vector_models import save, sentence_transformer

URL = "/v1/embeddings"
TEXTS = ["the pod is ready", "rain", "the gateway waits for the model a b c d e f", "cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embedder") / "m"
    return save("bert", path, matryoshka_dimensions=[8, 16, 32], **sentence_transformer("mean_tokens"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    names = ("--served-model-name", "team/bge", "--served-model-name", "bge")
    flags = (*names, "--device", "cpu", "--dtype", "float32")
    with ServerProcess(*flags, model=str(folder)) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[float]]:
    """By transformers alone, each text for itself."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            mean = model(input_ids=ids).last_hidden_state[0].mean(0)
        vectors.append(torch.nn.functional.normalize(mean, dim=0).tolist())
    return vectors


def close(one: list[float], other: list[float]) -> bool:
    return one == pytest.approx(other, abs=1e-5)


def test_the_sdk_gets_transformers_vectors(sdk: openai.OpenAI, expected: list[list[float]]) -> None:
    answer = sdk.embeddings.create(model="bge", input=TEXTS)  # the SDK asks for base64
    assert answer.model == "team/bge"
    assert [item.index for item in answer.data] == [0, 1, 2, 3]
    assert all(close(item.embedding, vector) for item, vector in zip(answer.data, expected, strict=True))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 6 + 3 + 14 + 3


def test_floats_and_base64_are_the_same_numbers(server: ServerProcess) -> None:
    def ask(form: str) -> Any:
        body = {"model": "bge", "input": "the pod", "encoding_format": form}
        return httpx.post(server.url + URL, json=body).json()["data"][0]["embedding"]

    data = base64.b64decode(ask("base64"))
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == ask("float")


def test_one_text_may_be_a_string_and_texts_may_be_token_ids(sdk: openai.OpenAI) -> None:
    ids = [2, 30, 31, 3]
    vectors = [
        sdk.embeddings.create(model="bge", input=given).data[0].embedding
        for given in (ids, [ids], [ids, [2, 5, 3]])
    ]
    assert close(vectors[0], vectors[1])
    assert close(vectors[0], vectors[2])


def test_special_tokens_may_be_left_out(server: ServerProcess) -> None:
    body = {"model": "bge", "input": "rain", "add_special_tokens": False}
    assert httpx.post(server.url + URL, json=body).json()["usage"]["prompt_tokens"] == 1


def test_a_shorter_vector_is_the_beginning_of_the_long_one_with_length_one(sdk: openai.OpenAI) -> None:
    whole = sdk.embeddings.create(model="bge", input="rain").data[0].embedding
    short = sdk.embeddings.create(model="bge", input="rain", dimensions=8).data[0].embedding
    length = sum(value * value for value in whole[:8]) ** 0.5
    assert close(short, [value / length for value in whole[:8]])
    assert close(sdk.embeddings.create(model="bge", input="rain", dimensions=32).data[0].embedding, whole)


def test_a_longer_text_is_cut_only_if_the_caller_says_so(server: ServerProcess) -> None:
    def ask(**more: Any) -> httpx.Response:
        return httpx.post(server.url + URL, json={"model": "bge", "input": "cat " * 200, **more})

    refused = ask()
    assert (refused.status_code, error_of(refused)["code"]) == (400, "context_length_exceeded")
    assert "truncate_prompt_tokens" in error_of(refused)["message"]
    assert ask(truncate_prompt_tokens=-1).json()["usage"]["prompt_tokens"] == 128
    cut = ask(truncate_prompt_tokens=5).json()
    assert cut["usage"]["prompt_tokens"] == 5
    same = httpx.post(server.url + URL, json={"model": "bge", "input": "cat cat cat"}).json()
    assert close(cut["data"][0]["embedding"], same["data"][0]["embedding"])  # [CLS] and [SEP] stay


def test_many_callers_get_each_their_own_vectors(sdk: openai.OpenAI, expected: list[list[float]]) -> None:
    def ask(number: int) -> bool:
        order = [(number + at) % 4 for at in range(4)]
        answer = sdk.embeddings.create(model="bge", input=[TEXTS[at] for at in order] * 8)
        return all(close(item.embedding, expected[order[item.index % 4]]) for item in answer.data)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"input": ""}, None, None),
        ({"input": []}, "input", "list of token ids"),
        ({"input": [[]]}, "input", "empty"),
        ({"input": ["a", 1]}, "input", "list of token ids"),
        ({"input": [1.5]}, "input", "list of token ids"),
        ({"input": [50]}, "input", "0 to 49"),
        ({"input": ["a"] * 2049}, "input", "at most 2048"),
        ({}, "input", "Missing"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "dimensions": 0}, "dimensions", "1 or more"),
        ({"input": "a", "dimensions": 9}, "dimensions", "one of 8, 16, 32"),
        ({"input": "a", "truncate_prompt_tokens": 129}, "truncate_prompt_tokens", "1 to 128"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "1 to 128"),
        ({"input": "a", "stream": True}, "stream", "Unknown parameter"),
        ({"input": [[5] * 128] * 2048, "encoding_format": "base64"}, None, None),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_with_its_field(
    server: ServerProcess, body: Any, param: str | None, says: str | None
) -> None:
    response = httpx.post(server.url + URL, json={"model": "bge", **body}, timeout=60)
    if says is None:
        assert response.status_code == 200, response.text
        return
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
    assert says in error_of(response)["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_model_that_embeds_generates_no_text_and_says_what_it_does(
    server: ServerProcess, path: str
) -> None:
    body = {"model": "bge", "messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"}
    response = httpx.post(server.url + path, json=body)
    assert response.status_code == 400
    assert "makes embeddings: call /v1/embeddings" in error_of(response)["message"]
    assert error_of(response)["param"] == "model"


def test_a_model_that_generates_makes_no_embeddings_and_says_what_it_does(fake_server: ServerProcess) -> None:
    response = httpx.post(fake_server.url + URL, json={"model": "chat", "input": "Hi"})
    assert response.status_code == 400
    assert "generates text: call /v1/chat/completions" in error_of(response)["message"]


def test_an_unknown_model_is_not_found(server: ServerProcess) -> None:
    response = httpx.post(server.url + URL, json={"model": "other", "input": "Hi"})
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


def test_load_metrics_and_the_log_count_inputs_as_prompts(server: ServerProcess) -> None:
    def prompt_tokens() -> float:
        page = httpx.get(server.url + "/metrics").text
        [line] = [line for line in page.splitlines() if line.startswith("vllm:prompt_tokens_total{")]
        return float(line.rpartition(" ")[2])

    before = prompt_tokens()
    answer = httpx.post(server.url + URL, json={"model": "bge", "input": TEXTS})
    server.wait_for("the tokens", lambda: prompt_tokens() == before + answer.json()["usage"]["prompt_tokens"])
    load = httpx.get(server.url + "/load").json()
    assert (load["waiting"], load["running"], load["outstanding_tokens"]) == (0, 0, 0)
    assert load["max_num_seqs"] > 0
    [line] = [line for line in server.log() if line.get("request_id") == answer.json()["id"]]
    assert (line["finish"], line["prompt_tokens"], line["status"]) == ("stop", 26, 200)


BUSY = {"model": "m", "input": [[5] * 128] * 2048, "encoding_format": "base64"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """So small steps that a body of 2,048 texts takes a while."""
    path = save(
        "bert",
        tmp_path_factory.mktemp("slow") / "m",
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=8,
    )
    flags = (
        "--max-num-batched-tokens",
        "256",
        "--max-num-seqs",
        "2",
        "--max-queued-requests",
        "2",
        "--dtype",
        "float32",
    )
    with ServerProcess(*flags, "--device", "cpu", model=str(path)) as process:
        yield process.wait_ready()


def running(server: ServerProcess) -> int:
    return int(httpx.get(server.url + "/load").json()["running"])


def test_a_small_request_does_not_wait_for_all_of_a_large_one(slow: ServerProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(httpx.post, slow.url + URL, json=BUSY, timeout=300)
        slow.wait_for("the large one", lambda: running(slow) == 1, 30)
        time.sleep(0.3)
        small = httpx.post(slow.url + URL, json={"model": "m", "input": [5, 6]}, timeout=60)
        assert small.status_code == 200
        assert not large.done()
        large.cancel()
        assert large.result().status_code == 200


def test_a_caller_that_leaves_frees_the_engine_and_a_full_queue_says_when_to_come_back(
    slow: ServerProcess,
) -> None:
    clients = [httpx.Client(timeout=0.4) for _ in range(6)]
    pool = ThreadPoolExecutor(6)

    def ask(client: httpx.Client) -> int | None:
        try:
            response = client.post(slow.url + URL, json=BUSY | {"input": [[5] * 128] * 512})
        except httpx.TimeoutException:
            return None
        assert response.status_code == 429
        assert error_of(response)["code"] == "queue_full"
        assert int(response.headers["retry-after"]) >= 1
        return response.status_code

    answers = list(pool.map(ask, clients))
    assert 429 in answers
    assert None in answers
    for client in clients:
        client.close()
    slow.wait_for("nothing to run", lambda: running(slow) == 0, 20)
    line = [line for line in slow.log() if line.get("finish") == "abort"]
    assert line


def test_a_deadline_that_cannot_be_met_is_said_at_once(slow: ServerProcess) -> None:
    headers = {"x-llmendpoint-deadline-ms": "50", "x-llmendpoint-priority": "low"}
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(httpx.post, slow.url + URL, json=BUSY | {"input": [[5] * 128] * 512}, timeout=300)
        slow.wait_for("the large one", lambda: running(slow) == 1, 30)
        time.sleep(0.2)
        late = httpx.post(slow.url + URL, json={"model": "m", "input": [5]}, headers=headers, timeout=60)
        assert (late.status_code, error_of(late)["code"]) == (429, "deadline_exceeded")
        assert large.result().status_code == 200


def test_it_drains_as_a_model_that_generates(folder: Path) -> None:
    with ServerProcess("--device", "cpu", model=str(folder)) as server:
        server.wait_ready()
        server.terminate()
        assert server.wait_exit() == 0


def test_a_model_that_classifies_is_refused_with_its_labels(tmp_path: Path) -> None:
    from server.tests.vector_models import save_scorer

    with ServerProcess("--device", "cpu", model=str(save_scorer("bert", tmp_path / "m", labels=3))) as server:
        assert server.wait_exit() == 4
        assert "classifies into 3 labels" in server.lines[-1]
