"""A chat completion through the gateway with the official SDK, streamed to the terminal."""

import sys
from dataclasses import dataclass

from openai import OpenAI

QUESTION = "What is this project?"


@dataclass(frozen=True)
class Answer:
    """What came back: the text, the model that answered, tokens generated."""

    text: str
    model: str
    tokens: int


def ask(base_url: str, model: str, question: str = QUESTION, echo: bool = True) -> Answer:
    """Stream one greedy answer; `echo` prints the text as it arrives."""
    client = OpenAI(base_url=base_url, api_key="unused", timeout=60)
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=120,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, answered_by, tokens = "", model, 0
    for chunk in stream:
        answered_by = chunk.model
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            text += piece
            if echo:
                sys.stdout.write(piece)
                sys.stdout.flush()
    if echo:
        print()
    return Answer(text, answered_by, tokens)
