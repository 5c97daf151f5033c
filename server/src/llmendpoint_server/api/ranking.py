"""`/v1/rerank` in the shape of Jina and Cohere, `/v1/score` in vLLM's: how well texts fit a text.

A model that scores reads each pair as one input. One that embeds makes a vector of each text, and the score is their
cosine.
"""

from __future__ import annotations

import threading
import time
import uuid
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from operator import mul
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server import limits
from llmendpoint_server.api.decoding import BodyDecoder, T, check_model
from llmendpoint_server.api.embeddings import INLINE_VALUES
from llmendpoint_server.api.explain import FORMS, missing
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

_TEXTS = f"a string, or a list of 1 to {limits.RANKED_MAX} strings"
_FORMS = {
    "model": FORMS["model"],
    "user": FORMS["user"],
    "query": "a string",
    "documents": f"a list of 1 to {limits.RANKED_MAX} strings, or for /v1/rerank of objects with text",
    "documents[].text": "a string",
    "top_n": "a whole number; 0 is all documents",
    "return_documents": "true or false",
    "truncate_prompt_tokens": "a whole number of 1 or more, or -1 for the model's length",
    **dict.fromkeys(("text_1", "text_2", "queries"), _TEXTS),
}
Model = Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)] | None
Cut = Annotated[int, Meta(ge=-1)] | None
User = Annotated[str, Meta(max_length=limits.CALLER_CHARACTERS_MAX)] | None
Texts = str | Annotated[list[str], Meta(min_length=1, max_length=limits.RANKED_MAX)] | None


class Document(Body):
    text: str


class RerankBody(Body):
    query: str
    documents: Annotated[list[str | Document], Meta(min_length=1, max_length=limits.RANKED_MAX)]
    model: Model = None
    top_n: Annotated[int, Meta(ge=0, le=limits.TOP_K_MAX)] | None = None
    return_documents: bool | None = None
    truncate_prompt_tokens: Cut = None
    user: User = None


class ScoreBody(Body):
    """`text_1` and `text_2`, or `queries` and `documents`: two names for the same."""

    model: Model = None
    text_1: Texts = None
    text_2: Texts = None
    queries: Texts = None
    documents: Texts = None
    truncate_prompt_tokens: Cut = None
    user: User = None


@dataclass(frozen=True)
class Prepared:
    """`pairs`: of a model that embeds, which two inputs make each score; empty for one that scores: an input is a pair."""

    inputs: tuple[Input, ...]
    pairs: tuple[tuple[int, int], ...]
    arrived: float
    show: Callable[[list[float], int], dict[str, Any]]
    """the answer, from the scores and the number of tokens"""

    @property
    def tokens(self) -> int:
        return sum(len(one.tokens) for one in self.inputs)


