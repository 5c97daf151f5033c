"""LiteLLM, as it calls a server with OpenAI's API."""

from __future__ import annotations

import json
from typing import Any

import litellm
from steps import ANSWER, CITIES, EMBEDDER, EMBEDDINGS_URL, MODEL, QUESTION, URL, WEATHER, Verdict, run, step

litellm.telemetry = False
HERE: dict[str, Any] = {
    "model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "none", "num_retries": 0, "temperature": 0,
    "messages": [{"role": "user", "content": QUESTION}],
}  # fmt: skip
TOOL = {"type": "function", "function": WEATHER}


@step
def chat() -> None:
    answer = litellm.completion(**HERE)
    assert ANSWER in answer.choices[0].message.content
    assert answer.usage.completion_tokens > 0


@step
def stream() -> None:
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**HERE, stream=True)]
    assert "".join(pieces) == litellm.completion(**HERE).choices[0].message.content


@step
def structured() -> None:
    answer = litellm.completion(**HERE, response_format=Verdict, max_tokens=200)
    Verdict.model_validate_json(answer.choices[0].message.content)


@step
def tools() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    answer = litellm.completion(**HERE, tools=[TOOL], tool_choice=named, max_tokens=200)
    message = answer.choices[0].message
    [call] = message.tool_calls
    assert json.loads(call.function.arguments)["city"] in CITIES
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*HERE["messages"], message, result]
    again = litellm.completion(**{**HERE, "messages": messages}, tools=[TOOL], max_tokens=20)
    assert again.choices[0].message.content


@step
def responses() -> None:
    asked = {name: value for name, value in HERE.items() if name != "messages"} | {"input": QUESTION}
    answer = litellm.responses(**asked)
    assert ANSWER in answer.output_text
    events = list(litellm.responses(**asked, stream=True))
    assert (
        "".join(event.delta for event in events if event.type == "response.output_text.delta")
        == answer.output_text
    )


@step
def embeddings() -> None:
    given = litellm.embedding(
        model=f"openai/{EMBEDDER}", api_base=f"{EMBEDDINGS_URL}/v1", api_key="none", input=["rain", "cat"]
    )
    assert len(given.data) == 2
    assert len(given.data[0]["embedding"]) > 8


@step
def errors() -> None:
    try:
        litellm.completion(**{**HERE, "temperature": 3})
    except litellm.BadRequestError as error:
        assert "temperature" in str(error)  # noqa: PT017
    else:
        raise AssertionError("it was not refused")
    try:
        litellm.completion(**{**HERE, "messages": [{"role": "user", "content": "word " * 20_000}]})
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
