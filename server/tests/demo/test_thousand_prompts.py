"""docs/api.md, "Answers": whatever is asked, the answer is the same streamed and whole, to the last character and token."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from server.tests.demo.drawn_prompts import TEXT, Body, of_the_real_engine, spoken
from server.tests.server_process import ServerProcess

PROMPTS = 1_000
AT_A_TIME = 32


@pytest.fixture(scope="module")
def exact() -> Iterator[str]:
    """In float32 a token does not depend on what is computed beside it. The form of calls is one that is not JSON."""
    flags = ("--device", "cpu", "--dtype", "float32", "--tool-call-parser", "qwen3_coder")
    with ServerProcess("--served-model-name", "demo", *flags) as server:
        yield server.wait_ready().url


@pytest.fixture(scope="module")
def speaker() -> Iterator[str]:
    flags = ("--served-model-name", "demo", "--reasoning-parser", "qwen3")
    with ServerProcess(*flags, fake={"speak": True}) as server:
        yield server.wait_ready().url


@dataclass
class Said:
    """One answer. `calls`: name and arguments."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    reason: str | None = None
    stop_reason: str | int | None = None


Answers = tuple[dict[int, Said], dict[str, int]]
"""By index, and the usage."""


async def ask_whole(client: httpx.AsyncClient, path: str, body: Body) -> Answers:
    response = await client.post(path, json=body)
    assert response.status_code == 200, (body, response.text)
    content = response.json()
    found = {}
    for choice in content["choices"]:
        said = Said(choice.get("text", ""))
        if path != TEXT:
            message = choice["message"]
            said.text, said.reasoning = message["content"] or "", message.get("reasoning_content") or ""
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            said.calls = [(function["name"], function["arguments"]) for function in functions]
        said.reason, said.stop_reason = choice["finish_reason"], choice.get("stop_reason")
        found[choice["index"]] = said
    return found, counts(content["usage"])


async def ask_streamed(client: httpx.AsyncClient, path: str, body: Body) -> Answers:
    found: dict[int, Said] = {}
    usage: dict[str, int] = {}
    streaming = body | {"stream": True, "stream_options": {"include_usage": True}}
    response = await client.post(path, json=streaming)
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            chunk = json.loads(line.removeprefix("data: "))
            usage = counts(chunk["usage"]) if chunk.get("usage") else usage
            for choice in chunk["choices"]:
                add(found.setdefault(choice["index"], Said()), choice)
    return found, usage


def add(said: Said, choice: Any) -> None:
    assert said.reason is None, "a piece after the last one"
    said.text += choice.get("text", "")
    delta = choice.get("delta", {})
    said.text += delta.get("content") or ""
    said.reasoning += delta.get("reasoning_content") or ""
    for call in delta.get("tool_calls") or ():
        name = call["function"].get("name")
        if call["index"] == len(said.calls):
            said.calls.append((name, ""))
        else:
            assert name is None, "a name that is told twice"
        before = said.calls[call["index"]]
        said.calls[call["index"]] = before[0], before[1] + (call["function"].get("arguments") or "")
    said.reason, said.stop_reason = choice["finish_reason"], choice.get("stop_reason")


def counts(usage: Any) -> dict[str, int]:
    """How many tokens the cache had is not the answer's."""
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}


async def ask_all(url: str, draw: Callable[[int], tuple[str, Body]]) -> list[tuple[Body, Answers, Answers]]:
    places = asyncio.Semaphore(AT_A_TIME)

    async def both(number: int) -> tuple[Body, Answers, Answers]:
        path, body = draw(number)
        async with places:
            whole = await ask_whole(client, path, body)
            return body, whole, await ask_streamed(client, path, body)

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await asyncio.gather(*map(both, range(PROMPTS)))


def check(answered: list[tuple[Body, Answers, Answers]]) -> Counter[str]:
    """What was met, so that the draw can be seen to hold what it says."""
    met: Counter[str] = Counter()
    for body, whole, streamed in answered:
        assert streamed == whole, body
        for said in whole[0].values():
            assert said.reason is not None, body
            met[said.reason] += 1
            met["call"] += bool(said.calls)
            met["reasoning"] += bool(said.reasoning)
            met["stop string"] += isinstance(said.stop_reason, str)
            met["beyond ASCII"] += not (said.text + "".join(text for _, text in said.calls)).isascii()
    return met


def test_a_models_answers_to_1000_prompts_are_the_same_streamed_and_whole(exact: str) -> None:
    met = check(asyncio.run(ask_all(exact, of_the_real_engine)))
    for what in ("stop", "length", "tool_calls", "call", "stop string", "beyond ASCII"):
        assert met[what] > 50, (what, met)


def test_1000_answers_with_calls_and_thoughts_are_the_same_streamed_and_whole(speaker: str) -> None:
    met = check(asyncio.run(ask_all(speaker, spoken)))
    for what in ("stop", "length", "tool_calls", "call", "reasoning", "stop string", "beyond ASCII"):
        assert met[what] > 50, (what, met)