class Ranking:
    def __init__(self, service: Service, off_loop: OffLoop) -> None:
        self._service, self._off_loop = service, off_loop
        self._rerank_body = BodyDecoder(RerankBody, _FORMS)
        self._score_body = BodyDecoder(ScoreBody, _FORMS)

    async def rerank(self, request: Request) -> Response:
        return await self._rank(request, "rerank-", self._reranked)

    async def score(self, request: Request) -> Response:
        return await self._rank(request, "score-", self._scored)

    async def _rank(
        self, request: Request, prefix: str, prepare: Callable[[Loaded, bytearray, float, threading.Event], Prepared]
    ) -> Response:  # fmt: skip
        service, loaded = self._service, ready(self._service)
        urgency = read_urgency(request.headers, service.default_deadline_ms)
        asked = await self._off_loop.read(
            request, loaded.max_model_len, limits.BODY_VALUES_MAX, partial(prepare, loaded)
        )
        request_id = prefix + uuid.uuid4().hex
        vectors = await vectors_of(service, request, request_id, asked.inputs, urgency, asked.arrived)
        write = partial(self._answer, request_id, asked, vectors)
        if sum(map(len, vectors)) <= 4 * INLINE_VALUES:
            return write(threading.Event())
        return await self._off_loop.run(write)

    def _answer(
        self, request_id: str, asked: Prepared, vectors: list[bytes], cancelled: threading.Event
    ) -> Response:
        head = {"id": request_id, "model": self._service.served_names[0], "created": int(time.time())}
        content = asked.show(scores_of(vectors, asked.pairs), asked.tokens)
        return Response(encode_json(head | content), media_type="application/json")

    def _decoded(self, decoder: BodyDecoder[T], data: bytearray) -> T:
        with self._off_loop.parsing(data):
            return decoder.decode(data)

    def _reranked(
        self, loaded: Loaded, data: bytearray, arrived: float, cancelled: threading.Event
    ) -> Prepared:
        body = self._decoded(self._rerank_body, data)
        check_model(body.model, self._service.served_names)
        texts = [one if isinstance(one, str) else one.text for one in body.documents]
        inputs, pairs = self._inputs(
            loaded, body.truncate_prompt_tokens, ("query", [body.query]), ("documents", texts), cancelled
        )
        shown = texts if body.return_documents is not False else None
        return Prepared(inputs, pairs, arrived, partial(ranked, shown, body.top_n or len(texts)))

    def _scored(
        self, loaded: Loaded, data: bytearray, arrived: float, cancelled: threading.Event
    ) -> Prepared:
        body = self._decoded(self._score_body, data)
        check_model(body.model, self._service.served_names)
        first, second = _given(body)
        inputs, pairs = self._inputs(loaded, body.truncate_prompt_tokens, first, second, cancelled)
        return Prepared(inputs, pairs, arrived, scored)

    def _inputs(
        self,
        loaded: Loaded,
        cut: int | None,
        first: tuple[str, list[str]],
        second: tuple[str, list[str]],
        cancelled: threading.Event,
    ) -> tuple[tuple[Input, ...], tuple[tuple[int, int], ...]]:
        """The inputs, and which two of them make each score. `first`, `second`: the field's name, and its texts. One text of the
        first goes with all of the second."""
        (name, ones), (field, others) = first, second
        if len(ones) not in (1, len(others)):
            raise InvalidRequest(
                f"{name} holds {len(ones)} texts and {field} {len(others)}; send as many of both, or one in {name}.",
                param=name,
            )
        how = Tokenizing(self._service.tokenizer, loaded, read_cut(cut, loaded), field=field)
        if loaded.task == "score":
            asked = [Asked(f"{field}[{at}]", ones[at % len(ones)], text) for at, text in enumerate(others)]
            return how.all(asked, cancelled), ()
        if (len(ones) + len(others)) * loaded.dimensions > limits.VECTOR_VALUES_MAX:
            most = limits.VECTOR_VALUES_MAX // loaded.dimensions // 2
            raise InvalidRequest(
                f"{field} holds {len(others)} texts; this model takes at most {most}.", param=field
            )
        asked = [Asked(f"{name}[{at}]" if len(ones) > 1 else name, text) for at, text in enumerate(ones)]
        asked += [Asked(f"{field}[{at}]", text) for at, text in enumerate(others)]
        pairs = tuple((at % len(ones), len(ones) + at) for at in range(len(others)))
        return how.all(asked, cancelled), pairs


def _given(body: ScoreBody) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
    names = (
        ("text_1", "text_2") if body.queries is None and body.documents is None else ("queries", "documents")
    )
    mixed = [name for name in ("text_1", "text_2") if name not in names and getattr(body, name) is not None]
    if mixed:
        raise InvalidRequest(
            f"{mixed[0]} and {names[0]} are two names for the same; send one of them.", param=mixed[0]
        )
    found = []
    for name in names:
        texts = getattr(body, name)
        if texts is None:
            raise missing(name)
        found.append((name, [texts] if isinstance(texts, str) else texts))
    return found[0], found[1]


def scores_of(vectors: Sequence[bytes], pairs: Sequence[tuple[int, int]]) -> list[float]:
    if not pairs:
        return [array("f", vector)[0] for vector in vectors]
    numbers = [array("f", vector) for vector in vectors]
    lengths = [sqrt(sum(map(mul, vector, vector))) or 1.0 for vector in numbers]
    return [
        sum(map(mul, numbers[one], numbers[other])) / (lengths[one] * lengths[other]) for one, other in pairs
    ]


def ranked(texts: Sequence[str] | None, most: int, scores: list[float], tokens: int) -> dict[str, Any]:
    """The best first; of equal scores the first document."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[:most]
    results = [
        {"index": at, "relevance_score": scores[at]} | ({} if texts is None else {"document": {"text": texts[at]}})
        for at in order
    ]  # fmt: skip
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}, "results": results}


def scored(scores: list[float], tokens: int) -> dict[str, Any]:
    data = [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)]
    return {"object": "list", "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
