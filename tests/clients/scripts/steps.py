"""What the scripts of all clients share: where the server is, the words and tools they ask with, and how they say what they did."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

URL, EMBEDDINGS_URL = os.environ["SERVER_URL"], os.environ["EMBEDDINGS_URL"]
MODEL, EMBEDDER = "demo", "embedder"
QUESTION = "What is this project?"
ANSWER = "operator"
"""A word of the demo model's answer to the question."""


class Verdict(BaseModel):
    """Small, and closed by the server: some clients do not say so, and a model without sense would add fields until its tokens are
    used up."""

    level: Literal["low", "high"]
    score: int = Field(ge=0, le=9)


WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Berlin", "Paris"]}},
        "required": ["city"],
    },
}
CITIES = ("Berlin", "Paris")
Step = Callable[[], None]
SAID = "step done:"
_steps: list[Step] = []


def step(function: Step) -> Step:
    """The script runs it, in the order of the file."""
    _steps.append(function)
    return function


def run() -> None:
    """Each step says its name when it has succeeded. An exception ends the script."""
    for one in _steps:
        one()
        print(SAID, one.__name__, flush=True)
