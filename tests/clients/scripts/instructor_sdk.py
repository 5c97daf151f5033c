"""Instructor over OpenAI's SDK, in each of its modes that a server must help with."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from steps import MODEL, QUESTION, URL, Verdict, run, step

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
ASK: dict[str, Any] = {
    "model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 200,
    "response_model": Verdict, "max_retries": 0,
}  # fmt: skip


@step
def structured() -> None:
    given = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(**ASK)
    assert isinstance(given, Verdict)


@step
def tools() -> None:
    given = instructor.from_openai(client, mode=instructor.Mode.TOOLS).chat.completions.create(**ASK)
    assert isinstance(given, Verdict)


@step
def stream() -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    parts = list(patched.chat.completions.create_partial(**ASK))
    assert parts[-1].model_dump() == patched.chat.completions.create(**ASK).model_dump()


@step
def errors() -> None:
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    try:
        patched.chat.completions.create(**{**ASK, "temperature": 3})
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, openai.BadRequestError):
            cause = cause.__cause__ or cause.__context__
        assert cause is not None, error  # noqa: PT017
        assert cause.param == "temperature"
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    run()
