"""Anthropic's own SDK, on /v1/messages."""

from __future__ import annotations

from typing import Any

import anthropic
from steps import ANSWER, CITIES, MODEL, QUESTION, URL, WEATHER, run, step

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 200,
    "messages": [{"role": "user", "content": QUESTION}],
    "extra_body": {"temperature": 0},
}
TOOL = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}


@step
def chat() -> None:
    answer = client.messages.create(**ASK)
    assert ANSWER in answer.content[0].text
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens > 0


@step
def stream() -> None:
    with client.messages.stream(**ASK) as events:
        text = "".join(events.text_stream)
        last = events.get_final_message()
    whole = client.messages.create(**ASK)
    assert text == last.content[0].text == whole.content[0].text
    assert last.usage.output_tokens == whole.usage.output_tokens


@step
def tools() -> None:
    for choice in ({"type": "tool", "name": "get_weather"}, {"type": "any"}):
        answer = client.messages.create(**ASK, tools=[TOOL], tool_choice=choice)
        [call] = [block for block in answer.content if block.type == "tool_use"]
        assert (call.name, answer.stop_reason) == ("get_weather", "tool_use")
        assert call.input["city"] in CITIES
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}],
    }
    messages = [*ASK["messages"], {"role": "assistant", "content": answer.content}, result]
    assert client.messages.create(**{**ASK, "messages": messages}, tools=[TOOL]).content


@step
def tools_stream() -> None:
    choice = {"type": "tool", "name": "get_weather"}
    with client.messages.stream(**ASK, tools=[TOOL], tool_choice=choice) as events:
        last = events.get_final_message()
    [call] = [block for block in last.content if block.type == "tool_use"]
    assert call.input["city"] in CITIES


@step
def errors() -> None:
    try:
        client.messages.create(**{**ASK, "extra_body": {"temperature": 3}})
    except anthropic.BadRequestError as error:
        assert "temperature" in str(error)  # noqa: PT017
        assert error.body["error"]["type"] == "invalid_request_error"  # noqa: PT017
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
