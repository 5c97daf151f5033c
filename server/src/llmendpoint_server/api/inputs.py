"""Texts that get a vector each: tokenized within bounds, sent to the engine, and their vectors awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from llmendpoint_server import limits
from llmendpoint_server.api.answer import check
from llmendpoint_server.api.disconnect import unless_gone
from llmendpoint_server.api.encoding import SLICE_CHARACTERS, USUAL_CHARACTERS
from llmendpoint_server.api.interfaces import Tokenizer
from llmendpoint_server.api.off_loop import Cancelled
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.urgency import Urgency
from llmendpoint_server.core.pooling.request import Input, PoolingRequest
from llmendpoint_server.errors import InvalidRequest, RequestError
from llmendpoint_server.protocol import Loaded


class InputTooLong(InvalidRequest):
    code = "context_length_exceeded"

    def __init__(self, field: str, tokens: int, most: int) -> None:
        super().__init__(
            f"{field} has {tokens} tokens or more, and this model takes at most {most}: shorten it, or set "
            "truncate_prompt_tokens to -1 to cut it.",
            param=field,
        )


@dataclass(frozen=True)
class Asked:
    """One text, or a pair, and the name of its field for errors."""

    field: str
    text: str
    second: str | None = None


@dataclass(frozen=True)
class Tokenizing:
    """How texts become inputs. `cut`: tokens to which a longer text is cut; None: a longer one is refused."""

    tokenizer: Tokenizer
    loaded: Loaded
    cut: int | None = None
    special: bool = True

    def all(self, asked: Iterable[Asked | Input], cancelled: threading.Event) -> tuple[Input, ...]:
        """Raises InvalidRequest if they have too many tokens together, before all of them are tokenized."""
        found: list[Input] = []
        tokens = 0
        for one in asked:
            if cancelled.is_set():
                raise Cancelled
            found.append(self._checked("input", one) if isinstance(one, Input) else self._one(one))
            tokens += len(found[-1].tokens)
            if tokens > limits.INPUTS_TOKENS_MAX and len(found) > 1:
                raise InvalidRequest(
                    f"The texts have more than {limits.INPUTS_TOKENS_MAX} tokens together: send some of them in a request "
                    "of their own.",
                    param="input",
                )
        return tuple(found)

    def _one(self, asked: Asked) -> Input:
        most = self.loaded.max_model_len
        texts = [self._bounded(asked.field, text) for text in (asked.text, asked.second) if text is not None]
        return self._checked(
            asked.field,
            self.tokenizer.encode_input(
                *texts, most=min(self.cut, most) if self.cut else None, special=self.special
            ),
        )

    def _bounded(self, field: str, text: str) -> str:
        """The text, or if it is cut anyway a beginning that has enough tokens. A very long one is not tokenized as a whole; see
        `encode_within`."""
        most = self.loaded.max_model_len
        if len(text) <= max(SLICE_CHARACTERS, USUAL_CHARACTERS * most):
            return text
        counted = 0
        for number, start in enumerate(range(0, len(text), SLICE_CHARACTERS), 1):
            counted += len(
                self.tokenizer.encode(text[start : start + SLICE_CHARACTERS], add_special_tokens=False)
            )
            if counted > 2 * (most + number):
                if self.cut:
                    return text[: start + SLICE_CHARACTERS]
                raise InputTooLong(field, counted // 2, most)
        return text

    def _checked(self, field: str, one: Input) -> Input:
        tokens, most, size = one.tokens, self.loaded.max_model_len, self.loaded.vocab_size
        if not tokens:
            raise InvalidRequest(f"{field} has an empty text; send at least one token.", param=field)
        if self.cut and len(tokens) > self.cut:
            one = Input(tokens[: self.cut])
        elif len(tokens) > most:
            raise InputTooLong(field, len(tokens), most)
        if not 0 <= min(tokens) <= max(tokens) < size:
            raise InvalidRequest(f"{field} holds token ids outside 0 to {size - 1}.", param=field)
        return one


def read_cut(given: int | None, loaded: Loaded) -> int | None:
    """Tokens to which a longer text is cut, by `truncate_prompt_tokens`: -1 is the model's length. Raises InvalidRequest."""
    if given is None:
        return None
    most = loaded.max_model_len
    if given == -1:
        return most
    if not 1 <= given <= most:
        raise InvalidRequest(
            f"truncate_prompt_tokens must be a whole number from 1 to {most}, or -1 for {most}.",
            param="truncate_prompt_tokens",
        )
    return given


async def vectors_of(
    service: Service,
    request: Request,
    request_id: str,
    inputs: Sequence[Input],
    urgency: Urgency,
    arrived: float,
) -> list[bytes]:
    """The vectors, by the inputs' order. Raises RequestError, or ClientGone; then the engine computes no more of them."""
    record, metrics = request.state.record, service.metrics
    record.request_id, record.prompt_tokens = request_id, sum(len(one.tokens) for one in inputs)
    order = PoolingRequest(request_id, tuple(inputs), arrived, urgency.priority, urgency.deadline(arrived))
    stream = service.engine.submit_inputs(order)
    try:
        check(await unless_gone(request.receive, stream.next()), service.engine)
        record.finish = "stop"
        metrics.end_to_end.observe(time.monotonic() - arrived)
        return stream.vectors
    except RequestError:
        record.finish = "error"
        raise
    finally:
        stream.close()
        if record.finish != "error":
            record.finish = record.finish or "abort"
            metrics.count_finished(record.finish)
