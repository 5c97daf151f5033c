"""From the HTTP request to the engine's request: read, check, render, tokenize."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from llmendpoint_server import limits
from llmendpoint_server.api.answer import NO_DETAIL, Detail
from llmendpoint_server.api.deltas import AnswerReader
from llmendpoint_server.api.disconnect import unless_gone
from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.interfaces import Tokenizer
from llmendpoint_server.api.off_loop import Cancelled, OffLoop
from llmendpoint_server.api.schemas import ChatBody, CompletionBody, GenerationBody, parse_body
from llmendpoint_server.api.service import Service
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.errors import InvalidRequest, PromptTooLong, unknown_model
from llmendpoint_server.protocol import Loaded

SLICE_CHARACTERS = 2**16
USUAL_CHARACTERS = 4
"""Characters of a usual token. A text with more of them for each token that fits may be far too long."""
DEFAULT_COMPLETION_TOKENS = 16
"""The default of OpenAI's /v1/completions for max_tokens."""


@dataclass(frozen=True)
class Prepared:
    """What one body asks for, without the body itself. `arrived`: when the body was whole (monotonic seconds)."""

    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingParams
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    salt: str
    arrived: float
    grammar: Asked | None = None
    n: int = 1
    """answers to each prompt"""
    detail: Detail = NO_DETAIL
    reader: Callable[[], AnswerReader] | None = None
    """makes what finds calls of tools and reasoning in an answer; None: it is all text"""

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def make_reader(self) -> AnswerReader | None:
        return None if self.reader is None else self.reader()


