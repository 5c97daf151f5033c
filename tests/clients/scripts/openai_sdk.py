"""OpenAI's own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
from steps import ANSWER, CITIES, EMBEDDER, EMBEDDINGS_URL, MODEL, QUESTION, URL, WEATHER, Verdict, run, step

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0, timeout=60)
ASK: list[Any] = [{"role": "user", "content": QUESTION}]
TOOL: Any = {"type": "function", "function": {**WEATHER, "strict": True}}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@step
def chat() -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0)
    assert ANSWER in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@step
def stream() -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=ASK, temperature=0, stream=True, stream_options=options
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


@step
def several_answers_with_log_probabilities() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, n=2, max_tokens=5, logprobs=True, top_logprobs=2, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    told = answer.choices[1].logprobs
    assert told is not None
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in told.content or ())


@step
def structured() -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Verdict, temperature=0, max_tokens=200
    )
    assert isinstance(answer.choices[0].message.parsed, Verdict)


@step
def structured_stream() -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, response_format=Verdict, temperature=0, max_tokens=200
    ) as events:
        last = events.get_final_completion()
    assert isinstance(last.choices[0].message.parsed, Verdict)


@step
def tools() -> None:
    for choice in (NAMED, "required"):
        answer = client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[TOOL], tool_choice=choice, temperature=0, max_tokens=200
        )
        [call] = answer.choices[0].message.tool_calls or ()
        assert call.type == "function"
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] in CITIES
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    again = client.chat.completions.create(
        model=MODEL, messages=[*ASK, answer.choices[0].message, result], tools=[TOOL], max_tokens=20
    )
    assert again.choices[0].message.content


@step
def tools_stream() -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, tools=[TOOL], tool_choice=NAMED, temperature=0, max_tokens=200
    ) as events:
        pieces = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
        last = events.get_final_completion()
    [call] = last.choices[0].message.tool_calls or ()
    assert "".join(piece.arguments_delta for piece in pieces) == call.function.arguments
    assert json.loads(call.function.arguments)["city"] in CITIES


@step
def legacy_completions() -> None:
    answer = client.completions.create(
        model=MODEL, prompt=["One", "Two"], max_tokens=4, echo=True, temperature=0
    )
    assert [choice.text.startswith(word) for choice, word in zip(answer.choices, ("One", "Two"), strict=True)]
    chunks = client.completions.create(model=MODEL, prompt="One", max_tokens=4, temperature=0, stream=True)
    assert "One" + "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


@step
def embeddings() -> None:
    other = openai.OpenAI(base_url=f"{EMBEDDINGS_URL}/v1", api_key="none", max_retries=0)
    given = other.embeddings.create(model=EMBEDDER, input=["the pod is ready", "rain"])
    assert [one.index for one in given.data] == [0, 1]
    assert len(given.data[0].embedding) == len(given.data[1].embedding) > 8
    assert given.data[0].embedding != given.data[1].embedding


@step
def models() -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


@step
def responses() -> None:
    answer = client.responses.create(model=MODEL, input=QUESTION, temperature=0)
    assert ANSWER in answer.output_text
    with client.responses.stream(model=MODEL, input=QUESTION, temperature=0) as events:
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        last = events.get_final_response()
    assert text == last.output_text == answer.output_text
    assert last.usage is not None
    assert answer.usage is not None
    assert last.usage.total_tokens == answer.usage.total_tokens


@step
def responses_structured() -> None:
    asked: Any = {"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 200}
    assert isinstance(client.responses.parse(text_format=Verdict, **asked).output_parsed, Verdict)
    with client.responses.stream(text_format=Verdict, **asked) as events:
        assert isinstance(events.get_final_response().output_parsed, Verdict)


@step
def responses_tools() -> None:
    tool: Any = {"type": "function", **WEATHER, "strict": True}
    turns: list[Any] = [*ASK]
    answer = client.responses.create(
        model=MODEL, input=turns, tools=[tool], tool_choice="required", temperature=0, max_output_tokens=200
    )
    [call] = answer.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in CITIES
    turns += [*answer.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    again = client.responses.create(model=MODEL, input=turns, tools=[tool], max_output_tokens=20)
    assert again.output_text


def refused(ask: Callable[[], Any]) -> openai.APIStatusError:
    try:
        ask()
    except openai.APIStatusError as error:
        return error
    raise AssertionError("it was not refused")


def refusal(**fields: Any) -> openai.APIStatusError:
    return refused(lambda: client.chat.completions.create(**{"model": MODEL, "messages": ASK, **fields}))


@step
def errors() -> None:
    wrong = refusal(temperature=3)
    assert isinstance(wrong, openai.BadRequestError)
    assert wrong.param == "temperature"
    assert wrong.type == "invalid_request_error"
    assert "0 to 2" in wrong.message
    long = refusal(messages=[{"role": "user", "content": "word " * 20_000}])
    assert isinstance(long, openai.BadRequestError)
    assert (long.code, long.param) == ("context_length_exceeded", "messages")
    unknown = refusal(model="nobody")
    assert isinstance(unknown, openai.NotFoundError)
    assert unknown.code == "model_not_found"
    schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    unfit = refusal(response_format=schema)
    assert isinstance(unfit, openai.BadRequestError)
    assert (unfit.param or "").startswith("response_format")


@step
def responses_errors() -> None:
    asked: Any = {"model": MODEL, "input": QUESTION}
    for wrong, param in (
        ({"temperature": 3}, "temperature"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ):
        error = refused(lambda wrong=wrong: client.responses.create(**asked, **wrong))
        assert isinstance(error, openai.BadRequestError)
        assert error.param == param


if __name__ == "__main__":
    run()
