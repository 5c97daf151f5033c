"""docs/contribute/contracts.md: so many prompts wait to be tokenized and no more, and none is tokenized for a caller that is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from llmendpoint_server import protocol
from llmendpoint_server.api import off_loop, preprocess
from llmendpoint_server.api.disconnect import ClientGone
from llmendpoint_server.api.encoding import encode_within
from llmendpoint_server.api.off_loop import Cancelled, OffLoop
from llmendpoint_server.api.preprocess import Preprocessor
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.schemas import CompletionBody
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.errors import InvalidRequest, PromptTooLong, QueueFull

FITS = 1000


class Words:
    """A token is a word, however long, or a run of spaces. Says what it was given, and may be held up."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        self.texts.append(text)
        self.begun.set()
        self.go_on.wait(30)
        runs = sum(a.isspace() != b.isspace() for a, b in pairwise(text)) + bool(text)
        return (1,) * (runs + add_special_tokens)

    def encode_input(
        self, text: str, second: str | None = None, *, most: int | None = None, special: bool = True
    ) -> Input:
        raise NotImplementedError

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        raise NotImplementedError

    def token(self, token: int) -> tuple[str, bytes]:
        raise NotImplementedError

    def special_id(self, text: str) -> int | None:
        return None

    def names(self, tokens: Sequence[int]) -> list[str]:
        raise NotImplementedError

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        raise NotImplementedError


def encode(tokenizer: Words, text: str, cancelled: threading.Event | None = None) -> tuple[int, ...]:
    return encode_within(
        tokenizer, text, FITS, special=True, field="prompt", cancelled=cancelled or threading.Event()
    )


def test_a_text_that_is_far_too_long_is_refused_after_a_small_part_of_it() -> None:
    tokenizer = Words()
    with pytest.raises(PromptTooLong, match="at least") as refusal:
        encode(tokenizer, "a " * 10**6)
    assert refusal.value.param == "prompt"
    assert sum(map(len, tokenizer.texts)) <= 2**16


@given(st.lists(st.tuples(st.sampled_from("a \n"), st.integers(1, 80_000)), max_size=12))
def test_a_text_that_fits_is_never_refused_however_long_its_tokens_are(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * count for character, count in runs)
    assert len(encode(Words(), text)) <= FITS


def test_nothing_more_is_tokenized_for_a_caller_that_is_gone() -> None:
    tokenizer, cancelled = Words(), threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        encode(tokenizer, " " * 10**6, cancelled)
    assert tokenizer.texts == []


def request_of(body: bytes, gone: asyncio.Event) -> Request:
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": [], "method": "POST"}, receive)


def make(tokenizer: Words) -> Preprocessor:
    loaded = protocol.Loaded("Fake", 10**6, 1, 1, 10, (0,), "cpu", "float32", 1, 16, 0.0)
    service: Any = SimpleNamespace(
        engine=SimpleNamespace(loaded=loaded),
        tokenizer=tokenizer,
        served_names=("m",),
        adapter_of=lambda name: None,
        default_sampling=SamplingDefaults(),
    )
    return Preprocessor(service, OffLoop())


LARGE = b'{"model":"m","prompt":"' + b"word " * 2**13 + b'"}'


async def test_a_caller_that_leaves_while_it_waits_for_a_thread_is_never_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(off_loop, "usable_threads", lambda: 1)
    tokenizer, gone, never = Words(), asyncio.Event(), asyncio.Event()
    tokenizer.go_on.clear()
    preprocessor = make(tokenizer)
    first = asyncio.ensure_future(preprocessor.read(CompletionBody, request_of(LARGE, never)))
    await asyncio.to_thread(tokenizer.begun.wait, 30)
    second = asyncio.ensure_future(preprocessor.read(CompletionBody, request_of(LARGE, gone)))
    await asyncio.sleep(0.01)
    gone.set()
    with pytest.raises(ClientGone):
        await second
    tokenizer.go_on.set()
    assert (await first).prompt_tokens > 2**13
    assert len(tokenizer.texts) == 1


async def test_only_so_many_wait_to_be_tokenized_and_one_more_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(off_loop, "usable_threads", lambda: 1)
    monkeypatch.setattr(off_loop, "WAITING_MAX", 2)
    tokenizer, never = Words(), asyncio.Event()
    tokenizer.go_on.clear()
    preprocessor = make(tokenizer)
    tasks = [
        asyncio.ensure_future(preprocessor.read(CompletionBody, request_of(LARGE, never))) for _ in range(4)
    ]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    [refused] = done
    assert isinstance(refused.exception(), QueueFull)
    tokenizer.go_on.set()
    rest = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, QueueFull) for result in rest) == 1


async def test_large_bodies_are_decoded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two in a row would keep all else waiting for twice as long."""
    at_once = most = 0

    def decode(kind: type, data: bytearray) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= 1
        raise InvalidRequest("seen enough")

    monkeypatch.setattr(preprocess, "parse_body", decode)
    preprocessor = Preprocessor(SimpleNamespace(), OffLoop())  # type: ignore[arg-type]  # it is not asked
    body = bytearray(off_loop.LARGE_BYTES + 1)
    work = [
        asyncio.to_thread(preprocessor.prepare, CompletionBody, body, 0.0, threading.Event())
        for _ in range(3)
    ]
    await asyncio.gather(*work, return_exceptions=True)
    assert most == 1
