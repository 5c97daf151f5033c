"""LlamaIndex's OpenAILike.

Annotations are read when they are made: LlamaIndex makes a tool's schema of them.
"""

from typing import Any, Literal

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from steps import ANSWER, CITIES, MODEL, QUESTION, URL, Verdict, run, step

HERE: dict[str, Any] = {
    "model": MODEL, "api_base": f"{URL}/v1", "api_key": "none", "max_retries": 0, "is_chat_model": True,
    "is_function_calling_model": True, "context_window": 512, "should_use_structured_outputs": True,
}  # fmt: skip
llm = OpenAILike(temperature=0, max_tokens=200, **HERE)
ASK = [ChatMessage(role="user", content=QUESTION)]


@step
def chat() -> None:
    assert ANSWER in str(llm.chat(ASK).message.content)


@step
def stream() -> None:
    pieces = [chunk.delta or "" for chunk in llm.stream_chat(ASK)]
    assert "".join(pieces) == llm.chat(ASK).message.content


@step
def completion() -> None:
    assert ANSWER in llm.complete(QUESTION).text


@step
def structured() -> None:
    verdict = llm.as_structured_llm(Verdict).chat(ASK).raw
    assert isinstance(verdict, Verdict)


def get_weather(city: Literal["Berlin", "Paris"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@step
def tools() -> None:
    tool = FunctionTool.from_defaults(fn=get_weather)
    answer = llm.chat_with_tools([tool], chat_history=ASK, tool_required=True)
    [call] = llm.get_tool_calls_from_response(answer)
    assert call.tool_name == "get_weather"
    assert call.tool_kwargs["city"] in CITIES
    told = ChatMessage(
        role="tool",
        content=str(tool.call(**call.tool_kwargs)),
        additional_kwargs={"tool_call_id": call.tool_id},
    )
    assert llm.chat([*ASK, answer.message, told]).message.content


@step
def errors() -> None:
    try:
        llm.chat(ASK, temperature=3)
    except openai.BadRequestError as error:
        assert error.param == "temperature"  # noqa: PT017
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
