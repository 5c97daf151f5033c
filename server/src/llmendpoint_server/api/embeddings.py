"""`/v1/embeddings`: texts to vectors, in OpenAI's shape."""

from __future__ import annotations

import threading
import time
import uuid
from array import array
from binascii import b2a_base64
from dataclasses import dataclass
from functools import partial
from math import hypot
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server import limits
from llmendpoint_server.api.decoding import BodyDecoder, check_model
from llmendpoint_server.api.explain import FORMS, must_be
from llmendpoint_server.api.fields import Body
from llmendpoint_server.api.inputs import Asked, Tokenizing, read_cut, vectors_of
from llmendpoint_server.api.off_loop import OffLoop
from llmendpoint_server.api.responses import encode_json
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.tasks import ready
from llmendpoint_server.api.urgency import read_urgency
from llmendpoint_server.core.pooling.request import Input
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.protocol import Loaded

_FORMS = {
    "model": FORMS["model"],
    "user": FORMS["user"],
    "input": f"a string, a list of token ids (whole numbers), or a list of at most {limits.INPUTS_MAX} strings or lists of "
    "token ids",
    "encoding_format": "'float' or 'base64'",
    "dimensions": "a whole number of 1 or more",
    "truncate_prompt_tokens": "a whole number of 1 or more, or -1 for the model's length",
    "add_special_tokens": "true or false",
}
INLINE_VALUES = 4096
"""An answer of so many numbers is written in the event loop; it takes about a millisecond."""


class EmbeddingBody(Body):
    model: Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)]
    input: str | list[int | str | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    add_special_tokens: bool | None = None
    user: Annotated[str, Meta(max_length=limits.CALLER_CHARACTERS_MAX)] | None = None


@dataclass(frozen=True)
class Prepared:
    inputs: tuple[Input, ...]
    arrived: float
    dimensions: int | None
    base64: bool


class Embeddings:
    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service, self._off_loop = service, off_loop
        self._body = BodyDecoder(EmbeddingBody, _FORMS)

    async def create(self, request: Request) -> Response:
        service, loaded = self._service, ready(self._service)
        urgency = read_urgency(request.headers, service.default_deadline_ms)
        values = limits.BODY_VALUES_MAX + limits.INPUTS_TOKENS_MAX
        asked = await self._off_loop.read(
            request, loaded.max_model_len, values, partial(self._prepared, loaded)
        )
        request_id = "embd-" + uuid.uuid4().hex
        vectors = await vectors_of(service, request, request_id, asked.inputs, urgency, asked.arrived)
        write = partial(self._answer, request_id, asked, vectors)
        if sum(map(len, vectors)) <= 4 * INLINE_VALUES:
            return write(threading.Event())
        return await self._off_loop.run(write)

    def _prepared(
        self, loaded: Loaded, data: bytearray, arrived: float, cancelled: threading.Event
    ) -> Prepared:
        with self._off_loop.parsing(data):
            body = self._body.decode(data)
        check_model(body.model, self._service.served_names)
        given = _texts(body.input)
        size = _dimensions(body.dimensions, loaded)
        if len(given) * loaded.dimensions > limits.VECTOR_VALUES_MAX:
            raise InvalidRequest(
                f"input holds {len(given)} texts; with {loaded.dimensions} numbers for each this model takes at most "
                f"{limits.VECTOR_VALUES_MAX // loaded.dimensions}.",
                param="input",
            )
        special = body.add_special_tokens is not False
        how = Tokenizing(
            self._service.tokenizer, loaded, read_cut(body.truncate_prompt_tokens, loaded), special
        )
        return Prepared(how.all(given, cancelled), arrived, size, body.encoding_format == "base64")

    def _answer(
        self, request_id: str, asked: Prepared, vectors: list[bytes], cancelled: threading.Event
    ) -> Response:
        """Each vector is encoded by itself: a call that encodes all holds Python's lock for as long."""
        data = b",".join(
            b'{"object":"embedding","index":%d,"embedding":%b}'
            % (at, _shown(vector, asked.dimensions, asked.base64))
            for at, vector in enumerate(vectors)
            if not cancelled.is_set()
        )
        tokens = sum(len(one.tokens) for one in asked.inputs)
        head: dict[str, Any] = {
            "id": request_id, "object": "list", "created": int(time.time()), "model": self._service.served_names[0],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }  # fmt: skip
        body = b'%b,"data":[%b]}' % (encode_json(head)[:-1], data)
        return Response(body, media_type="application/json")


def _texts(given: str | list[Any]) -> list[Asked | Input]:
    """Raises InvalidRequest for none, too many, or a mixture."""
    if isinstance(given, str):
        return [Asked("input", given)]
    kinds = set(map(type, given))
    if kinds == {int}:
        return [Input(tuple(given))]
    if len(kinds) != 1 or len(given) > limits.INPUTS_MAX:
        raise must_be("input", _FORMS)
    if kinds == {str}:
        return [Asked(f"input[{at}]" if len(given) > 1 else "input", text) for at, text in enumerate(given)]
    return [Input(tuple(tokens)) for tokens in given]


def _dimensions(wanted: int | None, loaded: Loaded) -> int | None:
    """How many numbers of a vector are sent; None: all. Raises InvalidRequest."""
    if wanted is None or wanted == loaded.dimensions:
        return None
    if loaded.cuts is None:
        raise InvalidRequest(
            f"dimensions must be {loaded.dimensions} or left out: this model was not trained to be cut (its config.json has "
            "neither is_matryoshka nor matryoshka_dimensions).",
            param="dimensions",
        )
    if loaded.cuts and wanted not in loaded.cuts:
        allowed = ", ".join(map(str, loaded.cuts[:32]))
        raise InvalidRequest(f"dimensions must be one of {allowed} for this model.", param="dimensions")
    if wanted > loaded.dimensions:
        raise InvalidRequest(
            f"dimensions must be a whole number from 1 to {loaded.dimensions} for this model.",
            param="dimensions",
        )
    return wanted


def _shown(vector: bytes, dimensions: int | None, base64: bool) -> bytes:
    if dimensions is not None:
        vector = cut(vector, dimensions)
    if base64:
        return b'"%b"' % b2a_base64(vector, newline=False)
    return encode_json(array("f", vector).tolist())


def cut(vector: bytes, dimensions: int) -> bytes:
    """The first numbers of a vector, with length 1."""
    values = array("f", vector[: 4 * dimensions])
    length = hypot(*values) or 1.0
    return array("f", [value / length for value in values]).tobytes()
