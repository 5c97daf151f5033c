"""What tests send to a server, and how they read what it answers."""

from __future__ import annotations

import json
from typing import Any

import httpx

ASK = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
COMPLETE = {"model": "chat", "prompt": "Hello there", "max_tokens": 8}


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def events_of(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
