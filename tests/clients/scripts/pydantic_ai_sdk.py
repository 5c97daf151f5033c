"""Pydantic AI's agents."""

from __future__ import annotations

from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from steps import ANSWER, MODEL, QUESTION, URL, Verdict, run, step

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))
SETTINGS = ModelSettings(temperature=0, max_tokens=200)


@step
def chat() -> None:
    result = Agent(model, model_settings=SETTINGS).run_sync(QUESTION)
    assert ANSWER in result.output
    assert result.usage.output_tokens > 0


@step
def stream() -> None:
    agent = Agent(model, model_settings=SETTINGS)
    with_pieces = agent.run_stream_sync(QUESTION)
    pieces = list(with_pieces.stream_text(delta=True, debounce_by=None))
    assert "".join(pieces) == agent.run_sync(QUESTION).output
    assert len(pieces) > 1


@step
def structured() -> None:
    agent = Agent(model, output_type=NativeOutput(Verdict), model_settings=SETTINGS)
    assert isinstance(agent.run_sync(QUESTION).output, Verdict)


@step
def tools() -> None:
    """The answer is a call that the agent demands (`tool_choice: required`)."""
    agent = Agent(model, output_type=Verdict, model_settings=SETTINGS)
    result = agent.run_sync(QUESTION)
    assert isinstance(result.output, Verdict)
    again = Agent(model, model_settings=SETTINGS).run_sync("And now?", message_history=result.all_messages())
    assert again.output


@step
def responses() -> None:
    """The same over /v1/responses: a text streamed, a call that the agent demands, and a JSON schema."""
    newer = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="none"))
    agent = Agent(newer, model_settings=SETTINGS)
    pieces = list(agent.run_stream_sync(QUESTION).stream_text(delta=True, debounce_by=None))
    assert "".join(pieces) == agent.run_sync(QUESTION).output
    for wanted in (Verdict, NativeOutput(Verdict)):
        result = Agent(newer, output_type=wanted, model_settings=SETTINGS).run_sync(QUESTION)
        assert isinstance(result.output, Verdict)
    assert agent.run_sync("And now?", message_history=result.all_messages()).output


@step
def errors() -> None:
    try:
        Agent(model, model_settings=ModelSettings(temperature=3)).run_sync(QUESTION)
    except ModelHTTPError as error:
        assert error.status_code == 400  # noqa: PT017
        assert "temperature" in str(error)  # noqa: PT017
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
