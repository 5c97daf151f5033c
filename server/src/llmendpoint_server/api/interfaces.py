"""What the routes need from an engine and from a tokenizer: the real ones, or the simulator's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from llmendpoint_server import protocol
from llmendpoint_server.api.chat_options import PLAIN_CHAT, ChatOptions, Messages
from llmendpoint_server.core.pooling.request import Input, PoolingRequest
from llmendpoint_server.core.request import Request, RequestOutput, TokenLogprobs
from llmendpoint_server.exits import EngineEnd
from llmendpoint_server.limits import RENDER_SECONDS_MAX


class Stream(Protocol):
    """Outputs of one answer of a request. Close it when no more are wanted; an answer that is still made is then
    aborted.

    `began`, `first_token`: when the engine began to compute the answer, and when it had its first token (seconds, as
    the request's `arrival`); 0 before it."""

    began: float
    first_token: float

    index: int
    prompt_logprobs: list[TokenLogprobs | None]
    """of answer 0, if the request asks for them; there before the first token of any answer"""

    @property
    def answers(self) -> Sequence[Stream]:
        """The streams of all answers of the request, by index."""

    async def next(self) -> RequestOutput:
        """The next output. Outputs that have already arrived are merged into it. Not to be called after a `finish`."""

    async def read(self, reader: Callable[[RequestOutput], bool]) -> None:
        """Give each output to `reader` when it arrives, until it returns False. What it raises is raised here."""

    def close(self) -> None: ...


class VectorsOf(Protocol):
    """The vectors of one request. Close it when no more are wanted."""

    vectors: list[bytes]
    """by the inputs' order, float32 and little-endian; complete once `next` gave the end"""

    async def next(self) -> RequestOutput:
        """The end of the request."""

    def close(self) -> None: ...


class Engine(Protocol):
    """One engine. All methods are for the event loop's thread."""

    state: protocol.State
    detail: str
    loaded: protocol.Loaded | None
    idle: asyncio.Event
    ended: asyncio.Future[EngineEnd]

    @property
    def stats(self) -> protocol.Stats:
        """The engine's load, as it last reported it."""

    @property
    def in_flight(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def submit(self, request: Request) -> Stream:
        """Send a request to the engine. Returns the stream of its first answer. Raises Unavailable if this replica takes none."""

    def submit_inputs(self, request: PoolingRequest) -> VectorsOf:
        """`submit`, for a model that makes vectors."""

    async def load_adapter(self, name: str, folder: str) -> protocol.AdapterChanged:
        """Load a LoRA adapter, or say why not. Raises Unavailable if the engine ends before."""

    async def unload_adapter(self, name: str) -> protocol.AdapterChanged:
        """Take no more requests for it."""

    def drain(self) -> None:
        """Refuse new requests at once. Running ones go on."""

    def fail_all(self, detail: str) -> None:
        """End every open stream with `detail`."""

    def failure(self) -> str | None:
        """Why the engine makes no progress; None while it does."""


class Tokenizer(Protocol):
    """Text to tokens and back. Safe to use from several threads."""

    @property
    def plain(self) -> Mapping[int, str]:
        """The text of tokens that depends on no other token; as `Detokenizer` takes it."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]: ...

    def encode_input(
        self, text: str, second: str | None = None, *, most: int | None = None, special: bool = True
    ) -> Input:
        """A text, or a pair of texts, as a model that makes vectors gets it. `most`: cut the text, of a pair the longer one,
        so that there are at most so many tokens, special ones included."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def token(self, token: int) -> tuple[str, bytes]:
        """The text that a token has inside a text, and its bytes. A part of a character has a text that shows its bytes."""

    def keeping(self, markers: frozenset[str]) -> Callable[[Sequence[int]], str]:
        """A `decode` that leaves out special tokens, but not these."""

    def special_id(self, text: str) -> int | None:
        """The id of the special token with this text, if there is one."""

    def render_chat(
        self, messages: Messages, options: ChatOptions = PLAIN_CHAT, seconds: float = RENDER_SECONDS_MAX
    ) -> str:
        """The prompt's text, up to where the assistant's answer begins. Raises InvalidRequest; or TooSlow, if `seconds` are
        fewer than the limit and do not suffice."""

    def names(self, tokens: Sequence[int]) -> list[str]:
        """Each token as the vocabulary has it."""
