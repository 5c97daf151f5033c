"""`/tokenize` and `/detokenize`: text or chat to token ids and back, in vLLM's shape. The engine is not asked."""

from __future__ import annotations

import threading
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server import limits
from llmendpoint_server.api.chat import read_chat
from llmendpoint_server.api.decoding import BodyDecoder
from llmendpoint_server.api.encoding import encode_within
from llmendpoint_server.api.explain import FORMS, missing
from llmendpoint_server.api.fields import NOT_GIVEN, Body
from llmendpoint_server.api.messages import Message
from llmendpoint_server.api.off_loop import OffLoop, Turn
from llmendpoint_server.api.responses import json_response
from llmendpoint_server.api.schemas import ChatBody
from llmendpoint_server.api.service import Service
from llmendpoint_server.errors import InvalidRequest, PromptTooLong, Unavailable
from llmendpoint_server.protocol import Loaded

_FLAG = "true or false"
_FORMS = {place: form for place, form in FORMS.items() if place.startswith(("model", "messages"))} | {
    "prompt": "a string",
    "add_special_tokens": _FLAG,
    "add_generation_prompt": _FLAG,
    "continue_final_message": _FLAG,
    "return_token_strs": _FLAG,
    "tokens": "a list of token ids (whole numbers)",
}
ModelName = Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)] | None


OF_A_CHAT = ("messages", "add_generation_prompt", "continue_final_message", "tools", "chat_template_kwargs")


class TokenizeBody(Body):
    """`prompt` or `messages`. None: not given."""

    model: ModelName = None
    prompt: str | UnsetType = UNSET
    messages: Annotated[list[Message], Meta(min_length=1, max_length=limits.MESSAGES_MAX)] | UnsetType = UNSET
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: Raw = NOT_GIVEN
    chat_template_kwargs: Raw = NOT_GIVEN
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    tokens: list[int]
    model: ModelName = None


class Tokenization:
    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service, self._off_loop = service, off_loop
        self._tokenize_body = BodyDecoder(TokenizeBody, _FORMS)
        self._detokenize_body = BodyDecoder(DetokenizeBody, _FORMS)

    async def tokenize(self, request: Request) -> Response:
        loaded = self._loaded()
        most = limits.BODY_VALUES_MAX
        return await self._off_loop.read(
            request, loaded.max_model_len, most, partial(self._tokenized, loaded)
        )

    async def detokenize(self, request: Request) -> Response:
        loaded = self._loaded()
        most = limits.BODY_VALUES_MAX + limits.tokens_counted(loaded.max_model_len)
        return await self._off_loop.read(request, loaded.max_model_len, most, partial(self._text, loaded))

    def _loaded(self) -> Loaded:
        engine = self._service.engine
        if engine.loaded is None:
            raise Unavailable(f"This replica is {engine.state}: {engine.detail}. Try again.", retry_after=1.0)
        return engine.loaded

    def _check_model(self, name: str | None) -> None:
        """An adapter has the tokens of its model."""
        if name is not None:
            self._service.adapter_of(name)

    def _tokenized(self, loaded: Loaded, data: bytearray, _: float, cancelled: Turn) -> Response:
        with self._off_loop.parsing(data):
            body = self._tokenize_body.decode(data)
        self._check_model(body.model)
        text, field, special = self._source(body, cancelled.seconds)
        if body.add_special_tokens is not None:
            special = body.add_special_tokens
        most, tokenizer = limits.tokens_counted(loaded.max_model_len), self._service.tokenizer
        try:
            tokens = encode_within(tokenizer, text, most, special=special, field=field, cancelled=cancelled)
        except PromptTooLong:
            raise _too_many(field, most) from None
        if len(tokens) > most:
            raise _too_many(field, most)
        return json_response({
            "count": len(tokens),
            "max_model_len": loaded.max_model_len,
            "tokens": tokens,
            "token_strs": tokenizer.names(tokens) if body.return_token_strs else None,
        })  # fmt: skip

    def _source(self, body: TokenizeBody, seconds: float) -> tuple[str, str, bool]:
        """The text, the field that it is from, and whether it gets special tokens: a template writes its own."""
        prompt, messages = body.prompt, body.messages
        if isinstance(prompt, str):
            for name in OF_A_CHAT:
                if getattr(body, name) not in (None, UNSET, NOT_GIVEN):
                    raise InvalidRequest(
                        f"{name} is for a chat, and prompt is a text; send one of them.", param=name
                    )
            return prompt, "prompt", True
        if messages is UNSET:
            raise missing("prompt")
        assert isinstance(messages, list)
        chat = ChatBody(
            model="",
            messages=messages,
            tools=body.tools,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            chat_template_kwargs=body.chat_template_kwargs,
        )
        service = self._service
        return read_chat(chat, service.answer_format, service.tokenizer, seconds).prompt, "messages", False

    def _text(self, loaded: Loaded, data: bytearray, _: float, cancelled: threading.Event) -> Response:
        with self._off_loop.parsing(data):
            body = self._detokenize_body.decode(data)
        self._check_model(body.model)
        tokens, most = body.tokens, limits.tokens_counted(loaded.max_model_len)
        if len(tokens) > most:
            raise InvalidRequest(f"tokens holds {len(tokens)} ids; it takes at most {most}.", param="tokens")
        if tokens and not 0 <= min(tokens) <= max(tokens) < loaded.vocab_size:
            raise InvalidRequest(
                f"tokens holds token ids outside 0 to {loaded.vocab_size - 1}.", param="tokens"
            )
        return json_response({"prompt": self._service.tokenizer.decode(tokens, skip_special_tokens=False)})


def _too_many(field: str, most: int) -> InvalidRequest:
    return InvalidRequest(
        f"{field} has more than {most} tokens, the most that are counted in one request for this model: send it in parts.",
        param=field,
    )
