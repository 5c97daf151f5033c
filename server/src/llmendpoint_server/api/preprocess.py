"""From the HTTP request to the engine's request: read, check, render, tokenize."""

from __future__ import annotations

import threading
from functools import partial

from starlette.requests import Request

from llmendpoint_server import limits
from llmendpoint_server.api.anthropic.bodies import CountBody
from llmendpoint_server.api.anthropic.translation import parse_chat
from llmendpoint_server.api.chat import Chat, read_chat
from llmendpoint_server.api.disconnect import unless_gone
from llmendpoint_server.api.encoding import encode_within
from llmendpoint_server.api.off_loop import Cancelled, OffLoop, Turn
from llmendpoint_server.api.prepared import Prepared, check_ids, make_sampling, make_view
from llmendpoint_server.api.schemas import ChatBody, CompletionBody, GenerationBody, parse_body
from llmendpoint_server.api.service import Service
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.protocol import Loaded

Kind = type[GenerationBody] | type[CountBody]


class Preprocessor:
    """Prepares the requests of one server."""

    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service = service
        self._off_loop = off_loop

    async def read(self, kind: Kind, request: Request) -> Prepared:
        """Read and prepare a request. Raises RequestError, or ClientGone."""
        loaded = self._loaded
        length = loaded.max_model_len
        values = limits.BODY_VALUES_MAX + (length if kind is CompletionBody else 0)
        prepared = await self._off_loop.read(request, length, values, partial(self.prepare, kind))
        if prepared.grammar is not None:
            check = self._service.grammars.check(prepared.grammar, loaded)
            await unless_gone(request.receive, check)
        return prepared

    async def count(self, kind: type[CountBody], request: Request) -> int:
        """The tokens of a chat's prompt. Raises RequestError, or ClientGone."""
        length = self._loaded.max_model_len
        return await self._off_loop.read(
            request, length, limits.BODY_VALUES_MAX, partial(self._counted, kind)
        )

    def _counted(self, kind: type[CountBody], data: bytearray, _: float, cancelled: Turn) -> int:
        body = self._parse(kind, data)
        assert isinstance(body, ChatBody)
        chat = read_chat(body, self._service.answer_format, self._service.tokenizer, cancelled.seconds)
        most = limits.tokens_counted(self._loaded.max_model_len)
        tokens = encode_within(
            self._service.tokenizer, chat.prompt, most, special=False, field=body.prompt_field, cancelled=cancelled
        )  # fmt: skip
        return len(tokens)

    def _parse(self, kind: Kind, data: bytearray) -> GenerationBody:
        with self._off_loop.parsing(data):
            body: GenerationBody = (
                parse_chat(kind, data) if issubclass(kind, CountBody) else parse_body(kind, data)
            )
        self._service.adapter_of(body.model)
        return body

    def prepare(self, kind: Kind, data: bytearray, arrived: float, cancelled: Turn) -> Prepared:
        """Everything after the body has arrived. Raises InvalidRequest, PromptTooLong, UnknownModel, Cancelled or TooSlow."""
        if cancelled.is_set():
            raise Cancelled
        body = self._parse(kind, data)
        tokenizer, loaded = self._service.tokenizer, self._loaded
        if isinstance(body, ChatBody):
            chat = read_chat(body, self._service.answer_format, tokenizer, cancelled.seconds)
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
            adapter=adapter.name if (adapter := self._service.adapter_of(body.model)) else "",
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

    def _encode(
        self, text: str, body: GenerationBody, *, special: bool, cancelled: threading.Event
    ) -> tuple[int, ...]:
        prompt = encode_within(
            self._service.tokenizer, text, self._loaded.max_model_len,
            special=special, field=body.prompt_field, cancelled=cancelled,
        )  # fmt: skip
        return self._truncate(prompt, body)
