"""docs/start: from an applied LLMEndpoint to answers through the gateway, for good requests and bad ones."""

import json

import openai
import pytest

from tests.e2e.product import NAMESPACE, Product

MODEL = f"{NAMESPACE}/chat"
QUESTION = [{"role": "user", "content": "What is this project?"}]


def test_the_openai_sdk_streams_a_readable_answer(product: Product, chat: str) -> None:
    stream = product.openai().chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=100, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len(pieces) > 10
    assert "Kubernetes operator" in "".join(pieces)


def test_a_served_name_and_the_path_reach_the_same_endpoint(product: Product, chat: str) -> None:
    by_name = product.openai().chat.completions.create(
        model="chat", messages=QUESTION, temperature=0, max_tokens=16
    )
    by_path = product.post(
        {"model": "chat", "messages": QUESTION, "temperature": 0, "max_tokens": 16},
        path=f"/{NAMESPACE}/chat/v1/chat/completions",
    )
    assert by_path.status_code == 200, by_path.text
    assert by_path.json()["choices"][0]["message"]["content"] == by_name.choices[0].message.content


def test_the_model_list_names_the_endpoint_both_ways(product: Product, chat: str) -> None:
    assert {"chat", MODEL} <= {model.id for model in product.openai().models.list()}


def test_usage_counts_what_was_generated(product: Product, chat: str) -> None:
    answer = product.openai().chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=7
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7
    assert answer.choices[0].finish_reason == "length"


def test_kubectl_shows_the_endpoint_ready_with_its_url(product: Product, chat: str) -> None:
    header, row = product.cluster.kubectl("get", "llmendpoints", "-n", NAMESPACE, chat).splitlines()
    assert header.split()[:2] == ["NAME", "READY"]
    assert row.split()[:2] == ["chat", "True"]
    assert "http://llmendpoint-gateway.llmendpoint-system.svc/v1" in row


def test_malformed_json_is_a_400_in_openais_shape(product: Product, chat: str) -> None:
    answer = product.post(b'{"model": "e2e/chat", "messages": [')
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_prompt_over_the_limit_is_a_400_that_names_both_numbers(product: Product, chat: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        product.openai().chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "operator " * 3000}]
        )
    assert refused.value.code == "context_length_exceeded"
    numbers = [int(word) for word in str(refused.value).replace(",", " ").split() if word.isdecimal()]
    assert 2048 in numbers
    assert any(number > 2048 for number in numbers)


def test_an_unknown_parameter_is_a_400_that_names_it(product: Product, chat: str) -> None:
    with pytest.raises(openai.BadRequestError, match="temprature"):
        product.openai().chat.completions.create(model=MODEL, messages=QUESTION, extra_body={"temprature": 1})


def test_an_unknown_model_is_a_404(product: Product, chat: str) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        product.openai().chat.completions.create(model="e2e/nobody", messages=QUESTION)
    assert refused.value.code == "model_not_found"


def test_an_endpoint_without_replicas_is_a_503_with_retry_after(product: Product, chat: str) -> None:
    spec = {"model": {"source": "embedded://demo"}, "engine": {"device": "cpu"}, "replicas": 0}
    with product.temporary("idle", spec) as name:
        product.cluster.wait_for(
            "the gateway knows it", lambda: f"{NAMESPACE}/{name}" in product.gateway_state()["endpoints"]
        )
        answer = product.post({"model": f"{NAMESPACE}/{name}", "messages": QUESTION})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "server_error"


def test_the_engine_goes_on_after_all_bad_requests(product: Product, chat: str) -> None:
    for body in (b"{", b"[]", json.dumps({"model": MODEL}).encode(), json.dumps({"model": 7}).encode()):
        assert product.post(body).status_code == 400
    product.openai().chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4)
    assert all(
        status["restartCount"] == 0
        for pod in product.pods(chat)
        for status in pod["status"]["containerStatuses"]
    )
