"""Answers in the shape of the Responses API: whole, and as the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server.api.openai_responses.output import Event, Output
from llmendpoint_server.api.openai_responses.translation import renamed
from llmendpoint_server.api.pieces import Piece, Whole
from llmendpoint_server.api.responses import Usage, encode_json
from llmendpoint_server.api.tasks import Handler
from llmendpoint_server.api.view import View
from llmendpoint_server.errors import RequestError

PREFIX = "resp_"
FAILURES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""`error.code` of a response, by the status that the error would have had before the stream. Another one is a `server_error`."""


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ResponseShape:
    def __init__(self, request_id: str, created: int, model: str, view: View) -> None:
        self._head: dict[str, Any] = {
            "id": request_id,
            "object": "response",
            "created_at": created,
            "model": model,
        }
        self._view = view

    def output(self) -> Output:
        view = self._view
        return Output(str(self._head["id"]).removeprefix(PREFIX), view.namer if view.logprobs else None)

    def response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {
            **self._head, "status": status, "completed_at": None, "error": None, "incomplete_details": None, "output": [],
            "usage": None, **self._view.repeated, **fields,
        }  # fmt: skip

    def ended(self, reason: str, output: Output, usage: Usage) -> dict[str, Any]:
        made: dict[str, Any] = {"output": output.items, "usage": usage_of(usage)}
        if reason == "length":
            return self.response("incomplete", incomplete_details={"reason": "max_output_tokens"}, **made)
        return self.response("completed", completed_at=int(time.time()), **made)

    def whole(self, answers: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        [answer] = answers
        output = self.output()
        for piece in answer.pieces():
            for _ in output.take(piece):  # the events are a stream's
                pass
        return self.ended(answer.reason, output, usage)

    def events(self, usage: Usage, answers: int) -> ResponseEvents:
        return ResponseEvents(self, usage)


class ResponseEvents:
    """The server-sent events of one streamed response, numbered from 0."""

    def __init__(self, shape: ResponseShape, usage: Usage) -> None:
        self._shape, self._usage = shape, usage
        self._output = shape.output()
        self._number = 0
        self._rest: tuple[int, bytes, bytes] = -1, b"", b""
        """the place of the message that grows, and what its deltas have before and after their text, encoded once"""

    def piece(self, piece: Piece) -> bytes:
        if (text := self._output.more(piece)) is not None:
            return self._more(text)
        events = [*self._begin(), *self._output.take(piece)]
        if piece.reason is not None:
            response = self._shape.ended(piece.reason, self._output, self._usage)
            events.append((f"response.{response['status']}", {"response": response}))
        return self._encode(events)

    def error(self, error: RequestError) -> bytes:
        code = FAILURES.get(error.status, "server_error")
        failure = {"code": code, "message": error.message}
        begun, rest = [*self._begin()], [*self._output.close()]
        response = self._shape.response(
            "failed", error=failure, output=self._output.items, usage=usage_of(self._usage)
        )
        told = {"code": error.code, "message": error.message, "param": error.param}
        return self._encode([*begun, *rest, ("error", told), ("response.failed", {"response": response})])

    def _begin(self) -> Iterable[Event]:
        if self._number:
            return ()
        response = self._shape.response("in_progress")
        return [(name, {"response": response}) for name in ("response.created", "response.in_progress")]

    def _more(self, text: str) -> bytes:
        """As `_event`: nearly all events are these."""
        if self._rest[0] != self._output.place:
            before, _, after = self._event(self._output.delta("\0")).rpartition(encode_json("\0"))
            after = after.removesuffix(b"%d}\n\n" % (self._number - 1))
            self._number -= 1
            self._rest = self._output.place, before, after
        self._number += 1
        return b"%b%b%b%d}\n\n" % (self._rest[1], encode_json(text), self._rest[2], self._number - 1)

    def _encode(self, events: Iterable[Event]) -> bytes:
        return b"".join(map(self._event, events))

    def _event(self, event: Event) -> bytes:
        name, fields = event
        data = {"type": name, **fields, "sequence_number": self._number}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_json(data))


def with_its_names(handler: Handler) -> Handler:
    """`handler`, with errors that name the fields of the Responses API instead of a chat's."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            raise renamed(error) from None

    return handle
