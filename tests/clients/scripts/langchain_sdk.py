"""LangChain's ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

from typing import Any

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import SecretStr
from steps import ANSWER, CITIES, EMBEDDER, EMBEDDINGS_URL, MODEL, QUESTION, URL, WEATHER, Verdict, run, step

HERE: dict[str, Any] = {
    "base_url": f"{URL}/v1",
    "api_key": SecretStr("none"),
    "max_retries": 0,
    "temperature": 0,
}
llm = ChatOpenAI(model=MODEL, max_completion_tokens=200, **HERE)
TOOL = {"type": "function", "function": WEATHER}


@step
def chat() -> None:
    answer = llm.invoke(QUESTION)
    assert ANSWER in str(answer.content)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] > 0


@step
def stream() -> None:
    assert "".join(str(chunk.content) for chunk in llm.stream(QUESTION)) == llm.invoke(QUESTION).content


@step
def structured() -> None:
    for method in ("json_schema", "function_calling"):
        verdict = llm.with_structured_output(Verdict, method=method, strict=True).invoke(QUESTION)
        assert isinstance(verdict, Verdict)


@step
def tools() -> None:
    asked = HumanMessage(QUESTION)
    answer = llm.bind_tools([TOOL], tool_choice="get_weather", strict=True).invoke([asked])
    [call] = answer.tool_calls
    assert call["args"]["city"] in CITIES
    result = ToolMessage("sunny", tool_call_id=call["id"])
    assert llm.bind_tools([TOOL]).invoke([asked, answer, result]).content


@step
def responses() -> None:
    """The same over /v1/responses, with the answer's items sent back."""
    model = ChatOpenAI(model=MODEL, max_completion_tokens=200, use_responses_api=True, **HERE)
    assert ANSWER in model.invoke(QUESTION).text
    assert "".join(chunk.text for chunk in model.stream(QUESTION)) == model.invoke(QUESTION).text
    assert isinstance(
        model.with_structured_output(Verdict, method="json_schema", strict=True).invoke(QUESTION), Verdict
    )
    asked = HumanMessage(QUESTION)
    answer = model.bind_tools([TOOL], tool_choice="get_weather", strict=True).invoke([asked])
    [call] = answer.tool_calls
    assert call["args"]["city"] in CITIES
    result = ToolMessage("sunny", tool_call_id=call["id"])
    assert model.bind_tools([TOOL]).invoke([asked, answer, result]).text


@step
def embeddings() -> None:
    embedder = OpenAIEmbeddings(
        model=EMBEDDER,
        base_url=f"{EMBEDDINGS_URL}/v1",
        api_key=SecretStr("none"),
        check_embedding_ctx_length=False,
    )
    vectors = embedder.embed_documents(["rain", "cat"])
    assert len(vectors) == 2
    assert embedder.embed_query("rain") == vectors[0]


@step
def errors() -> None:
    try:
        ChatOpenAI(model=MODEL, **{**HERE, "temperature": 3}).invoke(QUESTION)
    except openai.BadRequestError as error:
        assert error.param == "temperature"  # noqa: PT017
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
