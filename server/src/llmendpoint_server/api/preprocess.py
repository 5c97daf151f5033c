"""From the HTTP request to the engine's request: read, check, render, tokenize.

Small bodies are prepared in the event loop, the others in a few threads. Tokenizing releases Python's lock, and the
rest is bounded (see `body` and `limits`), so that no body blocks the event loop for long.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, nullcontext

from starlette.requests import Request

from llmendpoint_server import limits
from llmendpoint_server.api.body import LARGE_BYTES, BodyReader, LargeBodies
from llmendpoint_server.api.chat import Chat, read_chat
from llmendpoint_server.api.chat_options import TooSlow
from llmendpoint_server.api.disconnect import unless_gone
from llmendpoint_server.api.encoding import Cancelled, encode_within
from llmendpoint_server.api.prepared import Prepared, check_ids, make_sampling, make_view
from llmendpoint_server.api.schemas import ChatBody, CompletionBody, GenerationBody, parse_body
from llmendpoint_server.api.service import Service
from llmendpoint_server.errors import InvalidRequest, QueueFull, unknown_model
from llmendpoint_server.protocol import Loaded
from llmendpoint_server.resources import usable_threads

INLINE_BYTES = 2**14
"""A body up to this size takes about 5 ms at worst."""
INLINE_RENDER_SECONDS = 0.005
"""For the chat template of such a body; what takes longer is done again in a thread."""
THREADS_MAX = 4
WAITING_MAX = 64
"""Bodies that wait for a thread; one more is refused with 429."""


class Preprocessor:
    """Prepares the requests of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._large = LargeBodies()
        threads = min(THREADS_MAX, usable_threads())
        self._pool = ThreadPoolExecutor(threads, "preprocess")
        self._free = asyncio.Semaphore(threads)
        self._waiting = 0
        self._parsing = threading.Lock()
        """A large body is decoded in one call that holds Python's lock. One at a time, so that all else runs between
        two of them."""

    async def read(self, kind: type[ChatBody] | type[CompletionBody], request: Request) -> Prepared:
        """Read and prepare a request. Raises RequestError, or ClientGone."""
        loaded = self._loaded
        values = limits.BODY_VALUES_MAX + (loaded.max_model_len if kind is CompletionBody else 0)
        async with AsyncExitStack() as held:
            reader = BodyReader(self._large, held, loaded.max_model_len, values)
            body = await reader.read(request)
            arrived = time.monotonic()
            if len(body) <= INLINE_BYTES:
                try:
                    prepared = self.prepare(kind, body, arrived, threading.Event(), INLINE_RENDER_SECONDS)
                except TooSlow:
                    prepared = await unless_gone(request.receive, self._in_thread(kind, body, arrived))
            else:
                prepared = await unless_gone(request.receive, self._in_thread(kind, body, arrived))
        if prepared.grammar is not None:
            check = self._service.grammars.check(prepared.grammar, loaded)
            await unless_gone(request.receive, check)
        return prepared

    async def _in_thread(self, kind: type[GenerationBody], body: bytearray, arrived: float) -> Prepared:
        if self._waiting >= WAITING_MAX:
            raise QueueFull(
                f"{self._waiting} prompts wait to be tokenized already. Try again after the seconds in Retry-After.",
                retry_after=1.0,
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        cancelled = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, self.prepare, kind, body, arrived, cancelled
        )
        work.add_done_callback(self._free_thread)
        try:
            return await asyncio.shield(work)  # a thread cannot be cancelled, only asked to stop
        finally:
            cancelled.set()

    def _free_thread(self, work: asyncio.Future[Prepared]) -> None:
        self._free.release()
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not report it as unseen

    def prepare(
        self,
        kind: type[GenerationBody],
        data: bytearray,
        arrived: float,
        cancelled: threading.Event,
        seconds: float = limits.RENDER_SECONDS_MAX,
    ) -> Prepared:
        """Everything after the body has arrived. Raises InvalidRequest, PromptTooLong, UnknownModel or Cancelled; TooSlow if
        a chat is not rendered in so many seconds and they are fewer than the limit."""
        if cancelled.is_set():
            raise Cancelled
        with self._parsing if len(data) > LARGE_BYTES else nullcontext():
            body = parse_body(kind, data)
        self._check_model(body.model)
        tokenizer, loaded = self._service.tokenizer, self._loaded
        if isinstance(body, ChatBody):
            chat = read_chat(body, self._service.answer_format, tokenizer, seconds)
            special = bool(body.add_special_tokens)
            prompts, texts = [self._encode(chat.prompt, body, special=special, cancelled=cancelled)], [""]
        else:
            assert isinstance(body, CompletionBody)
            prompts, texts = self._text_prompts(body, cancelled)
            chat = Chat("", body.grammar())
        asked = chat.grammar
        grammar = asked.grammar if asked is not None else None
        return Prepared(
            tuple(prompts),
            make_sampling(body, prompts, loaded, self._service.default_sampling, grammar),
            body.stops,
            bool(body.stream),
            body.cache_salt or "",
            arrived,
            asked,
            make_view(body, prompts, texts, tokenizer, loaded),
            skip_special=body.skip_special_tokens is not False,
            reader=chat.reader,
            markers=chat.markers,
        )

    def _text_prompts(
        self, body: CompletionBody, cancelled: threading.Event
    ) -> tuple[list[tuple[int, ...]], list[str]]:
        """Their tokens, and their texts if these are shown. Raises InvalidRequest if they have too many tokens together,
        before all of them are tokenized."""
        prompts: list[tuple[int, ...]] = []
        texts: list[str] = []
        most = max(limits.PROMPTS_TOKENS_MAX, self._loaded.max_model_len)
        tokens = 0
        for given in body.prompts():
            prompt = self._text_prompt(body, given, cancelled)
            prompts.append(prompt)
            if body.echoes:
                whole = isinstance(given, str) and not body.truncate_prompt_tokens
                texts.append(str(given) if whole else self._decode(prompt))
            tokens += len(prompt)
            if tokens > most and len(prompts) > 1:
                raise InvalidRequest(
                    f"prompt has more than {most} tokens in its prompts together: send some of them in a request of their own.",
                    param="prompt",
                )
        return prompts, texts

    def _text_prompt(
        self, body: CompletionBody, given: str | list[int], cancelled: threading.Event
    ) -> tuple[int, ...]:
        if not isinstance(given, str):
            return self._truncate(tuple(given), body)
        special = body.add_special_tokens is not False
        return self._encode(given, body, special=special, cancelled=cancelled)

    def _decode(self, prompt: tuple[int, ...]) -> str:
        check_ids("prompt", prompt, self._loaded)
        return self._service.tokenizer.decode(prompt, skip_special_tokens=False)

    def _truncate(self, prompt: tuple[int, ...], body: GenerationBody) -> tuple[int, ...]:
        """The last tokens, as many as `truncate_prompt_tokens` says. -1: as many as leave room for one token of an answer."""
        keep, longest = body.truncate_prompt_tokens, self._loaded.max_model_len
        if keep is None:
            return prompt
        if keep == 0 or keep > longest:
            raise InvalidRequest(
                f"truncate_prompt_tokens must be from 1 to this model's length of {longest}, or -1 for that length.",
                param="truncate_prompt_tokens",
            )
        return prompt[-(longest - 1 if keep < 0 else keep) :]

    @property
    def _loaded(self) -> Loaded:
        loaded = self._service.engine.loaded
        assert loaded is not None, "ready means loaded"
        return loaded

    def _check_model(self, name: str) -> None:
        names = self._service.served_names
        if name not in names:
            raise unknown_model(name, names)

    def _encode(
        self, text: str, body: GenerationBody, *, special: bool, cancelled: threading.Event
    ) -> tuple[int, ...]:
        prompt = encode_within(
            self._service.tokenizer, text, self._loaded.max_model_len,
            special=special, field=body.prompt_field, cancelled=cancelled,
        )  # fmt: skip
        return self._truncate(prompt, body)