def encode_within(
    tokenizer: Tokenizer,
    text: str,
    most_tokens: int,
    *,
    special: bool,
    field: str,
    cancelled: threading.Event,
) -> tuple[int, ...]:
    """Token ids of `text`. Raises PromptTooLong; for a very long text, without tokenizing all of it.

    A token may stand for any number of characters (runs of spaces, what a normalizer drops), so the number of
    characters does not show whether a text fits. A long text is tokenized in slices first: the tokens of a slice are
    the text's own, except a few at its two cuts. If the slices so far have twice as many tokens as fit, and two more
    for each slice, the text cannot fit. A text that passes has few tokens, and is tokenized once more as a whole: a
    tokenizer takes some 150 bytes for each. Raises Cancelled between two slices.
    """
    if len(text) > max(SLICE_CHARACTERS, USUAL_CHARACTERS * most_tokens):
        counted = 0
        for number, start in enumerate(range(0, len(text), SLICE_CHARACTERS), 1):
            if cancelled.is_set():
                raise Cancelled
            part = text[start : start + SLICE_CHARACTERS]
            counted += len(tokenizer.encode(part, add_special_tokens=False))
            if counted > 2 * (most_tokens + number):
                raise PromptTooLong(counted // 2, most_tokens, field, at_least=True)
    return tokenizer.encode(text, add_special_tokens=special)


class Preprocessor:
    """Prepares the requests of one server."""

    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service = service
        self._off_loop = off_loop

    async def read(self, kind: type[ChatBody] | type[CompletionBody], request: Request) -> Prepared:
        """Read and prepare a request. Raises RequestError, or ClientGone."""
        loaded = self._loaded
        length = loaded.max_model_len
        values = limits.BODY_VALUES_MAX + (length if kind is CompletionBody else 0)
        prepared = await self._off_loop.read(request, length, values, partial(self.prepare, kind))
        if prepared.grammar is not None:
            check = self._service.grammars.check(prepared.grammar, loaded)
            await unless_gone(request.receive, check)
        return prepared

    def prepare(
        self, kind: type[GenerationBody], data: bytearray, arrived: float, cancelled: threading.Event
    ) -> Prepared:
        """Everything after the body has arrived. Raises InvalidRequest, PromptTooLong, UnknownModel or Cancelled."""
        if cancelled.is_set():
            raise Cancelled
        with self._off_loop.parsing(data):
            body = parse_body(kind, data)
        self._check_model(body.model)
        if isinstance(body, ChatBody):
            prompts = [self._chat_prompt(body, cancelled)]
            most_tokens = body.most_tokens
        else:
            assert isinstance(body, CompletionBody)
            prompts = self._text_prompts(body, cancelled)
            most_tokens = body.most_tokens or DEFAULT_COMPLETION_TOKENS
        asked = body.grammar()
        sampling = self._sampling(body, prompts, most_tokens, asked.grammar if asked is not None else None)
        return Prepared(
            tuple(prompts), sampling, body.stops, bool(body.stream), body.include_usage, body.cache_salt or "",
            arrived, asked, body.answers, Detail(stop_tokens=self._named_stop_tokens(sampling)),
        )  # fmt: skip

    def _chat_prompt(self, body: ChatBody, cancelled: threading.Event) -> tuple[int, ...]:
        messages = [message.for_template(f"messages[{at}]") for at, message in enumerate(body.messages)]
        text = self._service.tokenizer.render_chat(messages)
        return self._encode(text, body, special=False, cancelled=cancelled)

    def _text_prompts(self, body: CompletionBody, cancelled: threading.Event) -> list[tuple[int, ...]]:
        """Raises InvalidRequest if they have too many tokens together, before all of them are tokenized."""
        prompts: list[tuple[int, ...]] = []
        most = max(limits.PROMPTS_TOKENS_MAX, self._loaded.max_model_len)
        tokens = 0
        for given in body.prompts():
            prompt = (
                self._encode(given, body, special=True, cancelled=cancelled)
                if isinstance(given, str)
                else tuple(given)
            )
            prompts.append(prompt)
            tokens += len(prompt)
            if tokens > most and len(prompts) > 1:
                raise InvalidRequest(
                    f"prompt has more than {most} tokens in its prompts together: send some of them in a request of their own.",
                    param="prompt",
                )
        return prompts

    def _named_stop_tokens(self, sampling: SamplingParams) -> frozenset[int]:
        """Those that `stop_reason` names; the model's own end is no reason."""
        own = () if sampling.ignore_eos else self._loaded.eos_token_ids
        return sampling.stop_token_ids.difference(own)

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
        return encode_within(
            self._service.tokenizer, text, self._loaded.max_model_len,
            special=special, field=body.prompt_field, cancelled=cancelled,
        )  # fmt: skip

    def _sampling(
        self,
        body: GenerationBody,
        prompts: Sequence[tuple[int, ...]],
        most_tokens: int | None,
        grammar: Grammar | None,
    ) -> SamplingParams:
        """The sampling parameters, checked against the model's limits. Raises InvalidRequest."""
        loaded, defaults = self._loaded, self._service.default_sampling
        if not all(prompts):
            raise InvalidRequest(
                f"{body.prompt_field} is empty; send at least one token.", param=body.prompt_field
            )
        longest = max(map(len, prompts))
        room = loaded.max_model_len - longest
        if room < 1:
            raise PromptTooLong(longest, loaded.max_model_len, body.prompt_field)
        for prompt in prompts:
            self._check_ids(body.prompt_field, prompt)
        self._check_ids("stop_token_ids", body.stop_token_ids or ())
        top_k = defaults.top_k if body.top_k is None else body.top_k
        return SamplingParams(
            max_tokens=min(most_tokens or room, room, defaults.max_tokens or room),
            temperature=defaults.temperature if body.temperature is None else body.temperature,
            top_p=defaults.top_p if body.top_p is None else body.top_p,
            top_k=0 if top_k in limits.TOP_K_OFF else top_k,
            seed=body.seed,
            stop_token_ids=frozenset(body.stop_token_ids or ()),
            ignore_eos=bool(body.ignore_eos),
            grammar=grammar,
            **body.changes(defaults, loaded.vocab_size),
        )

    def _check_ids(self, field: str, ids: Sequence[int]) -> None:
        size = self._loaded.vocab_size
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise InvalidRequest(f"{field} holds token ids outside 0 to {size - 1}.", param=field)
